"""What the operator library offers for one op of the layer: calls on the op's operands and results, written before
anything is decided, so that offers can be priced and declined. A rule is

    @offers("swiglu")
    def swiglu(o: Offer) -> None:
        if o.node.attrs["activation"] != "silu":
            raise NotOffered("aclnnSwiGlu is silu only")
        o.call("aclnnSwiGlu", "8.1.RC1", results=("out",), x=o.operand(0), dim=int64(-1), out=o.result(0))
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from moec.codegen.lower.base import Lowering, device_dtype, node_name
from moec.codegen.operator_call import Argument, Number, OperatorCall, View, Views
from moec.codegen.program import Memset
from moec.ir.data import TensorData
from moec.ir.graph import Module, Node, Value
from moec.ir.symbol import Dim

FAMILIES = ("attention", "norms", "products", "routing", "rows")
"""Modules of this package that hold rules."""

READ = "8.1.RC1"
"""The toolkit whose public headers the calls were written from, and the oldest one that they are known to be in."""


class NotOffered(Exception):
    """The library has no call for this node; the text says why."""


def int64(value: Dim) -> Number:
    return Number("int64_t", value)


def double(value: float) -> Number:
    return Number("double", float(value))


def boolean(value: bool) -> Number:
    return Number("bool", value)


def data_type(name: str) -> Number:
    """An enumerator, as ACL_INT64."""
    return Number("aclDataType", name)


class Offer:
    """Calls for ``node``, of ``module``, on tensors that do not have names in the program yet."""

    def __init__(self, node: Node, module: Module):
        self.node, self.module = node, module
        self.steps: list[OperatorCall | Memset | Callable[[Lowering], None]] = []
        self.zeroed: list[View] = []
        self._names: dict[str, Callable[[Lowering], str]] = {}
        self._forms: dict[str, Value] = {}

    # -- tensors

    def operand(self, index: int, shape: Sequence[Dim] | None = None, strides: Sequence[Dim] = ()) -> View:
        """Operand ``index``, seen as ``shape`` with ``strides`` where those are given."""
        value = self.node.operand(index)
        return self._value(f"in{index}", value, lambda cx: cx.tensor(value), shape, strides)

    def result(self, index: int, shape: Sequence[Dim] | None = None) -> View:
        """Result ``index``."""
        value = self.node.results[index]
        return self._value(f"out{index}", value, lambda cx: cx.result(self.node, index), shape, ())

    def _value(
        self,
        name: str,
        value: Value,
        find: Callable[[Lowering], str],
        shape: Sequence[Dim] | None,
        strides: Sequence[Dim],
    ) -> View:
        self._names[name] = find
        dtype = "bool" if value.type.dtype.name == "bool" else device_dtype(value.type.dtype)
        return View(name, dtype, tuple(value.type.dims if shape is None else shape), tuple(strides))

    def scratch(self, name: str, dtype: str, shape: Sequence[Dim]) -> View:
        """A temporary of the call's own."""
        self._names[name] = lambda cx: cx.scratch(name, dtype, shape)
        return View(name, dtype, tuple(shape))

    def form(self, name: str, of: Value, dtype: str) -> View:
        """``of`` in another dtype, which a call of this offer writes; made once a program however many want it."""
        self._forms[name] = of
        return self.scratch(name, dtype, of.type.dims)

    def table(self, name: str, data: TensorData) -> View:
        """A constant that the call reads; one buffer a program."""
        self._names[name] = lambda cx: cx.table(name, data)
        return View(name, "bool" if data.dtype.name == "bool" else device_dtype(data.dtype), data.shape)

    # -- steps

    def zero(self, view: View) -> None:
        """Fill with zero bytes."""
        self.steps.append(Memset(view.tensor))
        self.zeroed.append(view)

    def call(self, function: str, since: str = READ, /, *, results: Sequence[str], **arguments: Argument) -> None:
        """A call; ``arguments`` in the order of the vendor's parameters."""
        header = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", function).lower()
        given = tuple(arguments.items())
        self.steps.append(
            OperatorCall(function, given, tuple(results), f"aclnnop/{header}.h", since, (node_name(self.node),))
        )

    def kernel(self, lower: Callable[[Lowering], None]) -> None:
        """A kernel of moec's for the part that the library leaves out."""
        self.steps.append(lower)

    @property
    def calls(self) -> list[OperatorCall]:
        return [s for s in self.steps if isinstance(s, OperatorCall)]

    def take(self, cx: Lowering) -> None:
        """Put the steps into the program."""
        there = {n: cx.forms[n, of] for n, of in self._forms.items() if (n, of) in cx.forms}
        found = {name: there[name] if name in there else find(cx) for name, find in self._names.items()}
        cx.forms.update({(n, of): found[n] for n, of in self._forms.items()})
        for step in self.steps:
            if isinstance(step, OperatorCall):
                if {v.tensor for n, v in step.views() if n in step.results} <= there.keys():
                    continue
                cx.steps.append(replace(step, arguments=tuple((n, _named(a, found)) for n, a in step.arguments)))
            elif isinstance(step, Memset):
                cx.memset(found[step.tensor])
            else:
                step(cx)


def _named(argument: Argument, names: dict[str, str]) -> Argument:
    if isinstance(argument, View):
        return replace(argument, tensor=names[argument.tensor])
    if isinstance(argument, Views):
        return Views(tuple(replace(v, tensor=names[v.tensor]) for v in argument.items))
    return argument


Rule = Callable[[Offer], None]
RULES: dict[str, Rule] = {}


def offers(op: str) -> Callable[[Rule], Rule]:
    """Registers the rule for ``op``."""

    def register(rule: Rule) -> Rule:
        if op in RULES:
            raise ValueError(f"op {op} has two offers")
        RULES[op] = rule
        return rule

    return register


def offer(node: Node, module: Module) -> Offer:
    """What the library has for ``node``; NotOffered with the reason where that is nothing."""
    for family in FAMILIES:
        importlib.import_module(f"moec.targets.ascend.aclnn.{family}")
    if node.op not in RULES:
        raise NotOffered(f"the library has no call for {node.op}")
    made = Offer(node, module)
    RULES[node.op](made)
    return made


FLOATS = ("f32", "f16", "bf16")


def floats(node: Node, *dtypes: str) -> str:
    """The one floating dtype of ``dtypes``; NotOffered where they differ or it is none that the library takes."""
    if len(set(dtypes)) > 1 or dtypes[0] not in FLOATS:
        raise NotOffered(f"{node.op} of {', '.join(sorted(set(dtypes)))}: the library takes one of {', '.join(FLOATS)}")
    return dtypes[0]

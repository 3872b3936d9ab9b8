"""Tensors that do not depend on inputs: weights and constants, and layout changes of them, as references that nothing
reads yet."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import numpy as np

from moec.ir.data import TensorData, derive
from moec.ir.graph import Graph, Module, Node, Value
from moec.ir.types import DType
from moec.ops.build import Builder
from moec.passes.recover_moe.axes import feature, regrouped, repeated
from moec.passes.recover_moe.contents import Abstract, Iota, Number, Zero

READ_LIMIT = 1 << 16
"""Constants of more elements than this are not looked into."""


class Ref:
    """A weight or a layout change of one: its shape now, its contents where the model has them, and how to build it
    as nodes."""

    __slots__ = ("shape", "dtype", "data", "value", "how", "parts", "params")

    def __init__(self, shape: tuple[int, ...], dtype: DType, data: TensorData | None, value: Value | None = None):
        self.shape, self.dtype, self.data, self.value = shape, dtype, data, value
        self.how = ""
        self.parts: tuple[Ref, ...] = ()
        self.params: dict[str, Any] = {}

    def build(self, b: Builder, name: str) -> Value:
        """The tensor as a value: a weight of that name where its contents are known, else the layout change as nodes.

        A weight without contents keeps its own name and, in its own graph, its node.
        """
        made: Value
        if self.data is not None:
            made = b.weight(name=name, dtype=self.dtype, shape=self.shape, data=self.data)
        elif self.value is not None:
            made = self._leaf(b, self.value)
        else:
            parts = [p.build(b, f"{name}.{i}") for i, p in enumerate(self.parts)]
            if self.how == "stack":
                parts = [b.reshape(p, shape=(1, *p.type.dims)) for p in parts]
            made = getattr(b, _OPS[self.how])(*parts, **({"axis": 0} if self.how == "stack" else self.params))
        return made

    def _leaf(self, b: Builder, value: Value) -> Value:
        """A weight without contents, or a parameter of a function; in another graph, a weight that stands for it."""
        node = value.producer
        if node is None:
            here = value.index < len(b.graph.inputs) and b.graph.inputs[value.index] is value
            name = stand_in(value)
            return value if here else b.weight(name=name, dtype=self.dtype, shape=self.shape, data=None)
        same: Value = value if node.graph is b.graph else b.weight(**node.attrs)
        return same


def stand_in(parameter: Value) -> str:
    """The name of the weight that stands for a function's parameter where the function is evaluated in part."""
    return f"parameter {parameter.index} {parameter.name}"


_OPS = {"stack": "concat", "concat": "concat", "transpose": "transpose", "reshape": "reshape", "slice": "slice"}


def changed(how: str, *parts: Ref, **params: Any) -> Ref:
    """A layout change of references, as ``moec.ir.data.derive`` knows them."""
    if how == "transpose" and params["perm"] == tuple(range(len(params["perm"]))):
        return parts[0]
    first = parts[0]
    if all(p.data is not None for p in parts):
        data = derive(how, [p.data for p in parts if p.data is not None], **params)
        return Ref(data.shape, first.dtype, data)
    made = Ref(_shape(how, parts, params), first.dtype, None)
    made.how, made.parts, made.params = how, parts, params
    return made


def _shape(how: str, parts: tuple[Ref, ...], params: dict[str, Any]) -> tuple[int, ...]:
    first = parts[0].shape
    if how == "stack":
        return (len(parts), *first)
    if how == "concat":
        axis = params["axis"]
        return (*first[:axis], sum(p.shape[axis] for p in parts), *first[axis + 1 :])
    if how == "transpose":
        return tuple(first[i] for i in params["perm"])
    if how == "slice":
        axis = params["axis"]
        return (*first[:axis], len(range(params["start"], params["stop"], params["step"])), *first[axis + 1 :])
    return tuple(params["shape"])


def flipped(ref: Ref) -> Ref:
    """The last two dimensions exchanged."""
    rank = len(ref.shape)
    return changed("transpose", ref, perm=(*range(rank - 2), rank - 1, rank - 2))


def weight_inputs(graph: Graph) -> set[Value]:
    """The inputs of ``graph`` that are read as weights only, as where a training step is given them."""
    return {v for v in graph.inputs if _could_be_weight(v) and _read_as_weight(v)}


def _could_be_weight(value: Value) -> bool:
    shape = value.type.shape
    return value.type.dtype.is_float and shape is not None and all(isinstance(d, int) for d in shape)


def _read_as_weight(value: Value) -> bool:
    """Whether every reader multiplies by it or picks from it; one of rank 1 may be added as well."""
    if not value.uses:
        return False
    for user in value.uses:
        if user.op in ("reshape", "transpose") and _read_as_weight(user.result):
            continue
        at = [j for j, v in enumerate(user.operands) if v is value]
        if user.op not in _WEIGHT_OPERANDS or not _WEIGHT_OPERANDS[user.op].issuperset(at):
            return False
        if user.op == "add" and value.type.rank != 1:
            return False
    return True


_WEIGHT_OPERANDS = {
    "matmul": frozenset((1,)),
    "grouped_matmul": frozenset((1, 3)),
    "gather": frozenset((0,)),
    "gather_nd": frozenset((0,)),
    "add": frozenset((0, 1)),
}
"""Operands that stand for weights, by op."""


def weight_parameters(module: Module) -> set[Value]:
    """The parameters of functions that are weights at every call, and the inputs of the module that are."""
    called: dict[Value, bool] = dict.fromkeys(weight_inputs(module.main), True)
    for node in module.nodes():
        if node.op == "call":
            for parameter, given in zip(module.functions[node.attrs["fn"]].inputs, node.operands, strict=True):
                weight = given is not None and given.producer is not None and given.producer.op == "weight"
                called[parameter] = called.get(parameter, True) and weight
    return {parameter for parameter, weight in called.items() if weight}


class Statics:
    """References and constant contents of one graph's values, worked out when asked for.

    ``parameters`` are the inputs of its function that stand for weights at every call.
    """

    def __init__(self, parameters: Set[Value] = frozenset()) -> None:
        self.parameters = parameters
        self._refs: dict[Value, Ref | None] = {}

    def ref(self, value: Value) -> Ref | None:
        """The reference that ``value`` is; None where it depends on inputs or is changed by more than layout."""
        if value not in self._refs:
            self._refs[value] = self._find(value)
        return self._refs[value]

    def _find(self, value: Value) -> Ref | None:
        node = value.producer
        if node is None:
            shape = [d for d in value.type.shape or () if isinstance(d, int)]
            return Ref(tuple(shape), value.type.dtype, None, value) if value in self.parameters else None
        if node.op == "weight":
            return Ref(node.attrs["shape"], node.attrs["dtype"], node.attrs["data"], value)
        if node.op == "constant":
            data = node.attrs["value"]
            return Ref(data.shape, data.dtype, data, value)
        if node.op == "gather":
            return self._entry(node)
        if node.op not in ("reshape", "transpose", "slice", "concat"):
            return None
        parts = [None if v is None else self.ref(v) for v in node.operands]
        if None in parts or any(not isinstance(d, int) for d in value.type.dims):
            return None
        return changed(node.op, *[p for p in parts if p is not None], **node.attrs)

    def _entry(self, node: Node) -> Ref | None:
        """One entry of a stack, at a constant position."""
        index = node.operand(1).producer
        whole = self.ref(node.operand(0))
        if whole is None or index is None or index.op != "constant" or node.attrs["axis"] != 0:
            return None
        data = index.attrs["value"]
        if data.shape != () or not whole.shape:
            return None
        at = int(data.numpy()) % whole.shape[0]
        part = changed("slice", whole, axis=0, start=at, stop=at + 1, step=1)
        return changed("reshape", part, shape=whole.shape[1:])

    def _counts(self, node: Node) -> bool:
        """Whether it is a layout of 0, 1, 2, ..."""
        above: Node | None = node
        while above is not None and above.op in ("reshape", "expand"):
            above = above.operand(0).producer
        return above is not None and above.op == "iota"

    def _moved(self, node: Node) -> Abstract | None:
        inner = self.abstract(node.operand(0))
        if inner is None:
            return None
        old, new = node.operand(0).type.dims, node.attrs["shape"]
        if node.op == "reshape":
            axes = regrouped(inner.axes, old, new)
            return None if axes is None else Abstract(axes, inner.content)
        lead = len(new) - len(old)
        kept = [a if x == y else repeated(y) for a, x, y in zip(inner.axes, old, new[lead:], strict=True)]
        return Abstract((*map(repeated, new[:lead]), *kept), inner.content)

    def abstract(self, value: Value) -> Abstract | None:
        """Its constant meaning: a number, zeros, 0, 1, 2, ..., or a weight; None where it is not constant."""
        node = value.producer
        if node is not None and node.op in ("reshape", "expand") and self._counts(node):
            return self._moved(node)
        if node is not None and node.op == "expand":
            inner = self.abstract(node.operand(0))
            if inner is not None and isinstance(inner.content, Zero | Number):
                zero = isinstance(inner.content, Zero) or inner.content.value == 0
                axis = feature if zero else repeated
                return Abstract(tuple(map(axis, value.type.dims)), Zero() if zero else inner.content)
            return None
        if node is not None and node.op == "iota":
            return Abstract((feature(node.attrs["size"]),), Iota())
        ref = self.ref(value)
        if ref is None:
            return None
        axes = tuple(feature(d) for d in ref.shape)
        if ref.data is None or ref.data.size > READ_LIMIT:
            return Abstract(axes, ref)
        array = ref.data.numpy()
        if array.size == 1:
            return Abstract(((),) * array.ndim, Number(array.ravel()[0].item()))
        if not np.any(array):
            return Abstract(axes, Zero())
        if np.all(array == array.flat[0]):
            return Abstract(tuple(map(repeated, ref.shape)), Number(array.flat[0].item()))
        if array.ndim == 1 and array.dtype.kind in "iu" and np.array_equal(array, np.arange(array.size)):
            return Abstract(axes, Iota())
        return Abstract(axes, ref)

"""Building nodes by op name, with attributes completed and result types inferred from the declaration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moec.diagnostics import suggest
from moec.ir.graph import NOWHERE, Graph, Module, Node, Origin, Value
from moec.ir.symbol import Dim, substitute
from moec.ir.types import TensorType
from moec.ops.registry import Types, opdef


def make_node(op: str, operands: list[Value | None], attrs: dict[str, Any], origin: Origin = NOWHERE) -> Node:
    """A node in no graph yet; ValueError says why operands or attributes do not fit the declaration."""
    definition = opdef(op)
    full = definition.complete(attrs)
    given = [None if v is None else v.type for v in operands]
    types = definition.infer(given, full)
    node = Node(op, operands, full, types, origin)
    node.proof = (op, full.copy(), given, types)
    return node


def call_types(types: Types, attrs: dict[str, Any], module: Module) -> list[TensorType]:
    """The types of a ``call`` or ``fused`` of a module's function with operands of ``types``.

    A symbol that stands alone as a dimension of a parameter is bound by the operand, so one function serves several
    sizes. ValueError where
    the function is unknown or the operands do not fit.
    """
    fn = module.functions.get(attrs["fn"])
    if fn is None:
        raise ValueError(f"unknown function '{attrs['fn']}' {suggest(attrs['fn'], module.functions)}".strip())
    if len(types) != len(fn.inputs):
        raise ValueError(f"function {fn.name} takes {len(fn.inputs)} operands, {len(types)} given")
    bound: dict[str, Dim] = {}
    for parameter, given in zip(fn.inputs, types, strict=True):
        if given is None or given.dtype is not parameter.type.dtype or not _fits(parameter.type, given, bound):
            raise ValueError(f"function {fn.name}: '{parameter.name}' is {given}, expected {parameter.type}")
    return [t.type if t.type.shape is None else t.type.with_shape(_bind(t.type.shape, bound)) for t in fn.outputs]


def _bind(shape: tuple[Dim, ...], bound: dict[str, Dim]) -> tuple[Dim, ...]:
    return tuple(substitute(d, bound) for d in shape)


def _fits(parameter: TensorType, given: TensorType, bound: dict[str, Dim]) -> bool:
    if parameter.shape is None or given.shape is None:
        return True
    if len(parameter.shape) != len(given.shape):
        return False
    for wanted, actual in zip(parameter.shape, given.shape, strict=True):
        name = str(wanted)
        if name.isidentifier():
            bound.setdefault(name, actual)
    return _bind(parameter.shape, bound) == given.shape


class Builder:
    """Puts nodes into ``graph`` before ``before`` (at the end where that is None), each with ``origin``.

    ``b.softmax(x, axis=-1)`` builds the op of that name and returns its result, or a tuple where it has several.
    """

    def __init__(self, graph: Graph, before: Node | None = None, origin: Origin = NOWHERE):
        self.graph, self.before, self.origin = graph, before, origin

    def node(self, op: str, *operands: Value | None, **attrs: Any) -> Node:
        """Build and insert; the node itself."""
        return self.graph.insert(make_node(op, list(operands), attrs, self.origin), self.before)

    def call(self, module: Module, fn: str, *operands: Value | None, op: str = "call") -> tuple[Value, ...]:
        """A ``call`` (or ``fused``) of a module's function; its results."""
        types = call_types([None if v is None else v.type for v in operands], {"fn": fn}, module)
        node = Node(op, operands, {"fn": fn}, types, self.origin)
        return tuple(self.graph.insert(node, self.before).results)

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if op.startswith("_"):
            raise AttributeError(op)

        def build(*operands: Value | None, **attrs: Any) -> Any:
            results = self.node(op, *operands, **attrs).results
            return results[0] if len(results) == 1 else tuple(results)

        return build

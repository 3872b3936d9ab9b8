"""Sizes that the host need not read, because they follow from what it knows.

The counts of a dropless router sum to T*K whatever the tokens are, and no reshape, reduction over some axes or
concatenation changes what the elements of a count vector sum to. So a size that is such a sum is a dimension: it is put
in everywhere in the place of its symbol.
"""

from __future__ import annotations

from moec.ir.graph import Module, Node, Value
from moec.ir.group import Group
from moec.ir.symbol import Dim, Expr, substitute
from moec.ir.types import TensorType

SAME_SUM = ("reshape", "transpose", "to_host", "to_device", "read_start", "read_wait", "cast")
"""Ops that keep the sum of the elements of integers."""

Around = dict[Value, Value]
"""For a host step's parameters: what the step was given."""


def known_sum(value: Value, module: Module, around: Around | None = None) -> Dim | None:
    """What the elements of an integer tensor sum to, where that is certain; else None."""
    around = around or {}
    if value in around:
        return known_sum(around[value], module)
    node = value.producer
    if node is None or not value.type.dtype.is_int:
        return None
    if node.op == "gating":
        tokens, chosen = node.results[1].type.dims
        return tokens * chosen if value.index == 2 else None
    if node.op == "cast" and value.type.dtype.bits < 32:
        return None
    if node.op in SAME_SUM or node.op == "reduce_sum":
        return known_sum(node.operand(0), module, around)
    if node.op == "concat":
        parts = [known_sum(v, module, around) for v in node.operands if v is not None]
        return None if any(p is None for p in parts) else sum((p for p in parts if p is not None), 0)
    if node.op == "host":
        body = module.functions[node.attrs["fn"]]
        given = {p: v for p, v in zip(body.inputs, node.operands, strict=True) if v is not None}
        return known_sum(body.outputs[value.index], module, given)
    return None


def substitute_symbol(module: Module, name: str, dim: Dim) -> None:
    """Put ``dim`` in the place of a symbol in every type and attribute of the module, and forget the symbol."""
    table: dict[str, Dim] = {name: dim}
    for graph in module.functions.values():
        for value in [*graph.inputs, *(v for n in graph for v in n.results)]:
            value.type = _type(value.type, table)
        for node in graph:
            node.attrs = {k: _attr(v, table) for k, v in node.attrs.items()}
    module.symbols.pop(name, None)


def _type(type_: TensorType, table: dict[str, Dim]) -> TensorType:
    if type_.shape is None:
        return type_
    shape = tuple(substitute(d, table) for d in type_.shape)
    return type_ if shape == type_.shape else type_.with_shape(shape)


def _attr(value: object, table: dict[str, Dim]) -> object:
    if isinstance(value, Expr):
        return substitute(value, table)
    if isinstance(value, tuple):
        return tuple(_attr(v, table) for v in value)
    return value.substitute(table) if isinstance(value, Group) else value


def symbol_of(node: Node) -> str:
    """The symbol that a ``bind_size`` or ``device_size`` decides."""
    return str(node.attrs["value"])

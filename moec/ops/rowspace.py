"""Row spaces: how the values of a fused vector kernel lie over one [rows, cols] iteration space.

The *full* shape of a set of values is what all their shapes broadcast to; ``cols`` is its last dimension, ``rows`` the
product of the others. Every value is then in one of four forms: ``full``; ``column``, one number a row (the last
dimension is 1); ``row``, one row for all (only the last dimension is not 1, or leading ones are absent); ``scalar``,
one number.

A ``fused`` node's body is a function of the module over such values:

- its inputs are tensors in any form, its results in any form, at least one of either;
- its nodes are ``ELEMENTWISE`` ops, ``REDUCTIONS`` over the last dimension with kept dimensions (full to column),
  ``cast`` between
  f32, f16 and bf16, ``expand`` from any form to the full shape, and ``constant``s of one element;
- operands broadcast from any form to any other as numpy does; dtypes are f32, f16, bf16, and bool for conditions;
- each node rounds its result to the dtype that it declares, computing in f32, so a fused kernel rounds where the
  unfused nodes do.
"""

from __future__ import annotations

from collections.abc import Iterable

from moec.ir.graph import Graph, Node
from moec.ir.symbol import Dim, Shape

ELEMENTWISE = (
    "add",
    "sub",
    "mul",
    "div",
    "minimum",
    "maximum",
    "neg",
    "abs",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "tanh",
    "erf",
    "sigmoid",
    "silu",
    "relu",
    "softplus",
    "gelu",
    "floor",
    "ceil",
    "round",
    "sign",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "and",
    "or",
    "not",
    "select",
)
"""Elementwise ops that a fused body may hold, besides ``cast`` and ``expand``."""

REDUCTIONS = ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min")
"""Row reductions that a fused body may hold: over the last dimension, which is kept as 1."""

FLOATS = ("f32", "f16", "bf16")
"""Dtypes of a fused body's numbers; bool stands for conditions, one byte where it crosses the boundary."""


def common_shape(shapes: Iterable[Shape]) -> Shape | None:
    """What ``shapes`` broadcast to; None where they do not."""
    total: tuple[Dim, ...] = ()
    for shape in shapes:
        longer, shorter = (total, shape) if len(total) >= len(shape) else (shape, total)
        lead = len(longer) - len(shorter)
        dims = list(longer)
        for i, (a, b) in enumerate(zip(longer[lead:], shorter, strict=True), lead):
            if a != b and a != 1 and b != 1:
                return None
            dims[i] = b if a == 1 else a
        total = tuple(dims)
    return total


def form(shape: Shape, full: Shape) -> str | None:
    """How a value of ``shape`` lies over the space of ``full``: full, scalar, column or row; None where in no such
    way.
    """
    if shape == full:
        return "full"
    if all(d == 1 for d in shape):
        return "scalar"
    if shape == (*full[:-1], 1):
        return "column"
    if full and len(shape) <= len(full) and shape[-1] == full[-1] and all(d == 1 for d in shape[:-1]):
        return "row"
    return None


def full_shape(body: Graph) -> Shape:
    """The full shape of a fused body; ValueError where its values share no row space."""
    shapes = [v.type.dims for v in body.inputs] + [v.type.dims for n in body for v in n.results]
    total = common_shape(shapes)
    if total is None or any(form(s, total) is None for s in shapes):
        raise ValueError(f"the values of {body.name} share no row space")
    return total


def rows_cols(full: Shape) -> tuple[Dim, Dim]:
    """Rows and columns of the space of ``full``."""
    rows: Dim = 1
    for d in full[:-1]:
        rows = rows * d
    return rows, full[-1] if full else 1


def may_fuse(node: Node) -> bool:
    """Whether a fused body may hold the node, shapes of its neighbours aside."""
    shapes = [v.type.shape for v in node.operands if v is not None] + [v.type.shape for v in node.results]
    if None in shapes or not shapes or not node.operands:
        return False
    dtypes = [v.type.dtype.name for v in (*node.operands, *node.results) if v is not None]
    if node.op == "cast":
        return all(d in FLOATS for d in dtypes)
    if node.op in REDUCTIONS:
        rank = node.operand(0).type.rank
        return node.attrs["axes"] == (rank - 1,) and node.attrs["keepdims"] and dtypes[0] in FLOATS
    return (node.op in ELEMENTWISE or node.op == "expand") and all(d in FLOATS or d == "bool" for d in dtypes)

"""Slices scattered back into zeros as pads, and pads of two halves that are added as a concatenation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from moec.ir.graph import Graph, Node, Value, merged_origin
from moec.ir.symbol import Dim
from moec.ops.build import Builder
from moec.passes.base import Result
from moec.passes.region import erase_dead
from moec.rewrite.rule import miss, near, rule
from moec.rewrite.term import T, Term, require

NAME = "slice-scatter"


def pads_for_scatters(graph: Graph, result: Result) -> None:
    """Spell a scatter of consecutive rows into zeros as a pad."""
    for node in list(graph):
        if node.op != "scatter_nd" or node.graph is not graph or node.attrs["reduction"] != "none":
            continue
        start = _first_row(node.operand(1))
        base, rows = node.operand(0), node.operand(2)
        if start is None or not _zeros(base) or base.type.rank != rows.type.rank:
            continue
        total, size, rest = base.type.dims[0], rows.type.dims[0], (0,) * (rows.type.rank - 1)
        if not isinstance(total, int) or not isinstance(size, int) or base.type.dims[1:] != rows.type.dims[1:]:
            continue
        origin = merged_origin([node], NAME)
        made = Builder(graph, node, origin).pad(
            rows, before=(start, *rest), after=(total - start - size, *rest), value=0.0
        )
        made.name = node.result.name
        node.result.replace_with(made)
        erase_dead(graph, node)
        result.apply(NAME, origin, graph)


def _first_row(indices: Value) -> int | None:
    """The first of consecutive rows that constant index tuples of one element name, in order."""
    node: Node | None = indices.producer
    if node is None or node.op != "constant" or indices.type.rank != 2 or indices.type.dims[1] != 1:
        return None
    flat = node.attrs["value"].numpy().reshape(-1)
    if not flat.size or flat[0] < 0 or not np.array_equal(flat, np.arange(flat[0], flat[0] + flat.size)):
        return None
    return int(flat[0])


def _zeros(value: Value) -> bool:
    """Whether a constant or a weight with contents holds only +0."""
    node = value.producer
    while node is not None and node.op == "expand":
        node = node.operand(0).producer
    data = None if node is None else node.attrs.get("value" if node.op == "constant" else "data")
    if data is None or not data.dtype.is_float:
        return False
    array = data.numpy()
    return not (array != 0).any() and not np.signbit(array.astype(np.float64)).any()


@rule(
    "pad-of-transposed",
    exactness="exact",
    why="padding between a transpose and its inverse is padding of the dimension where it was",
    dtypes=("f32", "bf16"),
    cases=[
        "x: [2, 3, 4]; p = [2, 1, 0]; q = [2, 1, 0]; before = [1, 0, 0]; after = [2, 0, 0]; value = 0.5",
        "x: [2, 3, 4]; p = [1, 2, 0]; q = [2, 0, 1]; before = [1, 0, 2]; after = [0, 3, 0]; value = 0.0",
    ],
    near=[
        near(
            "do not undo",
            "x: [2, 2, 2]; p = [1, 2, 0]; q = [1, 2, 0]; before = [1, 1, 1]; after = [0, 0, 0]; value = 0.0",
        )
    ],
)
def pad_of_transposed(
    x: Term, *, p: Sequence[int], q: Sequence[int], before: Sequence[Dim], after: Sequence[Dim], value: float
) -> Iterator[Any]:
    yield T.transpose(T.pad(T.transpose(x, perm=p), before=before, after=after, value=value), perm=q)
    undone = [p[i] for i in q] == list(range(len(p)))
    require(undone, f"the transposes {list(p)} and {list(q)} do not undo one another", x)
    yield T.pad(x, before=tuple(before[i] for i in q), after=tuple(after[i] for i in q), value=value)


@rule(
    "sum-of-pads",
    exactness="reassociated",
    why="where one operand has elements the other has zeros; only -0 becomes 0 in the sum",
    operands={"x": "any", "y": "any"},
    cases=[
        "x: [2, 3]; y: [2, 5]; xb = [0, 0]; xa = [0, 5]; yb = [0, 3]; ya = [0, 0]; zero = 0.0; nil = 0.0",
        "x: [3, 2]; y: [5, 2]; xb = [5, 0]; xa = [0, 0]; yb = [0, 0]; ya = [3, 0]; zero = 0.0; nil = 0.0",
    ],
    near=[
        near(
            "at other places",
            "x: [2, 3]; y: [2, 5]; xb = [0, 0]; xa = [0, 4]; yb = [0, 2]; ya = [0, 0]; zero = 0.0; nil = 0.0",
        ),
        near(
            "padded by 0.0 and 1.0",
            "x: [2, 3]; y: [2, 5]; xb = [0, 0]; xa = [0, 5]; yb = [0, 3]; ya = [0, 0]; zero = 0.0; nil = 1.0",
        ),
    ],
    escape="refuse",
)
def sum_of_pads(
    x: Term,
    y: Term,
    *,
    xb: Sequence[Dim],
    xa: Sequence[Dim],
    yb: Sequence[Dim],
    ya: Sequence[Dim],
    zero: float,
    nil: float,
) -> Iterator[Any]:
    yield T.pad(x, before=xb, after=xa, value=zero) + T.pad(y, before=yb, after=ya, value=nil)
    require(zero == 0 == nil, f"they are padded by {zero} and {nil}", x)
    if any(xb):  # the operands of a sum match in either order
        x, y, xb, xa, yb, ya = y, x, yb, ya, xb, xa
    axes = [i for i in range(x.rank) if (xa[i], yb[i]) != (0, 0)]
    behind = [(xa[i], yb[i]) == (y.shape[i], x.shape[i]) for i in axes]
    apart = behind == [True] and not any([*xb, *ya])
    require(apart, f"elements stand at other places than behind one another: {list(xa)} and {list(yb)}", x, y)
    yield T.concat(x, y, axis=axes[0])
    yield miss(
        "what is subtracted is negated",
        T.pad(x, before=xb, after=xa, value=zero) - T.pad(y, before=yb, after=ya, value=nil),
    )


PAD_RULES = [pad_of_transposed, sum_of_pads]
"""Rules on pads, in the order in which they are tried."""

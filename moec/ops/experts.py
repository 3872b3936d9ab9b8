"""The experts' side of a block: sort rows by expert, multiply group by group, activate, and sum back.

Weights are stored ``[out, in]`` per expert, as torch.nn.Linear does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from moec.ir.graph import Node, Value
from moec.ir.symbol import Shape, exact_div
from moec.ir.types import I32, TensorType
from moec.ops.elementwise import gelu, sigmoid, silu
from moec.ops.registry import Types, op
from moec.ops.routing import check_choices
from moec.ops.shapes import known
from moec.ops.tape import Gradients, Tape

Array = np.ndarray

ACTIVATION = "activation: str, glu: str, alpha: float, limit: float?, up_offset: float"
"""The attributes that say what an expert does between its products, as they stand in signatures."""

_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "silu": silu,
    "gelu": lambda x: gelu(x, approximate="none"),
    "gelu_tanh": lambda x: gelu(x, approximate="tanh"),
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": sigmoid,
    "identity": lambda x: x,
}

CHOICES = {"activation": tuple(_ACTIVATIONS), "glu": ("none", "chunked", "interleaved")}
"""What each named property of an expert may be."""


def sort_positions(experts: Array) -> Array:
    """Where each token-slot goes when slots are sorted by expert, stable in (token, slot): positions [T, K] i32."""
    order = np.argsort(experts.ravel(), kind="stable")
    positions = np.empty(order.size, np.int32)
    positions[order] = np.arange(order.size, dtype=np.int32)
    return positions.reshape(experts.shape)


@op("permute(x: [T, H], experts: [T, K], counts: [E]) -> (rows: any, positions: any)")
class Permute:
    """Rows of x sorted by expert: rows[positions[t, k]] = x[t], stable in (t, k). rows [T*K, H], positions [T, K]
    i32.
    """

    dtype = ("x", "!i32")
    cost = "copy"

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        (tokens, hidden), (_, k) = known(types)[0].dims, known(types)[1].dims
        return [(tokens * k, hidden), (tokens, k)]

    @staticmethod
    def ref(x: Array, experts: Array, counts: Array) -> tuple[Array, Array]:
        positions = sort_positions(experts)
        rows = np.empty((experts.size, x.shape[1]), x.dtype)
        rows[positions.ravel()] = np.repeat(x, experts.shape[1], axis=0)
        return rows, positions

    @staticmethod
    def grad(t: Tape, node: Node, *dys: Value | None) -> Gradients:
        drows = dys[0]
        if drows is None or not t.wanted(0):
            return [None, None, None]
        return [t.unpermute(drows, node.results[1], None), None, None]


@op(
    "grouped_matmul(rows: [R, C], weight: [E, N, K], counts: [E], bias?: [E, O], source?: [S], *, "
    "transpose_weight: bool = True) -> any"
)
class GroupedMatMul:
    """The counts[e] rows of expert e times weight[e] transposed (+ bias[e]); rows stand sorted by expert, counts sum
    to S and may lie on the host.

    rows [S, K] give [S, N]; without ``transpose_weight`` rows [S, N] are multiplied by weight[e] as it is: [S, K].
    With ``source`` [S] (i32, in 0..R-1) the s-th row is rows[source[s]], rows being [R, K] in any order: the product of
    gathered rows, which are not laid out.
    """

    dtype = "rows"
    cost = "cube"
    host_operands = ("counts",)

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        rows, weight, _, bias, source = (*types, None, None)[:5]
        assert rows is not None and weight is not None
        _, out, inner = weight.dims
        if not attrs["transpose_weight"]:
            out, inner = inner, out
        if rows.dims[1] != inner:
            raise ValueError(f"grouped_matmul: rows are {rows}, expected {inner} columns for weights {weight}")
        if bias is not None and bias.dims[1] != out:
            raise ValueError(f"grouped_matmul: the bias is {bias}, expected {out} columns for weights {weight}")
        check_source(source)
        return [(rows.dims[0] if source is None else source.dims[0], out)]

    @staticmethod
    def ref(
        rows: Array,
        weight: Array,
        counts: Array,
        bias: Array | None = None,
        source: Array | None = None,
        *,
        transpose_weight: bool = True,
    ) -> Array:
        rows = rows if source is None else taken(rows, source)
        sides = np.swapaxes(weight, 1, 2) if transpose_weight else weight
        out = np.zeros((rows.shape[0], sides.shape[2]), rows.dtype)
        for e, start, end in groups_of(counts, rows.shape[0]):
            out[start:end] = rows[start:end] @ sides[e]
            if bias is not None:
                out[start:end] += bias[e]
        return out

    @staticmethod
    def grad(t: Tape, node: Node, *dys: Value | None) -> Gradients:
        (dy,), (rows, weight, counts, _, source) = dys, (*node.operands, None, None)[:5]
        assert dy is not None and rows is not None
        found: list[Value | None] = [None] * len(node.operands)
        if t.wanted(0):
            drows = t.grouped_matmul(dy, weight, counts, transpose_weight=not node.attrs["transpose_weight"])
            found[0] = drows if source is None else _added_up(t, drows, source, rows)
        if t.wanted(1):
            if node.attrs["transpose_weight"]:
                found[1] = t.grouped_matmul_dw(dy, rows, counts, source, to=t.dtype(1))
            else:
                gathered = rows if source is None else t.gather(rows, source, axis=0)
                found[1] = t.grouped_matmul_dw(gathered, dy, counts, to=t.dtype(1))
        if t.wanted(3):
            found[3] = t.segment_sum(dy, counts, to=t.dtype(3))
        return found


def _added_up(t: Tape, drows: Value, source: Value, rows: Value) -> Value:
    """The gradients of gathered rows added up where they were taken from."""
    tuples = t.reshape(source, shape=(*source.type.dims, 1))
    total = t.scatter_nd(t.zeros(drows.type.with_shape(rows.type.dims)), tuples, drows, reduction="add")
    return t.narrow(total, 0)


def check_source(source: TensorType | None) -> None:
    """ValueError where row indices are not i32."""
    if source is not None and source.dtype is not I32:
        raise ValueError(f"indices of rows are {source}, expected i32")


def taken(rows: Array, source: Array) -> Array:
    """rows[source]; ValueError where an index lies outside."""
    if source.size and (source.min() < 0 or source.max() >= rows.shape[0]):
        raise ValueError(f"indices of rows go from {source.min()} to {source.max()}, there are {rows.shape[0]} rows")
    found: Array = rows[source]
    return found


def groups_of(counts: Array, rows: int) -> Iterator[tuple[int, int, int]]:
    """Expert, first row and the row behind the last of each expert that has rows; ValueError where counts do not sum
    to ``rows``.
    """
    ends = np.cumsum(counts)
    if counts.size and (ends[-1] != rows or counts.min() < 0):
        raise ValueError(f"counts sum to {ends[-1]}, there are {rows} rows")
    for e, (start, end) in enumerate(zip(ends - counts, ends, strict=True)):
        if end > start:
            yield e, int(start), int(end)


def gate_and_up(h: Array, glu: str) -> tuple[Array, Array | None]:
    """The parts of h's last dimension that ``glu`` names; all of it and None for "none"."""
    if glu == "none":
        return h, None
    if glu == "chunked":
        gate, up = np.split(h, 2, axis=-1)
        return gate, up
    return h[..., 0::2], h[..., 1::2]


def activate(h: Array, activation: str, glu: str, alpha: float, limit: float | None, up_offset: float) -> Array:
    """act(gate) * (up + up_offset), gate and up being the halves (chunked) or even/odd columns (interleaved) of h;
    act(h) without glu.

    alpha scales the argument of silu's sigmoid; limit clamps gate from above and up on both sides (GPT-OSS).
    """
    gate, up = gate_and_up(h, glu)
    if limit is not None:
        gate = np.minimum(gate, gate.dtype.type(limit))
        up = None if up is None else np.clip(up, up.dtype.type(-limit), up.dtype.type(limit))
    if activation == "silu" and alpha != 1.0:
        y = gate * sigmoid(gate * gate.dtype.type(alpha))
    else:
        y = _ACTIVATIONS[activation](gate)
    return y if up is None else y * (up + up.dtype.type(up_offset))


@op(f"swiglu(h: [*B, F], *, {ACTIVATION}) -> any")
class SwiGLU:
    """act(gate) * (up + up_offset) with gate and up taken from h's last dimension as ``glu`` says; act(h) if it says
    "none".
    """

    dtype = "h"
    cost = "vector"

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        check_choices(attrs, CHOICES)
        *lead, width = known(types)[0].dims
        inner = width if attrs["glu"] == "none" else exact_div(width, 2)
        if inner is None:
            raise ValueError(f"gate and up halves of a width of {width}")
        return [(*lead, inner)]

    @staticmethod
    def ref(h: Array, *, activation: str, glu: str, alpha: float, limit: float | None, up_offset: float) -> Array:
        return activate(h, activation, glu, alpha, limit, up_offset)

    @staticmethod
    def grad(t: Tape, node: Node, *dys: Value | None) -> Gradients:
        return [t.swiglu_grad(node.operand(0), dys[0], **node.attrs)]


@op("unpermute(rows: [S, H], positions: [T, K], weights?: [T, K]) -> [T, H]")
class Unpermute:
    """y[t] = sum over k of weights[t, k] * rows[positions[t, k]], accumulated in f32 in the order k = 0..K-1 and
    rounded once.

    Without weights each row counts once.
    """

    dtype = "rows"
    cost = "vector"

    @staticmethod
    def ref(rows: Array, positions: Array, weights: Array | None = None) -> Array:
        out = np.zeros((positions.shape[0], rows.shape[1]), rows.dtype)
        for k in range(positions.shape[1]):
            part = rows[positions[:, k]]
            out += part if weights is None else part * weights[:, k : k + 1].astype(rows.dtype)
        return out

    @staticmethod
    def grad(t: Tape, node: Node, *dys: Value | None) -> Gradients:
        rows, positions, *given = node.operands
        weights = given[0] if given else None
        drows, dweights = t.unpermute_grad(dys[0], rows if t.wanted(2) else None, positions, weights)
        return [drows, None, dweights if t.wanted(2) else None][: len(node.operands)]

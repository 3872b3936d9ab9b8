"""Gradients of the experts' side of a block: activations, grouped products by weight and bias, and the weighted sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from moec.ir.graph import Node, Value
from moec.ir.symbol import Shape
from moec.ir.types import F32, DType
from moec.ops.elementwise import erf, sigmoid
from moec.ops.experts import ACTIVATION, CHOICES, activate, check_source, gate_and_up, groups_of, taken
from moec.ops.registry import Types, op
from moec.ops.routing import check_choices
from moec.ops.shapes import known
from moec.ops.tape import Gradients, Tape, no_grad

Array = np.ndarray
SECOND = no_grad("second derivatives are not offered")


def _gelu_slope(x: Array) -> Array:
    density = np.exp(x * x * x.dtype.type(-0.5)) * x.dtype.type(1 / np.sqrt(2 * np.pi))
    return x.dtype.type(0.5) * (1 + erf(x * x.dtype.type(np.sqrt(0.5)))) + x * density


def _gelu_tanh_slope(x: Array) -> Array:
    root, cubic = x.dtype.type(np.sqrt(2 / np.pi)), x.dtype.type(0.044715)
    t = np.tanh(root * (x + cubic * x * x * x))
    return x.dtype.type(0.5) * (1 + t + x * (1 - t * t) * root * (1 + 3 * cubic * x * x))


def _sigmoid_slope(x: Array) -> Array:
    s = sigmoid(x)
    return s * (1 - s)


_SLOPES: dict[str, Callable[[Array], Array]] = {
    "gelu": _gelu_slope,
    "gelu_tanh": _gelu_tanh_slope,
    "relu": lambda x: (x > 0).astype(x.dtype),
    "sigmoid": _sigmoid_slope,
    "identity": np.ones_like,
}


def _slope(gate: Array, activation: str, alpha: float) -> Array:
    """The derivative of the activation at ``gate``; relu's is 0 at 0."""
    if activation != "silu":
        return _SLOPES[activation](gate)
    scaled = gate * gate.dtype.type(alpha)
    s = sigmoid(scaled)
    return s * (1 + scaled * (1 - s))


@op(f"swiglu_grad(h: [*B, F], dy: [*B, I], *, {ACTIVATION}) -> [*B, F]")
class SwiGLUGrad:
    """dh of ``swiglu``: dgate = dy * (up + up_offset) * act'(gate), dup = dy * act(gate), laid out as in h.

    A clamp passes the gradient where its argument is within or at the limits, and gives 0 beyond. In f32, rounded once.
    """

    dtype = "h"
    cost = "vector"
    grad = SECOND

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        check_choices(attrs, CHOICES)
        h, dy = known(types)
        inner = dy.dims[-1]
        if h.dims[-1] != (inner if attrs["glu"] == "none" else 2 * inner):
            raise ValueError(f"h has a width of {h.dims[-1]}, dy of {inner}, with glu '{attrs['glu']}'")
        return [h.dims]

    @staticmethod
    def ref(
        h: Array, dy: Array, *, activation: str, glu: str, alpha: float, limit: float | None, up_offset: float
    ) -> Array:
        gate, up = gate_and_up(h, glu)
        top = np.inf if limit is None else limit
        clamped = np.minimum(gate, gate.dtype.type(top))
        slope = _slope(clamped, activation, alpha) * (gate <= top)
        if up is None:
            return (dy * slope).astype(h.dtype, copy=False)
        dgate = dy * (np.clip(up, -top, top).astype(h.dtype) + h.dtype.type(up_offset)) * slope
        dup = dy * activate(clamped, activation, "none", alpha, None, 0.0) * (np.abs(up) <= top)
        if glu == "chunked":
            return np.concatenate([dgate, dup], axis=-1)
        return np.stack([dgate, dup], axis=-1).reshape(h.shape)


def _to_or(operand: int) -> Any:
    def rule(types: Types, attrs: dict[str, Any]) -> DType:
        given: DType | None = attrs["to"]
        return given or known(types)[operand].dtype

    return staticmethod(rule)


@op("grouped_matmul_dw(dy: [S, N], rows: [R, K], counts: [E], source?: [S], *, to: dtype? = None) -> any")
class GroupedMatMulDW:
    """dW[e] = dy_e^T rows_e over the counts[e] rows of expert e, which stand sorted by expert; exact zeros for an
    expert without rows. Accumulated in f32 and rounded once to ``to``, dy's dtype where it is none.

    With ``source`` [S] (i32, in 0..R-1) the s-th row is rows[source[s]], as in ``grouped_matmul``.
    """

    dtype = _to_or(0)
    cost = "cube"
    host_operands = ("counts",)
    grad = SECOND

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        dy, rows, counts = known(types)[:3]
        source = types[3] if len(types) > 3 else None
        check_source(source)
        if source is None and rows.dims[0] != dy.dims[0]:
            raise ValueError(f"grouped_matmul_dw: dy is {dy} and rows are {rows}, expected as many of each")
        return [(counts.dims[0], dy.dims[1], rows.dims[1])]

    @staticmethod
    def ref(dy: Array, rows: Array, counts: Array, source: Array | None = None, *, to: DType | None = None) -> Array:
        rows = rows if source is None else taken(rows, source)
        out = np.zeros((counts.shape[0], dy.shape[1], rows.shape[1]), dy.dtype)
        for e, start, end in groups_of(counts, rows.shape[0]):
            out[e] = dy[start:end].T @ rows[start:end]
        return out


@op("segment_sum(x: [S, N], counts: [E], *, to: dtype? = None) -> [E, N]")
class SegmentSum:
    """The sum of the counts[e] rows of each expert e, which stand sorted by expert; exact zeros for an expert without
    rows. Accumulated in f32 and rounded once to ``to``, x's dtype where it is none.
    """

    dtype = _to_or(0)
    cost = "vector"
    host_operands = ("counts",)

    @staticmethod
    def grad(t: Tape, node: Node, *dys: Value | None) -> Gradients:
        """Each row gets its expert's: the number of experts whose rows end at or before it."""
        (dy,) = dys
        assert dy is not None
        ends = t.cumsum(node.operand(1), axis=0, exclusive=False, reverse=False)
        marks = t.histogram(ends, bins=node.operand(0).type.dims[0])
        expert = t.cumsum(marks, axis=0, exclusive=False, reverse=False)
        return t.gather(t.narrow(dy, 0), expert, axis=0), None

    @staticmethod
    def ref(x: Array, counts: Array, *, to: DType | None = None) -> Array:
        out = np.zeros((counts.shape[0], x.shape[1]), x.dtype)
        for e, start, end in groups_of(counts, x.shape[0]):
            out[e] = np.sum(x[start:end], axis=0)
        return out


@op("unpermute_grad(dy: [T, H], rows?: [S, H], positions: [T, K], weights?: [T, K]) -> (drows: any, dweights: any)")
class UnpermuteGrad:
    """Gradients of ``unpermute``: drows[positions[t, k]] = weights[t, k] * dy[t], [T*K, H] in dy's dtype, and
    dweights[t, k] = sum over H of dy[t] * rows[positions[t, k]], in weights' dtype.

    Without weights each row counts once. Without rows there is no dweights: it has no columns. In f32, rounded once.
    """

    cost = "vector"
    grad = SECOND

    @staticmethod
    def dtype(types: Types, attrs: dict[str, Any]) -> list[DType]:
        dy, weights = known(types)[0], types[3] if len(types) > 3 else None
        return [dy.dtype, F32 if weights is None else weights.dtype]

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        dy, rows, positions = types[:3]
        weights = types[3] if len(types) > 3 else None
        assert dy is not None and positions is not None
        if rows is not None and weights is None:
            raise ValueError("rows are read for the gradient of weights only, and there are no weights")
        tokens, k = positions.dims
        count = rows.dims[0] if rows is not None else tokens * k
        if isinstance(count, int) and isinstance(tokens * k, int) and count != tokens * k:
            raise ValueError(f"rows are {rows}, expected {tokens * k} of them for positions {positions}")
        return [(count, dy.dims[1]), (tokens, 0 if rows is None else k)]

    @staticmethod
    def ref(dy: Array, rows: Array | None, positions: Array, weights: Array | None = None) -> tuple[Array, Array]:
        tokens, k = positions.shape
        drows = np.zeros((tokens * k, dy.shape[1]), dy.dtype)
        dweights = np.zeros((tokens, 0 if rows is None else k), dy.dtype)
        for slot in range(k):
            at = positions[:, slot]
            drows[at] = dy if weights is None else dy * weights[:, slot : slot + 1].astype(dy.dtype)
            if rows is not None:
                dweights[:, slot] = np.sum(dy * rows[at].astype(dy.dtype), axis=-1)
        return drows, dweights

"""The gradient of attention, from the softmax rebuilt with the saved maximum and sum of each row."""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ir.symbol import Shape
from moec.ir.types import F32, DType
from moec.ops.attention import ATTENTION, attention_scores, check_attention, repeated
from moec.ops.registry import Types, op
from moec.ops.shapes import known
from moec.ops.tape import no_grad

Array = np.ndarray
_SAVED = (
    "q: [B, N, S, D], k: [B, M, T, D], v: [B, M, T, V], y: [B, N, S, V], softmax_max: [B, N, S], softmax_sum: [B, N, S]"
)


@op(
    f"attention_grad({_SAVED}, dy: [B, N, S, V], mask?: any, sinks?: [N], q_rope?: [B, N, S, R], k_rope?: any, "
    f"cu_seqlens?: [C], *, {ATTENTION}) -> (dq: any, dk: any, dv: any, dsinks: any, dq_rope: any, dk_rope: any)"
)
class AttentionGrad:
    """Gradients of ``attention`` by its operands; y and the softmax's maximum and sum are ``attention_stats``'s.

    p = e^(score - max) / sum; dv = p^T dy; ds = p * (dy v^T - sum over V of dy * y), times 1 - (s / c)^2 of the capped
    score s; dq = scale ds k, dk = scale ds^T q, dq_rope = scale ds k_rope, dk_rope = scale ds^T q_rope, summed over the
    query heads that share a head; dsinks = -sum of e^(sink - max) / sum * sum over V of dy * y. dsinks has no elements,
    dq_rope and dk_rope no columns where those operands are absent. Rows that attend nothing give exact zeros, or NaN
    where ``empty_rows`` says that they are NaN. All in f32, each result rounded once (Dao et al., arXiv 2205.14135).
    """

    cost = "composite"
    grad = no_grad("second derivatives are not offered")

    @staticmethod
    def dtype(types: Types, attrs: dict[str, Any]) -> list[DType]:
        given = [*types, *[None] * (11 - len(types))]
        q, k, v = known(types)[:3]
        sinks, q_rope, k_rope = given[8:11]
        return [
            q.dtype,
            k.dtype,
            v.dtype,
            F32 if sinks is None else sinks.dtype,
            q.dtype if q_rope is None else q_rope.dtype,
            k.dtype if k_rope is None else k_rope.dtype,
        ]

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        check_attention(types, attrs, 7, 9)
        q, k, v = (t.dims for t in known(types)[:3])
        given = [*types, *[None] * (11 - len(types))]
        sinks, q_rope, k_rope = given[8:11]
        return [
            q,
            k,
            v,
            (0,) if sinks is None else sinks.dims,
            (*q[:3], 0) if q_rope is None else q_rope.dims,
            (*k[:3], 0) if k_rope is None else k_rope.dims,
        ]

    @staticmethod
    def ref(
        q: Array,
        k: Array,
        v: Array,
        y: Array,
        softmax_max: Array,
        softmax_sum: Array,
        dy: Array,
        mask: Array | None = None,
        sinks: Array | None = None,
        q_rope: Array | None = None,
        k_rope: Array | None = None,
        cu_seqlens: Array | None = None,
        **attrs: Any,
    ) -> tuple[Array, ...]:
        heads, scale = q.shape[1], q.dtype.type(attrs["scale"])
        given = (q, k, v, y, softmax_max, softmax_sum, dy, mask, q_rope, k_rope, cu_seqlens)
        capped, p, delta, ds = _by_scores(*given, attrs)
        if attrs["softcap"] is not None:
            ds = ds * (1 - np.square(capped / q.dtype.type(attrs["softcap"])))
        ds = ds * scale
        dk = _per_head(np.matmul(np.swapaxes(ds, -1, -2), q), k.shape[1])
        dv = _per_head(np.matmul(np.swapaxes(p, -1, -2), dy), k.shape[1])
        dsinks = np.zeros(0, q.dtype)
        if sinks is not None:
            top, total = (x.astype(q.dtype) for x in (softmax_max, softmax_sum))
            dsinks = -np.sum(np.exp(sinks[:, None] - top) / total * delta[..., 0], axis=(0, 2))
        dq_rope, dk_rope = np.zeros((*q.shape[:3], 0), q.dtype), np.zeros((*k.shape[:3], 0), k.dtype)
        if q_rope is not None and k_rope is not None:
            dq_rope = np.matmul(ds, repeated(k_rope, heads))
            dk_rope = _per_head(np.matmul(np.swapaxes(ds, -1, -2), q_rope), k_rope.shape[1])
        return np.matmul(ds, repeated(k, heads)), dk, dv, dsinks, dq_rope, dk_rope


@op(
    f"attention_mask_grad({_SAVED}, dy: [B, N, S, V], mask: any, q_rope?: [B, N, S, R], k_rope?: any, "
    f"cu_seqlens?: [C], *, {ATTENTION}) -> any"
)
class AttentionMaskGrad:
    """The gradient of ``attention`` by a mask that is added to its scores, in the mask's shape and dtype.

    p * (dy v^T - sum over V of dy * y), p = e^(score - max) / sum, summed over the dimensions that the mask is
    broadcast along; 0 where the mask is -inf. In f32, rounded once.
    """

    dtype = "mask"
    cost = "composite"
    grad = no_grad("second derivatives are not offered")

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        check_attention(types, attrs, 7, 8)
        mask = known(types)[7]
        if not mask.dtype.is_float:
            raise ValueError(f"a mask of {mask.dtype} is not added to scores")
        return [mask.shape]

    @staticmethod
    def ref(
        q: Array,
        k: Array,
        v: Array,
        y: Array,
        softmax_max: Array,
        softmax_sum: Array,
        dy: Array,
        mask: Array,
        q_rope: Array | None = None,
        k_rope: Array | None = None,
        cu_seqlens: Array | None = None,
        **attrs: Any,
    ) -> Array:
        ds = _by_scores(q, k, v, y, softmax_max, softmax_sum, dy, mask, q_rope, k_rope, cu_seqlens, attrs)[3]
        lead = ds.ndim - mask.ndim
        axes = tuple(i for i in range(ds.ndim) if i < lead or mask.shape[i - lead] != ds.shape[i])
        return np.asarray(np.sum(ds, axis=axes, keepdims=True)).reshape(mask.shape)


def _by_scores(
    q: Array,
    k: Array,
    v: Array,
    y: Array,
    softmax_max: Array,
    softmax_sum: Array,
    dy: Array,
    mask: Array | None,
    q_rope: Array | None,
    k_rope: Array | None,
    cu_seqlens: Array | None,
    attrs: dict[str, Any],
) -> tuple[Array, Array, Array, Array]:
    """Scores before masking, the softmax, the sum of dy * y, and the gradient by the masked scores."""
    capped, scores = attention_scores(q, k, mask, q_rope, k_rope, cu_seqlens, **attrs)
    top, total = (x[..., None].astype(q.dtype) for x in (softmax_max, softmax_sum))
    if attrs["empty_rows"] == "zero":
        empty = np.isneginf(top)
        top, total = np.where(empty, 0, top), np.where(empty, 1, total)
    with np.errstate(invalid="ignore"):
        p = np.exp(scores - top) / total
    delta = np.sum(dy * y, axis=-1, keepdims=True)
    return capped, p, delta, p * (np.matmul(dy, np.swapaxes(repeated(v, q.shape[1]), -1, -2)) - delta)


def _per_head(x: Array, heads: int) -> Array:
    """[B, N, T, W] summed over the query heads that share one of ``heads``: [B, heads, T, W]."""
    return np.sum(x.reshape(x.shape[0], heads, x.shape[1] // heads, *x.shape[2:]), axis=2)

"""Scaled dot-product attention: grouped heads, causal and windowed masks, sinks, soft cap, a rotary part of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ir.graph import Node, Value
from moec.ir.symbol import Shape
from moec.ir.types import F32, F64, DType
from moec.ops.registry import Types, op
from moec.ops.shapes import broadcast, known
from moec.ops.tape import Gradients, NoGradient, Tape, no_grad

Array = np.ndarray
EMPTY_ROWS = ("zero", "nan")


def allowed(queries: int, keys: int, causal: bool, offset: int, window: int | None) -> Array:
    """Which keys [T] each query [S] may attend: query i stands at position i + offset; bool [S, T].

    Causal: keys up to its position. A window of w: the w keys up to and with its position.
    """
    position = np.arange(queries)[:, None] + offset
    key = np.arange(keys)[None, :]
    mask = np.ones((queries, keys), bool)
    if causal:
        mask &= key <= position
    if window is not None:
        mask &= key > position - window
    return mask


ATTENTION = "scale: float, causal: bool, offset: dim, window: int?, softcap: float?, empty_rows: str"
"""The attributes that say how scores are made and masked, as they stand in signatures."""


def repeated(x: Array, heads: int) -> Array:
    """Keys or values [B, M, T, W] with each head standing for the heads / M query heads that share it."""
    return x if x.shape[1] == heads else np.repeat(x, heads // x.shape[1], axis=1)


def attention_scores(
    q: Array,
    k: Array,
    mask: Array | None,
    q_rope: Array | None,
    k_rope: Array | None,
    cu_seqlens: Array | None = None,
    *,
    scale: float,
    causal: bool,
    offset: int,
    window: int | None,
    softcap: float | None,
    **_: Any,
) -> tuple[Array, Array]:
    """Scores [B, N, S, T] before and after masking; a key that may not be attended has -inf in the second."""
    scores = np.matmul(q, np.swapaxes(repeated(k, q.shape[1]), -1, -2))
    if q_rope is not None and k_rope is not None:
        scores = scores + np.matmul(q_rope, np.swapaxes(repeated(k_rope, q.shape[1]), -1, -2))
    scores = scores * q.dtype.type(scale)
    if softcap is not None:
        scores = np.tanh(scores / q.dtype.type(softcap)) * q.dtype.type(softcap)
    may = allowed(q.shape[2], k.shape[2], causal, offset, window)
    if cu_seqlens is not None:
        sequence = np.searchsorted(cu_seqlens, np.arange(k.shape[2]), side="right")
        may &= sequence[:, None] == sequence[None, :]
    masked = scores
    if mask is not None and mask.dtype == np.bool_:
        may = may & mask
    elif mask is not None:
        masked = scores + mask
    return scores, np.where(may, masked, -np.inf).astype(q.dtype, copy=False)


def attend(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    sinks: Array | None,
    q_rope: Array | None,
    k_rope: Array | None,
    cu_seqlens: Array | None = None,
    **attrs: Any,
) -> tuple[Array, Array, Array]:
    """Outputs [B, N, S, V] and, for each row, the largest score and the sum of e^(score - largest) [B, N, S]: -inf
    and 0 for a row with nothing to attend."""
    scores = attention_scores(q, k, mask, q_rope, k_rope, cu_seqlens, **attrs)[1]
    if sinks is not None:
        column = np.broadcast_to(sinks[None, :, None, None], (*scores.shape[:3], 1)).astype(scores.dtype)
        scores = np.concatenate([scores, column], -1)
    top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    empty = np.isneginf(top)
    with np.errstate(invalid="ignore", divide="ignore"):
        e = np.exp(scores - (np.where(empty, 0, top) if attrs["empty_rows"] == "zero" else top))
        total = np.sum(e, axis=-1, keepdims=True)
        weights = e / (np.where(empty, 1, total) if attrs["empty_rows"] == "zero" else total)
    y = np.matmul(weights[..., : k.shape[2]], repeated(v, q.shape[1]))
    return np.asarray(y, q.dtype), top[..., 0], np.where(empty, 0, total)[..., 0]


def check_attention(types: Types, attrs: dict[str, Any], mask_at: int, rope_at: int) -> None:
    """ValueError where heads, mask, rotary parts or attributes do not fit; q and k stand first."""
    q, k = (t.dims for t in known(types)[:2])
    given: list[Any] = [*types, *[None] * (rope_at + 3 - len(types))]
    mask, q_rope, k_rope, ends = given[mask_at], *given[rope_at : rope_at + 3]
    if isinstance(q[1], int) and isinstance(k[1], int) and (k[1] == 0 or q[1] % k[1]):
        raise ValueError(f"{q[1]} query heads do not share {k[1]} key heads evenly")
    if attrs["empty_rows"] not in EMPTY_ROWS:
        raise ValueError(f"empty_rows '{attrs['empty_rows']}' is none of {', '.join(EMPTY_ROWS)}")
    if mask is not None and mask.shape is not None:
        broadcast(mask.shape, (q[0], q[1], q[2], k[2]))
    if (q_rope is None) != (k_rope is None):
        raise ValueError("q_rope and k_rope are given together or not at all")
    if k_rope is not None:
        wanted = [(k[0], heads, k[2], q_rope.dims[3]) for heads in (k[1], 1)]
        if k_rope.dims not in wanted:
            raise ValueError(f"k_rope is {k_rope}, expected [{', '.join(map(str, wanted[0]))}], or one head for all")
    if ends is not None and not ends.dtype.is_int:
        raise ValueError(f"cu_seqlens of {ends.dtype} are no positions")
    if ends is not None and (q[2] != k[2] or attrs["offset"] != 0):
        raise ValueError(f"packed sequences of {q[2]} queries from key {attrs['offset']} on and {k[2]} keys differ")


_OPERANDS = (
    "q: [B, N, S, D], k: [B, M, T, D], v: [B, M, T, V], mask?: any, sinks?: [N], q_rope?: [B, N, S, R], k_rope?: any, "
    "cu_seqlens?: [C]"
)


@op(f"attention({_OPERANDS}, *, {ATTENTION}) -> [B, N, S, V]")
class Attention:
    """softmax(scale (q k^T + q_rope k_rope^T) + mask) v per head; query head n reads key/value head n // (N / M).

    ``mask`` broadcasts to [B, N, S, T]: bool (True attends) or added to scores. ``causal`` and ``window`` count with
    query i standing at key position i + offset. ``softcap`` c makes scores c tanh(scores / c) before masking.
    ``sinks`` gives each head one more score that takes part in the softmax and is then dropped (GPT-OSS). A row with no
    key to attend is 0 or NaN as ``empty_rows`` says. ``q_rope`` and ``k_rope`` are the rotary part where it is kept
    apart (DeepSeek-V2, arXiv 2405.04434); k_rope has k's heads, or one that all share. Positions may be
    sequences packed one after the other, the same for queries and keys: ``cu_seqlens`` (integers) has where each starts
    and, last, S; a query attends keys of its own sequence only. Scores, softmax and sums in f32.
    """

    dtype = "q"
    cost = "composite"

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        check_attention(types, attrs, 3, 5)
        q, _, v = (t.dims for t in known(types)[:3])
        return [(*q[:3], v[3])]

    @staticmethod
    def ref(
        q: Array,
        k: Array,
        v: Array,
        mask: Array | None = None,
        sinks: Array | None = None,
        q_rope: Array | None = None,
        k_rope: Array | None = None,
        cu_seqlens: Array | None = None,
        **attrs: Any,
    ) -> Array:
        return attend(q, k, v, mask, sinks, q_rope, k_rope, cu_seqlens, **attrs)[0]

    training_form = "attention_stats"
    masks = ("mask",)
    grad = no_grad("attention is differentiated as attention_stats, which keeps what the gradient reads")


@op(f"attention_stats({_OPERANDS}, *, {ATTENTION}) -> (y: any, softmax_max: any, softmax_sum: any)")
class AttentionStats:
    """``attention``, and with it each row's softmax_max = max score and softmax_sum = sum of e^(score - max) [B, N, S].

    Both over the keys attended and the sink, in f32 (f64 of f64 operands). With them a gradient rebuilds the softmax
    from the scores alone (Dao et al., arXiv 2205.14135). They are kept apart as CANN's FlashAttentionScore keeps them:
    max + log(sum) in one f32 loses the sum where the largest score is a mask's lowest finite number. A row with nothing
    to attend has -inf and 0.
    """

    cost = "composite"

    @staticmethod
    def dtype(types: Types, attrs: dict[str, Any]) -> list[DType]:
        q = known(types)[0].dtype
        return [q, *[F64 if q is F64 else F32] * 2]

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        check_attention(types, attrs, 3, 5)
        q, _, v = (t.dims for t in known(types)[:3])
        return [(*q[:3], v[3]), q[:3], q[:3]]

    @staticmethod
    def ref(
        q: Array,
        k: Array,
        v: Array,
        mask: Array | None = None,
        sinks: Array | None = None,
        q_rope: Array | None = None,
        k_rope: Array | None = None,
        cu_seqlens: Array | None = None,
        **attrs: Any,
    ) -> tuple[Array, Array, Array]:
        return attend(q, k, v, mask, sinks, q_rope, k_rope, cu_seqlens, **attrs)

    @staticmethod
    def grad(t: Tape, node: Node, *dys: Value | None) -> Gradients:
        dy, *dstats = dys
        if any(d is not None for d in dstats):
            raise NoGradient("the maximum and sum of a softmax are kept for the gradient only and have none themselves")
        saved, rest = node.results, node.operands[3:]
        dq, dk, dv, dsinks, dq_rope, dk_rope = t.attention_grad(*node.operands[:3], *saved, dy, *rest, **node.attrs)
        dmask = None
        if t.wanted(3):
            dmask = t.attention_mask_grad(*node.operands[:3], *saved, dy, rest[0], *rest[2:], **node.attrs)
        found = [dq, dk, dv, dmask, dsinks, dq_rope, dk_rope, None][: len(node.operands)]
        return [t.narrow(g, i) if g is not None and t.wanted(i) else None for i, g in enumerate(found)]

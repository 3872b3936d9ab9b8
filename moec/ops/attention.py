"""Scaled dot-product attention: grouped heads, causal and windowed masks, sinks, soft cap."""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ir.symbol import Shape
from moec.ops.reduce import softmax
from moec.ops.registry import Types, op
from moec.ops.shapes import broadcast, known

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


@op(
    "attention(q: [B, N, S, D], k: [B, M, T, D], v: [B, M, T, V], mask?: any, sinks?: [N], *, scale: float, "
    "causal: bool, offset: dim, window: int?, softcap: float?, empty_rows: str) -> [B, N, S, V]"
)
class Attention:
    """softmax(scale q k^T + mask) v per head; query head n reads key/value head n // (N / M).

    ``mask`` broadcasts to [B, N, S, T]: bool (True attends) or added to scores. ``causal`` and ``window`` count with
    query i standing at key position i + offset. ``softcap`` c makes scores c tanh(scores / c) before masking.
    ``sinks`` gives each head one more score that takes part in the softmax and is then dropped (GPT-OSS). A row with no
    key to attend is 0 or NaN as ``empty_rows`` says. Scores, softmax and sums in f32.
    """

    dtype = "q"
    cost = "composite"

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        q, k, v = (t.dims for t in known(types)[:3])
        if isinstance(q[1], int) and isinstance(k[1], int) and (k[1] == 0 or q[1] % k[1]):
            raise ValueError(f"{q[1]} query heads do not share {k[1]} key heads evenly")
        if attrs["empty_rows"] not in EMPTY_ROWS:
            raise ValueError(f"empty_rows '{attrs['empty_rows']}' is none of {', '.join(EMPTY_ROWS)}")
        mask = types[3] if len(types) > 3 else None
        if mask is not None and mask.shape is not None:
            broadcast(mask.shape, (q[0], q[1], q[2], k[2]))
        return [(*q[:3], v[3])]

    @staticmethod
    def ref(q: Array, k: Array, v: Array, mask: Array | None = None, sinks: Array | None = None, **attrs: Any) -> Array:
        share = q.shape[1] // k.shape[1]
        k, v = np.repeat(k, share, axis=1), np.repeat(v, share, axis=1)
        scores = np.matmul(q, np.swapaxes(k, -1, -2)) * q.dtype.type(attrs["scale"])
        if attrs["softcap"] is not None:
            scores = np.tanh(scores / q.dtype.type(attrs["softcap"])) * q.dtype.type(attrs["softcap"])
        may = allowed(q.shape[2], k.shape[2], attrs["causal"], attrs["offset"], attrs["window"])
        if mask is not None and mask.dtype == np.bool_:
            may = may & mask
        elif mask is not None:
            scores = scores + mask
        scores = np.where(may, scores, -np.inf)
        if sinks is not None:
            column = np.broadcast_to(sinks[None, :, None, None], (*scores.shape[:3], 1)).astype(scores.dtype)
            return np.asarray(np.matmul(softmax(np.concatenate([scores, column], -1), axis=-1)[..., :-1], v), q.dtype)
        weights = softmax(scores, axis=-1)
        if attrs["empty_rows"] == "zero":
            weights = np.where(np.isneginf(np.max(scores, axis=-1, keepdims=True, initial=-np.inf)), 0, weights)
        return np.asarray(np.matmul(weights, v), q.dtype)

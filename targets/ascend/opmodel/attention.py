"""Attention sizes read from the shapes of a vendor row: layouts BSH, SBH, BNSD, BSND and packed TND."""

from __future__ import annotations

from collections.abc import Sequence

from moec.targets.ascend.opmodel.elementwise import LANES
from moec.targets.ascend.opmodel.products import FORWARD_CYCLES, attention, attention_grad
from moec.targets.ascend.opmodel.tensor import Tensor
from moec.targets.ascend.opmodel.work import Work

Sizes = tuple[int, int, int, int, int, int]
"""Batch, heads, queries, keys, width of a query head, width of a value head."""

STATISTICS = 8
"""Width of the saved row maxima and sums: one 32-byte block of f32."""


def sizes(tensors: Sequence[Tensor], out: Tensor | None) -> Sizes:
    """Sizes of the operands q, k, v and of what else a row states. ValueError where they cannot be told."""
    if len(tensors) < 3 or any(len(t.shape) < 3 for t in tensors[:3]):
        raise ValueError("attention needs q, k and v of three or four dimensions")
    q, k, v = tensors[:3]
    saved = [t for t in tensors[3:] if t.dtype == "f32" and t.last == STATISTICS]
    if len(q.shape) == 4:
        return _four(q, k, v, saved)
    if saved and len(saved[0].shape) == 4:
        b, n, s, _ = saved[0].shape
        d = q.numel // max(1, b * n * s)
        t = k.shape[0] if q.shape[0] == s and q.shape[1] == b else k.shape[1]
        heads = max(1, k.numel // max(1, b * t * d))
        return b, n, s, t, d, max(1, v.numel // max(1, b * t * heads))
    return _packed(q, k, v, tensors, out)


def _four(q: Tensor, k: Tensor, v: Tensor, saved: Sequence[Tensor]) -> Sizes:
    b, x, y, d = q.shape
    heads_first = saved[0].shape[1:3] == (x, y) if saved and len(saved[0].shape) == 4 else x <= y
    n, s = (x, y) if heads_first else (y, x)
    return b, n, s, k.shape[2] if heads_first else k.shape[1], d, v.last


def _packed(q: Tensor, k: Tensor, v: Tensor, tensors: Sequence[Tensor], out: Tensor | None) -> Sizes:
    """TND: sequences one after the other, taken to be equally long; a list of their ends says how many there are."""
    ends = [t.numel for t in tensors[3:] if t.dtype == "i64" and len(t.shape) == 1]
    batch = max(1, ends[0] if ends else 1)
    saved = [t for t in tensors[3:] if t.dtype == "f32" and t.last == STATISTICS and len(t.shape) == 3]
    if saved or (q.shape[2] <= 768 and q.shape[1] <= 256 and q.last == k.last):
        total, n, d = q.shape
        return batch, n, max(1, total // batch), max(1, k.shape[0] // batch), d, v.last
    b, s, hidden = q.shape
    d = next((w for w in (128, 192, 64, 96, 80, 256) if hidden % w == 0 and k.last % w == 0), k.last)
    return b, max(1, hidden // d), s, k.shape[1], d, d


def visible(tensors: Sequence[Tensor], s: int, t: int) -> float:
    """The part of the scores computed: about half under a mask over queries and keys, as a rule a causal one."""
    masked = any(
        m.dtype in ("bool", "u8", "i8") and len(m.shape) >= 2 and m.shape[-1] > 1 and m.shape[-2] > 1
        for m in tensors[3:]
    )
    if not masked or s == 1:
        return 1.0
    return causal_part(s, t)


def causal_part(s: int, t: int, block: int = 128) -> float:
    """The part of s x t scores that causal attention computes in blocks of ``block`` queries, the last query seeing
    all keys.
    """
    return min(1.0, max(0.0, 1.0 - (s - min(block, s)) / (2.0 * max(1, t))))


def forward(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """FlashAttentionScore and its relatives."""
    everything = [*ins, *outs]
    b, n, s, t, d, v = sizes(everything, outs[-1] if outs else None)
    moved = sum(x.bytes for x in ins), sum(x.bytes for x in outs)
    return attention(b, n, s, t, d, v, ins[0].dtype, moved, visible(ins, s, t))


def decode(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """One query a sequence against a paged or plain cache: keys and values are read once. Of a paged cache half of what
    the block table can name is taken to be filled.
    """
    q = ins[0]
    caches = [t for t in ins[1:] if t.dtype == q.dtype or t.dtype in ("i8", "f16", "bf16")]
    if not caches:
        raise ValueError("attention needs a query and a cache")
    cache = max(caches, key=lambda t: t.numel)
    tables = [t for t in ins[1:] if t.dtype in ("i32", "i64") and len(t.shape) == 2]
    held = cache.bytes
    if tables and len(cache.shape) >= 3:
        block = cache.bytes // max(1, cache.shape[0])
        held = min(held, max(1, max(t.numel for t in tables) // 2) * block)
    both = 2 * held
    queries = max(1, q.numel * int(q.itemsize))
    cycles = FORWARD_CYCLES * held / cache.itemsize / 64 / LANES * max(1.0, queries / max(1, q.shape[0]) / 4096)
    small = q.bytes + sum(t.bytes for t in outs)
    return Work("decode", both + small, sum(t.bytes for t in outs), cold=both, vector=cycles, single=4000.0, operands=4)


def backward(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """FlashAttentionScoreGrad: operands q, k, v, dy, masks, statistics, the forward result."""
    b, n, s, t, d, v = sizes(ins, outs[-1] if outs else None)
    moved = sum(x.bytes for x in ins), sum(x.bytes for x in outs)
    return attention_grad(b, n, s, t, d, v, ins[0].dtype, moved, visible(ins, s, t))

"""Attention and rotary embedding: the standard operators (opset 23 on) and onnxruntime's contributed ones."""

from __future__ import annotations

import math

from moec.frontend.onnx.context import Op
from moec.frontend.onnx.errors import NoForm
from moec.frontend.onnx.nodes.broadcasting import reshaped
from moec.frontend.onnx.table import onnx_op
from moec.ir.graph import Value
from moec.ir.symbol import Dim, exact_div
from moec.ir.types import BOOL, I64

MS = "com.microsoft"


def heads_first(op: Op, x: Value, heads: int) -> Value:
    """[B, S, N*D] as [B, N, S, D]; rank 4 is that already."""
    if x.type.rank == 4:
        return x
    batch, length, width = x.type.dims
    size = exact_div(width, heads) if heads else None
    if size is None:
        raise ValueError(f"a width of {width} does not split into {heads} heads")
    return op.emit("transpose", op.emit("reshape", x, shape=(batch, length, heads, size)), perm=(0, 2, 1, 3))


def heads_last(op: Op, x: Value) -> Value:
    """[B, N, S, D] as [B, S, N*D]."""
    batch, heads, length, size = x.type.dims
    return op.emit("reshape", op.emit("transpose", x, perm=(0, 2, 1, 3)), shape=(batch, length, heads * size))


def scale_of(op: Op, q: Value) -> float:
    """The attribute, or 1 / sqrt(head size) where it is absent or 0."""
    size = q.type.dims[-1]
    given = float(op.attr("scale", 0.0))
    if given:
        return given
    if not isinstance(size, int):
        raise NoForm(f"attribute 'scale' is missing and the head size {size} is not a number")
    return 1.0 / math.sqrt(size)


def softcap_of(op: Op) -> float | None:
    return float(op.attr("softcap", 0.0)) or None


def rotated(op: Op, x: Value, cos: Value, sin: Value, positions: Value | None, interleaved: bool, dim: int) -> Value:
    """``rope`` of [B, N, S, D] with tables [P, R/2] looked up at ``positions`` ([B, S], or [1] or [B, 1] for a first
    position), or tables [B, S, R/2] where there are none."""
    if positions is not None:
        cos, sin = (op.emit("gather", t, positions, axis=0) for t in (cos, sin))
    cos, sin = (op.emit("reshape", t, shape=(t.type.dims[0], 1, *t.type.dims[1:])) for t in (cos, sin))
    half = cos.type.dims[-1]
    if not isinstance(half, int):
        raise NoForm(f"the rotary tables' width {half} is not a number")
    if dim not in (0, 2 * half):
        raise ValueError(f"rotary dimension {dim} but tables of width {half}")
    return op.emit("rope", x, cos, sin, rotary_dim=2 * half, layout="interleaved" if interleaved else "half")


def _start_positions(op: Op, positions: Value, batch: Dim, length: Dim) -> Value:
    """position_ids as [B, S]: given so, or as one first position for all ([1])."""
    if positions.type.rank == 2:
        return positions
    steps = op.emit("reshape", op.emit("iota", size=length, dtype=positions.type.dtype), shape=(1, length))
    start = op.emit("add", steps, op.emit("reshape", positions, shape=(1, 1)))
    return op.emit("expand", start, shape=(batch, length))


@onnx_op("RotaryEmbedding", first=23, last=23)
def _rotary(op: Op) -> Value:
    x = op.value(0)
    y = heads_first(op, x, op.attr("num_heads", 0))
    positions = op.value(3) if op.has(3) else None
    dim = op.attr("rotary_embedding_dim", 0)
    y = rotated(op, y, op.value(1), op.value(2), positions, bool(op.attr("interleaved", 0)), dim)
    return y if x.type.rank == 4 else heads_last(op, y)


@onnx_op("RotaryEmbedding", domain=MS, last=1)
def _contrib_rotary(op: Op) -> Value:
    x, positions, cos, sin = (op.value(i) for i in range(4))
    if op.attr("scale", 1.0) != 1.0:
        raise NoForm("attribute 'scale' other than 1 is not supported")
    heads = op.attr("num_heads", 0)
    if x.type.rank == 3 and not heads:
        dim = op.attr("rotary_embedding_dim", 0) or 2 * cos.type.dims[-1]
        found = exact_div(x.type.dims[-1], dim)
        if not isinstance(found, int):
            raise ValueError("attribute 'num_heads' is missing")
        heads = found
    y = heads_first(op, x, heads)
    positions = _start_positions(op, positions, y.type.dims[0], y.type.dims[2])
    dim = op.attr("rotary_embedding_dim", 0)
    y = rotated(op, y, cos, sin, positions, bool(op.attr("interleaved", 0)), dim)
    return y if x.type.rank == 4 else heads_last(op, y)


def _padded_mask(op: Op, mask: Value, keys: Dim) -> Value:
    """A mask over fewer keys than there are: the others may not be attended."""
    missing = keys - mask.type.dims[-1]
    if missing == 0 or mask.type.dims[-1] == 1 or op.context.facts.is_runtime(missing):
        return mask
    zeros = (0,) * (mask.type.rank - 1)
    if mask.type.dtype is BOOL:
        as_int = op.emit("cast", mask, to=I64)
        return op.emit("cast", op.emit("pad", as_int, before=(*zeros, 0), after=(*zeros, missing), value=0.0), to=BOOL)
    return op.emit("pad", mask, before=(*zeros, 0), after=(*zeros, missing), value=-math.inf)


def reachable(
    op: Op, first: Value, queries: Dim, keys: Dim, causal: bool, left: int, right: int, used: Value | None
) -> Value:
    """Which keys each query may attend where positions differ by batch: bool [B, 1, S, T].

    ``first`` [B] i64 is where query 0 stands; ``left`` keys before and ``right`` after its own position (-1: all);
    ``used`` [B] counts the keys that are there.
    """
    key = op.emit("reshape", op.emit("iota", size=keys, dtype=I64), shape=(1, 1, 1, keys))
    step = op.emit("reshape", op.emit("iota", size=queries, dtype=I64), shape=(1, 1, queries, 1))
    batch = first.type.dims[0]
    position = op.emit("add", step, op.emit("reshape", first, shape=(batch, 1, 1, 1)))
    limits: list[Value] = []
    if causal:
        limits.append(op.emit("le", key, position))
    if left >= 0:
        limits.append(op.emit("ge", key, op.emit("sub", position, op.context.scalar(left, I64))))
    if right >= 0:
        limits.append(op.emit("le", key, op.emit("add", position, op.context.scalar(right, I64))))
    if used is not None:
        limits.append(op.emit("lt", key, op.emit("reshape", used, shape=(batch, 1, 1, 1))))
    found = limits[0]
    for other in limits[1:]:
        found = op.emit("and", found, other)
    return found


def both_masks(op: Op, mask: Value | None, may: Value | None) -> Value | None:
    """One mask that says both: ``mask`` bool or additive, ``may`` bool."""
    if mask is None or may is None:
        return mask if may is None else may
    if mask.type.dtype is BOOL:
        return op.emit("and", mask, may)
    return op.emit("select", may, mask, op.context.scalar(-math.inf, mask.type.dtype))


@onnx_op("Attention", first=23, last=25)
def _attention(op: Op) -> list[Value]:
    if len(op.node.outputs) > 3 and op.node.outputs[3]:
        raise NoForm("output 'qk_matmul_output' is not supported")
    rank = op.value(0).type.rank
    q = heads_first(op, op.value(0), op.attr("q_num_heads", 0))
    k, v = (heads_first(op, op.value(i), op.attr("kv_num_heads", 0)) for i in (1, 2))
    past: Dim = 0
    if op.has(4) and op.has(5):
        past = op.shape(4)[2]
        k = op.emit("concat", op.value(4), k, axis=2)
        v = op.emit("concat", op.value(5), v, axis=2)
    queries, keys = q.type.dims[2], k.type.dims[2]
    mask = _padded_mask(op, op.value(3), keys) if op.has(3) else None
    causal = bool(op.attr("is_causal", 0))
    left, right = int(op.attr("left_window_size", -1)), int(op.attr("right_window_size", -1))
    if op.has(6):
        used = op.emit("cast", op.value(6), to=I64)
        first = op.emit("sub", used, op.emit("dims", values=(queries,), scalar=True))
        mask = both_masks(op, mask, reachable(op, first, queries, keys, causal, left, right, used))
        causal, left, right = False, -1, -1
    elif right >= 0 and not causal:
        first = op.emit("dims", values=(past,), scalar=False)
        mask = both_masks(op, mask, reachable(op, first, queries, keys, False, left, right, None))
        left = -1
    y = op.emit(
        "attention",
        q,
        k,
        v,
        mask,
        scale=scale_of(op, q),
        causal=causal,
        offset=past,
        window=left + 1 if left >= 0 else None,
        softcap=softcap_of(op),
        empty_rows="zero",
    )
    return [y if rank == 4 else heads_last(op, y), k, v]


@onnx_op("MultiHeadAttention", domain=MS, last=1)
def _multi_head(op: Op) -> list[Value]:
    if op.has(3) or op.has(4) or op.has(6) or op.has(7):
        raise NoForm("bias, key padding mask and past inputs are not supported")
    heads = op.attr("num_heads", 0)
    q, k, v = (heads_first(op, op.value(i), heads) for i in range(3))
    y = op.emit(
        "attention",
        q,
        k,
        v,
        op.value(5) if op.has(5) else None,
        scale=scale_of(op, q),
        causal=bool(op.attr("unidirectional", 0)),
        offset=0,
        window=None,
        softcap=None,
        empty_rows="nan",
    )
    return [heads_last(op, y), k, v]


def _packed(op: Op, heads: int, kv_heads: int) -> list[Value]:
    """q, k and v as [B, N, S, D], from three inputs or from one that holds them side by side."""
    x = op.value(0)
    if op.has(1) and op.has(2):
        return [
            heads_first(op, x, heads),
            heads_first(op, op.value(1), kv_heads),
            heads_first(op, op.value(2), kv_heads),
        ]
    size = exact_div(x.type.dims[-1], heads + 2 * kv_heads)
    if size is None:
        raise ValueError(f"a packed width of {x.type.dims[-1]} does not split into {heads} + 2 * {kv_heads} heads")
    found, start = [], 0
    for count in (heads, kv_heads, kv_heads):
        part = op.emit("slice", x, axis=2, start=start * size, stop=(start + count) * size, step=1)
        found.append(heads_first(op, part, count))
        start += count
    return found


def _appended(op: Op, past: Value, new: Value, first: Value) -> Value:
    """The cache [B, M, P + S, D]: ``first`` [B] keys of ``past``, then ``new``; each batch row has its own number."""
    old = past.type.dims[2]
    past = reshaped(op, past, (*new.type.dims[:2], old, new.type.dims[3]))
    whole = op.emit("concat", past, new, axis=2)
    batch, heads, keys, size = whole.type.dims
    key = op.emit("reshape", op.emit("iota", size=keys, dtype=I64), shape=(1, keys))
    start = op.emit("reshape", first, shape=(batch, 1))
    shift = op.emit("sub", op.emit("dims", values=(old,), scalar=True), start)
    moved = op.emit("minimum", op.emit("add", key, shift), op.emit("dims", values=(keys - 1,), scalar=True))
    index = op.emit("select", op.emit("lt", key, start), key, moved)
    index = op.emit("expand", op.emit("reshape", index, shape=(batch, 1, keys, 1)), shape=(batch, heads, keys, size))
    return op.emit("gather_elements", whole, index, axis=2)


@onnx_op("GroupQueryAttention", domain=MS, last=1)
def _group_query(op: Op) -> list[Value]:
    heads, kv_heads = op.attr("num_heads", 0), op.attr("kv_num_heads", 0)
    if op.attr("smooth_softmax", 0) or op.has(12) or op.has(13):
        raise NoForm("smooth softmax and quantised caches are not supported")
    q, k, v = _packed(op, heads, kv_heads)
    if op.has(14) and op.has(15):
        eps = float(op.attr("qk_norm_epsilon", 1e-6))
        q, k = op.emit("rms_norm", q, op.value(14), eps=eps), op.emit("rms_norm", k, op.value(15), eps=eps)
    batch, _, queries, _ = q.type.dims
    last = op.emit("cast", reshaped(op, op.value(5), (batch,)), to=I64)
    total = op.emit("add", last, op.context.scalar(1, I64))
    cached = op.has(3) and op.has(4)
    if cached:
        first = op.emit("sub", total, op.emit("dims", values=(queries,), scalar=True))
    else:
        first = op.emit("sub", total, total)
    if op.attr("do_rotary", 0):
        if op.has(9):
            positions = _start_positions(op, op.value(9), batch, queries)
        else:
            steps = op.emit("reshape", op.emit("iota", size=queries, dtype=I64), shape=(1, queries))
            positions = op.emit("add", steps, op.emit("reshape", first, shape=(batch, 1)))
        interleaved = bool(op.attr("rotary_interleaved", 0))
        q, k = (rotated(op, x, op.value(7), op.value(8), positions, interleaved, 0) for x in (q, k))
    if cached:
        k, v = _appended(op, op.value(3), k, first), _appended(op, op.value(4), v, first)
    window = int(op.attr("local_window_size", -1))
    left = window - 1 if window > 0 else -1
    may = reachable(op, first, queries, k.type.dims[2], True, left, -1, None)
    y = op.emit(
        "attention",
        q,
        k,
        v,
        both_masks(op, op.value(10) if op.has(10) else None, may),
        op.value(11) if op.has(11) else None,
        scale=scale_of(op, q),
        causal=False,
        offset=0,
        window=None,
        softcap=softcap_of(op),
        empty_rows="zero",
    )
    return [heads_last(op, y), k, v]

"""What attention's gradient needs row by row on the vector cores: sums of dy * y, the sinks' gradient, sums over heads.

Each result is made by one core in one order.
"""

from __future__ import annotations

from collections.abc import Sequence

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import GmRef, Kernel, LocalRef
from moec.codegen.kernels.attention import declare_args
from moec.codegen.kernels.attention_cube import c0_of, pad_to
from moec.codegen.kernels.attention_scores import LANES
from moec.codegen.kernels.attention_tile import Attention
from moec.codegen.scalar import Arg, Scalar, ceildiv, smin

CHUNK = 2048
"""Elements of a piece of a long row."""


def _read(k: KernelBuilder, wide: LocalRef, narrow: LocalRef | None, src: GmRef, cols: Scalar, rows: Scalar,
          pitch: int) -> None:  # fmt: skip
    """Dense rows as f32, ``pitch`` apart on chip, zeros up to there."""
    to = wide if narrow is None else narrow
    right = pitch - cols if isinstance(cols, int) else 0
    k.load(to, src, cols, rows, pad=0.0 if right else None, right=right)
    if narrow is not None:
        k.cast(wide, narrow, rows * pitch)


def delta_kernel(name: str, caps: Capacities, a: Attention, source: Sequence[str] = ()) -> Kernel:
    """delta [B, N, S] f32 = sum over the last dimension of dy * y."""
    k = KernelBuilder(name, "aiv", caps, source)
    declare_args(k, a)
    shape = (a.batch, a.heads, a.queries)
    y, dy = k.gm("y", a.dtype, (*shape, a.values), "in"), k.gm("dy", a.dtype, (*shape, a.values), "in")
    delta = k.gm("delta", "f32", shape, "out")
    pitch = pad_to(a.values, c0_of(a.dtype))
    rows = max(8, min(128, caps.ub // (pitch * 20) // 8 * 8))
    left, right = k.ub("left", "f32", rows * pitch), k.ub("right", "f32", rows * pitch)
    narrow = None if a.dtype == "f32" else k.ub("narrow", a.dtype, rows * pitch, 2)
    sums = k.ub("sums", "f32", rows)
    part = k.ub("part", "f32", rows) if pitch > LANES else None
    total = a.batch * a.heads * a.queries
    with k.loop("t", k.core, ceildiv(total, rows), k.cores) as t:
        first = k.let("first", t * rows)
        count = k.let("count", smin(rows, total - first))
        for slot, (to, of) in enumerate(((left, y), (right, dy))):
            _read(k, to[0], None if narrow is None else narrow[slot], of[first * a.values], a.values, count, pitch)
        k.v("Mul", left[0], left[0], right[0], count=count * pitch)
        for at in range(0, pitch, LANES):
            to = sums if at == 0 or part is None else part
            k.v("WholeReduceSum", to[0], left[0][at], mask=min(LANES, pitch - at), repeatTime=count,
                dstRepStride=1, srcBlkStride=1, srcRepStride=pitch // 8)  # fmt: skip
            if to is not sums:
                k.v("Add", sums[0], sums[0], to[0], count=count)
        k.store(delta[first], sums[0], count)
    for batch, queries in ((1, 0), (1, 1), (2, 3 * rows + 5)):
        values = {"B": batch, "S": queries, "T": 1, "offset": 0}
        k.witness(1, None, **{n: values[n] for n in k.arguments()})
    return k.finish(ceildiv(total, rows))


def sinks_kernel(name: str, caps: Capacities, a: Attention, source: Sequence[str] = ()) -> Kernel:
    """dsinks [N] = -sum over batch and queries of e^(sink - max) / sum * delta, one head a core at a time."""
    k = KernelBuilder(name, "aiv", caps, source)
    declare_args(k, a)
    shape = (a.batch, a.heads, a.queries)
    row_max, row_sum, delta = (k.gm(n, "f32", shape, "in") for n in ("softmaxMax", "softmaxSum", "delta"))
    sinks, out = k.gm("sinks", a.sinks, (a.heads,), "in"), k.gm("dsinks", a.sinks, (a.heads,), "out")
    x, z, d = (k.ub(n, "f32", CHUNK) for n in ("x", "z", "d"))
    acc, work, one = k.ub("acc", "f32", CHUNK), k.ub("work", "f32", 64), k.ub("one", "f32", 8)
    narrow = None if a.sinks == "f32" else k.ub("narrow", a.sinks, 16)
    with k.loop("h", k.core, a.heads, k.cores) as h:
        _read(k, one[0], None if narrow is None else narrow[0], sinks[h], 1, 1, 1)
        sink = k.read("sink", one[0])
        k.fill(acc[0], 0.0, CHUNK)
        with k.loop("b", 0, a.batch) as b, k.loop("s", 0, ceildiv(a.queries, CHUNK)) as s:
            count = k.let("count", smin(CHUNK, a.queries - s * CHUNK))
            at = k.let("at", (b * a.heads + h) * a.queries + s * CHUNK)
            k.load(x[0], row_max[at], count)
            k.load(z[0], row_sum[at], count)
            k.load(d[0], delta[at], count)
            k.v("Muls", x[0], x[0], scalar=-1.0, count=count)
            k.v("Adds", x[0], x[0], scalar=sink, count=count)
            k.v("Exp", x[0], x[0], count=count)
            k.v("Div", x[0], x[0], z[0], count=count)
            k.v("Mul", x[0], x[0], d[0], count=count)
            k.v("Sub", acc[0], acc[0], x[0], count=count)
        k.v("ReduceSum", one[0], acc[0], work[0], count=CHUNK)
        result = one[0]
        if narrow is not None:
            result = narrow[0]
            k.cast(result, one[0], 1)
        k.store(out[h], result, 1)
    for batch, queries in ((1, 0), (1, 1), (2, CHUNK + 5)):
        values = {"B": batch, "S": queries, "T": 1, "offset": 0}
        k.witness(1, None, **{n: values[n] for n in k.arguments()})
    return k.finish(a.heads)


def heads_kernel(name: str, caps: Capacities, a: Attention, source: Sequence[str] = ()) -> Kernel:
    """out [B, 1, T, R] = sum over heads, first to last, of parts [B, M, T, R] f32."""
    k = KernelBuilder(name, "aiv", caps, source)
    batch: Scalar = k.arg("B") if isinstance(a.batch, Arg) else a.batch
    keys: Scalar = k.arg(a.keys.name) if isinstance(a.keys, Arg) else a.keys
    parts = k.gm("parts", "f32", (batch, a.kv_heads, keys, a.rope), "in")
    out = k.gm("out", a.dtype, (batch, 1, keys, a.rope), "out")
    part, acc = k.ub("part", "f32", CHUNK, 2), k.ub("acc", "f32", CHUNK)
    narrow = None if a.dtype == "f32" else k.ub("narrow", a.dtype, CHUNK)
    row = k.let("row", keys * a.rope)
    chunks = k.let("chunks", ceildiv(row, CHUNK))
    with k.loop("t", k.core, chunks * batch, k.cores) as t:
        b, at = k.let("b", t // chunks), k.let("at", t % chunks * CHUNK)
        count = k.let("count", smin(CHUNK, row - at))
        k.fill(acc[0], 0.0, CHUNK)
        with k.loop("h", 0, a.kv_heads) as h:
            ping = k.slot(2)
            k.load(part[ping], parts[(b * a.kv_heads + h) * row + at], count)
            k.v("Add", acc[0], acc[0], part[ping], count=count)
        result = acc[0]
        if narrow is not None:
            result = narrow[0]
            k.cast(result, acc[0], count)
        k.store(out[b * row + at], result, count)
    for size in ((1, 0), (1, 1), (2, 3 * CHUNK // max(1, a.rope) + 5)):
        values = dict(zip(("B", a.keys.name if isinstance(a.keys, Arg) else "T"), size, strict=True))
        k.witness(1, None, **{n: values[n] for n in k.arguments()})
    return k.finish(ceildiv(keys * a.rope, CHUNK) * batch)

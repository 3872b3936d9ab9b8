"""Labels against rows of logits: the one-hot rows of labels, and the logit that each label names."""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import ITEMSIZE, Kernel
from moec.codegen.kernels.vector.assemble import balanced
from moec.codegen.kernels.vector.tile import LANES
from moec.codegen.scalar import Scalar, align, ceildiv, choose, eq, smax, smin

CHUNK = 4096
"""Most columns of a run."""
TOKENS = 64
"""Most labels fetched together."""


def one_hot_kernel(name: str, caps: Capacities, depth: int, labels_dtype: str, dtype: str) -> Kernel:
    """labels [T] to y [T, depth]: 1 at the label, 0 elsewhere; all 0 for a label outside. Argument tokens."""
    k = KernelBuilder(name, "aiv", caps)
    tokens = k.arg("tokens")
    labels = k.gm("labels", labels_dtype, (tokens,), "in", "index")
    y = k.gm("y", dtype, (tokens, depth), "out")
    chunk = min(CHUNK, -(-depth // LANES) * LANES)
    given = k.ub("given", labels_dtype, TOKENS, 2)
    lane, away = k.ub("lane", "i32", chunk), k.ub("away", "i32", chunk)
    ones, bits = k.ub("ones", "f32", chunk), k.ub("bits", "u8", chunk // 8)
    out = k.ub("out", dtype, chunk, 2)
    hit = None if dtype == "f32" else k.ub("hit", "f32", chunk)
    k.v("ArithProgression", lane[0], firstValue=0, diffValue=1, count=chunk)
    k.fill(ones[0], 1.0, chunk)
    size = k.let("tile_tokens", balanced(ceildiv(tokens, k.cores), TOKENS, 4))
    with k.loop("t", k.core, ceildiv(tokens, size), k.cores) as t:
        ping = k.slot(2)
        first = k.let("first", t * size)
        count = k.let("count", smin(size, tokens - first))
        k.load(given[ping], labels[first], count)
        with k.loop("n", 0, count) as n:
            label = k.read("label", given[ping][n])
            with k.loop("c", 0, depth, chunk) as c:
                turn = k.slot(2, "turn")
                wide = out[turn] if hit is None else hit[0]
                k.v("Adds", away[0], lane[0], scalar=c - label, count=chunk)
                k.cast(away[0].cast("f32"), away[0], chunk, "RINT")
                k.v("CompareScalar", bits[0], away[0].cast("f32"), scalar=0.0, mode="CMPMODE::EQ", count=chunk)
                k.v("SelectScalar", wide, bits[0], ones[0], scalar=0.0, count=chunk)
                if hit is not None:
                    k.cast(out[turn], wide, chunk)
                k.store(y[(first + n) * depth + c], out[turn], smin(chunk, depth - c))
    for number, cores in ((0, 1), (1, 1), (5, 1), (6 * TOKENS + 1, 1), (3, 2)):
        k.witness(cores, tokens=number)
    return k.finish(smax(1, tokens))


def pick_kernel(
    name: str, caps: Capacities, labels_dtype: str, dtype: str, columns: int | None, ignore: int | None
) -> Kernel:
    """logits [T, V] and labels [T] to picked [T] f32, the label's logit (the first where the label is ``ignore``), and
    counted [T] f32, 0 for those labels and 1 for the others. Arguments tokens, and cols where V is not known."""
    k = KernelBuilder(name, "aiv", caps)
    tokens = k.arg("tokens")
    cols: Scalar = k.arg("cols", 1) if columns is None else columns
    logits, labels = k.gm("x", dtype, (tokens, cols), "in"), k.gm("labels", labels_dtype, (tokens,), "in", "index")
    picked, counted = k.gm("picked", "f32", (tokens,), "out"), k.gm("counted", "f32", (tokens,), "out")
    block = 32 // ITEMSIZE[dtype]
    given, got = k.ub("given", labels_dtype, TOKENS, 2), k.ub("got", dtype, TOKENS * block, 2)
    wide = got if dtype == "f32" else k.ub("wide", "f32", TOKENS * block)
    dense, flags = k.ub("dense", "f32", TOKENS, 2), k.ub("flags", "f32", TOKENS, 2)
    ones, bits, away = k.ub("ones", "f32", TOKENS), k.ub("bits", "u8", TOKENS // 8), k.ub("away", "i32", TOKENS)
    k.fill(ones[0], 1.0, TOKENS)
    for slot in range(2):  # comparisons take all of a tile
        k.fill(given[slot].cast("i32"), 0, TOKENS * ITEMSIZE[labels_dtype] // 4)
    size = k.let("tile_tokens", balanced(ceildiv(tokens, k.cores), TOKENS, 4))
    with k.loop("t", k.core, ceildiv(tokens, size), k.cores) as t:
        ping = k.slot(2)
        first = k.let("first", t * size)
        count = k.let("count", smin(size, tokens - first))
        unit = 32 // ITEMSIZE[labels_dtype]
        if ignore is None:
            k.load(given[ping], labels[first], count)
            k.fill(flags[ping], 1.0, TOKENS)
        else:
            k.load(given[ping], labels[first], count, pad=0, right=align(count, unit) - count)
            number = given[ping]
            if labels_dtype == "i64":
                number = away[0]
                k.cast(number, given[ping], TOKENS, "NONE")
            k.v("Adds", away[0], number, scalar=-ignore, count=TOKENS)
            k.cast(away[0].cast("f32"), away[0], TOKENS, "RINT")
            k.v("CompareScalar", bits[0], away[0].cast("f32"), scalar=0.0, mode="CMPMODE::NE", count=TOKENS)
            k.v("SelectScalar", flags[ping], bits[0], ones[0], scalar=0.0, count=TOKENS)
        with k.loop("n", 0, count) as n:
            label = k.read("label", given[ping][n])
            at: Scalar = label
            if ignore is not None:
                at = k.let("at", choose(eq(label, ignore), 0, label))
            blocks = {} if wide is got else {"pad": 0, "right": block - 1}  # a cast takes all of them
            k.load(got[ping][n * block], logits[(first + n) * cols + at], 1, **blocks)
        source = wide[ping if wide is got else 0]
        if wide is not got:
            k.cast(source, got[ping], count * block)
        k.v(
            "WholeReduceSum",
            dense[ping],
            source,
            mask=1,
            repeatTime=count,
            dstRepStride=1,
            srcBlkStride=1,
            srcRepStride=block // 8,
        )
        k.store(picked[first], dense[ping], count)
        k.store(counted[first], flags[ping], count)
    free = {} if columns is not None else {"cols": 70}
    for many, cores in ((0, 1), (1, 1), (5, 1), (6 * TOKENS + 1, 1), (3, 2)):
        k.witness(cores, None, tokens=many, **free)
    return k.finish(smax(1, tokens))

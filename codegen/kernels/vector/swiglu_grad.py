"""Gradients of gated activations: dgate = dy (up + offset) act'(gate), dup = dy act(gate), laid out as gate and up are.

A clamp passes the gradient at and within its limits. Even and odd columns are put back together by one Gather over both
gradients, which lie side by side in the unified buffer.
"""

from __future__ import annotations

import math

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import ITEMSIZE, Buffer, Kernel, LocalRef
from moec.codegen.kernels.vector.assemble import SMALL_COPY, Job, Sink, Source, assemble, balanced
from moec.codegen.kernels.vector.functions import ACTIVATIONS, erf, sigmoid, silu
from moec.codegen.kernels.vector.stage import Scratch, Stage
from moec.codegen.kernels.vector.swiglu import Activation
from moec.codegen.kernels.vector.tile import LANES
from moec.codegen.kernels.vector.topk import gather
from moec.codegen.kernels.vector.values import Val, Values
from moec.codegen.scalar import Scalar, align, ceildiv, smax, smin
from moec.diagnostics import Refusal

MOST_RUNS = 48
"""Most runs of 64 pairs in a tile of interleaved columns: a copy of them runs near peak bandwidth."""


def slope(v: Values, x: Val, a: Activation) -> Val:
    """The derivative of the activation at ``x``; relu's is 0 at 0."""
    if a.activation == "silu":
        scaled = x if a.alpha == 1.0 else v.scalar("Muls", x, a.alpha)
        s = sigmoid(v, scaled)
        return v.mul(s, v.scalar("Adds", v.mul(scaled, v.sub(1.0, s)), 1.0))
    if a.activation == "gelu":
        density = v.unary("Exp", v.scalar("Muls", v.mul(x, x), -0.5))
        below = v.scalar("Adds", erf(v, v.scalar("Muls", x, math.sqrt(0.5))), 1.0)
        flank = v.scalar("Muls", v.mul(x, density), 1 / math.sqrt(2 * math.pi))
        return v.add(v.scalar("Muls", below, 0.5), flank)
    if a.activation == "gelu_tanh":  # with s = sigmoid(2u): 1 + tanh u = 2 s and 1 - tanh^2 u = 4 s (1 - s)
        root, square = math.sqrt(2 / math.pi), v.mul(x, x)
        twice = v.mul(v.scalar("Adds", v.scalar("Muls", square, 2 * root * 0.044715), 2 * root), x)
        s = sigmoid(v, twice)
        inner = v.scalar("Adds", v.scalar("Muls", square, 6 * root * 0.044715), 2 * root)
        return v.mul(s, v.scalar("Adds", v.mul(v.mul(x, inner), v.sub(1.0, s)), 1.0))
    if a.activation == "relu":
        return v.select(v.compare("GT", x, 0.0), v.fill(1.0, x), 0.0)
    if a.activation == "sigmoid":
        s = sigmoid(v, x)
        return v.mul(s, v.sub(1.0, s))
    return v.fill(1.0, x)


def _gradients(v: Values, gate: Val, up: Val | None, dy: Val, a: Activation) -> tuple[Val, Val | None]:
    """dgate and dup in f32."""
    held, held_up = gate, up
    if a.limit is not None:
        held = v.scalar("Mins", gate, a.limit)
        held_up = None if up is None else v.scalar("Maxs", v.scalar("Mins", up, a.limit), -a.limit)
    rise = slope(v, held, a)
    if a.limit is not None:
        rise = v.select(v.compare("LE", gate, a.limit), rise, 0.0)
    if held_up is None or up is None:
        return v.mul(dy, rise), None
    factor = v.scalar("Adds", held_up, a.up_offset) if a.up_offset else held_up
    dgate = v.mul(v.mul(dy, factor), rise)
    y = silu(v, held, a.alpha) if a.activation == "silu" else ACTIVATIONS[a.activation](v, held)
    dup = v.mul(dy, y)
    if a.limit is not None:
        dup = v.select(v.compare("LE", v.unary("Abs", up), a.limit), dup, 0.0)
    return dgate, dup


def swiglu_grad_kernel(
    name: str, caps: Capacities, width: int, dtype: str, a: Activation, most_rows: int = 2**31 - 1
) -> Kernel:
    """h [S, width or 2 width] and dy [S, width] to dh of h's shape; S is the run-time argument ``rows``."""
    if a.glu == "interleaved":
        return _interleaved(name, caps, width, dtype, a, most_rows)
    k = KernelBuilder(name, "aiv", caps)
    rows = k.arg("rows", 0, most_rows)
    full = width if a.glu == "none" else 2 * width
    h, dy = k.gm("h", dtype, (rows, full), "in"), k.gm("dy", dtype, (rows, width), "in")
    dh = k.gm("dh", dtype, (rows, full), "out")
    v = Values()
    gate, given = v.input("full", dtype), v.input("full", dtype)
    up = v.input("full", dtype) if a.glu == "chunked" else None
    wide = None if up is None else v.cast(up, "f32")
    dgate, dup = _gradients(v, v.cast(gate, "f32"), wide, v.cast(given, "f32"), a)
    if up is None or dup is None:
        sources: tuple[Source, ...] = (Source(gate, h), Source(given, dy))
        sinks: tuple[Sink, ...] = (Sink(v.cast(dgate, dtype), dh),)
    else:
        sources = (Source(gate, h, 0, full), Source(up, h, width, full), Source(given, dy))
        sinks = (Sink(v.cast(dgate, dtype), dh, 0, full), Sink(v.cast(dup, dtype), dh, width, full))
    return k.finish(assemble(Job(k, v, rows, width, width, sources, sinks)))


def _interleaved(name: str, caps: Capacities, width: int, dtype: str, a: Activation, most_rows: int) -> Kernel:
    """The largest tile of whole runs of 64 pairs that fits."""
    for runs in range(MOST_RUNS, 1, -2):
        try:
            return _pairs(name, caps, width, dtype, a, most_rows, runs)
        except Refusal:
            continue
    return _pairs(name, caps, width, dtype, a, most_rows, 1)


def _pairs(name: str, caps: Capacities, width: int, dtype: str, a: Activation, most_rows: int, runs: int) -> Kernel:
    """Rows follow one another without gaps, so that any stretch of pairs is a tile of up to ``runs`` times 64."""
    k = KernelBuilder(name, "aiv", caps)
    rows, most = k.arg("rows", 0, most_rows), runs * LANES
    h, dy = k.gm("h", dtype, (rows, 2 * width), "in"), k.gm("dy", dtype, (rows, width), "in")
    dh = k.gm("dh", dtype, (rows, 2 * width), "out")
    h_in, dy_in = k.ub("h_in", dtype, 2 * most, 2), k.ub("dy_in", dtype, most, 2)
    out, both = k.ub("out", dtype, 2 * most, 2), k.ub("both", "f32", 2 * most)
    woven = out if dtype == "f32" else k.ub("woven", "f32", 2 * most)
    at = _weave(k, most)
    v = Values()
    pairs, given = v.input("double", dtype), v.input("full", dtype)
    wide = v.cast(pairs, "f32")
    gate, up = v.emit("Even", "full", "f32", wide), v.emit("Odd", "full", "f32", wide)
    dgate, dup = _gradients(v, gate, up, v.cast(given, "f32"), a)
    assert dup is not None
    v.outputs += [dgate, dup]
    places: dict[Val, Buffer | LocalRef] = {pairs: h_in, given: dy_in, dgate: both[0], dup: both[0][most]}
    stage = Stage(Scratch(k), v, places, runs, LANES, LANES)
    for buffer in (h_in, dy_in):  # a ragged tile works on whole runs, whose end no copy has delivered
        for slot in range(2):
            k.fill(buffer[slot], 0, buffer.elems)
    total = rows * width
    size = k.let("tile", align(balanced(ceildiv(total, k.cores), most, SMALL_COPY // 4 // ITEMSIZE[dtype]), LANES))
    with k.loop("t", k.core, ceildiv(total, size), k.cores) as t:
        ping = k.slot(2)
        first = k.let("first", t * size)
        count: Scalar = k.let("count", smin(size, total - first))
        for to, of, n in ((h_in[ping], h[first * 2], count * 2), (dy_in[ping], dy[first], count)):
            k.load(to, of, n, pad=0, right=align(n, 32 // ITEMSIZE[dtype]) - n)
        stage.emit(k.let("runs", ceildiv(count, LANES)), ping)
        done = woven[ping if woven is out else 0]
        gather(k, done, both[0], at, count * 2, 2 * most * 4)
        if woven is not out:
            k.cast(out[ping], done, count * 2)
        k.store(dh[first * 2], out[ping], count * 2)
    for n, cores in ((0, 1), (1, 1), (most - 7, 1), (7 * most + 13, 1), (9 * most + 77, 2)):
        k.witness(cores, rows=-(-n // width))
    return k.finish(smax(1, ceildiv(total, SMALL_COPY // 8)))


def _weave(k: KernelBuilder, most: int) -> LocalRef:
    """u32 [2 most] byte offsets of a Gather: even places from the first half of ``2 most`` numbers, odd from the
    second.

    i is at (i >> 1) * 4, and for odd i ``most`` numbers on.
    """
    count = 2 * most
    table = k.ub("weave", "i32", count)
    with k.reuse():
        halves = k.ub("halves", "i32", count)
        k.v("ArithProgression", table[0], firstValue=0, diffValue=1, count=count)
        k.v("ShiftRight", halves[0], table[0], scalar=1, count=count)
        k.v("Muls", table[0], table[0], scalar=most * 4, count=count)
        k.v("Muls", halves[0], halves[0], scalar=most * 8 - 4, count=count)  # i most 4 - (i >> 1) (most 8 - 4)
        k.v("Sub", table[0], table[0], halves[0], count=count)
    return table[0].cast("u32")

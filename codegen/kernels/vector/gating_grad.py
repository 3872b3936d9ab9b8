"""The gradient of routing weights by the logits, over all experts of a token at once.

The chosen experts are marked, and their dweights spread, by comparing each choice with the numbers of the lanes; what
was not chosen stays exactly 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import ITEMSIZE, Buffer, Kernel, LocalRef
from moec.codegen.kernels.vector.assemble import balanced
from moec.codegen.kernels.vector.functions import sigmoid, softmax
from moec.codegen.kernels.vector.stage import Scratch, Stage
from moec.codegen.kernels.vector.tile import BLOCK, LANES, MAX_REPEAT
from moec.codegen.kernels.vector.values import Val, Values
from moec.codegen.scalar import ceildiv, smax, smin
from moec.diagnostics import Problem, Refusal, Where

INF = float("inf")
MOST_EXPERTS = MAX_REPEAT * BLOCK // LANES * LANES
"""Widest row of which one repeat reaches the next."""


@dataclass(frozen=True)
class GatingGrad:
    """The attributes of routing that its gradient reads, with sizes and dtypes."""

    experts: int
    top_k: int
    score: str
    score_order: str
    renormalize: bool
    renormalize_eps: float
    scale: float
    score_dtype: str
    dtype: str
    weights_dtype: str
    most_tokens: int = 2**31 - 1


def gating_grad_kernel(name: str, caps: Capacities, g: GatingGrad, source: str = "") -> Kernel:
    """logits [T, E], experts [T, K] i32, dweights [T, K] to dlogits [T, E]; argument tokens."""
    if g.experts > MOST_EXPERTS:
        what = f"gating_grad of {g.experts} experts has no kernel"
        raise Refusal(Problem(what, Where(node=source), f"up to {MOST_EXPERTS} experts have one"))
    rows = LANES
    while True:
        try:
            return _kernel(name, caps, g, rows)
        except Refusal:
            if rows == 1:
                raise
            rows -= max(1, rows // 8)


def _kernel(name: str, caps: Capacities, g: GatingGrad, most: int) -> Kernel:
    k = KernelBuilder(name, "aiv", caps)
    tokens = k.arg("tokens", 0, g.most_tokens)
    logits = k.gm("logits", g.dtype, (tokens, g.experts), "in")
    experts = k.gm("experts", "i32", (tokens, g.top_k), "in", "index")
    dweights = k.gm("dweights", g.weights_dtype, (tokens, g.top_k), "in")
    dlogits = k.gm("dlogits", g.dtype, (tokens, g.experts), "out")
    pitch, chosen = align_up(g.experts), most * g.top_k
    x_in, out = k.ub("x_in", g.dtype, most * pitch, 2), k.ub("out", g.dtype, most * pitch, 2)
    choice_in, given = k.ub("choice_in", "i32", chosen, 2), k.ub("given", g.weights_dtype, chosen, 2)
    choice, factor = k.ub("choice", "f32", chosen), k.ub("factor", "f32", chosen)
    lane = k.ub("lane", "f32", pitch)
    one_choice, one_factor = k.ub("one_choice", "f32", LANES), k.ub("one_factor", "f32", LANES)
    hits, spread = k.ub("hits", "f32", most * pitch), k.ub("spread", "f32", most * pitch)
    column = k.ub("column", "i32", LANES)
    scratch = Scratch(k)
    mark = _mark(scratch, most, g.experts, pitch, lane, one_choice, one_factor, hits, spread)
    derive = _derive(scratch, g, most, pitch, x_in, hits, spread, out)
    k.v("ArithProgression", lane[0], firstValue=0.0, diffValue=1.0, count=pitch)
    k.v("ArithProgression", column[0], firstValue=0, diffValue=1, count=LANES)
    k.v("Muls", column[0], column[0], scalar=g.top_k * 4, count=LANES)
    for buffer in (one_choice, one_factor):
        k.fill(buffer[0], 0.0, LANES)
    block = 32 // ITEMSIZE[g.dtype]
    if pitch > -(-g.experts // block) * block:
        for slot in range(2):
            k.fill(x_in[slot], 0, x_in.elems)
    derive.fill_cols(set())
    size = k.let("tile_tokens", balanced(ceildiv(tokens, k.cores), most, 4))
    gap = (pitch - -(-g.experts // block) * block) // block
    with k.loop("t", k.core, ceildiv(tokens, size), k.cores) as t:
        ping = k.slot(2)
        first = k.let("first", t * size)
        rows = k.let("rows", smin(size, tokens - first))
        count = rows * g.top_k
        right = -g.experts % block
        k.load(
            x_in[ping],
            logits[first * g.experts],
            g.experts,
            rows,
            g.experts,
            gap,
            0 if right else None,
            right,
        )
        k.load(choice_in[ping], experts[first * g.top_k], count)
        k.load(given[ping], dweights[first * g.top_k], count)
        k.cast(choice[0], choice_in[ping], count, "RINT")
        if g.weights_dtype == "f32":
            k.v("Muls", factor[0], given[ping], scalar=g.scale, count=count)
        else:
            k.cast(factor[0], given[ping], count)
            k.v("Muls", factor[0], factor[0], scalar=g.scale, count=count)
        k.fill(hits[0], 0.0, rows * pitch)
        k.fill(spread[0], 0.0, rows * pitch)
        with k.loop("j", 0, g.top_k) as j:
            at = column[0].cast("u32")
            k.v("Gather", one_choice[0], choice[0], at, base=j * 4, count=rows, srcBytes=chosen * 4)
            k.v("Gather", one_factor[0], factor[0], at, base=j * 4, count=rows, srcBytes=chosen * 4)
            mark.emit(rows)
        derive.emit(rows, ping)
        k.store(dlogits[first * g.experts], out[ping], g.experts, rows, g.experts, gap)
    for n, cores in ((0, 1), (1, 1), (most, 1), (6 * most + 1, 1), (3, 2), (11 * most + 3, 2)):
        k.witness(cores, tokens=n)
    return k.finish(smax(1, ceildiv(tokens, 2)))


def align_up(experts: int) -> int:
    """Elements from row to row: comparisons take runs of 64."""
    return -(-experts // LANES) * LANES


def _mark(
    scratch: Scratch,
    rows: int,
    cols: int,
    pitch: int,
    lane: Buffer,
    choice: Buffer,
    factor: Buffer,
    hits: Buffer,
    spread: Buffer,
) -> Stage:
    """One choice of every token: 1 more in its lane of ``hits``, its dweight in its lane of ``spread``."""
    v = Values()
    lanes, at, by = v.input("row", "f32"), v.input("col", "f32"), v.input("col", "f32")
    marked, placed = v.input("full", "f32"), v.input("full", "f32")
    one = v.select(v.compare("EQ", v.sub(lanes, at), 0.0), 1.0, 0.0)
    more, there = v.add(marked, one), v.add(placed, v.mul(one, by))
    v.outputs += [more, there]
    places: dict[Val, Buffer | LocalRef] = {lanes: lane, at: choice, by: factor}
    places |= {marked: hits, placed: spread, more: hits, there: spread}
    return Stage(scratch, v, places, rows, cols, pitch)


def _derive(
    scratch: Scratch, g: GatingGrad, rows: int, pitch: int, x_in: Buffer, hits: Buffer, spread: Buffer, out: Buffer
) -> Stage:
    """dlogits from the logits, the marks and the spread dweights."""
    v = Values()
    raw, marked, dw = v.input("full", g.dtype), v.input("full", "f32"), v.input("full", "f32")
    x, chosen = v.cast(raw, "f32"), v.compare("GT", marked, 0.0)
    scored = x if g.score_order == "before_topk" else v.select(chosen, x, -INF)
    scores = softmax(v, scored) if g.score == "softmax" else sigmoid(v, scored)
    ds = dw
    if g.renormalize:
        held = v.cast(v.cast(scores, g.score_dtype), "f32")
        w = v.mul(held, marked)
        total = v.row_reduce("Sum", w)
        if g.renormalize_eps:
            total = v.scalar("Adds", total, g.renormalize_eps)
        inner = v.div(v.row_reduce("Sum", v.mul(dw, w)), total)
        ds = v.mul(v.mul(v.sub(dw, inner), v.div(1.0, total)), marked)
    if g.score == "softmax":
        dx = v.mul(scores, v.sub(ds, v.row_reduce("Sum", v.mul(ds, scores))))
    else:
        rest = v.sub(1.0, scores)
        dx = v.mul(v.mul(ds, scores), rest)
    result = v.cast(dx, g.dtype)
    v.outputs.append(result)
    places: dict[Val, Buffer | LocalRef] = {raw: x_in, marked: hits, dw: spread, result: out}
    return Stage(scratch, v, places, rows, g.experts, pitch)

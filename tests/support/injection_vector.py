"""Cases of fault injection for the kernels of the vector cores: every writer of such has one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from grad_layers import Gated, activation_text, routing_inputs, routing_text
from injection_cases import (
    FULL,
    KIB,
    UB,
    Case,
    T,
    below,
    case,
    drawn,
    fixed,
    lowered,
    near_one,
    permutation,
    positive,
    sparse,
    spread,
)
from vector_layers import GATINGS, NORMS, fused, gating_inputs, gating_text
from vector_layers import Case as Gating

ADAMW = "{beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.1, to = !%s}"


def _gatings(name: str, cases: list[Gating], sizes: Sequence[int], ub: int) -> Case:
    return Case(
        name, lambda: lowered(gating_text(cases), ub), lambda rng: [gating_inputs(rng, cases, t) for t in sizes]
    )


def _routing(name: str, cases: list[Gating], sizes: Sequence[int], ub: int) -> Case:
    return Case(
        name, lambda: lowered(routing_text(cases), ub), lambda rng: [routing_inputs(rng, cases, t) for t in sizes]
    )


def _norms(name: str, width: str, shapes: Sequence[tuple[int, int]], ub: int = UB) -> Case:
    kinds = f"%x: f32[T, {width}], %w: f32[{width}], %b: f32[T, 1]"
    text = fused("norms", "%x: f32[T, C], %w: f32[C], %b: f32[T, 1]", "g: f32[T, C]; d: f32[T, 1]", NORMS, "%g, %d")
    if width != "C":
        text = text.replace("symbol C in [1, 100000]\n", "").replace("C", width)
    return Case(
        name,
        lambda: lowered(text, ub),
        lambda rng: [drawn(kinds, {"T": t, "C": c}, {}, rng) for t, c in shapes],
    )


def _activation(name: str, cases: list[Gated], sizes: Sequence[int], ub: int = UB) -> Case:
    text = activation_text(cases)
    given = text[text.index("main(") : text.index(") ->")]
    return Case(name, lambda: lowered(text, ub), lambda rng: [drawn(given, {"S": s}, {}, rng) for s in sizes])


def swiglu(glu: str, activation: str = "silu", limit: str = "7.0") -> str:
    return f'{{activation = "{activation}", glu = "{glu}", alpha = 1.702, limit = {limit}, up_offset = 1.0}}'


VECTOR = [
    case(
        "elementwise: flat, bool, several outputs",
        "%h: bf16[T, 90], %m: bool[T, 90]",
        [("tanh(%h)", "bf16[T, 90]"), ("select(%m, %h, %h)", "bf16[T, 90]"), ("cast(%h) {to = !f32}", "f32[T, 90]")],
        T(1, 3, 600),
    ),
    case(
        "elementwise: integers, divisions, powers",
        "%a: i64[T, 7], %b: i32[T, 7], %c: i32[T, 7], %f: f32[T, 7]",
        [
            ("mul(%a, %a)", "i64[T, 7]"),
            ("div(%b, %c)", "i32[T, 7]"),
            ("mod(%b, %c) {fmod = false}", "i32[T, 7]"),
            ("le(%a, %a)", "bool[T, 7]"),
            ("sqrt(%f)", "f32[T, 7]"),
            ("sin(%f)", "f32[T, 7]"),
        ],
        T(1, 3, 4000),
        c=lambda rng, sizes, shape: rng.integers(1, 1000, shape),
        a=below(30000),
        f=positive,
    ),
    _norms("rows: norms at known width", "126", [(1, 126), (3, 126), (384, 126)], FULL),
    _norms("rows: norms in chunks", "20001", [(1, 20001), (3, 20001)]),
    _norms("rows: norms of any width", "C", [(2, 5), (3, 64), (64, 100), (2, 4013), (400, 8), (8, 1024)]),
    case(
        "rows: softmax, a column, repeated leading dimensions",
        "%x: f32[T, 3, 20], %r: f32[1, 3, 20], %c: f32[T, 3, 1]",
        [
            ("softmax(%x) {axis = 2}", "f32[T, 3, 20]"),
            ("add(%x, %r)", "f32[T, 3, 20]"),
            ("mul(%x, %c)", "f32[T, 3, 20]"),
        ],
        T(1, 5, 104, 152, 188),
    ),
    _gatings("gating: groups", [GATINGS["odd_groups"]], (1, 7, 200), 96 * KIB),
    _gatings("gating: softmax over top k", [GATINGS["gpt_oss"]], (1, 7, 480), 64 * KIB),
    _routing("gating, gradient: groups", [GATINGS["odd_groups"]], (1, 7, 192), 48 * KIB),
    case(
        "permute",
        "%x: bf16[T, 126], %e: i32[T, 2], %c: i32[5]",
        [("permute(%x, %e, %c)", "bf16[2*T, 126], i32[T, 2]")],
        T(1, 3, 1024),
        e=lambda rng, sizes, shape: np.arange(shape[0] * 2).reshape(shape) % 4,
        c=lambda rng, sizes, shape: np.bincount(np.arange(sizes["T"] * 2) % 4, minlength=5),
        ub=96 * KIB,
    ),
    case(
        "unpermute",
        "%r: bf16[2*T, 126], %p: i32[T, 2], %w: f32[T, 2]",
        [("unpermute(%r, %p, %w)", "bf16[T, 126]"), ("unpermute(%r, %p, none)", "bf16[T, 126]")],
        T(1, 3, 512),
        p=permutation,
    ),
    case(
        "unpermute, gradient",
        "%g: bf16[T, 126], %p: i32[T, 2], %r: bf16[2*T, 126], %w: bf16[T, 2]",
        [
            ("unpermute_grad(%g, %r, %p, %w)", "bf16[2*T, 126], bf16[T, 2]"),
            ("unpermute_grad(%g, none, %p, %w)", "bf16[2*T, 126], bf16[T, 0]"),
        ],
        T(1, 3, 512),
        p=permutation,
        ub=64 * KIB,
    ),
    case(
        "swiglu",
        "%h: bf16[T, 90], %c: f32[T, 90], %n: f32[T, 45]",
        [
            (f"swiglu(%h) {swiglu('interleaved')}", "bf16[T, 45]"),
            (f"swiglu(%c) {swiglu('chunked')}", "f32[T, 45]"),
            (f"swiglu(%n) {swiglu('none', 'gelu_tanh', 'none')}", "f32[T, 45]"),
        ],
        T(1, 3, 500),
    ),
    _activation(
        "swiglu, gradient",
        [
            ("silu", "interleaved", 1.702, 7.0, 1.0, "bf16", 45),
            ("silu", "chunked", 1.702, 7.0, 1.0, "bf16", 45),
            ("gelu_tanh", "none", 1.0, None, 0.0, "f32", 45),
        ],
        (1, 3, 500),
    ),
    case(
        "sums over rows, of each expert",
        "%x: bf16[T, 8204], %c: i32[3], %y: f32[7, T, 62]",
        [
            ("reduce_sum(%x) {axes = [0], keepdims = false}", "bf16[8204]"),
            ("segment_sum(%x, %c) {to = !f32}", "f32[3, 8204]"),
            ("reduce_max(%y) {axes = [1], keepdims = false}", "f32[7, 62]"),
        ],
        T(1, 3, 300),
        c=spread("T"),
        ub=FULL,
    ),
    case(
        "reductions: rows, products, integers",
        "%i: i64[T, 16], %b: f32[T, 2, 9, 5], %x: f32[3, 9*T]",
        [
            ("reduce_sum(%i) {axes = [1], keepdims = false}", "i64[T]"),
            ("reduce_max(%b) {axes = [2, 3], keepdims = false}", "f32[T, 2]"),
            ("reduce_prod(%x) {axes = [1], keepdims = false}", "f32[3]"),
        ],
        T(1, 3, 1000),
        "T in [1, 100000]",
        ub=32 * KIB,
        x=near_one,
    ),
    case(
        "reductions: means",
        "%b: f32[T, 2, 9, 5], %h: bf16[9, T, 3]",
        [
            ("reduce_mean(%h) {axes = [0], keepdims = false}", "bf16[T, 3]"),
            ("reduce_mean(%b) {axes = [1, 3], keepdims = false}", "f32[T, 9]"),
        ],
        T(1, 3, 12500, 16384),
        "T in [1, 100000]",
        ub=80 * KIB,
    ),
    case(
        "adamw",
        "%w: bf16[T, 3], %m: f32[T, 3], %v: f32[T, 3], %g: bf16[T, 3], %s: i64[], %l: f32[]",
        [(f"apply_adamw(%m, %m, %v, %g, %s, %l) {ADAMW % 'bf16'}", "bf16[T, 3], f32[T, 3], f32[T, 3], f32[T, 3]")],
        T(1, 3, 3000),
        v=positive,
        s=fixed(3),
        l=fixed(0.1, np.float32),
    ),
    case(
        "balance loss",
        "%x: f32[T, 8], %c: i32[8], %h: bf16[T, 30]",
        [
            ('balance_loss(%x, %c) {form = "load", score = "softmax", coefficient = 0.01}', "f32[]"),
            ('balance_loss(%h) {form = "cv_squared", score = "sigmoid", coefficient = 1.0}', "f32[]"),
        ],
        T(1, 3, 1184),
        c=spread("2*T"),
    ),
    case(
        "nonzero",
        "%x: f32[T, 3]",
        [("nonzero(%x) {count = N}", "i64[2, N]")],
        T(1, 3, 12288, 400000),
        "T in [0, 10000000]; N in [0, 10000000]",
        x=lambda rng, sizes, shape: sparse(rng, sizes, shape) if shape[0] != 12288 else np.ones(shape, np.float32),
        known={"N": 0},
        ub=FULL,
    ),
    case(
        "range",
        "%s: i64[], %l: i64[], %d: i64[], %f: f32[], %g: f32[], %z: f32[T]",
        [("range(%s, %l, %d) {count = R}", "i64[R]"), ("range(%f, %f, %g) {count = T}", "f32[T]")],
        T(1, 3, 90000),
        "T in [0, 1000000]; R in [0, 1000000]",
        s=fixed(1),
        l=lambda rng, sizes, shape: np.array(1 + 3 * sizes["T"]),
        d=fixed(3),
        known={"R": 0},
        ub=FULL,
    ),
    case(
        "cumsum",
        "%i: i32[3, T, 4], %x: f32[T, 70], %b: bf16[T, 130]",
        [
            ("cumsum(%i) {axis = 1, exclusive = false, reverse = false}", "i32[3, T, 4]"),
            ("cumsum(%x) {axis = 0, exclusive = true, reverse = true}", "f32[T, 70]"),
            ("cumsum(%x) {axis = 1, exclusive = false, reverse = false}", "f32[T, 70]"),
            ("cumsum(%b) {axis = 0, exclusive = false, reverse = true}", "bf16[T, 130]"),
        ],
        T(1, 3, 60, 4096, 6000),
        "T in [0, 10000]",
        i=below(1000),
        ub=FULL,
    ),
    case(
        "argmax, argmin",
        "%x: f32[T, 9], %h: bf16[5, T], %n: i64[T, 7]",
        [
            ("argmax(%x) {axis = 1, keepdims = false, last = false}", "i64[T]"),
            ("argmin(%h) {axis = 0, keepdims = false, last = true}", "i64[T]"),
            ("argmax(%n) {axis = 1, keepdims = false, last = false}", "i64[T]"),
            ("argmax(%h) {axis = 1, keepdims = false, last = false}", "i64[5]"),
        ],
        T(1, 3, 2200, 4300, 5376, 8256, 20003),
        "T in [1, 30000]",
        n=below(1000),
        ub=FULL,
    ),
    case(
        "gather, scatter",
        "%x: bf16[R, 15], %i: i64[T], %t: i32[T, 1], %u: bf16[T, 15], %e: i32[R, 2]",
        [
            ("gather(%x, %i) {axis = 0}", "bf16[T, 15]"),
            ("gather_elements(%x, %e) {axis = 1}", "bf16[R, 2]"),
            ('scatter_nd(%x, %t, %u) {reduction = "none"}', "bf16[R, 15]"),
            ('scatter_nd(%x, %t, %u) {reduction = "add"}', "bf16[R, 15]"),
        ],
        [{"T": 3, "R": 1}, {"T": 1, "R": 3}, {"T": 2560, "R": 20000}],
        "T in [0, 50000]; R in [1, 50000]",
        i=below("R"),
        t=below("min(R, 40)"),
        e=below(15),
        ub=FULL,
    ),
    case(
        "gather, scatter: long rows",
        "%w: f32[40, 9001], %g: i32[3], %h: f32[3, 9001], %q: i64[3, 1], %z: f32[T]",
        [
            ("gather(%w, %g) {axis = 0}", "f32[3, 9001]"),
            ('scatter_nd(%w, %q, %h) {reduction = "none"}', "f32[40, 9001]"),
            ('scatter_nd(%w, %q, %h) {reduction = "add"}', "f32[40, 9001]"),
        ],
        T(1),
        g=below(40),
        q=lambda rng, sizes, shape: np.array([[19], [3], [7]]),
        ub=FULL,
    ),
    case(
        "histogram",
        "%x: i32[T], %y: i64[T]",
        [("histogram(%x) {bins = 9}", "i32[9]"), ("histogram(%y) {bins = 12001}", "i32[12001]")],
        T(1, 3, 90000),
        ub=FULL,
        x=below(9),
        y=below(12001),
    ),
    case(
        "one-hot, cross entropy",
        "%x: bf16[T, 30], %l: i64[T], %m: i32[T], %w: f32[T, 9001]",
        [
            ("one_hot(%l) {depth = 30, axis = 1, dtype = !f32}", "f32[T, 30]"),
            ("cross_entropy(%x, %l) {ignore = 3}", "f32[T]"),
            ("cross_entropy(%w, %m) {ignore = none}", "f32[T]"),
        ],
        T(1, 3, 496, 512),
        l=below(30),
        m=below(9001),
    ),
    case(
        "moves: slice, transpose, pad, expand, concat",
        "%x: f32[2, T, 16], %r: f32[1, T, 15], %i: i64[2, T, 3]",
        [
            ("slice(%x) {axis = 2, start = 8, stop = 16, step = 1}", "f32[2, T, 8]"),
            ("transpose(%x) {perm = [0, 2, 1]}", "f32[2, 16, T]"),
            ("transpose(%i) {perm = [0, 2, 1]}", "i64[2, 3, T]"),
            ("pad(%r) {before = [1, 0, 0], after = [0, 0, 0], value = 1.5}", "f32[2, T, 15]"),
            ("expand(%r) {shape = [5, T, 15]}", "f32[5, T, 15]"),
            ("concat(%x, %x) {axis = 2}", "f32[2, T, 32]"),
        ],
        T(1, 3, 16384),
        ub=FULL,
    ),
    case(
        "rope: half, interleaved",
        "%x: bf16[T, 24], %c: bf16[T, 5], %y: f32[T, 10], %o: f32[1, 5], %h: f32[T, 4, 8], %d: f32[T, 1, 4]",
        [
            ('rope(%x, %c, %c) {rotary_dim = 10, layout = "interleaved"}', "bf16[T, 24]"),
            ('rope(%y, %o, %o) {rotary_dim = 10, layout = "half"}', "f32[T, 10]"),
            ('rope(%y, %o, %o) {rotary_dim = 10, layout = "half_to_interleaved"}', "f32[T, 10]"),
        ],
        T(1, 3, 400),
    ),
    case(
        "iota, triangles",
        "%x: f32[T, T], %b: f32[R]",
        [
            ("iota() {size = R, dtype = !i64}", "i64[R]"),
            ("iota() {size = R, dtype = !f32}", "f32[R]"),
            ("iota() {size = R, dtype = !bf16}", "bf16[R]"),
            ("trilu(%x) {upper = false, k = 0}", "f32[T, T]"),
            ("trilu(%x) {upper = true, k = 1}", "f32[T, T]"),
        ],
        [{"T": 1, "R": 1}, {"T": 3, "R": 5}, {"T": 200, "R": 65536}],
        "T in [0, 5000]; R in [0, 1000000]",
        ub=FULL,
    ),
    case(
        "two of four elements, and back",
        "%x: f32[T, 16]",
        [("sparse24(%x)", "f32[T, 8], u8[T, 2]"), ("dense24(%y0_0, %y0_1)", "f32[T, 16]")],
        T(1, 3, 4096),
        ub=FULL,
    ),
    case(
        "sort: short rows, top k of columns, integers",
        "%x: f32[T, 40], %h: bf16[9, T], %n: i64[T, 9]",
        [
            ("argsort(%x) {axis = 1, descending = true}", "i64[T, 40]"),
            ("topk(%h) {k = 2, axis = 0, largest = true, sorted = true}", "bf16[2, T], i64[2, T]"),
            ("topk(%n) {k = 3, axis = 1, largest = false, sorted = true}", "i64[T, 3], i64[T, 3]"),
        ],
        T(1, 3, 1000, 9000),
        "T in [1, 100000]",
        ub=FULL,
    ),
    case(
        "sort: merges of blocks",
        "%x: f32[2, T]",
        [("argsort(%x) {axis = 1, descending = true}", "i64[2, T]")],
        T(4096, 2 * 512 + 3, 3 * 4096 + 70),
        "T in [1, 100000]",
        ub=FULL,
    ),
    case(
        "bias of experts",
        "%x: f32[T, 40], %w: f32[7, 24, 40], %c: i32[7], %b: bf16[7, 24]",
        [("grouped_matmul(%x, %w, %c, %b) {transpose_weight = true}", "f32[T, 24]")],
        T(1, 6, 300),
        tune={"T": 160},
        c=spread("T"),
    ),
    case(
        "gradient of experts' weights, empty ones",
        "%x: f32[T, 40], %g: f32[T, 24], %c: i32[5]",
        [("grouped_matmul_dw(%g, %x, %c) {to = !f32}", "f32[5, 24, 40]")],
        T(1, 3, 300),
        tune={"T": 160},
        c=spread("T"),
    ),
]

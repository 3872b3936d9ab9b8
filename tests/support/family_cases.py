"""One small case of every family of kernels, and one layer of them all.

Everything is of 3 rows of 8 f32 (32 bytes a row, 96 in all). What is written beside a call are (copies, bytes) of MTE2
and MTE3 and the calls that do the work, counted by hand for one core, where each operand that is used whole comes in
one copy.
"""

from __future__ import annotations

import numpy as np

ROWS, WIDE = "f32[T, 8]", "f32[1, 1, T, 16]"
ADAMW = "{beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.1, to = !f32}"
SWIGLU = '{activation = "silu", glu = "chunked", alpha = 1.0, limit = none, up_offset = 0.0}'
ROUTING = (
    '{top_k = 2, score = "softmax", score_order = "before_topk", groups = 1, group_top_k = 1, group_score = "none", '
    'group_mask = "none", renormalize = true, renormalize_eps = 0.0, scale = 1.0, score_dtype = !f32, '
    "weights_dtype = !f32}"
)
ATTENTION = '{scale = 0.25, causal = false, offset = 0, window = none, softcap = none, empty_rows = "zero"}'
LOSS = '{form = "load", score = "softmax", coefficient = 0.01}'
CASES: list[tuple[str, tuple[str, ...], dict[str, tuple[int, int] | int]]] = [
    # a step's three factors (4 bytes each), then weights, moments and gradient; weights twice and moments are stored
    (f"apply_adamw(%x, %m, %v, %g, %s, %l) {ADAMW}", (ROWS,) * 4, {"MTE2": (7, 396), "MTE3": (4, 384), "V Sqrt": 1}),
    # scores of 3 keys for 3 queries over 16 columns, their product with 3 values of 16 columns: 144 each
    (f"attention(%d, %d, %d) {ATTENTION}", (WIDE,), {"M Mmad": 2, "mnk": 2 * 144}),
    # scores, probabilities' gradient, dv and dk; scores and probabilities' gradient again, dq
    (
        f"attention_grad(%d, %d, %d, %d, %n, %n, %d) {ATTENTION}",
        (WIDE, WIDE, WIDE, "f32[0]", "f32[1, 1, T, 0]", "f32[1, 1, T, 0]"),
        {"M Mmad": 4 + 3, "mnk": 7 * 144},
    ),
    # the mean share of each of 8 experts (32 bytes) and the counts come in, a loss goes out
    (f"balance_loss(%x, %o) {LOSS}", ("f32[]",), {"MTE2": (2, 64), "MTE3": (1, 4)}),
    # two i64 say where it starts and steps, three go out
    ("range(%s, %u, %s3) {count = R}", ("i64[R]",), {"MTE2": (2, 16), "MTE3": (1, 24)}),
    # 3 rows and 8 columns by 8
    (
        "matmul(%x, %q) {transpose_a = false, transpose_b = true}",
        (ROWS,),
        {"MTE2": (2, 96 + 256), "M Mmad": 1, "mnk": 3 * 8 * 8, "FIX": (1, 96)},
    ),
    # two experts have rows, each is 8 by 8 and sums over its own
    (
        "grouped_matmul_dw(%x, %g, %c) {to = !f32}",
        ("f32[2, 8, 8]",),
        {"MTE2": (4, 2 * 96), "M Mmad": 2, "mnk": 8 * 8 * 3, "FIX": (2, 2 * 256)},
    ),
    # two of every four numbers go out, and a byte of places a row
    ("sparse24(%x)", ("f32[T, 4]", "u8[T, 1]"), {"MTE2 bytes": 96, "MTE3 bytes": 48 + 3}),
    # row by row
    (
        "cumsum(%x) {axis = 0, exclusive = false, reverse = false}",
        (ROWS,),
        {"MTE2": (3, 96), "V Add": 3, "MTE3": (3, 96)},
    ),
    ("exp(%x)", (ROWS,), {"MTE2": (1, 96), "V Exp": 1, "MTE3": (1, 96)}),
    # beside the rows the numbers of 8 columns; 3 i64 go out
    (
        "argmax(%x) {axis = 1, keepdims = false, last = false}",
        ("i64[T]",),
        {"MTE2": (2, 96 + 32), "V WholeReduceMax": 1, "V WholeReduceMin": 1, "MTE3": (1, 24)},
    ),
    # the indices, and a row for each
    ("gather(%x, %i) {axis = 0}", (ROWS,), {"MTE2": (1 + 3, 12 + 96), "S GetValue": 3, "MTE3": (1, 96)}),
    # weights and experts of 3 tokens by 2; counts of 8
    (f"gating(%x) {ROUTING}", ("f32[T, 2]", "i32[T, 2]", "i32[8]"), {"MTE2": (1, 96), "MTE3": (3, 24 + 24 + 32)}),
    (f"gating_grad(%x, none, %e, %w) {ROUTING}", (ROWS,), {"MTE2": (3, 96 + 24 + 24), "MTE3": (1, 96)}),
    # each of 3 numbers is read, and the count it is added to
    (
        "histogram(%i) {bins = 8}",
        ("i32[8]",),
        {"MTE2": (1, 12), "S GetValue": 3 + 3, "S SetValue": 3, "MTE3": (1, 32)},
    ),
    # a row for each label
    (
        "one_hot(%i) {depth = 8, axis = 1, dtype = !f32}",
        (ROWS,),
        {"MTE2": (1, 12), "V CompareScalar": 3, "V Select": 3, "MTE3": (3, 96)},
    ),
    # 3 rows of each of the two that come first then
    ("transpose(%y) {perm = [1, 0, 2]}", ("f32[2, T, 8]",), {"MTE2": (2, 192), "MTE3": (2, 192)}),
    # rows of 6 slots go out, where each went, and how many slots of each of 8 experts this core has
    ("permute(%x, %e, %o)", ("f32[2*T, 8]", "i32[T, 2]"), {"MTE3 bytes": 192 + 24 + 32}),
    (
        "reduce_sum(%x) {axes = [1], keepdims = false}",
        ("f32[T]",),
        {"MTE2": (1, 96), "V WholeReduceSum": 1, "MTE3": (1, 12)},
    ),
    # both halves and both tables; two products each, and the halves go out
    (
        'rope(%x, %h, %h) {rotary_dim = 8, layout = "half"}',
        (ROWS,),
        {"MTE2": (4, 2 * 48 + 2 * 48), "V Mul": 4, "V Sub": 1, "V Add": 1, "MTE3": (2, 96)},
    ),
    ("iota() {size = T, dtype = !i32}", ("i32[T]",), {"V ArithProgression": 1, "MTE3": (1, 12)}),
    # row by row; numbers of 8 bytes go out
    (
        "argsort(%x) {axis = 1, descending = true}",
        ("i64[T, 8]",),
        {"MTE2": (3, 96), "V Sort32": 3, "MTE3": (3, 192)},
    ),
    # an expert's rows in one copy, each row added
    (
        "segment_sum(%x, %c) {to = !f32}",
        ("f32[2, 8]",),
        {"S GetValue": 2, "MTE2": (2, 96), "V Add": 3, "MTE3": (2, 64)},
    ),
    (f"swiglu(%x) {SWIGLU}", ("f32[T, 4]",), {"MTE2": (2, 96), "V Exp": 1, "MTE3": (1, 48)}),
    (f"swiglu_grad(%x, %h) {SWIGLU}", (ROWS,), {"MTE2": (3, 96 + 48), "MTE3": (2, 96)}),
    # row i has i + 1 numbers that stay, 36 in all; the 28 zeros are stored apart, and the last row has none
    ("trilu(%q) {upper = false, k = 0}", ("f32[8, 8]",), {"MTE2": (8, 36 * 4), "MTE3": (8 + 7, 256)}),
    # places and weights, and a row for each slot
    ("unpermute(%r, %p, %w)", (ROWS,), {"MTE2": (2 + 6, 48 + 192), "V Axpy": 6, "MTE3": (3, 96)}),
    # the same and the gradient of each token; a row for each slot goes out, and the weights' gradients
    (
        "unpermute_grad(%x, %r, %p, %w)",
        ("f32[2*T, 8]", "f32[T, 2]"),
        {"MTE2": (2 + 6 + 3, 48 + 192 + 96), "MTE3": (6 + 1, 192 + 24)},
    ),
    ("rms_norm(%x) {eps = 1e-6}", (ROWS,), {"MTE2": (1, 96), "V WholeReduceSum": 1, "MTE3": (1, 96)}),
    ("softmax(%x) {axis = 1}", (ROWS,), {"MTE2": (1, 96), "V Exp": 1, "V WholeReduceMax": 1, "MTE3": (1, 96)}),
]
GIVEN = (
    f"%x: {ROWS}, %m: {ROWS}, %v: {ROWS}, %g: {ROWS}, %s: i64[], %u: i64[], %s3: i64[], %l: f32[], %o: i32[8], "
    f"%c: i32[2], %i: i32[T], %e: i32[T, 2], %w: f32[T, 2], %y: f32[T, 2, 8], %h: f32[T, 4], %q: f32[8, 8], "
    f"%r: f32[2*T, 8], %p: i32[T, 2], %d: {WIDE}, %n: f32[1, 1, T]"
)


def text() -> str:
    made, body = [], []
    for i, (call, kinds, _) in enumerate(CASES):
        names = [f"y{i}_{j}" for j in range(len(kinds))]
        body.append(f"  {', '.join(f'%{n}' for n in names)} = {call} : {', '.join(kinds)}\n")
        made += [(n, kind) for n, kind in zip(names, kinds, strict=True) if ", 0]" not in kind and kind != "f32[0]"]
    outs, returned = ", ".join(f"{n}: {kind}" for n, kind in made), ", ".join(f"%{n}" for n, _ in made)
    symbols = "symbol T in [0, 5000]\nsymbol R in [0, 5000]\n"
    return f"{symbols}func main({GIVEN}) -> ({outs}) {{\n{''.join(body)}  return {returned}\n}}\n"


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)

    def floats(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    given = {"x": floats(3, 8), "m": floats(3, 8), "v": np.abs(floats(3, 8)), "g": floats(3, 8), "l": np.float32(0.1)}
    given |= {"w": floats(3, 2), "y": floats(3, 2, 8), "h": floats(3, 4), "q": floats(8, 8), "r": floats(6, 8)}
    given |= {"s": np.array(1), "u": np.array(10), "s3": np.array(3), "d": floats(1, 1, 3, 16), "n": floats(1, 1, 3)}
    experts = [[0, 3], [5, 1], [7, 2]]
    small = {"i": [2, 0, 2], "e": experts, "p": [[0, 3], [4, 1], [5, 2]], "c": [2, 1]}
    small["o"] = np.bincount(np.ravel(experts), minlength=8).tolist()
    return {n: np.asarray(a) for n, a in given.items()} | {n: np.array(a, np.int32) for n, a in small.items()}

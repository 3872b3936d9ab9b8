"""Integer arithmetic, extremes and conditions on the CPU model against the numpy reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from vector_moves import module, values
from vector_run import ORDERS, Layer, numbers

LARGE = 2**31 - 1
LINES = [
    ("div(%i, %j)", "i64[T]"),
    ("mod(%i, %j) {fmod = false}", "i64[T]"),
    ("mod(%i, %j) {fmod = true}", "i64[T]"),
    ("div(%a, %r)", "i32[T, 5]"),
    ("mod(%a, %c) {fmod = false}", "i32[T, 5]"),
    ("abs(%a)", "i32[T, 5]"),
    ("sign(%i)", "i64[T]"),
    ("neg(%i)", "i64[T]"),
    ("select(%m, %n, %o)", "bool[T]"),
    ("mul(%f, %w)", "f32[4, 8]"),
    ("argmax(%a) {axis = 1, keepdims = true, last = false}", "i64[T, 1]"),
    ("argmin(%a) {axis = 0, keepdims = false, last = true}", "i64[5]"),
    ("argmax(%f) {axis = 0, keepdims = false, last = false}", "i64[8]"),
    ("argmin(%g) {axis = 1, keepdims = false, last = true}", "i64[3]"),
]
GIVEN = (
    "%i: i64[T], %j: i64[T], %a: i32[T, 5], %r: i32[5], %c: i32[T, 1], %m: bool[T], %n: bool[T], %o: bool[T], "
    "%f: f32[4, 8], %w: f32[S, 1], %g: bf16[3, T]"
)
TEXT = module(GIVEN, LINES, "T in [1, 100000]; S in [0, 100]")


def test_whole_numbers_and_conditions(tmp_path: Path) -> None:
    layer = Layer(TEXT, tmp_path)
    rng = np.random.default_rng(0)
    for i, (t, s) in enumerate(((1, 4), (5, 1), (127, 4), (5000, 1))):
        arrays = {
            "i": rng.integers(-LARGE, LARGE, t),
            "j": rng.integers(-LARGE, LARGE, t) // rng.choice([1, 10, 10**3, 10**6, 10**9], t),
            "a": values(rng, (t, 5), "i32") >> rng.integers(1, 31, (t, 1)).astype(np.int32),
            "r": np.array([1, -1, 3, -7, 65537], np.int32),
            "c": rng.integers(1, 100, (t, 1)).astype(np.int32),
            "f": np.round(numbers(rng, (4, 8), "f32")),
            "w": numbers(rng, (s, 1), "f32"),
            "g": np.round(numbers(rng, (3, t), "f32")).astype(numbers(rng, (1,), "bf16").dtype),
        }
        arrays |= {n: values(rng, (t,), "bool") for n in "mno"}
        arrays["j"][arrays["j"] == 0] = 3
        arrays["i"][0] = 0
        got, want = layer.run(arrays, MOEC_CPU_ORDER=ORDERS[i % 3]), layer.reference(arrays)
        for name, w in want.items():
            np.testing.assert_array_equal(got[name].reshape(w.shape), w, f"{name} at {t}")


@pytest.mark.slow
def test_a_row_of_unknown_length_is_sorted_for_its_extreme(tmp_path: Path) -> None:
    lines = [("argmin(%u) {axis = 0, keepdims = false, last = false}", "i64[]")]
    layer = Layer(module("%u: f32[U]", lines, "U in [1, 100000000]"), tmp_path)
    rng = np.random.default_rng(1)
    for u in (1, 4500):
        arrays = {"u": np.round(numbers(rng, (u,), "f32"))}
        assert layer.run(arrays)["y0"] == layer.reference(arrays)["y0"]

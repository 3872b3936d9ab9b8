"""Integers of 64 bits, selections of integers, and progressions, on the CPU model against the numpy reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from vector_moves import module, same, unsynchronised
from vector_run import ORDERS, Layer

GIVEN = (
    "%a: i64[T, 7], %b: i32[T, 7], %f: f32[T, 7], %m: bool[T, 7], %s: i64[T, 1], %p: i64[1, 7], %z: i64[], %d: i64[]"
)
LINES = [
    ("cast(%a) {to = !i32}", "i32[T, 7]"),
    ("cast(%b) {to = !i64}", "i64[T, 7]"),
    ("cast(%a) {to = !f32}", "f32[T, 7]"),
    ("cast(%a) {to = !bool}", "bool[T, 7]"),
    ("cast(%f) {to = !i64}", "i64[T, 7]"),
    ("cast(%m) {to = !i64}", "i64[T, 7]"),
    ("add(%s, %p)", "i64[T, 7]"),
    ("sub(%a, %s)", "i64[T, 7]"),
    ("mul(%a, %p)", "i64[T, 7]"),
    ("le(%a, %s)", "bool[T, 7]"),
    ("select(%m, %b, %b)", "i32[T, 7]"),
    ("select(%m, %a, %s)", "i64[T, 7]"),
    ("iota() {size = 3*T, dtype = !i64}", "i64[3*T]"),
    ("iota() {size = T, dtype = !f32}", "f32[T]"),
    ("iota() {size = T, dtype = !bf16}", "bf16[T]"),
    ("range(%z, %e, %d) {count = 5*T}", "i64[5*T]"),
]


@pytest.mark.slow
def test_integers_and_progressions(tmp_path: Path) -> None:
    layer = Layer(module(f"{GIVEN}, %e: i64[]", LINES, "T in [0, 50000]"), tmp_path)
    rng = np.random.default_rng(0)
    for i, t in enumerate((0, 1, 5, 127, 9000)):
        arrays = {n: rng.integers(-30000, 30000, (t, 7)).astype(k) for n, k in (("a", np.int64), ("b", np.int32))}
        arrays["f"] = (rng.standard_normal((t, 7)) * 1000).astype(np.float32)
        arrays["m"] = rng.random((t, 7)) < 0.5
        arrays["s"], arrays["p"] = (rng.integers(-900, 900, s) for s in ((t, 1), (1, 7)))
        arrays["z"], arrays["d"], arrays["e"] = (np.array(n) for n in (-3, 4, -3 + 20 * t))
        same(layer, arrays, MOEC_CPU_ORDER=ORDERS[i % 3])


def test_kernels_are_synchronised_for_every_size() -> None:
    assert not unsynchronised(module(f"{GIVEN}, %e: i64[]", LINES, "T in [0, 50000]"))

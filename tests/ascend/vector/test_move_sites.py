"""Leaving out every flag, barrier, padding and buffer bound of the kernels that move rows in turn: each is noticed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from vector_moves import module
from vector_run import Layer, numbers

pytestmark = pytest.mark.slow  # a build for every site or choice

LONG = 16384
"""Rows enough that both buffers of every kernel are filled to their ends and used again."""


def caught(layer: Layer, cases: Sequence[dict[str, np.ndarray]]) -> None:
    report = layer.mask(cases)
    print(report)
    assert not report.missed, f"{report}: {report.missed}"


@pytest.mark.slow
def test_moves(tmp_path: Path) -> None:
    lines = [
        ("slice(%x) {axis = 2, start = 8, stop = 16, step = 1}", "f32[2, T, 8]"),
        ("transpose(%x) {perm = [0, 2, 1]}", "f32[2, 16, T]"),
        ("pad(%r) {before = [1, 0, 0], after = [0, 0, 0], value = 1.5}", "f32[2, T, 15]"),
        ("expand(%r) {shape = [5, T, 15]}", "f32[5, T, 15]"),
    ]
    layer = Layer(module("%x: f32[2, T, 16], %r: f32[1, T, 15]", lines, "T in [0, 50000]"), tmp_path, cores=2)
    rng = np.random.default_rng(0)
    caught(layer, [{"x": numbers(rng, (2, t, 16), "f32"), "r": numbers(rng, (1, t, 15), "f32")} for t in (3, LONG)])


@pytest.mark.slow
def test_rope(tmp_path: Path) -> None:
    lines = [
        ('rope(%x, %c, %c) {rotary_dim = 10, layout = "interleaved"}', "bf16[T, 24]"),
        ('rope(%y, %o, %o) {rotary_dim = 10, layout = "half"}', "f32[S, 10]"),
    ]
    given = "%x: bf16[T, 24], %c: bf16[T, 5], %y: f32[S, 10], %o: f32[1, 10]"
    layer = Layer(module(given, lines, "T in [0, 50000]; S in [0, 50000]"), tmp_path, cores=2)
    rng = np.random.default_rng(1)
    t, s = (next(b.elems for b in k.buffers if b.name == "turned") // 32 for k in layer.program.kernels)
    cases = []
    for n, m in ((3, 3), (2 * 5 * t, 2 * 5 * s)):
        made = {"x": ((n, 24), "bf16"), "c": ((n, 5), "bf16"), "y": ((m, 10), "f32"), "o": ((1, 10), "f32")}
        cases.append({name: numbers(rng, dims, d) for name, (dims, d) in made.items()})
    caught(layer, cases)


def test_rows_by_index(tmp_path: Path) -> None:
    lines = [
        ("gather(%x, %i) {axis = 0}", "bf16[S, 15]"),
        ('scatter_nd(%x, %t, %u) {reduction = "none"}', "bf16[R, 15]"),
        ('scatter_nd(%x, %t, %u) {reduction = "add"}', "bf16[R, 15]"),
        ("iota() {size = R, dtype = !i64}", "i64[R]"),
    ]
    given = "%x: bf16[R, 15], %i: i64[S], %t: i32[S, 1], %u: bf16[S, 15]"
    layer = Layer(module(given, lines, "S in [0, 50000]; R in [1, 50000]"), tmp_path, cores=2)
    rng = np.random.default_rng(2)
    cases = []
    for n, rows in ((3, 1), (2 * 5 * 128, 2 * LONG)):
        cases.append({"x": numbers(rng, (rows, 15), "bf16"), "i": rng.integers(0, rows, n)})
        cases[-1] |= {"t": rng.integers(0, min(40, rows), (n, 1)).astype(np.int32), "u": numbers(rng, (n, 15), "bf16")}
    caught(layer, cases)

"""Triangles and histograms on the CPU model against the numpy reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from vector_moves import module, same, unsynchronised, values
from vector_run import ORDERS, Layer

LINES = [
    ("trilu(%x) {upper = true, k = 1}", "f32[2, T, 9]"),
    ("trilu(%x) {upper = false, k = -2}", "f32[2, T, 9]"),
    ("trilu(%m) {upper = false, k = 0}", "bool[T, T]"),
    ("histogram(%i) {bins = 7}", "i32[7]"),
    ("histogram(%j) {bins = 130}", "i32[130]"),
    ("histogram(%i) {bins = T}", "i32[T]"),
    ("histogram(%j) {bins = 40000}", "i32[40000]"),
]
TEXT = module("%x: f32[2, T, 9], %m: bool[T, T], %i: i32[T, 3], %j: i64[T]", LINES)


def test_triangles_and_histograms(tmp_path: Path) -> None:
    layer = Layer(TEXT, tmp_path)
    rng = np.random.default_rng(0)
    for i, t in enumerate((0, 1, 5, 127)):
        arrays = {"x": values(rng, (2, t, 9), "f32"), "m": values(rng, (t, t), "bool")}
        arrays |= {"i": rng.integers(-2, 9, (t, 3)).astype(np.int32), "j": rng.integers(-5, 140, t)}
        same(layer, arrays, MOEC_CPU_ORDER=ORDERS[i % 3])


def test_kernels_are_synchronised_for_every_size() -> None:
    assert not unsynchronised(TEXT)

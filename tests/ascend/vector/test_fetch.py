"""Gather and scatter on the CPU model against the numpy reference: axes, tuples, negative and repeated indices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from vector_moves import module, unsynchronised, values
from vector_run import ORDERS, Layer

GIVEN = (
    "%x: D[T, 3, 5], %r: I[7], %m: I[2, T], %e: I[T, 2, 5], %n: I[T, 4, 1], %p: I[6, 2], "
    "%u: D[T, 2, 5], %v: D[6, 5], %w: D[40, 9000], %g: I[3], %h: D[3, 9000], %q: I[3, 1]"
)
LINES = [
    ("gather(%x, %m) {axis = 1}", "D[T, 2, T, 5]"),
    ("gather(%w, %g) {axis = 0}", "D[3, 9000]"),
    ("gather(%x, %r) {axis = 2}", "D[T, 3, 7]"),
    ("gather_elements(%x, %e) {axis = 1}", "D[T, 2, 5]"),
    ("gather_nd(%x, %n) {batch_dims = 1}", "D[T, 4, 5]"),
    ("gather_nd(%x, %p) {batch_dims = 0}", "D[6, 5]"),
    ('scatter_elements(%x, %e, %u) {axis = 1, reduction = "none"}', "D[T, 3, 5]"),
    ('scatter_nd(%x, %p, %v) {reduction = "none"}', "D[T, 3, 5]"),
    ('scatter_nd(%w, %q, %h) {reduction = "none"}', "D[40, 9000]"),
]
ADDS = [
    ('scatter_elements(%x, %e, %u) {axis = 1, reduction = "add"}', "D[T, 3, 5]"),
    ('scatter_nd(%x, %p, %v) {reduction = "add"}', "D[T, 3, 5]"),
    ('scatter_nd(%w, %q, %h) {reduction = "add"}', "D[40, 9000]"),
]


def fetch_module(dtype: str, index: str, adds: bool = True) -> str:
    text = module(GIVEN, [*LINES, *(ADDS if adds else [])], "T in [1, 500]")
    return text.replace("D[", f"{dtype}[").replace("I[", f"{index}[")


def fetch_inputs(rng: np.random.Generator, t: int, dtype: str, index: str) -> dict[str, np.ndarray]:
    kind = np.int32 if index == "i32" else np.int64
    limits = {"r": 5, "m": 3, "e": 3, "n": 3, "g": 40, "q": 40}
    shapes = {"r": (7,), "m": (2, t), "e": (t, 2, 5), "n": (t, 4, 1), "g": (3,), "q": (3, 1)}
    out = {name: rng.integers(-limits[name], limits[name], shapes[name]).astype(kind) for name in limits}
    out["p"] = np.stack([rng.integers(-t, t, 6), rng.integers(-3, 3, 6)], axis=1).astype(kind)
    out["p"][3] = out["p"][1]
    for name, s in {"x": (t, 3, 5), "u": (t, 2, 5), "v": (6, 5), "w": (40, 9000), "h": (3, 9000)}.items():
        out[name] = values(rng, s, dtype)
    return out


SWEPT = [pytest.param(*pair, marks=pytest.mark.slow) for pair in (("bf16", "i32"), ("i64", "i64"))]


@pytest.mark.parametrize(("dtype", "index"), [("f32", "i64"), *SWEPT])
def test_rows_by_index(tmp_path: Path, dtype: str, index: str) -> None:
    layer = Layer(fetch_module(dtype, index, dtype != "i64"), tmp_path)
    rng = np.random.default_rng(0)
    for i, t in enumerate((1, 5, 127, 400)):
        arrays = fetch_inputs(rng, t, dtype, index)
        got, want = layer.run(arrays, MOEC_CPU_ORDER=ORDERS[i % 3]), layer.reference(arrays)
        for j, name in enumerate(want):
            a, b = got[name].view(want[name].dtype), want[name]
            if j < len(LINES) or dtype != "bf16":
                np.testing.assert_array_equal(a, b, name)
            else:  # rounded after each update, where the reference sums first
                np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=2**-7, atol=2**-6)


def test_kernels_are_synchronised_for_every_size() -> None:
    assert not unsynchronised(fetch_module("bf16", "i32"))

"""Reductions on the CPU model against the numpy reference: any dimensions, integers, products."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from vector_moves import module, unsynchronised, values
from vector_run import ORDERS, Layer, numbers

WHOLE = [
    ("reduce_sum(%i) {axes = [1], keepdims = false}", "i64[T]"),
    ("reduce_max(%j) {axes = [0], keepdims = true}", "i32[1, T]"),
    ("reduce_min(%j) {axes = [1], keepdims = true}", "i32[5, 1]"),
    ("reduce_sum(%i) {axes = [0], keepdims = false}", "i64[9]"),
    ("reduce_prod(%j) {axes = [0], keepdims = false}", "i32[T]"),
]
FLOATS = [
    ("reduce_prod(%x) {axes = [1], keepdims = false}", "f32[3, 7]"),
    ("reduce_prod(%x) {axes = [2], keepdims = false}", "f32[3, T]"),
    ("reduce_mean(%x) {axes = [0, 2], keepdims = true}", "f32[1, T, 1]"),
    ("reduce_sum(%x) {axes = [1, 2], keepdims = false}", "f32[3]"),
    ("reduce_max(%b) {axes = [0], keepdims = false}", "bf16[130]"),
    ("reduce_mean(%b) {axes = [0], keepdims = false}", "bf16[130]"),
]
GIVEN = "%i: i64[T, 9], %j: i32[5, T], %x: f32[3, T, 7], %b: bf16[T, 130]"
TEXT = module(GIVEN, [*WHOLE, *FLOATS], "T in [1, 100000]")


def _inputs(rng: np.random.Generator, t: int) -> dict[str, np.ndarray]:
    x = (1 + 0.01 * rng.standard_normal((3, t, 7))).astype(np.float32)
    return {
        "i": rng.integers(-1000, 1000, (t, 9)),
        "j": values(rng, (5, t), "i32"),
        "x": x,
        "b": numbers(rng, (t, 130), "bf16"),
    }


def test_any_dimensions(tmp_path: Path) -> None:
    layer = Layer(TEXT, tmp_path)
    rng = np.random.default_rng(0)
    for i, t in enumerate((1, 5, 127, 1000)):
        arrays = _inputs(rng, t)
        got = layer.run(arrays, MOEC_CPU_ORDER=ORDERS[i % 3])
        want, exact = layer.reference(arrays), layer.reference(arrays, fp64=True)
        for n in range(len(WHOLE)):
            np.testing.assert_array_equal(got[f"y{n}"].reshape(want[f"y{n}"].shape), want[f"y{n}"], f"y{n} at {t}")
        for n, rel in zip(range(len(WHOLE), len(WHOLE) + len(FLOATS)), (t, 7, 1, 1, 0, 2**16), strict=True):
            g, w = got[f"y{n}"].astype(np.float64), exact[f"y{n}"].astype(np.float64)
            np.testing.assert_allclose(g.reshape(w.shape), w, rtol=2**-23 * (2 + rel / 2), err_msg=f"y{n} at {t}")


@pytest.mark.slow
def test_every_site_is_noticed(tmp_path: Path) -> None:
    lines = [
        ("reduce_sum(%i) {axes = [1], keepdims = false}", "i64[T]"),
        ("reduce_max(%b) {axes = [0], keepdims = false}", "bf16[T]"),
        ("reduce_prod(%x) {axes = [1], keepdims = false}", "f32[130]"),
    ]
    layer = Layer(
        module("%i: i64[T, 16], %b: bf16[9, T], %x: f32[130, T]", lines, "T in [1, 100000]"), tmp_path, cores=2
    )
    rng = np.random.default_rng(1)
    cases = []
    for t in (3, 64, 4 * 2048 + 2047):
        x = 1 + 0.01 * rng.standard_normal((130, t))
        cases.append({"i": values(rng, (t, 16), "i64"), "b": numbers(rng, (9, t), "bf16"), "x": x.astype(np.float32)})
    report = layer.mask(cases)
    print(report)
    assert not report.missed, f"{report}: {report.missed}"


@pytest.mark.slow
def test_kernels_are_synchronised_for_every_size() -> None:
    assert not unsynchronised(TEXT)

"""Running sums on the CPU model against the numpy reference: any dimension, from either end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from vector_moves import module, unsynchronised, values
from vector_run import ORDERS, Layer

LINES = [
    ("cumsum(%i) {axis = 1, exclusive = false, reverse = false}", "i32[3, T, 4]"),
    ("cumsum(%x) {axis = 0, exclusive = true, reverse = true}", "f32[T, 70]"),
    ("cumsum(%x) {axis = 1, exclusive = false, reverse = false}", "f32[T, 70]"),
    ("cumsum(%b) {axis = 0, exclusive = false, reverse = true}", "bf16[T, 130]"),
]
TEXT = module("%i: i32[3, T, 4], %x: f32[T, 70], %b: bf16[T, 130]", LINES)


def test_running_sums(tmp_path: Path) -> None:
    layer = Layer(TEXT, tmp_path)
    rng = np.random.default_rng(0)
    for i, t in enumerate((0, 1, 5, 127)):
        shapes = {"i": ((3, t, 4), "i32"), "x": ((t, 70), "f32"), "b": ((t, 130), "bf16")}
        arrays = {n: values(rng, s, d) for n, (s, d) in shapes.items()}
        arrays["i"] //= 1000
        got, exact = layer.run(arrays, MOEC_CPU_ORDER=ORDERS[i % 3]), layer.reference(arrays, fp64=True)
        np.testing.assert_array_equal(got["y0"], layer.reference(arrays)["y0"])
        for name in ("y1", "y2"):
            np.testing.assert_allclose(got[name], exact[name], rtol=0, atol=2e-5)
        np.testing.assert_allclose(got["y3"].astype(np.float64), exact["y3"], rtol=2**-8, atol=1e-4)


def test_kernels_are_synchronised_for_every_size() -> None:
    assert not unsynchronised(TEXT)

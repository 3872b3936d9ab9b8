"""AdamW and balance losses on the CPU model against the numpy reference in 64-bit floats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from vector_moves import module
from vector_run import ORDERS, Layer, numbers, ulps

ATTRS = "{beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.1, to = !%s}"
KINDS = "f32[T, 3], f32[T, 3], f32[T, 3]"
TEXT = f"""symbol T in [1, 1000000]
func main(%w: f32[T, 3], %m: f32[T, 3], %v: f32[T, 3], %g: bf16[T, 3], %h: f32[T, 3], %s: i64[], %l: f32[])
    -> (p: bf16[T, 3], w: f32[T, 3], m: f32[T, 3], v: f32[T, 3], q: f32[T, 3], x: f32[T, 3], y: f32[T, 3],
    z: f32[T, 3]) {{
  %1, %2, %3, %4 = apply_adamw(%w, %m, %v, %g, %s, %l) {ATTRS % "bf16"} : bf16[T, 3], {KINDS}
  %5, %6, %7, %8 = apply_adamw(%w, %m, %v, %h, %s, %l) {ATTRS % "f32"} : f32[T, 3], {KINDS}
  return %1, %2, %3, %4, %5, %6, %7, %8
}}
""".replace("\n    ", " ")


def test_a_step_early_and_late(tmp_path: Path) -> None:
    """The first step's 1 - beta2^t is a thousandth: what is lost there would show in every weight."""
    layer = Layer(TEXT, tmp_path)
    rng = np.random.default_rng(0)
    for i, (t, step) in enumerate(((1, 1), (5, 2), (127, 600), (3000, 20000))):
        arrays = {n: numbers(rng, (t, 3), "f32", s) for n, s in (("w", 1.0), ("m", 1e-2), ("h", 1e-2))}
        arrays |= {"v": np.abs(numbers(rng, (t, 3), "f32", 1e-4)), "g": numbers(rng, (t, 3), "bf16", 1e-2)}
        arrays |= {"s": np.array(step), "l": np.array(1e-2, np.float32)}
        got, exact = layer.run(arrays, MOEC_CPU_ORDER=ORDERS[i % 3]), layer.reference(arrays, fp64=True)
        for name, scale in zip("wmvxyz", (1.0, 1e-2, 1e-4) * 2, strict=True):
            assert ulps(got[name], exact[name], "f32", scale) <= 3, (name, t)
        assert ulps(got["p"], exact["p"], "bf16", 1.0) <= 0.51
        np.testing.assert_array_equal(got["q"], got["x"])


LOSSES = [
    ('balance_loss(%x, %c) {form = "load", score = "softmax", coefficient = 0.01}', "f32[]"),
    ('balance_loss(%h) {form = "cv_squared", score = "sigmoid", coefficient = 1.0}', "f32[]"),
    ('balance_loss(%h, %c) {form = "load", score = "sigmoid", coefficient = 0.5}', "f32[]"),
]


def test_balance_losses(tmp_path: Path) -> None:
    layer = Layer(module("%x: f32[T, 9], %c: i32[9], %h: bf16[T, 9]", LOSSES), tmp_path)
    rng = np.random.default_rng(1)
    for t in (0, 1, 5, 127, 1000):
        arrays = {"x": numbers(rng, (t, 9), "f32"), "h": numbers(rng, (t, 9), "bf16")}
        arrays["c"] = rng.integers(0, 100, 9).astype(np.int32)
        got, exact = layer.run(arrays), layer.reference(arrays, fp64=True)
        for n in ("y0", "y1", "y2"):
            np.testing.assert_allclose(got[n], exact[n], rtol=1e-6, atol=2e-8, err_msg=f"{n} at {t}")

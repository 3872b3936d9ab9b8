"""Sums over rows and over each expert's rows on the CPU model against the numpy reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from vector_run import EPS, ORDERS, Layer, numbers

GIVEN = "%a: f32[T, 126], %b: bf16[T, 2, 80], %c: f32[T, 3, 5], %d: f16[T, 2100], %e: f32[T, 127], %f: i32[6]"
MADE = "a: f32[126], b: bf16[2, 80], c: f32[T, 5], d: f32[6, 2100], e: f32[1, 127]"
TEXT = f"""
symbol T in [0, 100000]
func main({GIVEN}) -> ({MADE}) {{
  %0 = reduce_sum(%a) {{axes = [0], keepdims = false}} : f32[126]
  %1 = reduce_sum(%b) {{axes = [0], keepdims = false}} : bf16[2, 80]
  %2 = reduce_sum(%c) {{axes = [1], keepdims = false}} : f32[T, 5]
  %3 = segment_sum(%d, %f) {{to = !f32}} : f32[6, 2100]
  %4 = reduce_sum(%e) {{axes = [0], keepdims = true}} : f32[1, 127]
  return %0, %1, %2, %3, %4
}}
"""


def inputs(rng: np.random.Generator, tokens: int) -> dict[str, np.ndarray]:
    counts = np.array([0, tokens // 2, 0, tokens - tokens // 2 - tokens // 5, tokens // 5, 0], np.int32)
    shapes = {"a": (126,), "b": (2, 80), "c": (3, 5), "d": (2100,), "e": (127,)}
    kinds = {"a": "f32", "b": "bf16", "c": "f32", "d": "f16", "e": "f32"}
    return {n: numbers(rng, (tokens, *s), kinds[n]) for n, s in shapes.items()} | {"f": counts}


def test_sums(tmp_path: Path) -> None:
    layer = Layer(TEXT, tmp_path)
    rng = np.random.default_rng(6)
    for tokens in (0, 1, 5, 126, 300):
        given = inputs(rng, tokens)
        exact = layer.reference(given, fp64=True)
        runs = [layer.run(given, MOEC_CPU_ORDER=order) for order in (ORDERS if tokens == 300 else ORDERS[:1])]
        for name, dtype in (("a", "f32"), ("b", "bf16"), ("c", "f32"), ("d", "f32"), ("e", "f32")):
            want = exact[name]
            allowed = 0.51 * EPS[dtype] * np.abs(want) + max(tokens, 3) * 2.0**-22
            assert np.all(np.abs(runs[0][name].astype(np.float64) - want) <= allowed), (name, tokens)
            for other in runs[1:]:
                np.testing.assert_array_equal(other[name], runs[0][name])
        assert not np.any(runs[0]["d"][given["f"] == 0])

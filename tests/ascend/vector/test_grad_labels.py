"""Cross entropy, one-hot rows, and the training graph of norms and a loss on the CPU model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from vector_run import Layer, numbers

GIVEN = "%x: f32[T, 127], %z: bf16[T, 70001], %l: i32[T], %m: i64[T]"
MADE = "a: f32[T], b: f32[T], c: f32[T, 127], d: bf16[T, 5000]"
TEXT = f"""
symbol T in [0, 4096]
func main({GIVEN}) -> ({MADE}) {{
  %0 = cross_entropy(%x, %l) {{ignore = -100}} : f32[T]
  %1 = cross_entropy(%z, %m) {{ignore = none}} : f32[T]
  %2 = one_hot(%l) {{depth = 127, axis = 1, dtype = !f32}} : f32[T, 127]
  %3 = one_hot(%m) {{depth = 5000, axis = 1, dtype = !bf16}} : bf16[T, 5000]
  return %0, %1, %2, %3
}}
"""


@pytest.mark.slow
def test_cross_entropy_and_one_hot(tmp_path: Path) -> None:
    layer = Layer(TEXT, tmp_path)
    rng = np.random.default_rng(8)
    for tokens in (0, 1, 5):
        given = {"x": numbers(rng, (tokens, 127), "f32", 4.0), "z": numbers(rng, (tokens, 70001), "bf16", 4.0)}
        labels = rng.integers(0, 127, tokens).astype(np.int32)
        labels[::3] = -100
        given |= {"l": labels, "m": rng.integers(0, 5000, tokens)}
        got = layer.run(given)
        exact = layer.reference(given, fp64=True)
        for name in ("a", "b"):
            np.testing.assert_allclose(got[name], exact[name], rtol=1e-6, atol=4e-6)
        assert not np.any(got["a"][::3])
        np.testing.assert_array_equal(got["c"], np.eye(127, dtype=np.float32)[labels] * (labels >= 0)[:, None])
        np.testing.assert_array_equal(got["d"].astype(np.float32), np.eye(5000, dtype=np.float32)[given["m"]])

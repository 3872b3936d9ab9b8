"""Sine and cosine on the CPU model against 64-bit floats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from vector_moves import module
from vector_run import Layer


def test_sine_and_cosine(tmp_path: Path) -> None:
    layer = Layer(module("%x: f32[T]", [("sin(%x)", "f32[T]"), ("cos(%x)", "f32[T]")]), tmp_path)
    rng = np.random.default_rng(0)
    turns = np.arange(-40, 40) * (np.pi / 4)
    x = np.concatenate([rng.uniform(-1e4, 1e4, 3000), rng.standard_normal(1500), turns, [0, 1e-30]]).astype(np.float32)
    for part in (x, x[:1], x[:0], x[-127:]):
        got, exact = layer.run({"x": part}), layer.reference({"x": part}, fp64=True)
        for name, e in exact.items():
            np.testing.assert_allclose(got[name].astype(np.float64), e, rtol=0, atol=1.3e-7)
    odd = layer.run({"x": np.array([np.inf, -np.inf, np.nan], np.float32)})
    assert all(np.isnan(odd[name]).all() for name in odd)

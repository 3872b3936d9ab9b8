"""Kernels whose every operand is a scalar, on the CPU model against 64-bit floats: whole numbers, casts, functions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from vector_moves import module
from vector_run import Layer


def test_scalars(tmp_path: Path) -> None:
    steps = [
        ("cast(%n) {to = !f32}", "f32[]"),
        ("cast(%x) {to = !bf16}", "bf16[]"),
        ("exp(%x)", "f32[]"),
        ("mul(%x, %x)", "f32[]"),
        ("select(%c, %x, %x)", "f32[]"),
    ]
    text = module("%n: i64[], %x: f32[], %c: bool[]", steps).partition("\n")[2]  # no size is open
    layer = Layer(text, tmp_path)
    inputs = {"n": np.array(-3), "x": np.array(1.2345, np.float32), "c": np.array(True)}
    got, exact = layer.run(inputs), layer.reference(inputs, fp64=True)
    for name, e in exact.items():
        np.testing.assert_allclose(np.asarray(got[name], np.float64), e, rtol=2.0**-8 if name == "y1" else 1e-6)

"""Rotary embedding on the CPU model: layouts, partial widths, tables of half and whole width, broadcasts, dtypes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from vector_moves import module, unsynchronised
from vector_run import EPS, ORDERS, Layer, numbers

LAYOUTS = ("half", "interleaved", "interleaved_to_half", "half_to_interleaved")
CASES = {
    # x's dimensions, rotary_dim, cos's and sin's
    "heads_first": ((2, 3, "T", 8), 8, (1, 1, "T", 4), (1, 1, "T", 4)),
    "heads_last": ((2, "T", 3, 24), 16, (2, "T", 1, 16), ("T", 1, 16)),
    "whole": (("T", 126), 126, ("T", 63), ("T", 63)),
    "wide": ((2, "T", 192), 64, (2, "T", 32), (1, "T", 64)),
}


def shape(dims: tuple[object, ...]) -> str:
    return f"[{', '.join(map(str, dims))}]"


def rope_module(dtype: str, table: str, layouts: tuple[str, ...] = LAYOUTS) -> str:
    given, lines = [], []
    for i, (x, rotary, cos, sin) in enumerate(CASES.values()):
        given.append(f"%x{i}: {dtype}{shape(x)}, %c{i}: {table}{shape(cos)}, %s{i}: {table}{shape(sin)}")
        lines += [
            (f'rope(%x{i}, %c{i}, %s{i}) {{rotary_dim = {rotary}, layout = "{how}"}}', f"{dtype}{shape(x)}")
            for how in layouts
        ]
    return module(", ".join(given), lines)


def rope_inputs(rng: np.random.Generator, t: int, dtype: str, table: str) -> dict[str, np.ndarray]:
    out = {}
    for i, (x, _, cos, sin) in enumerate(CASES.values()):
        for name, dims, kind in (("x", x, dtype), ("c", cos, table), ("s", sin, table)):
            out[f"{name}{i}"] = numbers(rng, tuple(t if d == "T" else int(str(d)) for d in dims), kind)
    return out


SWEPT = [
    pytest.param("f32", "f32", LAYOUTS, marks=pytest.mark.slow),
    pytest.param("bf16", "f32", LAYOUTS, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("dtype", "table", "layouts"), [("bf16", "bf16", LAYOUTS[1:3]), *SWEPT])
def test_rope(tmp_path: Path, dtype: str, table: str, layouts: tuple[str, ...]) -> None:
    layer = Layer(rope_module(dtype, table, layouts), tmp_path)
    rng = np.random.default_rng(0)
    for i, t in enumerate((0, 1, 5, 127, 700)):
        arrays = rope_inputs(rng, t, dtype, table)
        got, exact = layer.run(arrays, MOEC_CPU_ORDER=ORDERS[i % 3]), layer.reference(arrays, fp64=True)
        for name, e in exact.items():
            bound = 0.51 * EPS[dtype] * np.abs(e) + 2.0**-21
            assert (np.abs(got[name].astype(np.float64) - e) <= bound).all(), (name, t)


def test_kernels_are_synchronised_for_every_size() -> None:
    assert not unsynchronised(rope_module("bf16", "bf16"))

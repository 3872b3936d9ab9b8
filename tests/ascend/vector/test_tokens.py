"""permute, unpermute and gated activations on the CPU model against the numpy reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from vector_layers import permute_text, routed
from vector_run import CARRIER, EPS, ORDERS, Layer, numbers, ulps


@pytest.mark.parametrize(
    ("hidden", "top_k", "experts", "dtype"),
    [
        pytest.param(7, 1, 1, "f32", marks=pytest.mark.slow),
        (126, 2, 5, "bf16"),
        pytest.param(32, 16, 70, "f16", marks=pytest.mark.slow),
        (30000, 2, 9, "f32"),
    ],
)
def test_permute_and_back(tmp_path: Path, hidden: int, top_k: int, experts: int, dtype: str) -> None:
    layer = Layer(permute_text(hidden, top_k, experts, dtype), tmp_path)
    rng = np.random.default_rng(hidden)
    sizes = (0, 1, 2, 5, 127) if hidden < 1000 else (1, 5)
    runs = [(t, "any", "forward") for t in sizes] + [
        (11, how, order) for how in ("one", "distinct") for order in ORDERS
    ]
    for tokens, how, order in runs:
        if how == "distinct" and top_k > experts:
            continue
        arrays = routed(rng, tokens, hidden, top_k, experts, dtype, how)
        got, want = layer.run(arrays, MOEC_CPU_ORDER=order), layer.reference(arrays)
        np.testing.assert_array_equal(got["positions"], want["positions"])
        np.testing.assert_array_equal(got["rows"], want["rows"])
        for name in ("y", "z"):
            np.testing.assert_allclose(
                got[name].astype(np.float64), want[name].astype(np.float64), rtol=EPS[dtype], atol=top_k * 2.0**-22
            )


ACTIVATIONS = [
    ("silu", "chunked", 1.0, None, 0.0, "bf16", 126),
    ("silu", "interleaved", 1.702, 7.0, 1.0, "bf16", 45),
    ("gelu", "chunked", 1.0, None, 0.0, "f32", 7),
    ("gelu_tanh", "none", 1.0, None, 0.0, "f16", 127),
    ("sigmoid", "interleaved", 1.0, 1.5, 0.5, "f32", 5),
    ("relu", "none", 1.0, None, 0.0, "bf16", 64),
    ("identity", "chunked", 1.0, 0.5, 0.0, "f16", 1),
    ("silu", "chunked", 1.0, None, 0.0, "f32", 20000),
]


def test_gated_activations(tmp_path: Path) -> None:
    given, made, lines = [], [], []
    for i, (act, glu, alpha, limit, offset, dtype, width) in enumerate(ACTIVATIONS):
        full = width if glu == "none" else 2 * width
        given.append(f"%h{i}: {dtype}[S, {full}]")
        made.append(f"y{i}: {dtype}[S, {width}]")
        bound = "none" if limit is None else repr(limit)
        lines.append(
            f'  %{i} = swiglu(%h{i}) {{activation = "{act}", glu = "{glu}", alpha = {alpha!r}, limit = {bound}, '
            f"up_offset = {offset!r}}} : {dtype}[S, {width}]"
        )
    head = f"symbol S in [0, 100000]\nfunc main({', '.join(given)}) -> ({', '.join(made)}) {{\n"
    returned = ", ".join(f"%{i}" for i in range(len(ACTIVATIONS)))
    layer = Layer(head + "\n".join(lines) + f"\n  return {returned}\n}}\n", tmp_path)
    rng = np.random.default_rng(0)
    for rows in (0, 1, 3, 70):
        arrays = {}
        for i, (_, glu, _, _, _, dtype, width) in enumerate(ACTIVATIONS):
            arrays[f"h{i}"] = numbers(rng, (rows, width if glu == "none" else 2 * width), dtype, 3.0)
        got, exact = layer.run(arrays), layer.reference(arrays, fp64=True)
        for i, (act, *_, dtype, _) in enumerate(ACTIVATIONS):
            least = 8.0 if act == "gelu" else 2.0**-14 if dtype == "f16" else 2.0**-12
            allowed = {"f32": 6.0, "f16": 0.51, "bf16": 0.51}[dtype]
            assert ulps(got[f"y{i}"], exact[f"y{i}"], dtype, least) <= allowed, ACTIVATIONS[i]


def test_large_arguments_give_no_nan(tmp_path: Path) -> None:
    text = """
symbol S in [0, 1000]
func main(%h: f32[S, 2]) -> (y: f32[S, 1]) {
  %0 = swiglu(%h) {activation = "silu", glu = "chunked", alpha = 1.0, limit = none, up_offset = 0.0} : f32[S, 1]
  return %0
}
"""
    layer = Layer(text, tmp_path)
    h = np.array([[1e30, 1], [-1e30, 1], [-100, 2], [100, 2], [0, 3]], CARRIER["f32"])
    np.testing.assert_allclose(layer.run({"h": h})["y"][:, 0], [1e30, 0, 0, 200, 0], atol=1e-30)

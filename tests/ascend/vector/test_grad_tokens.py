"""Gradients of gated activations, unpermute and routing on the CPU model against the numpy reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from grad_layers import (
    Gated,
    activation_inputs,
    activation_text,
    routing_inputs,
    routing_text,
    unpermute_inputs,
    unpermute_text,
)
from vector_layers import GATINGS
from vector_run import EPS, ORDERS, Layer, ulps

ACTIVATIONS: list[Gated] = [
    ("silu", "chunked", 1.0, None, 0.0, "bf16", 126),
    ("silu", "interleaved", 1.702, 7.0, 1.0, "bf16", 45),
    ("silu", "interleaved", 1.0, None, 0.0, "f32", 127),
    ("gelu", "chunked", 1.0, None, 0.0, "f32", 7),
    ("gelu_tanh", "none", 1.0, None, 0.0, "f16", 127),
    ("gelu_tanh", "chunked", 1.0, None, 0.0, "f32", 16),
    ("sigmoid", "interleaved", 1.0, 1.5, 0.5, "f32", 5),
    ("relu", "none", 1.0, 2.0, 0.0, "bf16", 64),
    ("identity", "chunked", 1.0, 0.5, 0.0, "f16", 1),
    ("gelu", "interleaved", 1.0, None, 0.0, "f16", 5),
    ("silu", "chunked", 1.0, None, 0.0, "f32", 20000),
]


def test_gated_activations(tmp_path: Path) -> None:
    layer = Layer(activation_text(ACTIVATIONS), tmp_path)
    rng = np.random.default_rng(0)
    for rows in (0, 1, 5, 127):
        arrays = activation_inputs(rng, ACTIVATIONS, rows)
        got, exact = layer.run(arrays), layer.reference(arrays, fp64=True)
        for i, (*_, dtype, _) in enumerate(ACTIVATIONS):
            # Near its zero a slope cancels: its error is one of the size of its terms, times dy and up (up to 30).
            allowed, least = {"f32": (6.0, 32.0), "f16": (0.51, 1.0), "bf16": (0.51, 1.0)}[dtype]
            assert ulps(got[f"y{i}"], exact[f"y{i}"], dtype, least) <= allowed, ACTIVATIONS[i]


def test_a_clamp_passes_the_gradient_at_its_limits_only(tmp_path: Path) -> None:
    layer = Layer(activation_text([("identity", "interleaved", 1.0, 2.0, 1.0, "f32", 1)]), tmp_path)
    h = np.array([[2, 2], [2.5, -2], [-9, -2.5], [0, 3]], np.float32)
    got = layer.run({"h0": h, "g0": np.ones((4, 1), np.float32)})["y0"]
    np.testing.assert_array_equal(got, [[3, 2], [0, 2], [-1, 0], [3, 0]])


@pytest.mark.parametrize(
    ("hidden", "top_k", "dtype", "weights", "rows"),
    [
        pytest.param(7, 1, "f32", "f32", True, marks=pytest.mark.slow),
        (126, 8, "bf16", "bf16", True),
        (127, 3, "f16", None, False),
    ]
    + [
        pytest.param(64, 2, "bf16", "f32", False, marks=pytest.mark.slow),
        pytest.param(20001, 2, "bf16", "f32", True, marks=pytest.mark.slow),
    ],
)
def test_unpermute(tmp_path: Path, hidden: int, top_k: int, dtype: str, weights: str | None, rows: bool) -> None:
    layer = Layer(unpermute_text(hidden, top_k, dtype, weights, rows), tmp_path)
    rng = np.random.default_rng(hidden)
    runs = [(t, "forward") for t in ((0, 1, 5, 127) if hidden < 1000 else (1, 5))] + [(11, o) for o in ORDERS]
    for tokens, order in runs:
        arrays = unpermute_inputs(rng, tokens, hidden, top_k, dtype, weights, rows)
        got, exact = layer.run(arrays, MOEC_CPU_ORDER=order), layer.reference(arrays, fp64=True)
        assert ulps(got["drows"], exact["drows"], dtype) <= 0.51
        if rows:
            error = np.abs(got["dweights"].astype(np.float64) - exact["dweights"])
            np.testing.assert_array_less(error, hidden**0.5 * 2.0**-21 + np.abs(exact["dweights"]) * EPS[str(weights)])


def test_routing(tmp_path: Path) -> None:
    cases = list(GATINGS.values())
    layer = Layer(routing_text(cases), tmp_path)
    rng = np.random.default_rng(3)
    for tokens in (0, 1, 5, 126):
        arrays = routing_inputs(rng, cases, tokens)
        got, exact = layer.run(arrays), layer.reference(arrays, fp64=True)
        for i, (name, c) in enumerate(GATINGS.items()):
            y, want, dtype = got[f"y{i}"].astype(np.float64), exact[f"y{i}"], str(c["dtype"])
            # dw and what renormalizing takes off it cancel, so the error is one of the size of dw.
            size = np.abs(arrays[f"g{i}"].astype(np.float64)).max(-1, keepdims=True, initial=0) * float(str(c["scale"]))
            assert np.all(np.abs(y - want) <= size * 2.0**-21 + np.abs(want) * EPS[dtype]), (name, tokens)
            if c["score_order"] == "after_topk":
                chosen = np.zeros(y.shape, bool)
                np.put_along_axis(chosen, arrays[f"e{i}"].astype(np.int64), True, axis=1)
                assert not np.any(y[~chosen])

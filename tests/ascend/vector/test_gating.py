"""Gating on the CPU model against the numpy reference: routing attributes, dtypes, sizes, ties, NaN, counts."""

from __future__ import annotations

import numpy as np
import pytest
from vector_layers import GATINGS, Case, gating_inputs, gating_text
from vector_run import ORDERS, Layer


def check(layer: Layer, cases: dict[str, Case], arrays: dict[str, np.ndarray], **environment: str) -> None:
    got, want = layer.run(arrays, **environment), layer.reference(arrays)
    for i, (name, c) in enumerate(cases.items()):
        np.testing.assert_array_equal(got[f"experts{i}"], want[f"experts{i}"], name)
        np.testing.assert_array_equal(got[f"counts{i}"], want[f"counts{i}"], name)
        tolerance = {"f32": 1e-6, "f16": 1e-3, "bf16": 8e-3}[str(c["weights"])]
        weights = (a[f"weights{i}"].astype(np.float64) for a in (got, want))
        np.testing.assert_allclose(*weights, rtol=tolerance, atol=1e-9, err_msg=name)


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Layer:
    return Layer(gating_text(list(GATINGS.values())), tmp_path_factory.mktemp("gating"))


@pytest.mark.parametrize("tokens", [0, 1, 2, 5, 127])
def test_gating(layer: Layer, tokens: int) -> None:
    check(layer, GATINGS, gating_inputs(np.random.default_rng(tokens), list(GATINGS.values()), tokens))


@pytest.mark.parametrize("order", ORDERS)
def test_gating_in_any_order_of_cores(layer: Layer, order: str) -> None:
    check(layer, GATINGS, gating_inputs(np.random.default_rng(33), list(GATINGS.values()), 33), MOEC_CPU_ORDER=order)


@pytest.mark.parametrize("step", [1.0, 1e9])
def test_ties_go_to_the_lower_expert(layer: Layer, step: float) -> None:
    arrays = gating_inputs(np.random.default_rng(40), list(GATINGS.values()), 40)
    for i in range(len(GATINGS)):
        x = arrays[f"x{i}"]
        arrays[f"x{i}"] = (np.round(x.astype(np.float32) / step) * step).astype(x.dtype)
    check(layer, GATINGS, arrays)


def test_scores_that_round_to_the_same_tie(layer: Layer) -> None:
    """Expert 9 has the higher logit, but in bf16 the same score as expert 2; expert 5 is ahead of both."""
    arrays = gating_inputs(np.random.default_rng(41), list(GATINGS.values()), 3)
    i = list(GATINGS).index("rounded_scores")
    x = np.full((3, 16), -4.0, np.float32)
    x[:, 2], x[:, 9], x[:, 5] = 0.501, 0.5012, 1.5
    arrays[f"x{i}"] = x
    assert layer.run(arrays)[f"experts{i}"][0].tolist() == [5, 2, 9, 0]
    check(layer, GATINGS, arrays)


def test_nan_logits_are_chosen_first_and_never_leave_the_experts(layer: Layer) -> None:
    arrays = gating_inputs(np.random.default_rng(3), list(GATINGS.values()), 12)
    i = list(GATINGS).index("gpt_oss")
    x = arrays[f"x{i}"]
    x[1, 5] = np.nan
    x[2, 3] = np.nan
    x[3] = np.nan
    x[4] = -np.inf
    x[5, :30] = -np.inf
    got, want = layer.run(arrays), layer.reference(arrays)
    for name in (f"experts{i}", f"counts{i}"):
        np.testing.assert_array_equal(got[name], want[name])
    np.testing.assert_allclose(got[f"weights{i}"], want[f"weights{i}"], rtol=1e-6)

"""Gradient ops that are exported run in onnxruntime to the numbers of the evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from grad_cases import ACTIVATIONS, COUNTS, FORMS, PLAIN, ROUTERS, attention_operands, permutation, routing
from moe_blocks import block, joint
from op_gradients import feeds_of, gradient_module

from moec.eval import run
from moec.frontend.onnx_export import to_onnx
from moec.ir.types import F16, F32, DType
from moec.passes.prob_placement import ProbPlacement

onnxruntime.set_default_logger_severity(3)


def check(
    op: str,
    given: list[Any],
    attrs: dict[str, Any],
    only: list[int] | None = None,
    dtype: DType = F32,
    atol: float = 5e-6,
) -> None:
    """Assert that results and gradients are the same in onnxruntime."""
    module = gradient_module(op, given, attrs, dtype, only)
    feeds = feeds_of(module, given, np.random.default_rng(1))
    model = to_onnx(module)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = run(module, feeds)
    for name, got in zip(expected, session.run(None, feeds), strict=True):
        wanted = expected[name]
        assert got.dtype == wanted.dtype and got.shape == wanted.shape, name
        largest = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=1))
        np.testing.assert_allclose(got, wanted, rtol=0, atol=atol * largest)


@pytest.mark.parametrize(
    "form", [f for f in FORMS if f not in ("one of everything", "window", "values wider than keys", "one key head")]
)
def test_attention(form: str) -> None:
    attrs, sizes = FORMS[form]
    given = attention_operands(np.random.default_rng(0), **sizes)
    check("attention_stats", given, {**PLAIN, **attrs})


@pytest.mark.parametrize("router", ROUTERS)
def test_routers(router: str) -> None:
    attrs, biased = ROUTERS[router]
    rng = np.random.default_rng(0)
    check("gating", [rng.standard_normal((5, 8)), rng.standard_normal(8) if biased else None], attrs, [0])


@pytest.mark.parametrize("form", ACTIVATIONS)
def test_activations(form: str) -> None:
    check("swiglu", [np.random.default_rng(0).standard_normal((5, 6))], ACTIVATIONS[form])


@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize("load", COUNTS)
def test_grouped_products(load: str, transpose: bool) -> None:
    counts, rng = np.array(COUNTS[load], np.int32), np.random.default_rng(0)
    rows = rng.standard_normal((counts.sum(), 5 if transpose else 3))
    given = [rows, rng.standard_normal((counts.size, 3, 5)), counts]
    bias = rng.standard_normal((counts.size, 3 if transpose else 5))
    check("grouped_matmul", [*given, bias], {"transpose_weight": transpose})
    check("grouped_matmul", [*given, bias], {"transpose_weight": transpose}, dtype=F16, atol=2e-3)
    source = rng.integers(0, max(1, len(rows)), len(rows)).astype(np.int32)
    check("grouped_matmul", [*given, None, source], {"transpose_weight": transpose})


@pytest.mark.parametrize("weighted", [True, False])
def test_rows_of_experts(weighted: bool) -> None:
    rng = np.random.default_rng(0)
    choice, counts, positions = permutation(rng, 5, 2, 4)
    weights = rng.standard_normal((5, 2)) if weighted else None
    check("unpermute", [rng.standard_normal((10, 3)), positions, weights], {})
    check("unpermute", [rng.standard_normal((10, 3)), positions, weights], {}, [0])
    check("permute", [rng.standard_normal((5, 3)), choice, counts], {})


@pytest.mark.parametrize("layout", ["half", "interleaved", "interleaved_to_half", "half_to_interleaved"])
def test_rope(layout: str) -> None:
    rng = np.random.default_rng(0)
    tables = [rng.standard_normal((4, 2)) for _ in range(2)]
    check("rope", [rng.standard_normal((2, 4, 6)), *tables], {"rotary_dim": 4, "layout": layout})


def test_norms_and_loss() -> None:
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((4, 6)), rng.standard_normal(6)
    check("rms_norm", [x, weight], {"eps": 1e-5})
    check("layer_norm", [x, weight, weight], {"eps": 1e-5, "axis": 1})
    check("cross_entropy", [x, np.array([0, 5, 2, -1], np.int32)], {"ignore": -1})


@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
def test_balance_losses(score: str) -> None:
    logits, counts = np.random.default_rng(0).standard_normal((5, 4)), np.array([3, 0, 5, 2], np.int32)
    check("balance_loss", [logits, counts], {"form": "load", "score": score, "coefficient": 0.3})
    check("balance_loss", [logits, None], {"form": "cv_squared", "score": score, "coefficient": 0.3})


@pytest.mark.parametrize("placed", ["before", "after"])
def test_a_placed_block(placed: str) -> None:
    """The joint graph of a block whose routing weights go before the down-projection."""
    router = routing("sigmoid", top_k=2, renormalize=True, scale=2.5)
    given, attrs = block(np.random.default_rng(0), router, ACTIVATIONS["silu, chunked"], 5, 4, 6, 2, steer=True)
    moved = {placed: [ProbPlacement()]}
    module = joint(given, attrs, before=moved.get("before", []), after=moved.get("after", []))
    feeds = {v.name: given.get(v.name, given["x"]).astype(np.float32) for v in module.main.inputs}
    model = to_onnx(module)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for (name, wanted), got in zip(run(module, feeds).items(), session.run(None, feeds), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5, err_msg=name)

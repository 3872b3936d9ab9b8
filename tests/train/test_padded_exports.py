"""Gradients of real exports fed left-padded batches, whose masks leave rows with nothing but a finite minimum, or with
nothing at all: through recovered attention in f32, against the exported primitives in f64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moec import sources
from moec.eval import run
from moec.ir.graph import Module
from moec.passes.base import TRAIN_PIPELINE, PassManager

Array = np.ndarray
FINITE = (
    "deepseek_v3_modelmask_dynamo_batched_mm_dyn_op24",
    "qwen2_moe_modelmask_torchscript_eager-eagerattn_dyn_op17",
    "switch_transformers_modelmask_torchscript_dyn_op20_tf451",
)
"""Masks with f32's least number; the last one also learns a bias that is added to scores."""
INFINITE = "mixtral_modelmask_torchscript_batched_mm_dyn_op17"
"""A mask with -inf: the file puts zeros in the place of the NaN that a softmax of such a row is."""
TOLERANCE = 5e-6
"""Of the largest element; found up to 1.9e-6."""
STEP = 1e-6


def joint(file: Path, pipeline: str) -> Module:
    module = sources.read(file).module
    PassManager.parse(pipeline).run(module)
    return module


def feeds_of(module: Module, stored: Any, wide: bool) -> dict[str, Array]:
    """The stored inputs and drawn gradients of the outputs; floats in f64 if ``wide``."""
    rng = np.random.default_rng(3)
    feeds: dict[str, Array] = {}
    outputs = iter(n for n in stored.files if n.startswith("out."))
    for v in module.main.inputs:
        key = f"in.{v.name}"
        given = stored[key] if key in stored.files else rng.standard_normal(stored[next(outputs)].shape)
        feeds[v.name] = given.astype(np.float64 if wide else np.float32) if given.dtype.kind == "f" else given
    return feeds


def recovered(file: Path, stored: Any) -> dict[str, Array]:
    """Gradients by moec's passes, in f32."""
    module = joint(file, TRAIN_PIPELINE)
    ops = {node.op for graph in module.functions.values() for node in graph}
    assert {"attention_stats", "attention_grad"} <= ops
    return {n: a for n, a in run(module, feeds_of(module, stored, False)).items() if n.startswith("d_")}


@pytest.mark.parametrize("name", FINITE)
def test_gradients_behind_a_finite_minimum(corpus: Any, name: str) -> None:
    stored = np.load(corpus.npz(name))
    assert (stored["in.attention_mask"] == 0).any()
    plain = joint(corpus.onnx(name), "dce,autodiff,dce")
    want = run(plain, feeds_of(plain, stored, True), fp64=True)
    got = recovered(corpus.onnx(name), stored)
    common = [n for n in got if n in want]  # experts' weights that were put together have names of their own
    assert len(common) > 15
    for key in common:
        off = float(np.abs(got[key] - want[key]).max(initial=0.0))
        assert off <= TOLERANCE * float(np.abs(want[key]).max(initial=0.0)), f"{key} is off by {off}"


def test_gradients_of_rows_that_attend_nothing(corpus: Any) -> None:
    """Against differences along a drawn direction of each weight: the file's own primitives have NaN gradients."""
    stored = np.load(corpus.npz(INFINITE))
    got = recovered(corpus.onnx(INFINITE), stored)
    forward = sources.read(corpus.onnx(INFINITE)).module
    weights = {n.attrs["name"]: n.attrs["data"].array.astype(np.float64) for n in forward.nodes() if n.op == "weight"}
    everything = feeds_of(joint(corpus.onnx(INFINITE), TRAIN_PIPELINE), stored, True)
    feeds = {v.name: everything[v.name] for v in forward.main.inputs}
    seeds = [a for n, a in everything.items() if n not in feeds]

    def loss(name: str, change: Array) -> float:
        results = run(forward, feeds, {name: weights[name] + change}, fp64=True)
        return float(sum(np.sum(y * seed) for y, seed in zip(results.values(), seeds, strict=True)))

    rng = np.random.default_rng(5)
    checked = [n for n in got if n[2:] in weights and ("norm" in n or "MatMul" in n)]
    assert len(checked) > 10
    for key in checked:
        assert np.isfinite(got[key]).all(), key
        step = STEP * rng.standard_normal(got[key].shape)
        want = (loss(key[2:], step) - loss(key[2:], -step)) / 2
        off = abs(float(np.sum(got[key] * step)) - want)
        assert off <= TOLERANCE * float(np.linalg.norm(got[key]) * np.linalg.norm(step)), f"{key} is off by {off}"

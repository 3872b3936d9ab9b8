"""moec's own backward of real exported blocks, fed torch's parameters, against torch's stored loss and gradients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moec import sources
from moec.autodiff import saved_values
from moec.eval import run
from moec.ir.graph import Module
from moec.passes.base import TRAIN_PIPELINE, PassManager

Array = np.ndarray
JOINT = {
    "mixtral_moe_trainjoint_batched_mm_static_op20": "recover-moe",
    "deepseek_v3_moe_trainjoint_batched_mm_static_op21": "recover-moe",
    "mixtral_layer_trainjoint_batched_mm-eagerattn_static_op20": "recover-attention",
}
"""Training graphs that torch exported, and a recovery that their forward part must see."""

NO_PARAMETERS = ("target", "cos", "sin", "attention_mask")
TOLERANCE = 3e-6
"""Of the largest element: some ten f32 roundings."""

PLAIN = "dce,autodiff{{wrt={wrt}}},dce"
_BRACED = TRAIN_PIPELINE.replace("{weights=false}", "{{weights=false}}")
WHOLE = "dce," + _BRACED.replace("autodiff", "autodiff{{wrt={wrt}}}")


def forward_of(file: Path) -> Module:
    """The part of an export that computes its loss."""
    module = sources.read(file).module
    main = module.main
    main.set_outputs([main.outputs[main.output_names.index("loss")]], ["loss"])
    return module


def compare(module: Module, arrays: Mapping[str, Array], pipeline: str, expected: Mapping[str, Array]) -> set[str]:
    """Differentiate, run, and assert that loss and gradients are those expected; the rules that were applied."""
    wrt = [v.name for v in module.main.inputs if v.name not in NO_PARAMETERS]
    steps = PassManager.parse(pipeline.format(wrt="+".join(wrt))).run(module)
    assert saved_values(module)
    got = run(module, {v.name: arrays[v.name] for v in module.main.inputs})
    assert set(got) == {"loss", *(f"d_{n}" for n in wrt)}
    for name, wanted in expected.items():
        key = "d_hidden_states" if name == "grad.hidden_states" else name.replace("grad.", "d_p.", 1)
        off = float(np.abs(got[key] - wanted).max())
        assert off <= TOLERANCE * float(np.abs(wanted).max()), f"{name} is off by {off}"
    return {a.rule for s in steps for a in s.result.applied}


@pytest.mark.parametrize("pipeline", [PLAIN, WHOLE], ids=["as exported", "all passes"])
def test_gradients_of_a_block_are_those_that_torch_stored(data: Path, pipeline: str) -> None:
    folder = data / "train"
    arrays: dict[str, Array] = {}
    for part in ("experts", "expert_grads", "rest"):
        arrays.update(np.load(folder / f"deepseek_v3_moe_{part}.npz"))
    module = forward_of(folder / "deepseek_v3_moe_forward.onnx")
    expected = {n: a for n, a in arrays.items() if n == "loss" or n.startswith("grad.")}
    applied = compare(module, arrays, pipeline, expected)
    assert len(expected) == 8
    assert ("recover-moe" in applied) == (pipeline is WHOLE)


@pytest.mark.parametrize("pipeline", [PLAIN, WHOLE], ids=["as exported", "all passes"])
@pytest.mark.parametrize("name", JOINT)
def test_gradients_of_real_exports_are_those_that_torch_stored(corpus: Any, name: str, pipeline: str) -> None:
    stored = np.load(corpus.npz(name))
    outputs = sources.read(corpus.onnx(name)).module.main.output_names
    expected = {n: stored[f"out.{i}"] for i, n in enumerate(outputs)}
    arrays = {k.removeprefix("in."): stored[k] for k in stored.files if k.startswith("in.")}
    applied = compare(forward_of(corpus.onnx(name)), arrays, pipeline, expected)
    assert (JOINT[name] in applied) == (pipeline is WHOLE)

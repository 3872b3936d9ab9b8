"""A router that chooses among groups of experts, as an export spells it: one ``gating`` node with the same choice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moec.arrays import cases, read_npz
from moec.eval import run
from moec.ir.graph import Module
from moec.passes.base import PassManager, Result
from moec.passes.recover_moe import router
from moec.passes.recover_moe.groups import ungrouped
from moec.sources import read

LAYER = Path(__file__).parents[1] / "data/layers/deepseek_v3_layer_dynamo_batched_mm_dyn_op24__onnxsim.onnx"
CLEAN = "canonicalise,fold,canonicalise,cse,dce,"


def prepared() -> Module:
    module = read(LAYER).module
    PassManager.parse(CLEAN).run(module)
    return module


def fused(module: Module) -> Result:
    return PassManager.parse("fuse-gating,dce").run(module)[0].result


def test_the_choice_of_groups_goes_into_the_node_and_the_numbers_stay() -> None:
    before, module = prepared(), prepared()
    result = fused(module)
    rules = [a.rule for a in result.applied]
    assert rules[0] == "gating-of-groups" and "gating-renormalise-biased" in rules and "gating-scale-biased" in rules
    (gating,) = [n for n in module.main if n.op == "gating"]
    assert gating.attrs["groups"] > gating.attrs["group_top_k"] > 1 and gating.attrs["renormalize"]
    assert not {"topk", "scatter_elements", "gather_elements", "sigmoid"} & {n.op for n in module.main}
    arrays = read_npz(LAYER.with_suffix(".npz"))
    for case in cases(arrays, arrays):
        old, new = run(before, case.inputs), run(module, case.inputs)
        for name, array in old.items():
            np.testing.assert_allclose(new[name], array, rtol=0, atol=1e-5)


def test_another_fill_than_the_routers_is_refused() -> None:
    """Scores of groups that are left out set to 0.5, which still competes: no mask, so it is no such router."""
    module = prepared()
    (mask,) = [n for n in module.main if n.op == "select"]
    fills = [v.producer for v in mask.operands if v is not None and v.producer is not None]
    (fill,) = [n for n in fills if n.op == "constant"]
    data = fill.attrs["value"]
    fill.attrs["value"] = type(data)(np.full_like(data.numpy(), 0.5), data.dtype)
    assert not any(a.rule == "gating-of-groups" for a in fused(module).applied)


def test_scores_read_with_the_mask_in_them_are_told() -> None:
    module = prepared()
    topk = [n for n in module.main if n.op == "topk"][-1]
    module.main.set_outputs([*module.main.outputs, topk.results[0]], [*module.main.output_names, "s"])
    result = fused(module)
    (miss,) = [m for m in result.near_misses if m.rule == "gating-of-groups"]
    assert "with the bias and the mask" in miss.reason and miss.nodes == (topk,)


def test_a_wrong_reading_is_noticed_before_anything_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def fewer(*args: Any) -> Any:
        choice, attrs = ungrouped(*args) or (None, {})
        return None if choice is None else (choice, attrs | {"group_top_k": attrs["group_top_k"] - 1})

    monkeypatch.setattr(router, "ungrouped", fewer)
    result = fused(prepared())
    (miss,) = [m for m in result.near_misses if m.rule == "gating-of-groups"]
    assert "differs" in miss.reason and not result.applied

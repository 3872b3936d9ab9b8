"""Blocks of real exports: recovered with their numbers, alike in all spellings, or left with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moec.eval import run
from moec.frontend.onnx import load_onnx
from moec.ir.graph import Module
from moec.ir.text import print_module
from moec.passes.base import PassManager, Result

DATA = Path(__file__).parent.parent / "data"
RECORDS: list[dict[str, Any]] = json.loads((DATA / "index.json").read_text())
CLEAN = "canonicalise,fold,cse,dce,"


def recovered(module: Module, before: str = "") -> Result:
    """What recover-moe did to the module; it is verified after each pass."""
    return PassManager.parse(before + "recover-moe,dce").run(module)[-2].result


def _printed(path: Path) -> str:
    """The canonical text of a recovered file, symbols, weight contents and origin aside."""
    module = load_onnx(path)
    recovered(module, CLEAN)
    text = print_module(module)
    for i, name in enumerate(module.symbols):
        text = text.replace(name, f"d{i}")
    return "\n".join(line.split(", data = ")[0] for line in text.splitlines())


def test_three_spellings_of_an_export_print_the_same() -> None:
    names = ["dynamo_batched_mm_dyn_op21", "torchscript_dyn_op20_tf451", "dynamo_dyn_op21_tf451"]
    texts = [_printed(DATA / f"qwen3_moe_moe_{n}.onnx") for n in names]
    assert texts[0] == texts[1] == texts[2]


def test_three_spellings_of_each_family_print_the_same(corpus: Any) -> None:
    for family, names in {
        "mixtral": [
            "dynamo_batched_mm_dyn_op18",
            "dynamo_batched_mm_dyn_op18_noopt",
            "dynamo_grouped_mm_dyn_op18",
            "dynamo_dyn_op18_tf451",
            "torchscript_dyn_op17_tf451",
        ],
        "qwen2_moe": ["dynamo_batched_mm_dyn_op20", "dynamo_dyn_op20_tf451", "torchscript_dyn_op18_tf451"],
        "qwen3_moe": ["dynamo_batched_mm_dyn_op21", "dynamo_dyn_op21_tf451", "torchscript_dyn_op20_tf451"],
    }.items():
        texts = {_printed(corpus.onnx(f"{family}_moe_{n}")) for n in names}
        assert len(texts) == 1, family


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r["name"])
def test_exports_are_recovered_and_keep_their_numbers(record: dict[str, Any]) -> None:
    module = load_onnx(DATA / f"{record['name']}.onnx")
    result = recovered(module, CLEAN)
    assert len(result.applied) == 1 and not result.near_misses
    assert {n.op for n in module.main} <= {"weight", "moe"}
    with np.load(DATA / f"{record['name']}.npz") as stored:
        for size in ("", "2"):
            if f"in{size}.hidden_states" in stored:
                (y,) = run(module, {"hidden_states": stored[f"in{size}.hidden_states"]}).values()
                expected = stored[f"{record['checks']['expected_key'].split('.')[0]}{size}.0"]
                assert np.abs(y.astype(np.float32) - expected).max() <= record["checks"]["tolerance"]


NO_BLOCK = ("trainjoint", "int8dyn")
"""Files whose blocks stay: a backward pass reads what is computed on the way, or the router is quantised."""
BAKED = ("jetmoe_layer_torchscript", "jetmoe_modelmask_torchscript", "jetmoe_moe_torchscript")
"""Files in which the tracer baked the experts' row counts in."""
DROPPED = {"deepseek_v3_modelmask_torchscript": "missing 5, 6, 7", "switch_transformers_modelmask": "missing 1"}
"""Files with a block that lacks experts which got no token while they were traced, and which these are."""
WHY = {
    "trainjoint": "as by the backward pass of a training step",
    "int8dyn": "the router multiplies quantised integers",
    "jetmoe": "no sum over them was found",
    **DROPPED,
}
"""Of which files there are near-misses, and what these say. (JetMoE's attention has routers of its own.)"""


@pytest.mark.parametrize("part", range(4))
def test_every_export_with_a_whole_block_is_recovered(corpus: Any, part: int) -> None:
    """Each file has its blocks recovered, with no node left whose size data decides, or says why not."""
    for record in corpus.records()[part::4]:
        name = record["name"]
        module = load_onnx(corpus.onnx(name))
        result = recovered(module, "canonicalise,fold,canonicalise,cse,dce,")
        found = [n for n in module.nodes() if n.op == "moe"]
        none = (*NO_BLOCK, *BAKED, "deepseek_v3_modelmask_torchscript")
        assert bool(found) != any(part in name for part in none), name
        reasons = [m.reason for m in result.near_misses]
        told = [why for part, why in WHY.items() if part in name]
        only_experts = "jetmoe" in name and record["part"] == "moe" and found
        assert bool(reasons) == bool(told and not only_experts), (name, reasons)
        assert all(any(why in r for why in told) for r in reasons), (name, reasons)
        if any(baked in name for baked in BAKED):
            assert all("sizes that the tracer baked in" in r for r in reasons), name
        if not reasons:
            assert not {n.op for n in module.nodes()} & {"nonzero", "loop", "scan", "if", "one_hot", "topk"}, name

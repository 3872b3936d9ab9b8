"""Attention and rope of real exports are recovered with the attributes their models have, and keep their numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_plugin import Golden

from moec.eval import run
from moec.frontend.onnx import load_onnx
from moec.ir.graph import Module, Node
from moec.ir.text import print_module
from moec.passes.base import PassManager, Step
from moec.passes.recover_attention.scores import READ_ELSEWHERE

DATA = Path(__file__).parents[2] / "data"
PIPELINE = "canonicalise,fold,recover-rope,recover-attention,canonicalise,cse,dce"
FOLDERS = (DATA / "attention", DATA / "layers")
SAMPLE = [(folder, r) for folder in FOLDERS for r in json.loads((folder / "index.json").read_text())]

EXPECTED: dict[str, list[dict[str, Any]]] = {
    "gpt_oss_attention_dynamo_eager_dyn_op18": [
        {"scale": 8**-0.5, "causal": True, "window": 4, "sinks": True, "layout": "half"},
        {"scale": 8**-0.5, "causal": True, "window": None, "sinks": True, "layout": "half"},
    ],
    "ernie4_5_moe_attention_dynamo_sdpa_dyn_op20": [{"scale": 8**-0.5, "causal": True, "layout": "interleaved"}],
    "glm4_moe_attention_dynamo_eager_dyn_op18": [{"scale": 8**-0.5, "causal": True, "layout": "half", "rotary_dim": 4}],
    "deepseek_v3_attention_dynamo_sdpa_dyn_op20": [
        {"scale": 16**-0.5, "causal": True, "layout": "interleaved_to_half", "rotary_dim": 8}
    ],
    "qwen3_moe_layer_dynamo_batched_mm_static_op20_fp16": [{"scale": 8**-0.5, "causal": True, "layout": "half"}],
    "dbrx_layer_torchscript_dyn_op17_tf451": [{"scale": 8**-0.5, "causal": True, "layout": "half"}],
    "qwen3_moe_layer_torchscript_batched_mm-eagerattn_dyn_op17": [
        {"scale": 8**-0.5, "causal": False, "mask": True, "layout": "half"}
    ],
    "deepseek_v3_layer_dynamo_batched_mm_dyn_op24__onnxsim": [
        {"scale": 16**-0.5, "causal": True, "layout": "interleaved_to_half"}
    ],
}


def recovered(path: Path) -> tuple[Module, list[Step]]:
    module = load_onnx(path)
    steps = PassManager.parse(PIPELINE).run(module)
    return module, [s for s in steps if s.made_by.name.startswith("recover-")]


def given(node: Node, name: str) -> Any:
    """An attribute of the node, or whether it has the operand."""
    if name in ("mask", "sinks"):
        at = 3 if name == "mask" else 4
        return len(node.operands) > at and node.operands[at] is not None
    return node.attrs[name]


@pytest.mark.parametrize("folder, record", SAMPLE, ids=lambda x: x["name"] if isinstance(x, dict) else "")
def test_attributes_and_numbers(folder: Path, record: dict[str, Any]) -> None:
    name = record["name"]
    module, steps = recovered(folder / f"{name}.onnx")
    assert not [m.reason for s in steps for m in s.result.near_misses]
    nodes = [n for n in module.nodes() if n.op == "attention"]
    ropes = [n for n in module.nodes() if n.op == "rope"]
    wanted = EXPECTED[name]
    assert len(nodes) == len(wanted) and len(ropes) == 2 * len(wanted)
    assert not [n for n in module.nodes() if n.op == "scatter_nd" and n.result.type.dtype.is_float]
    for i, attrs in enumerate(wanted):
        for key, value in {"mask": False, "sinks": False, "window": None, "offset": 0, **attrs}.items():
            pair = ropes[2 * i : 2 * i + 2] if key in ("layout", "rotary_dim") else nodes[i : i + 1]
            for node in pair:
                close = pytest.approx(value, rel=1e-3) if isinstance(value, float) else value
                assert given(node, key) == close, key
    for error in errors(module, folder / f"{name}.npz", record):
        assert error <= record["checks"]["tolerance"]


def errors(module: Module, path: Path, record: dict[str, Any]) -> Iterator[float]:
    """The largest difference from the stored outputs, for each stored size at which the file is right."""
    key = record["checks"]["expected_key"].split(".")[0]
    verdict = record["checks"]["verdict"]
    with np.load(path) as stored:
        for size in ("", "2") if verdict == "match" or "evaluator" in verdict else ("",):
            feeds = {k.split(".", 1)[1]: stored[k] for k in stored if k.startswith(f"in{size}.")}
            if feeds and (
                not size or record["checks"]["verdict"] == "match" or "evaluator" in record["checks"]["verdict"]
            ):
                for i, y in enumerate(run(module, {v.name: feeds[v.name] for v in module.main.inputs}).values()):
                    if f"{key}{size}.{i}" in stored:
                        with np.errstate(invalid="ignore"):
                            difference = np.abs(y.astype(np.float64) - stored[f"{key}{size}.{i}"])
                        yield float(np.nanmax(difference, initial=0.0))


@pytest.mark.parametrize(
    "name", ["gpt_oss_attention_dynamo_eager_dyn_op18", "deepseek_v3_attention_dynamo_sdpa_dyn_op20"]
)
def test_recovered_layer(name: str, golden: Golden) -> None:
    """The whole canonical text of a recovered layer."""
    golden(print_module(recovered(DATA / "attention" / f"{name}.onnx")[0]))


@pytest.mark.slow
def test_the_corpus(corpus: Any) -> None:
    """Every attention of the corpus is one node, and the numbers stay; one that training reads in parts is left."""
    wrong = []
    for record in corpus.records():
        if record["part"] not in ("layer", "model", "modelmask", "decode"):
            continue
        module, steps = recovered(corpus.onnx(record["name"]))
        misses = [m.reason for s in steps for m in s.result.near_misses]
        known = [READ_ELSEWHERE]
        if misses != (known if "trainjoint" in record["name"] else []):
            wrong.append((record["name"], misses))
        for error in errors(module, corpus.npz(record["name"]), record):
            if not error <= record["checks"]["tolerance"]:
                wrong.append((record["name"], error))
    assert not wrong

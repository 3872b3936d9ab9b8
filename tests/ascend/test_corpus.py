"""Real exports through compile and run on the CPU model: one of every family always, all of them with ``--slow``.

What judges them is ``benchmarks/corpus_kernels.py``; its verdicts are tried on a file that comes with the tests.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from corpus_paths import corpus_folder
from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parents[2]
NAME = "qwen3_moe_moe_dynamo_batched_mm_dyn_op21"
SAMPLE = (
    "dbrx_moe_torchscript_eager_static_op17",
    "deepseek_v3_moe_dynamo_batched_mm_dyn_op23",
    "jetmoe_moe_torchscript_dyn_op20_tf451",
    "lfm2_moe_moe_dynamo_batched_mm_dyn_op19",
    "llama4_moe_torchscript_static_op18",
    "minimax_m2_moe_dynamo_batched_mm_dyn_op20",
    "mixtral_moe_torchscript_dyn_op17_tf451",
    "switch_transformers_moe_torchscript_static_op17",
)
"""One of every family that has blocks, of either exporter; every second in a normal run. Files of qwen2 and qwen3 come
with the tests and are run there."""


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("corpus_kernels", ROOT / "benchmarks" / "corpus_kernels.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["corpus_kernels"] = module
    spec.loader.exec_module(module)
    return module


TOOL = _tool()
FOLDER = corpus_folder()
NAMES = [r["name"] for r in TOOL.records(FOLDER)] if FOLDER is not None else []


def _copied(folder: Path) -> dict[str, Any]:
    """The sample file in ``folder``; its record."""
    data = ROOT / "tests" / "data"
    for suffix in (".onnx", ".npz"):
        shutil.copy(data / f"{NAME}{suffix}", folder)
    (record,) = [r for r in json.loads((data / "index.json").read_text()) if r["name"] == NAME]
    return dict(record)


@pytest.mark.slow
def test_outputs_that_are_off_differ(tmp_path: Path) -> None:
    record = _copied(tmp_path)
    assert TOOL.judge(tmp_path, record).verdict == "agree"
    with np.load(tmp_path / f"{NAME}.npz") as stored:
        arrays = {k: a + 0.01 if k.startswith("out2") else a for k, a in stored.items()}
    np.savez(tmp_path / f"{NAME}.npz", **arrays)
    found = TOOL.judge(tmp_path, record)
    assert found.verdict == "differ"
    assert found.reason.startswith("'output' of case 2 is off by 0.01") and "case 1" not in found.reason


def test_an_op_without_a_kernel_is_named(tmp_path: Path) -> None:
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in "aby"]
    graph = helper.make_graph([helper.make_node("Mod", ["a", "b"], ["y"], fmod=1)], "g", ends[:2], ends[2:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "rest.onnx")
    record = {"name": "rest", "family": "f", "part": "moe", "exporter": "e", "dtype": "fp32", "checks": {}}
    found = TOOL.judge(tmp_path, record)
    assert found.verdict == "refused" and "mod of floats" in found.reason
    table = TOOL.table([found, TOOL.Found("other", "f", "layer", "e", "fp32", "agree", "", 1.0)])
    assert table.splitlines()[1].split() == ["f", "e", "1", "1", "0"]
    assert table.splitlines()[-1].startswith("refused: rest: ")


@pytest.mark.parametrize(
    "name", [n if n in SAMPLE[::2] else pytest.param(n, marks=pytest.mark.slow) for n in (NAMES or SAMPLE)]
)
def test_an_export_agrees(name: str, corpus: Any) -> None:
    (record,) = [r for r in corpus.records() if r["name"] == name]
    found = TOOL.judge(corpus.folder, record)
    assert found.verdict == "agree", found.reason

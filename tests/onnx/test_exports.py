"""Real exports evaluate to the numbers stored beside them, at both input sizes where there are two."""

from __future__ import annotations

import fnmatch
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_models import stored

from moec.eval import run
from moec.frontend.onnx import load_onnx
from moec.ops.verify import verify

DATA = Path(__file__).parent.parent / "data"
RECORDS: list[dict[str, Any]] = json.loads((DATA / "index.json").read_text())
BLOCKS = ["mixtral_moe_*", "qwen2_moe_moe_*", "qwen3_moe_moe_*"]


def check(folder: Path, record: dict[str, Any]) -> None:
    """Import, verify, run and compare with the stored outputs."""
    name, checks = record["name"], record["checks"]
    module = load_onnx(folder / f"{name}.onnx")
    verify(module)
    key = checks["expected_key"].split(".")[0]
    for size in ("", "2"):
        feeds = stored(folder / f"{name}.npz", f"in{size}")
        if not feeds:
            continue
        expected = stored(folder / f"{name}.npz", f"{key}{size}")
        for i, array in enumerate(run(module, feeds).values()):
            np.testing.assert_allclose(array.astype(np.float32), expected[str(i)], atol=checks["tolerance"], rtol=0)


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r["name"])
def test_sample(record: dict[str, Any]) -> None:
    check(DATA, record)


def test_every_block_of_the_three_families(corpus: Any) -> None:
    names = [r for r in corpus.records() if any(fnmatch.fnmatch(r["name"], p) for p in BLOCKS)]
    assert len(names) >= 16
    for record in names:
        check(corpus.folder, record)


def test_names_and_symbols_are_kept() -> None:
    graph = load_onnx(DATA / "qwen3_moe_moe_torchscript_dyn_op20_tf451.onnx").main
    assert [v.name for v in graph.inputs] == ["hidden_states"]
    assert graph.output_names == ["output"]
    assert str(graph.inputs[0].type) == "f32[batch, seq, 32]"
    assert str(graph.outputs[0].type) == "f32[batch, seq, 32]"


def test_u9_provenance_names_file_index_and_node() -> None:
    graph = load_onnx(DATA / "qwen3_moe_moe_torchscript_dyn_op20_tf451.onnx").main
    softmax = next(n for n in graph if n.op == "softmax")
    assert str(softmax.origin).startswith("qwen3_moe_moe_torchscript_dyn_op20_tf451.onnx:")
    assert "Softmax /moe/Softmax" in str(softmax.origin)


def test_shape_arithmetic_leaves_no_nodes() -> None:
    """The TorchScript file computes every Reshape's shape with Shape, Gather and Concat; nothing of that is left."""
    module = load_onnx(DATA / "qwen3_moe_moe_torchscript_dyn_op20_tf451.onnx")
    assert not [n for n in module.main if n.op in ("dims", "range")]
    assert len(module.main) < 0.6 * 492

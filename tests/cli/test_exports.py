"""Real exports of MoE blocks, the whole way: import, passes, exported ONNX and emitted kernels against the stored
outputs.

The files are the sample that comes with the tests and, where MOEC_CORPUS names a folder, its MoE blocks. Kernels of
a few are built and run always, of all with ``--slow``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from command import ROOT, moec
from corpus_paths import corpus_folder
from onnx.reference import ReferenceEvaluator

from moec import eval as reference
from moec.arrays import Arrays, Case, cases, expected_outputs, match_outputs, read_npz, recorded_tolerance
from moec.driver import load
from moec.execute import Project

DATA = ROOT / "tests" / "data"
FAMILIES = ("mixtral_moe_", "qwen2_moe_moe_", "qwen3_moe_moe_")
RUN = (
    "qwen3_moe_moe_dynamo_batched_mm_dyn_op21",
    "qwen3_moe_moe_dynamo_batched_mm_dyn_op21_bf16",
    "qwen2_moe_moe_dynamo_batched_mm_dyn_op20",
)
"""Exports whose kernels are built and run always."""


FOLDER = corpus_folder() or DATA
RECORDS: dict[str, dict[str, Any]] = {
    r["name"]: r
    for r in json.loads((FOLDER / "index.json").read_text(encoding="utf-8"))
    if r["name"].startswith(FAMILIES) and "trainjoint" not in r["name"] and (FOLDER / f"{r['name']}.onnx").is_file()
}


def stored(name: str) -> list[Case]:
    arrays = read_npz(FOLDER / f"{name}.npz")
    return cases(arrays, arrays)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Output folders by name, filled as tests ask."""
    return {"": tmp_path_factory.mktemp("exports")}


def output(name: str, compiled: dict[str, Path]) -> Path:
    if name not in compiled:
        out = compiled[""] / name
        done = moec("compile", FOLDER / f"{name}.onnx", "-o", out, "--check")
        assert done.returncode == 0, done.stderr
        compiled[name] = out
    return compiled[name]


@pytest.mark.parametrize("name", RECORDS)
def test_checks_agree_with_the_stored_outputs_at_every_size(name: str, compiled: dict[str, Path]) -> None:
    summary = json.loads((output(name, compiled) / "summary.json").read_text())
    sizes = {case.name or "1" for case in stored(name) if case.outputs}
    last = summary["passes"][-1]["pass"]
    assert {c["case"] for c in summary["checks"] if c["after"] == last and c["against"] == f"{name}.npz"} == sizes


@pytest.mark.parametrize("name", RECORDS)
def test_a_block_is_recovered(name: str, compiled: dict[str, Path]) -> None:
    summary = json.loads((output(name, compiled) / "summary.json").read_text())
    (recover,) = [p for p in summary["passes"] if p["pass"].startswith("recover-moe")]
    assert sum(recover["applied"].values()) == 1
    assert summary["lowered"], summary["not_lowered"]
    assert not {"nonzero", "topk", "moe"} & set(summary["ops"]["after"])


@pytest.mark.parametrize("name", RECORDS)
def test_the_exported_model_agrees_elsewhere(name: str, compiled: dict[str, Path]) -> None:
    file = output(name, compiled) / "optimized.onnx"
    runnable = not RECORDS[name]["checks"]["verdict"].startswith("ort-cannot-run")
    run = _onnxruntime(file) if runnable else _evaluator(file)
    tolerance = recorded_tolerance(RECORDS[name]["checks"])
    assert tolerance is not None
    names = load(FOLDER / f"{name}.onnx").main.output_names
    for case in stored(name):
        expected = match_outputs(names, expected_outputs(case, RECORDS[name]["checks"]), file)
        actual = run(case.inputs)
        for key, array in expected.items():
            scale = max(1.0, float(np.abs(array).max()))
            np.testing.assert_allclose(actual[key].astype(np.float64), array, rtol=0, atol=tolerance * scale)


def _onnxruntime(file: Path) -> Any:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(None, inputs), strict=True))


def _evaluator(file: Path) -> Any:
    model = onnx.load(file)
    names = [o.name for o in model.graph.output]
    wide = {i.name for i in model.graph.input if i.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16}
    evaluator = ReferenceEvaluator(model)

    def run(inputs: Arrays) -> Arrays:
        narrow = {n: a.astype(ml_dtypes.bfloat16) if n in wide else a for n, a in inputs.items()}
        return dict(zip(names, map(np.asarray, evaluator.run(None, narrow)), strict=True))

    return run


@pytest.mark.parametrize(
    "name", [name if name in RUN else pytest.param(name, marks=pytest.mark.slow) for name in RECORDS]
)
def test_one_emitted_project_agrees_at_every_size(name: str, compiled: dict[str, Path]) -> None:
    """The error of a run: at most four times that of the stored output against 64-bit floats, and within the record's
    tolerance.
    """
    module = load(FOLDER / f"{name}.onnx")
    project = Project(output(name, compiled))
    tolerance = recorded_tolerance(RECORDS[name]["checks"])
    assert tolerance is not None
    for case in stored(name):
        exact = reference.run(module, case.inputs, fp64=True)
        expected = match_outputs(module.main.output_names, expected_outputs(case, RECORDS[name]["checks"]), FOLDER)
        actual = project.run(case.inputs)
        for key, array in expected.items():
            own = float(np.abs(array - exact[key]).max())
            allowed = min(4 * own, tolerance * max(1.0, float(np.abs(array).max())))
            assert float(np.abs(actual[key].astype(np.float64) - array).max()) <= allowed

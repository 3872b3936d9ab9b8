"""Re-export held against the numbers stored beside a file: import, perhaps passes, export, run elsewhere, compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

from moec.arrays import cases, compare, expected_outputs, match_outputs, read_npz
from moec.frontend.onnx import load_onnx
from moec.frontend.onnx_export import export_onnx
from moec.ir.graph import Module
from moec.ir.types import DTYPES
from moec.passes.base import PassManager

onnxruntime.set_default_logger_severity(4)


def run_elsewhere(path: Path, feeds: dict[str, np.ndarray], reference: bool) -> list[np.ndarray]:
    """The outputs of the model in ``path`` by onnxruntime, or by the reference evaluator."""
    if reference:
        return list(ReferenceEvaluator(onnx.load(path)).run(None, feeds))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def differences(folder: Path, record: dict[str, Any], scratch: Path, passes: str = "") -> list[str]:
    """What is wrong with a file's re-export, one line a case; empty where all of it agrees.

    ``passes``, comma-separated, run between import and export. onnxruntime is asked where the record says that it runs
    the original, else the reference evaluator.
    """
    name, checks = record["name"], record["checks"]
    module = load_onnx(folder / f"{name}.onnx")
    if passes:
        PassManager.parse(passes).run(module)
    target = scratch / f"{name}.onnx"
    export_onnx(module, target)
    reference = checks["verdict"].startswith("ort-cannot-run")
    arrays = read_npz(folder / f"{name}.npz")
    wrong = []
    for case in cases(arrays, arrays):
        wanted = expected_outputs(case, checks)
        if not wanted:
            continue
        try:
            outputs = run_elsewhere(target, _typed(module, case.inputs), reference)
        except Exception as error:
            wrong.append(f"case {case.name or 1}: {type(error).__name__}: {str(error)[:600]}")
            continue
        names = module.main.output_names
        actual = dict(zip(names, outputs, strict=True))
        types = {n: v.type.dtype for n, v in zip(names, module.main.outputs, strict=True)}
        expected = match_outputs(names, wanted, folder / f"{name}.npz")
        for d in compare(actual, expected, types, checks["tolerance"]):
            if not d.agrees:
                wrong.append(f"case {case.name or 1}: {d.output} is off by {d.absolute:.3g} (allowed {d.allowed:.3g})")
    return wrong


def _typed(module: Module, stored: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Inputs in the dtypes that the graph states (16-bit floats are stored as f32)."""
    given = {v.name: v for v in module.main.inputs}
    return {
        n: a if given[n].type.dtype is DTYPES["seq"] else a.astype(given[n].type.dtype.carrier)
        for n, a in stored.items()
        if n in given
    }

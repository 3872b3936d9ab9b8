"""Gather, scatter and NonZero of ONNX in the forms that exporters write, compiled and run on the CPU model, against
onnxruntime: indices from the end, indices named twice, reductions, batch dimensions, indices for a part of the data.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import moec
from moec.execute import Project

F, I = TensorProto.FLOAT, TensorProto.INT64  # noqa: E741
NODES = [
    ("GatherElements", ["x", "last"], "a", {"axis": -1}),
    ("GatherElements", ["x", "few"], "b", {"axis": -2}),
    ("GatherND", ["z", "pairs"], "c", {"batch_dims": 1}),
    ("GatherND", ["z", "whole"], "d", {}),
    ("ScatterND", ["z", "whole", "u"], "e", {"reduction": "max"}),
    ("ScatterND", ["z", "whole", "u"], "f", {"reduction": "add"}),
    ("ScatterElements", ["x", "last", "w"], "g", {"axis": -1, "reduction": "add"}),
    ("ScatterElements", ["x", "few", "v"], "h", {"axis": 0, "reduction": "mul"}),
    ("ScatterElements", ["x", "few", "v"], "i", {"axis": 0, "reduction": "min"}),
    ("Greater", ["x", "w0"], "mask", {}),
    ("NonZero", ["mask"], "places", {}),
    ("Transpose", ["places"], "rows", {"perm": [1, 0]}),
    ("GatherND", ["x", "rows"], "j", {}),
]
SHAPES = {
    "x": (F, ["T", 6]), "last": (I, ["T", 3]), "few": (I, [4, 5]), "z": (F, [3, 4, 6]), "pairs": (I, [3, 2, 1]),
    "whole": (I, [5, 1]), "u": (F, [5, 4, 6]), "w": (F, ["T", 3]), "v": (F, [4, 5]), "w0": (F, [1]),
}  # fmt: skip


def _model(path: Path) -> None:
    nodes = [helper.make_node(op, ins, [out], **attrs) for op, ins, out, attrs in NODES]
    inputs = [helper.make_tensor_value_info(n, kind, dims) for n, (kind, dims) in SHAPES.items()]
    outputs = [helper.make_tensor_value_info(n, F, None) for n in "abcdefghij"]
    graph = helper.make_graph(nodes, "fetch", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


def _inputs(rng: np.random.Generator, t: int) -> dict[str, np.ndarray]:
    def numbers(*shape: int) -> np.ndarray:
        return rng.integers(-4, 5, shape).astype(np.float32)

    return {
        "x": numbers(t, 6),
        "last": rng.integers(-6, 6, (t, 3)),
        "few": rng.integers(-t, t, (4, 5)),
        "z": numbers(3, 4, 6),
        "pairs": rng.integers(-4, 4, (3, 2, 1)),
        "whole": np.array([[0], [-1], [2], [0], [1]]),
        "u": numbers(5, 4, 6),
        "w": numbers(t, 3),
        "v": numbers(4, 5),
        "w0": np.array([2.0], np.float32),
    }


@pytest.mark.slow
def test_forms_that_exporters_write(tmp_path: Path) -> None:
    path = tmp_path / "fetch.onnx"
    _model(path)
    made = moec.compile(path, tmp_path / "out")
    assert made.program is not None, made.summary["not_lowered"]
    session, project = onnxruntime.InferenceSession(path), Project(tmp_path / "out")
    rng = np.random.default_rng(6)
    for t in (4, 33):
        arrays = _inputs(rng, t)
        want = session.run(None, arrays)
        got = project.run(arrays, {"MOEC_CPU_STRICT": "1"})
        for name, w in zip("abcdefghij", want, strict=True):
            np.testing.assert_array_equal(got[name], w, name)

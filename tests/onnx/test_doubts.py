"""Models that were exported wrong come in as they are, with a warning that says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx_models import floats, model, node

from moec.frontend.onnx import read_onnx


def warnings_of(proto: onnx.ModelProto, folder: Path) -> list[str]:
    onnx.save(proto, folder / "m.onnx")
    return [str(w) for w in read_onnx(folder / "m.onnx").warnings]


def test_a_size_that_the_tracer_baked_in_is_reported(tmp_path: Path) -> None:
    shape = np.array([2, 14], np.int64)
    proto = model([node("Reshape", ["x", "s"])], {"x": floats("T", 4)}, initializers={"s": shape})
    (text,) = warnings_of(proto, tmp_path)
    assert "baked in" in text and "0 Reshape n_y" in text
    rows = np.ones((7, 4), np.float32)
    (text,) = warnings_of(model([node("Mul", ["x", "r"])], {"x": floats("T", 4)}, initializers={"r": rows}), tmp_path)
    assert "baked in" in text and "Mul" in text


def test_sizes_that_fit_any_input_are_not(tmp_path: Path) -> None:
    shape, row = np.array([-1, 2, 2], np.int64), np.ones((1, 4), np.float32)
    nodes = [node("Mul", ["x", "r"], ["a"]), node("Reshape", ["a", "s"])]
    assert not warnings_of(model(nodes, {"x": floats("T", 4)}, initializers={"s": shape, "r": row}), tmp_path)


def scattered(reduction: str, divided: bool) -> onnx.ModelProto:
    """Rows put at slot // 2 of zeros, or at the slot itself."""
    nodes = [
        node("TopK", ["slots", "k"], ["v", "i"]),
        node("Div", ["i", "two"], ["q"]),
        node("Unsqueeze", ["q" if divided else "i", "last"], ["at"]),
        node("ScatterND", ["zeros", "at", "x"], reduction=reduction),
    ]
    constants = {
        "k": np.array([4], np.int64),
        "two": np.array(2, np.int64),
        "last": np.array([1], np.int64),
        "zeros": np.zeros((4, 3), np.float32),
    }
    return model(nodes, {"slots": floats(4), "x": floats(4, 3)}, initializers=constants, opset=18)


def test_a_plain_scatter_in_place_of_a_sum_is_reported(tmp_path: Path) -> None:
    (text,) = warnings_of(scattered("none", True), tmp_path)
    assert "sum over rows of equal index" in text and "ScatterND" in text
    assert not warnings_of(scattered("add", True), tmp_path)
    assert not warnings_of(scattered("none", False), tmp_path)

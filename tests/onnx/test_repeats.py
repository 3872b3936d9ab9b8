"""Repeated layers become one function: found whatever stands around them, and never where copies differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import floats, model, node

from moec.eval import run
from moec.frontend.onnx import import_model
from moec.ir.graph import Module
from moec.ops.verify import verify
from moec.passes.base import PassManager, parse_passes

ACTIVATION = "Sigmoid"
STEPS = 12
"""Products in a layer; with their activations and sums, a layer is 36 nodes."""


def stacked(layers: int, change: Any = None) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of equal layers between a first and a last node; ``change(layer, nodes)`` may spoil one."""
    rng = np.random.default_rng(0)
    nodes, weights, below = [node("Tanh", ["x"], ["h"])], {}, "h"
    for k in range(layers):
        mine = []
        for i in range(STEPS):
            name = f"l{k}.{i}"
            weights[f"{name}.w"] = (rng.standard_normal((4, 4)) / 4).astype(np.float32)
            mine.append(node("MatMul", [below, f"{name}.w"], [f"{name}.m"]))
            mine.append(node(ACTIVATION if i else "Softmax", [f"{name}.m"], [f"{name}.s"]))
            mine.append(node("Add", [f"{name}.s", "h"], [f"{name}.y"]))
            below = f"{name}.y"
        if change is not None:
            change(k, mine)
        nodes += mine
    nodes.append(node("Exp", [below], ["y"]))
    return model(nodes, {"x": floats("T", 4)}, ["y"], initializers=weights), weights


def expected(weights: dict[str, np.ndarray], x: np.ndarray, layers: int) -> np.ndarray:
    h = y = np.tanh(x)
    for k in range(layers):
        for i in range(STEPS):
            z = y @ weights[f"l{k}.{i}.w"]
            y = (1 / (1 + np.exp(-z)) if i else np.exp(z) / np.exp(z).sum(-1, keepdims=True)) + h
    return np.exp(y)


def calls(module: Module) -> int:
    return sum(n.op == "call" for n in module.main)


@pytest.mark.parametrize("layers", [2, 3, 5])
def test_equal_layers_become_calls_of_one_function(layers: int) -> None:
    proto, weights = stacked(layers)
    module = import_model(proto)
    verify(module)
    assert calls(module) == layers and list(module.functions) == ["main", "layer"]
    x = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
    np.testing.assert_allclose(run(module, {"x": x})["y"], expected(weights, x, layers), rtol=1e-5)
    PassManager(parse_passes("inline")).run(module)
    assert calls(module) == 0 and list(module.functions) == ["main"]
    np.testing.assert_allclose(run(module, {"x": x})["y"], expected(weights, x, layers), rtol=1e-5)


def test_like_parts_of_one_layer_stay_together() -> None:
    """Without anything that mixes or chooses, a run is no layer: the experts of a block are not taken apart."""
    proto, _ = stacked(3)
    for each in proto.graph.node:
        if each.op_type == "Softmax":
            each.op_type = ACTIVATION
    assert calls(import_model(proto)) == 0


def test_one_layer_is_no_repetition() -> None:
    assert calls(import_model(stacked(1)[0])) == 0


def swapped(k: int, nodes: list[onnx.NodeProto]) -> None:
    """Layer 2 adds in the other order: the same operators, other wires."""
    if k == 2:
        nodes[5].input[0], nodes[5].input[1] = nodes[5].input[1], nodes[5].input[0]


def other_operator(k: int, nodes: list[onnx.NodeProto]) -> None:
    """Layer 2 has one other activation."""
    if k == 2:
        nodes[4].op_type = "Tanh"


@pytest.mark.parametrize("change", [swapped, other_operator])
def test_a_layer_that_differs_is_not_called(change: Any) -> None:
    proto, _ = stacked(5, change)
    module = import_model(proto)
    assert calls(module) < 5
    x = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
    whole = import_model(proto)
    PassManager(parse_passes("inline")).run(whole)
    np.testing.assert_array_equal(run(module, {"x": x})["y"], run(whole, {"x": x})["y"])
    reference = onnx.reference.ReferenceEvaluator(proto).run(None, {"x": x})[0]
    np.testing.assert_allclose(run(module, {"x": x})["y"], reference, rtol=1e-5)


def test_values_inside_layers_that_others_read_are_results() -> None:
    proto, _ = stacked(3)
    proto.graph.output.append(onnx.helper.make_tensor_value_info("l1.4.y", onnx.TensorProto.FLOAT, ["T", 4]))
    module = import_model(proto)
    verify(module)
    assert calls(module) == 3
    x = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
    reference = onnx.reference.ReferenceEvaluator(proto).run(None, {"x": x})
    for actual, wanted in zip(run(module, {"x": x}).values(), reference, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5)

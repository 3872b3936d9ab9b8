"""Optional values, and the scans of operator set 8 over a batch of sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx_models import imported, model, node

from moec.diagnostics import Refusal
from moec.eval import run
from moec.frontend.onnx_export import to_onnx

RNG = np.random.default_rng(0)
FLOATS = helper.make_tensor_type_proto(TensorProto.FLOAT, [4])
BOOL = (TensorProto.BOOL, ())


def optional_input(nodes: list[onnx.NodeProto], inputs: dict[str, Any] | None = None) -> onnx.ModelProto:
    """A model of ``nodes`` whose input ``x`` is optional(float[4])."""
    proto = model(nodes, inputs or {})
    info = helper.make_value_info("x", helper.make_optional_type_proto(FLOATS))
    proto.graph.input.append(info)
    return proto


def or_zero() -> list[onnx.NodeProto]:
    """Twice x where it is there, else a zero."""
    there = [node("OptionalGetElement", ["x"], ["e"]), node("Add", ["e", "e"], ["twice"])]
    zero = helper.make_tensor("zero", TensorProto.FLOAT, [1], [0.0])
    branches = {
        "then_branch": helper.make_graph(there, "there", [], [onnx.ValueInfoProto(name="twice")]),
        "else_branch": helper.make_graph(
            [node("Constant", [], ["none"], value=zero)], "empty", [], [onnx.ValueInfoProto(name="none")]
        ),
    }
    return [node("OptionalHasElement", ["x"], ["has"]), node("If", ["has"], **branches)]


def test_an_optional_input_is_there_or_not() -> None:
    """None reaches the branch as what the branch reads from outside."""
    x = RNG.standard_normal(4).astype(np.float32)
    module = imported(optional_input(or_zero()))
    np.testing.assert_array_equal(run(module, {"x": x})["y"], x + x)
    np.testing.assert_array_equal(run(module, {"x": None})["y"], [0.0])


def test_an_empty_optional_has_no_element() -> None:
    module = imported(optional_input([node("OptionalGetElement", ["x"])]))
    assert module.main.outputs[0].type.dims == (4,)
    with pytest.raises(Refusal, match="the optional value is empty"):
        run(module, {"x": None})
    of_nothing = [node("Optional", [], ["o"], type=FLOATS), node("OptionalGetElement", ["o"])]
    with pytest.raises(Refusal, match="the optional value is empty"):
        imported(model(of_nothing, {}))


@pytest.mark.parametrize("wrapped", [True, False])
def test_what_is_known_to_be_there_leaves_no_question(wrapped: bool) -> None:
    nodes = [node("OptionalHasElement", ["o"], ["has"]), node("OptionalGetElement", ["o"], ["e"]), node("Neg", ["e"])]
    wrap = [node("Optional" if wrapped else "Identity", ["x"], ["o"])]
    module = imported(model([*wrap, *nodes], {"x": (TensorProto.FLOAT, (4,))}, ["y", "has"]))
    assert not [n for n in module.main if n.op == "opaque" and n.attrs["type"] != "Optional"]
    x = RNG.standard_normal(4).astype(np.float32)
    found = run(module, {"x": x})
    np.testing.assert_array_equal(found["y"], -x)
    assert found["has"] == np.array(True)


def test_optional_values_are_written_back() -> None:
    again = imported(to_onnx(imported(optional_input([node("OptionalHasElement", ["x"])]))))
    assert [bool(run(again, {"x": x})["y"]) for x in (None, np.zeros(4, np.float32))] == [False, True]


def scan(batch: int | str, steps: int, lengths: bool, **attrs: Any) -> onnx.ModelProto:
    """Running sums of ``x`` [batch, steps, 2], each row doubled on the way out."""
    kinds = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("s", "v", "total", "twice")]
    nodes = [node("Add", ["s", "v"], ["total"]), node("Add", ["total", "total"], ["twice"])]
    body = helper.make_graph(nodes, "body", kinds[:2], kinds[2:])
    step = node("Scan", ["n" if lengths else "", "s0", "x"], ["last", "rows"], num_scan_inputs=1, body=body, **attrs)
    inputs = {"s0": (TensorProto.FLOAT, (batch, 2)), "x": (TensorProto.FLOAT, (batch, steps, 2))}
    if lengths:
        inputs["n"] = (TensorProto.INT64, (batch,))
    proto = model([step], inputs, ["last", "rows"], opset=8)
    proto.ir_version = 3
    for out, dims in zip(proto.graph.output, ((batch, 2), (batch, steps, 2)), strict=True):
        out.CopyFrom(helper.make_tensor_value_info(out.name, TensorProto.FLOAT, dims))
    return proto


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("attrs", [{}, {"directions": [1]}])
def test_a_scan_of_a_batch(batch: int, attrs: dict[str, Any]) -> None:
    _as_onnxruntime(scan(batch, 4, False, **attrs), batch, {})


def test_a_scan_of_sequences_of_their_own_lengths() -> None:
    for lengths in ([4, 1, 2], [4, 4, 4], [1, 1, 1]):
        _as_onnxruntime(scan(3, 4, True), 3, {"n": np.array(lengths)})


def _as_onnxruntime(proto: onnx.ModelProto, batch: int, more: dict[str, np.ndarray]) -> None:
    feeds = {n: RNG.standard_normal((batch, *d)).astype(np.float32) for n, d in (("s0", (2,)), ("x", (4, 2)))} | more
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for ours, theirs in zip(run(imported(proto), feeds).values(), session.run(None, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_what_a_scan_of_a_batch_cannot_do_is_kept_and_said() -> None:
    for proto in (scan("B", 4, False), scan(3, 4, True, directions=[1])):
        assert [n.op for n in imported(proto).main] == ["opaque"]

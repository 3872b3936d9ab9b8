"""What has no form of its own survives re-export: branches, loops, kept operators, sequences, run-time sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import floats, int64s, model, node

from moec.eval import run
from moec.frontend.onnx import import_model
from moec.frontend.onnx_export import to_onnx
from moec.ir.graph import Graph, Module
from moec.ir.symbol import sym
from moec.ir.types import F32, I64, TensorType
from moec.ops.build import Builder

onnxruntime.set_default_logger_severity(4)


def same(proto: onnx.ModelProto, *feeds: dict[str, np.ndarray]) -> onnx.ModelProto:
    """Assert that the re-exported model gives the original's numbers in onnxruntime, and that moec reads it again."""
    module = import_model(proto)
    again = to_onnx(module)
    if all(v.type.shape is not None for v in module.main.outputs):
        onnx.checker.check_model(again, full_check=True)
    twice = import_model(again)
    sessions = [onnxruntime.InferenceSession(m.SerializeToString()) for m in (proto, again)]
    for feed in feeds:
        before, after = (s.run(None, feed) for s in sessions)
        for a, b, c in zip(before, after, run(twice, feed).values(), strict=True):
            np.testing.assert_allclose(b, a, atol=1e-6)
            np.testing.assert_allclose(c, a, atol=1e-6)
    return again


def graph(nodes: list[onnx.NodeProto], inputs: dict[str, Any], outputs: dict[str, Any]) -> onnx.GraphProto:
    """A subgraph."""
    ins = [helper.make_tensor_value_info(n, t, d) for n, (t, d) in inputs.items()]
    outs = [helper.make_tensor_value_info(n, t, d) for n, (t, d) in outputs.items()]
    return helper.make_graph(nodes, "sub", ins, outs)


X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def test_branch_with_captures_and_an_output_that_is_one() -> None:
    then = graph([node("Mul", ["x", "h"], ["t"])], {}, {"t": floats("T", 3)})
    other = graph([node("Identity", ["h"], ["e"])], {}, {"e": floats("T", 3)})
    nodes = [
        node("Neg", ["x"], ["h"]),
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        node("Add", ["y", "h"], ["z"]),
    ]
    proto = model(nodes, {"x": floats("T", 3)}, ["z", "h"], {"zero": np.float32(0)})
    same(proto, {"x": X}, {"x": -X - 5}, {"x": np.ones((5, 3), np.float32)})


def test_branch_inside_a_branch() -> None:
    inner = [graph([node(op, ["x", "h"], [f"i{op}"])], {}, {f"i{op}": floats(2, 3)}) for op in ("Add", "Sub")]
    then = graph([node("If", ["d"], ["t"], then_branch=inner[0], else_branch=inner[1])], {}, {"t": floats(2, 3)})
    other = graph([node("Neg", ["h"], ["e"])], {}, {"e": floats(2, 3)})
    nodes = [node("Exp", ["x"], ["h"]), node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    proto = model(nodes, {"x": floats(2, 3), "c": (TensorProto.BOOL, ()), "d": (TensorProto.BOOL, ())}, ["y", "h"])
    flags = [(a, b) for a in (True, False) for b in (True, False)]
    same(proto, *({"x": X, "c": np.array(a), "d": np.array(b)} for a, b in flags))


def test_loop_that_data_ends_with_a_state_a_row_and_a_capture() -> None:
    body = graph(
        [
            node("Add", ["s", "h"], ["s1"]),
            node("ReduceMax", ["s1"], ["m"], keepdims=0),
            node("Less", ["m", "limit"], ["go1"]),
            node("Mul", ["s1", "two"], ["row"]),
        ],
        {"i": int64s(), "go": (TensorProto.BOOL, ()), "s": floats(3)},
        {"go1": (TensorProto.BOOL, ()), "s1": floats(3), "row": floats(3)},
    )
    nodes = [node("Abs", ["x"], ["h"]), node("Loop", ["n", "c", "x"], ["last", "rows"], body=body)]
    held = {"limit": np.float32(10), "two": np.float32(2), "c": np.array(True)}
    proto = model(nodes, {"x": floats(3), "n": int64s()}, ["last", "rows"], held)
    x = np.array([1, 2, 0.5], np.float32)
    same(proto, {"x": x, "n": np.array(99)}, {"x": x, "n": np.array(2)}, {"x": x, "n": np.array(0)})


def test_loop_whose_state_grows() -> None:
    body = graph(
        [node("Concat", ["s", "x"], ["s1"], axis=0), node("Identity", ["go"], ["go1"])],
        {"i": int64s(), "go": (TensorProto.BOOL, ()), "s": (TensorProto.FLOAT, ["n"])},
        {"go1": (TensorProto.BOOL, ()), "s1": (TensorProto.FLOAT, ["m"])},
    )
    nodes = [node("Loop", ["n", "", "x"], ["y"], body=body), node("Neg", ["y"], ["z"])]
    proto = model(nodes, {"x": floats(3), "n": int64s()}, ["z"])
    same(proto, {"x": X[0], "n": np.array(3)}, {"x": X[0], "n": np.array(0)})


@pytest.mark.parametrize("backward", [0, 1])
def test_scan_over_a_size_known_only_when_it_runs(backward: int) -> None:
    body = graph(
        [node("Add", ["s", "row"], ["s1"]), node("Mul", ["s1", "w"], ["out"])],
        {"s": floats(3), "row": floats(3)},
        {"s1": floats(3), "out": floats(3)},
    )
    attrs = {"num_scan_inputs": 1, "scan_input_directions": [backward], "scan_output_axes": [1]}
    nodes = [node("Exp", ["v"], ["w"]), node("Scan", ["start", "x"], ["last", "rows"], body=body, **attrs)]
    proto = model(nodes, {"x": floats("T", 3), "v": floats(3)}, ["last", "rows"], {"start": np.zeros(3, np.float32)})
    same(proto, {"x": X, "v": X[0]}, {"x": np.ones((5, 3), np.float32), "v": X[1]})


def test_kept_operators_are_written_back_with_their_domains() -> None:
    """An operator of another domain and one with a subgraph that reads from outside: names change, numbers stay."""
    body = graph([node("Mul", ["e", "h"], ["m"])], {"e": floats(3)}, {"m": floats(3)})
    nodes = [
        node("Neg", ["x"], ["h"]),
        node("SplitToSequence", ["x"], ["parts"], axis=0, keepdims=0),
        node("Neg", ["h0"], ["e"]),
        node("SequenceMap", ["parts"], ["mapped"], body=_captures(body)),
        node("ConcatFromSequence", ["mapped"], ["joined"], axis=0, new_axis=1),
        node("BiasGelu", ["joined", "h0"], ["y"], domain="com.microsoft"),
        node("Add", ["y", "e"], ["z"]),
    ]
    nodes.insert(1, node("Gather", ["h", "zero"], ["h0"], axis=0))
    proto = model(nodes, {"x": floats("T", 3)}, ["z"], {"zero": np.int64(0)}, domains=[("com.microsoft", 1)])
    proto.graph.value_info.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["T", 3]))
    module = import_model(proto)
    assert [n.attrs["type"] for n in module.main if n.op == "opaque"]
    again = to_onnx(module)
    sessions = [onnxruntime.InferenceSession(m.SerializeToString()) for m in (proto, again)]
    for x in (X, np.ones((5, 3), np.float32)):
        before, after = (s.run(None, {"x": x})[0] for s in sessions)
        np.testing.assert_allclose(after, before, atol=1e-6)


def _captures(body: onnx.GraphProto) -> onnx.GraphProto:
    for inner in body.node:
        for i, name in enumerate(inner.input):
            inner.input[i] = "h0" if name == "h" else name
    return body


def test_two_subgraphs_that_define_one_name() -> None:
    """SequenceMap is kept as it came; both bodies define ``e`` and ``m``."""
    nodes = [node("SplitToSequence", ["x"], ["p0"], axis=0, keepdims=0), node("Exp", ["x"], ["h"])]
    for i in (0, 1):
        body = graph([node("Neg", ["e"], ["m"])], {"e": floats(3)}, {"m": floats(3)})
        nodes.append(node("SequenceMap", [f"p{i}"], [f"p{i + 1}"], body=body))
    nodes += [node("ConcatFromSequence", ["p2"], ["j"], axis=0, new_axis=1), node("Add", ["j", "h"], ["y"])]
    same(model(nodes, {"x": floats("T", 3)}), {"x": X})


def test_a_kept_operator_of_an_older_set_is_refused_where_it_changed_since() -> None:
    from moec.diagnostics import Refusal

    proto = model([node("Upsample", ["x", "s"])], {"x": floats(1, 1, 2, 3)}, ["y"], {"s": np.ones(4, np.float32)}, 9)
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 2, 3]))
    with pytest.raises(Refusal, match="Upsample of opset 9 is another operator in opset 21"):
        to_onnx(import_model(proto))


def test_a_kept_operator_of_a_newer_set_raises_the_opset() -> None:
    proto = model([node("TensorScatter", ["x", "u", "i"])], {"x": floats(2, 4, 3), "u": floats(2, 1, 3)}, opset=24)
    proto.graph.input.append(helper.make_tensor_value_info("i", TensorProto.INT64, [2]))
    module = import_model(proto)
    kept = [n for n in module.main if n.op == "opaque"]
    again = to_onnx(module)
    assert (again.opset_import[0].version == 24) == bool(kept)


def test_sizes_that_data_decides() -> None:
    nodes = [
        node("NonZero", ["x"], ["at"]),
        node("Transpose", ["at"], ["pairs"], perm=[1, 0]),
        node("GatherND", ["x", "pairs"], ["found"]),
        node("Shape", ["found"], ["n"]),
        node("ConstantOfShape", ["n"], ["ones"], value=numpy_helper.from_array(np.ones(1, np.float32))),
        node("Add", ["found", "ones"], ["y"]),
    ]
    same(model(nodes, {"x": floats("T", 3)}), {"x": X}, {"x": np.zeros((2, 3), np.float32)})


def test_host_steps_are_written_in_place_and_bring_their_sizes() -> None:
    module = Module()
    main, step = module.add(Graph("main")), module.add(Graph("step"))
    module.symbols["n"] = (0, 100)
    inner = Builder(step)
    counts = step.add_input("counts", TensorType(I64, (4,)))
    total = inner.bind_size(inner.reduce_sum(counts, axes=(0,), keepdims=False), value=sym("n"))
    step.set_outputs([total], ["total"])
    x, given = main.add_input("x", TensorType(F32, (100, 2))), main.add_input("counts", TensorType(I64, (4,)))
    b = Builder(main)
    main.append("host", [b.to_host(given)], {"fn": "step"}, [TensorType(I64, ())])
    main.set_outputs([b.slice(x, axis=0, start=0, stop=sym("n"), step=1)], ["y"])
    x_in = np.arange(200, dtype=np.float32).reshape(100, 2)
    feeds = {"x": x_in, "counts": np.array([3, 0, 2, 1])}
    session = onnxruntime.InferenceSession(to_onnx(module).SerializeToString())
    np.testing.assert_array_equal(session.run(None, feeds)[0], x_in[:6])


@pytest.mark.parametrize("ignore", [None, -100])
def test_cross_entropy(ignore: int | None) -> None:
    module = Module()
    main = module.add(Graph("main"))
    logits, labels = main.add_input("x", TensorType(F32, (2, 3, 7))), main.add_input("l", TensorType(I64, (2, 3)))
    main.set_outputs([Builder(main).cross_entropy(logits, labels, ignore=ignore)], ["loss"])
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal((2, 3, 7)).astype(np.float32), "l": rng.integers(0, 7, (2, 3))}
    if ignore is not None:
        feeds["l"][1, 1] = ignore
    session = onnxruntime.InferenceSession(to_onnx(module).SerializeToString())
    np.testing.assert_allclose(session.run(None, feeds)[0], run(module, feeds)["loss"], atol=1e-6)

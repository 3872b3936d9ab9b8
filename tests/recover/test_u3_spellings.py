"""One layer as ONNX in the ways that exporters weigh against one another: unrolled over the experts, Loop or Scan over
stacked weights, and dense with masks. All reach the same canonical block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx_models import floats, int64s, model, node

from moec.eval import run
from moec.frontend.onnx import import_model
from moec.ir.text import print_module
from moec.passes.base import PassManager

E, K, H, INNER = 4, 2, 8, 6
RNG = np.random.default_rng(3)
GATE_UP = RNG.standard_normal((E, 2 * INNER, H)).astype(np.float32)
DOWN = RNG.standard_normal((E, H, INNER)).astype(np.float32)
ROUTER = [
    node("MatMul", ["x", "router"], ["logits"]),
    node("Softmax", ["logits"], ["scores"], axis=-1),
    node("TopK", ["scores", "k"], ["values", "experts"], axis=-1),
    node("ReduceSum", ["values", "last"], ["total"], keepdims=1),
    node("Div", ["values", "total"], ["weights"]),
]
HELD: dict[str, np.ndarray] = {
    "router": RNG.standard_normal((H, E)).astype(np.float32),
    "gate_up": GATE_UP,
    "down": DOWN,
    "k": np.array([K]),
    "zero": np.int64(0),
    "zeros": np.zeros((), np.float32),
    "first": np.array([0]),
    "last": np.array([-1]),
    "pair": np.array([-1]),
    "starts": np.array([0]),
    "count": np.int64(E),
    "numbers": np.arange(E),
    "true": np.array(True),
    "halves": np.array([INNER, INNER]),
}


def swiglu(x: str, y: str) -> list[onnx.NodeProto]:
    """silu of the first half times the second."""
    return [
        node("Split", [x, "halves"], [f"{y}g", f"{y}u"], axis=-1),
        node("Sigmoid", [f"{y}g"], [f"{y}s"]),
        node("Mul", [f"{y}g", f"{y}s"], [f"{y}a"]),
        node("Mul", [f"{y}a", f"{y}u"], [y]),
    ]


def transposed(x: str, y: str, rank: int = 2) -> onnx.NodeProto:
    return node("Transpose", [x], [y], perm=[*range(rank - 2), rank - 1, rank - 2])


def gathered(expert: str, gate_up: str, down: str, y: str, out: str, p: str) -> list[onnx.NodeProto]:
    """One expert on the tokens that chose it, added to their rows of ``y``."""
    return [
        node("Equal", ["experts", expert], [f"{p}mask"]),
        node("NonZero", [f"{p}mask"], [f"{p}at"]),
        node("Transpose", [f"{p}at"], [f"{p}pairs"], perm=[1, 0]),
        node("GatherND", ["weights", f"{p}pairs"], [f"{p}w"]),
        node("Gather", [f"{p}pairs", "first"], [f"{p}token"], axis=1),
        node("GatherND", ["x", f"{p}token"], [f"{p}rows"]),
        transposed(gate_up, f"{p}gt"),
        node("MatMul", [f"{p}rows", f"{p}gt"], [f"{p}h"]),
        *swiglu(f"{p}h", f"{p}act"),
        transposed(down, f"{p}dt"),
        node("MatMul", [f"{p}act", f"{p}dt"], [f"{p}o"]),
        node("Unsqueeze", [f"{p}w", "last"], [f"{p}w1"]),
        node("Mul", [f"{p}o", f"{p}w1"], [f"{p}ow"]),
        node("ScatterND", [y, f"{p}token", f"{p}ow"], [out], reduction="add"),
    ]


def masked(expert: str, gate_up: str, down: str, y: str, out: str, p: str) -> list[onnx.NodeProto]:
    """One expert on all tokens, times a weight that is zero where it was not chosen."""
    return [
        node("Equal", ["experts", expert], [f"{p}mask"]),
        node("Where", [f"{p}mask", "weights", "zeros"], [f"{p}mw"]),
        node("ReduceSum", [f"{p}mw", "last"], [f"{p}w"], keepdims=1),
        transposed(gate_up, f"{p}gt"),
        node("MatMul", ["x", f"{p}gt"], [f"{p}h"]),
        *swiglu(f"{p}h", f"{p}act"),
        transposed(down, f"{p}dt"),
        node("MatMul", [f"{p}act", f"{p}dt"], [f"{p}o"]),
        node("Mul", [f"{p}w", f"{p}o"], [f"{p}ow"]),
        node("Add", [y, f"{p}ow"], [out]),
    ]


Step = Callable[[str, str, str, str, str, str], list[onnx.NodeProto]]


def unrolled(step: Step) -> onnx.ModelProto:
    held = {**HELD, **{f"n{e}": np.int64(e) for e in range(E)}}
    held |= {f"gu{e}": GATE_UP[e] for e in range(E)} | {f"d{e}": DOWN[e] for e in range(E)}
    nodes = [node("Shape", ["x"], ["shape"]), *ROUTER, node("Expand", ["zeros", "shape"], ["y0"])]
    for e in range(E):
        nodes += step(f"n{e}", f"gu{e}", f"d{e}", f"y{e}", f"y{e + 1}" if e < E - 1 else "y", f"e{e}_")
    return model(nodes, {"x": floats("T", H)}, ["y"], held)


def looped(step: Step) -> onnx.ModelProto:
    """The expert's number is the step's, its weights are gathered from the stack."""
    body = [
        node("Gather", ["gate_up", "i"], ["gu"], axis=0),
        node("Gather", ["down", "i"], ["d"], axis=0),
        *step("i", "gu", "d", "acc", "acc1", ""),
        node("Identity", ["go"], ["go1"]),
    ]
    inputs = [("i", int64s()), ("go", (TensorProto.BOOL, ())), ("acc", floats("T", H))]
    outputs = [("go1", (TensorProto.BOOL, ())), ("acc1", floats("T", H))]
    infos = [[helper.make_tensor_value_info(n, t, list(d)) for n, (t, d) in side] for side in (inputs, outputs)]
    graph = helper.make_graph(body, "body", *infos)
    nodes = [node("Shape", ["x"], ["shape"]), *ROUTER, node("Expand", ["zeros", "shape"], ["y0"])]
    nodes.append(node("Loop", ["count", "true", "y0"], ["y"], body=graph))
    return model(nodes, {"x": floats("T", H)}, ["y"], HELD)


def scanned(step: Step) -> onnx.ModelProto:
    """Numbers and weights of the experts are what is scanned."""
    body = step("n", "gu", "d", "acc", "acc1", "")
    inputs = [("acc", floats("T", H)), ("n", int64s()), ("gu", floats(2 * INNER, H)), ("d", floats(H, INNER))]
    infos = [helper.make_tensor_value_info(n, t, list(d)) for n, (t, d) in inputs]
    out = helper.make_tensor_value_info("acc1", TensorProto.FLOAT, ["T", H])
    graph = helper.make_graph(body, "body", infos, [out])
    nodes = [node("Shape", ["x"], ["shape"]), *ROUTER, node("Expand", ["zeros", "shape"], ["y0"])]
    nodes.append(node("Scan", ["y0", "numbers", "gate_up", "down"], ["y"], body=graph, num_scan_inputs=3))
    return model(nodes, {"x": floats("T", H)}, ["y"], HELD)


def dense() -> onnx.ModelProto:
    """Weights spread over all experts, batched products, a sum over the experts."""
    nodes = [
        node("Shape", ["logits"], ["wide"]),
        node("Expand", ["zeros", "wide"], ["none"]),
        node("ScatterElements", ["none", "experts", "weights"], ["spread"], axis=1),
        node("Transpose", ["spread"], ["per_expert"], perm=[1, 0]),
        node("Unsqueeze", ["per_expert", "last"], ["column"]),
        node("Unsqueeze", ["x", "first"], ["one"]),
        transposed("gate_up", "gt", 3),
        node("MatMul", ["one", "gt"], ["h"]),
        *swiglu("h", "act"),
        transposed("down", "dt", 3),
        node("MatMul", ["act", "dt"], ["o"]),
        node("Mul", ["o", "column"], ["ow"]),
        node("ReduceSum", ["ow", "first"], ["y"], keepdims=0),
    ]
    return model([*ROUTER, *nodes], {"x": floats("T", H)}, ["y"], HELD)


SPELLINGS: dict[str, Callable[[], onnx.ModelProto]] = {
    "unrolled": lambda: unrolled(gathered),
    "unrolled, masked": lambda: unrolled(masked),
    "loop": lambda: looped(gathered),
    "loop, masked": lambda: looped(masked),
    "scan": lambda: scanned(gathered),
    "scan, masked": lambda: scanned(masked),
    "dense": dense,
}


def canonical(proto: onnx.ModelProto) -> tuple[str, Any]:
    """The text of the recovered module and the module."""
    module = import_model(proto)
    (result,) = [
        s.result for s in PassManager.parse("canonicalise,fold,canonicalise,cse,dce,recover-moe,dce").run(module)
    ][5:6]
    assert result.counts() == {"recover-moe": 1}, [m.reason for m in result.near_misses]
    return print_module(module), module


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_u3_every_spelling_is_the_same_block(spelling: str) -> None:
    proto = SPELLINGS[spelling]()
    text, module = canonical(proto)
    assert [n.op for n in module.main if n.op != "weight"] == ["moe"]
    assert text == canonical(dense())[0]
    x = RNG.standard_normal((5, H)).astype(np.float32)
    expected = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]
    np.testing.assert_allclose(run(module, {"x": x})["y"], expected, atol=2e-5)


def test_u1_dispatch_by_nonzero_is_a_block_and_its_counts_are_bounded_symbols() -> None:
    """A token-dependent count is a size of its own, at most all slots, never a number of the traced sample."""
    module = import_model(unrolled(gathered))
    counts = {str(n.attrs["count"]): module.symbols[str(n.attrs["count"])] for n in module.main if n.op == "nonzero"}
    assert len(counts) == E and all(low == 0 and high >= K for low, high in counts.values())
    PassManager.parse("canonicalise,fold,canonicalise,cse,dce,recover-moe,dce").run(module)
    assert [n.op for n in module.main if n.op != "weight"] == ["moe"]
    assert list(module.symbols) == ["T"]


def test_also_explained_without_rewriting() -> None:
    """What keeps a router from being a block is told with its nodes: here weights that are squared."""
    proto = dense()
    (div,) = [n for n in proto.graph.node if n.op_type == "Div"]
    div.input[1] = "values"
    module = import_model(proto)
    result = PassManager.parse("canonicalise,cse,dce,recover-moe").run(module)[-1].result
    assert not result.applied and result.near_misses[0].nodes
    assert "no sum over them was found" in result.near_misses[0].reason or "divided by" in result.near_misses[0].reason

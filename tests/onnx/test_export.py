"""Exported models run in onnxruntime to the numbers of the layer IR, and keep names and symbolic sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import moe_attrs
import numpy as np
import onnx
import onnxruntime
import pytest
from moe_attrs import ACTIVATION, DROPLESS
from onnx.reference import ReferenceEvaluator
from onnx_models import stored

from moec.diagnostics import Refusal
from moec.eval import run
from moec.frontend.onnx import import_model, load_onnx
from moec.frontend.onnx_export import export_onnx, to_onnx
from moec.ir.graph import Graph, Module, Value
from moec.ir.symbol import Shape, ceildiv, dmin, mod, sym
from moec.ir.types import BF16, F32, I32, TensorType
from moec.ops.build import Builder
from moec.ops.verify import verify

DATA = Path(__file__).parent.parent / "data"
RECORDS: list[dict[str, Any]] = json.loads((DATA / "index.json").read_text())
onnxruntime.set_default_logger_severity(3)
RNG = np.random.default_rng(0)
T = sym("T")


def executed(proto: onnx.ModelProto, feeds: dict[str, np.ndarray], reference: bool = False) -> list[np.ndarray]:
    """The outputs in onnxruntime, or in the reference evaluator where onnxruntime has no kernels for the dtype."""
    onnx.checker.check_model(proto, full_check=True)
    if reference:
        return list(ReferenceEvaluator(proto).run(None, feeds))
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r["name"])
def test_sample_survives_the_round_trip(record: dict[str, Any]) -> None:
    name, checks = record["name"], record["checks"]
    module = load_onnx(DATA / f"{name}.onnx")
    proto = to_onnx(module)
    again = import_model(onnx.ModelProto.FromString(proto.SerializeToString()))
    bf16 = record["dtype"] == "bf16"
    for size in ("", "2"):
        feeds = stored(DATA / f"{name}.npz", f"in{size}")
        if not feeds:
            continue
        typed = {v.name: feeds[v.name].astype(v.type.dtype.carrier) for v in module.main.inputs}
        expected = stored(DATA / f"{name}.npz", f"{checks['expected_key'].split('.')[0]}{size}")
        for actual in (executed(proto, typed, bf16), list(run(again, feeds).values())):
            for i, array in enumerate(actual):
                np.testing.assert_allclose(array.astype(np.float32), expected[str(i)], atol=checks["tolerance"], rtol=0)


def test_names_and_symbolic_sizes_are_kept() -> None:
    original = onnx.load(DATA / "qwen3_moe_moe_dynamo_batched_mm_dyn_op21.onnx")
    proto = to_onnx(load_onnx(DATA / "qwen3_moe_moe_dynamo_batched_mm_dyn_op21.onnx"))
    for ours, theirs in ((proto.graph.input, original.graph.input), (proto.graph.output, original.graph.output)):
        assert [(v.name, v.type.SerializeToString()) for v in ours] == [
            (v.name, v.type.SerializeToString()) for v in theirs
        ]


def test_export_is_deterministic() -> None:
    path = DATA / "qwen3_moe_moe_torchscript_dyn_op20_tf451.onnx"
    first, second = (to_onnx(load_onnx(path)).SerializeToString(deterministic=True) for _ in range(2))
    assert first == second


class Layer:
    """A one-function module under construction, with random weights."""

    def __init__(self) -> None:
        self.module = Module()
        self.graph = self.module.add(Graph("main"))
        self.b = Builder(self.graph)
        self.feeds: dict[str, np.ndarray] = {}

    def input(self, name: str, shape: Shape, feed: np.ndarray) -> Value:
        self.feeds[name] = feed
        kind = {"f": F32, "i": I32, "V": BF16}[feed.dtype.kind]
        return self.graph.add_input(name, TensorType(kind, shape))

    def weight(self, name: str, *shape: int, scale: float = 0.3) -> Value:
        return self.input(name, shape, (scale * RNG.standard_normal(shape)).astype(np.float32))

    def check(self, *outputs: Value, atol: float = 2e-5) -> onnx.ModelProto:
        self.graph.set_outputs(outputs, [f"y{i}" for i in range(len(outputs))])
        verify(self.module)
        proto = to_onnx(self.module)
        expected = run(self.module, self.feeds)
        for actual, wanted in zip(executed(proto, self.feeds), expected.values(), strict=True):
            assert actual.dtype == wanted.dtype
            np.testing.assert_allclose(actual, wanted, atol=atol, rtol=1e-5)
        return proto


ROUTING = {**moe_attrs.ROUTING, "top_k": 3, "weights_dtype": F32}
ROUTERS: list[dict[str, Any]] = [
    {},
    {"renormalize": False, "scale": 2.5},
    {"score": "sigmoid", "renormalize_eps": 1e-3},
    {"score_order": "after_topk", "renormalize": False},
    {"groups": 4, "group_top_k": 2, "group_score": "sum2", "group_mask": "zero", "score": "sigmoid"},
    {"groups": 4, "group_top_k": 2, "group_score": "max", "group_mask": "minus_inf", "score": "sigmoid"},
]


@pytest.mark.parametrize("change", ROUTERS)
@pytest.mark.parametrize("biased", [False, True])
def test_gating(change: dict[str, Any], biased: bool) -> None:
    layer = Layer()
    logits = layer.input("logits", (T, 8), RNG.standard_normal((5, 8)).astype(np.float32))
    bias = layer.weight("bias", 8) if biased else None
    layer.check(*layer.b.gating(logits, bias, **{**ROUTING, **change}))


def test_gating_ties_go_to_the_lower_expert() -> None:
    layer = Layer()
    logits = layer.input("logits", (T, 8), np.zeros((3, 8), np.float32))
    layer.check(*layer.b.gating(logits, None, **ROUTING))


MOE: list[dict[str, Any]] = [
    *ROUTERS,
    {"weights_on": "input"},
    {"weights_on": "activation"},
    {"capacity": 2, "capacity_scope": "tokens", "dropped": "zero"},
    {"capacity": 2, "capacity_scope": "tokens", "dropped": "input", "weights_on": "activation"},
    {"capacity": 1, "capacity_scope": "sequence", "dropped": "zero", "weights_on": "input"},
    {"capacity": 1, "capacity_scope": "sequence", "dropped": "input"},
    {"glu": "interleaved", "alpha": 1.702, "limit": 0.7, "up_offset": 1.0},
    {"activation": "gelu_tanh"},
    {"glu": "none", "activation": "relu"},
]


@pytest.mark.parametrize("change", MOE)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shared", ["no", "plain", "gated"])
def test_moe(change: dict[str, Any], biased: bool, shared: str) -> None:
    layer = Layer()
    attrs = {**ROUTING, **ACTIVATION, "router_dtype": F32, "weights_on": "output", **DROPLESS, **change}
    inner = 6 if attrs["glu"] == "none" else 12
    x = layer.input("x", (sym("B"), T, 10), RNG.standard_normal((2, 4, 10)).astype(np.float32))
    operands: list[Value | None] = [x, layer.weight("router", 8, 10, scale=1.0)]
    operands += [layer.weight("gate_up", 8, inner, 10), layer.weight("down", 8, 10, 6)]
    for name, shape in (
        ("router_bias", (8,)),
        ("score_bias", (8,)),
        ("gate_up_bias", (8, inner)),
        ("down_bias", (8, 10)),
    ):
        operands.append(layer.weight(name, *shape) if biased else None)
    if shared != "no":
        operands += [layer.weight("shared_gate_up", inner, 10), layer.weight("shared_down", 10, 6)]
        operands.append(layer.weight("shared_gate", 1, 10) if shared == "gated" else None)
    proto = layer.check(*layer.b.moe(*operands, **attrs))
    assert [n.op_type for n in proto.graph.node] == ["moe"]
    names = {f.name for f in proto.functions}
    assert {"moe", "gating", "permute", "grouped_matmul", "swiglu", "unpermute"} <= names


def test_experts_without_tokens_and_no_tokens_at_all() -> None:
    for tokens in (0, 1):
        layer = Layer()
        x = layer.input("x", (T, 10), RNG.standard_normal((tokens, 10)).astype(np.float32))
        weights = [layer.weight("r", 8, 10), layer.weight("g", 8, 12, 10), layer.weight("d", 8, 10, 6)]
        attrs = {**ROUTING, **ACTIVATION, "router_dtype": F32, "weights_on": "output", **DROPLESS}
        layer.check(*layer.b.moe(x, *weights, **attrs))


def test_norms_and_histogram() -> None:
    layer = Layer()
    x = layer.input("x", (T, 10), RNG.standard_normal((4, 10)).astype(np.float32))
    w = layer.weight("w", 10)
    i = layer.input("i", (T,), np.array([3, 0, 3, 9], np.int32))
    b = layer.b
    layer.check(
        b.rms_norm(x, w, eps=1e-5),
        b.rms_norm(x, eps=1e-5),
        b.layer_norm(x, None, None, eps=1e-5, axis=1),
        b.histogram(i, bins=5),
    )


def test_sizes_are_computed_from_the_inputs() -> None:
    layer = Layer()
    x = layer.input("x", (2 * T + 1, 4), np.ones((7, 4), np.float32))
    b = layer.b
    sizes = (T, 3 * T - 1, ceildiv(T, 2), T * T // 4, mod(T, 2), dmin(T, 2))
    layer.check(b.dims(values=sizes, scalar=False), b.expand(b.reshape(x, shape=(1, 8 * T + 4)), shape=(T, 8 * T + 4)))


def test_size_that_nothing_has_is_refused() -> None:
    layer = Layer()
    y = layer.b.dims(values=(sym("Z"),), scalar=True)
    layer.graph.set_outputs([y], ["y"])
    with pytest.raises(Refusal, match="size Z is no input's size"):
        to_onnx(layer.module)


def test_function_of_the_module_with_a_size_of_its_caller() -> None:
    layer = Layer()
    f = layer.module.add(Graph("spread"))
    inner = Builder(f)
    scale = f.add_input("s", TensorType(F32, ()))
    f.set_outputs([inner.expand(scale, shape=(T,))], ["y"])
    x = layer.input("x", (T,), np.arange(3, dtype=np.float32))
    s = layer.input("s", (), np.array(2, np.float32))
    spread = layer.graph.append("call", [s], {"fn": "spread"}, [TensorType(F32, (T,))]).result
    y = layer.b.add(x, spread)
    layer.graph.set_outputs([y], ["y"])
    (actual,) = executed(to_onnx(layer.module), layer.feeds)
    assert actual.tolist() == [2.0, 3.0, 4.0]


def test_u18_weights_of_one_name_stay_two_tensors_and_absent_data_becomes_an_input() -> None:
    from moec.ir.data import ArrayData

    layer = Layer()
    x = layer.input("x", (2,), np.zeros(2, np.float32))
    b = layer.b
    one, two = (
        b.weight(name="w", dtype=F32, shape=(2,), data=ArrayData(np.full(2, v, np.float32))) for v in (1.0, 5.0)
    )
    free = b.weight(name="free", dtype=F32, shape=(2,))
    layer.graph.set_outputs([b.add(b.add(x, one), b.mul(two, free))], ["y"])
    proto = to_onnx(layer.module)
    assert [v.name for v in proto.graph.input] == ["x", "free"]
    (y,) = executed(proto, {**layer.feeds, "free": np.full(2, 2, np.float32)})
    assert y.tolist() == [11.0, 11.0]


def test_outputs_that_are_inputs_or_stand_twice(tmp_path: Path) -> None:
    layer = Layer()
    x = layer.input("x", (2,), np.arange(2, dtype=np.float32))
    y = layer.b.neg(x)
    layer.graph.set_outputs([x, y, y], ["a", "b", "c"])
    export_onnx(layer.module, tmp_path / "m.onnx")
    a, b, c = executed(onnx.load(tmp_path / "m.onnx"), layer.feeds)
    assert a.tolist() == [0, 1] and b.tolist() == c.tolist() == [0, -1]


def test_reshape_to_a_size_that_is_zero_when_run() -> None:
    """A 0 in the target is a size, not "copy this dimension"."""
    layer = Layer()
    x = layer.input("x", (sym("A"), sym("B"), 2), np.zeros((0, 3, 2), np.float32))
    layer.check(layer.b.reshape(x, shape=(2, sym("A"), sym("B"))))


def test_equal_functions_are_written_once_whatever_their_sizes_are_called() -> None:
    layer = Layer()
    attrs = {**ACTIVATION}
    first = layer.input("a", (sym("A"), 8), RNG.standard_normal((2, 8)).astype(np.float32))
    second = layer.input("b", (sym("B"), 8), RNG.standard_normal((3, 8)).astype(np.float32))
    proto = layer.check(layer.b.swiglu(first, **attrs), layer.b.swiglu(second, **attrs))
    assert [n.op_type for n in proto.graph.node] == ["swiglu", "swiglu"]
    assert [f.name for f in proto.functions] == ["swiglu"]

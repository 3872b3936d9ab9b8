"""A router that tells its choice to a fused operator by logarithms (onnxruntime-genai) is one block with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import moe_attrs
import numpy as np
import pytest

from moec.eval import run
from moec.frontend.onnx import load_onnx
from moec.ir.data import ArrayData
from moec.ir.graph import Graph, Module, Value
from moec.ir.symbol import sym
from moec.ir.text import print_module
from moec.ir.types import F16, F32, DType, TensorType
from moec.ops.build import Builder
from moec.passes.base import Context, PassManager
from moec.passes.recover_moe import RecoverMoE

E, K, H, INNER = 6, 2, 8, 5
B, S = sym("B"), sym("S")
T = B * S
ACTIVATION = {**moe_attrs.ACTIVATION, "glu": "interleaved"}


@dataclass
class Told:
    """What varies between the blocks."""

    eps: float | None = 1e-3
    bias: bool = True
    floor: float = 1e-30
    fill: float = -10000.0
    taken: int = K
    dtype: DType = F32
    factor: str = ""
    """What of total / (total + eps) is something else."""
    routing: dict[str, Any] | None = None

    def module(self) -> Module:
        module, rng = Module(), np.random.default_rng(5)
        for name in ("B", "S"):
            module.symbols[name] = (0, 4096)
        graph = module.add(Graph("main"))
        b = Builder(graph)

        def weight(*shape: int, dtype: DType = self.dtype) -> Value:
            data = ArrayData((0.5 * rng.standard_normal(shape)).astype(dtype.carrier), dtype)
            made: Value = b.weight(name="w", dtype=dtype, shape=shape, data=data)
            return made

        def number(value: float) -> Value:
            made: Value = b.constant(value=ArrayData(np.array(value, np.float32), F32))
            return made

        def cast(value: Value, to: DType) -> Value:
            made: Value = value if value.type.dtype is to else b.cast(value, to=to)
            return made

        x = graph.add_input("x", TensorType(self.dtype, (B, S, H)))
        scores = b.sigmoid(cast(b.reshape(b.matmul(x, weight(H, E)), shape=(T, E)), F32))
        choice = b.add(scores, weight(E, dtype=F32)) if self.bias else scores
        _, experts = b.topk(choice, k=K, axis=1, largest=True, sorted=True)
        chosen = b.gather_elements(scores, experts, axis=1)
        told = b.log(b.maximum(chosen, number(self.floor)))
        logits = b.scatter_elements(b.expand(number(self.fill), shape=(T, E)), experts, told, axis=1, reduction="none")
        routing = {**moe_attrs.ROUTING, **(self.routing or {}), "top_k": self.taken, "weights_dtype": self.dtype}
        weights, sorted_experts, counts = b.gating(cast(logits, self.dtype), None, **routing)
        rows, positions = b.permute(b.reshape(x, shape=(T, H)), sorted_experts, counts)
        h = b.grouped_matmul(rows, weight(E, 2 * INNER, H), counts, weight(E, 2 * INNER))
        h = b.grouped_matmul(b.swiglu(h, **ACTIVATION), weight(E, H, INNER), counts, weight(E, H))
        y = b.reshape(b.unpermute(h, positions, weights), shape=(B, S, H))
        if self.eps is not None:
            total = b.reduce_sum(chosen, axes=(1,), keepdims=True)
            above = b.mul(total, total) if self.factor == "square" else total
            below = total if self.factor != "twice" else b.add(total, total)
            if self.factor == "of squares":
                below = b.reduce_sum(b.mul(chosen, chosen), axes=(1,), keepdims=True)
            factor = b.div(above, b.add(below, number(self.eps)))
            y = b.mul(y, cast(b.reshape(factor, shape=(B, S, 1)), self.dtype))
        graph.set_outputs([y], ["y"])
        return module


X = np.random.default_rng(1).standard_normal((2, 5, H)).astype(np.float32)


@pytest.mark.parametrize(
    "told",
    [Told(), Told(eps=None), Told(bias=False), Told(dtype=F16), Told(routing={"renormalize": False, "scale": 2.5})],
    ids=["lfm2", "no epsilon", "no bias", "f16", "scaled"],
)
def test_the_router_that_was_told_is_the_blocks(told: Told) -> None:
    module = told.module()
    feeds = {"x": X.astype(told.dtype.carrier)}
    expected = run(module, feeds)["y"].astype(np.float64)
    result = PassManager.parse("recover-moe,dce").run(module)[0].result
    assert result.counts() == {"recover-moe": 1} and not result.near_misses
    assert {n.op for n in module.main} == {"weight", "moe"}
    (node,) = [n for n in module.main if n.op == "moe"]
    a = node.attrs
    assert (a["score"], a["score_order"], a["top_k"], a["renormalize"]) == ("sigmoid", "before_topk", K, True)
    assert a["renormalize_eps"] == pytest.approx(told.eps or 0.0)
    assert (node.operands[5] is not None, a["glu"], a["weights_dtype"]) == (told.bias, "interleaved", told.dtype)
    assert a["scale"] == (told.routing or moe_attrs.ROUTING)["scale"]
    atol = 1e-5 if told.dtype is F32 else 2e-2
    np.testing.assert_allclose(run(module, feeds)["y"].astype(np.float64), expected, atol=atol)


NEAR_MISSES = {
    "scores raised to a floor that counts": (Told(floor=1e-3), "experts that were not chosen get the logit"),
    "others near the chosen": (Told(fill=-100.0), "experts that were not chosen get the logit -100.0"),
    "another number of experts": (Told(taken=3), "2 experts are chosen, the operator takes 3"),
    "a sigmoid of the logarithms": (Told(routing={"score": "sigmoid"}), "routes by more than a softmax"),
}


@pytest.mark.parametrize("case", NEAR_MISSES.values(), ids=NEAR_MISSES.keys())
def test_near_misses_stay_as_they_are(case: tuple[Told, str]) -> None:
    told, reason = case
    module = told.module()
    text = print_module(module)
    result = RecoverMoE().run(module, Context())
    assert not result.applied and print_module(module) == text
    assert any(reason in m.reason for m in result.near_misses), [m.reason for m in result.near_misses]


@pytest.mark.parametrize("factor", ["square", "twice", "of squares"])
def test_another_factor_stays_behind_the_block(factor: str) -> None:
    module = Told(factor=factor).module()
    expected = run(module, {"x": X})["y"]
    assert PassManager.parse("recover-moe,dce").run(module)[0].result.counts() == {"recover-moe": 1}
    (node,) = [n for n in module.main if n.op == "moe"]
    assert node.attrs["renormalize_eps"] == 0.0 and {"div", "mul"} <= {n.op for n in module.main}
    np.testing.assert_allclose(run(module, {"x": X})["y"], expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["fp32_cpu", "fp16_cuda", "int4_cpu", "int8_cpu"])
def test_real_exports(corpus: Any, kind: str) -> None:
    (record,) = [r for r in corpus.records() if r["name"] == f"lfm2_moe_model_genai_{kind}_op22"]
    module = load_onnx(corpus.onnx(record["name"]))
    steps = PassManager.parse("canonicalise,fold,canonicalise,cse,dce,recover-moe,dce").run(module)
    (result,) = [s.result for s in steps if s.made_by.name == "recover-moe"]
    assert result.counts() == {"recover-moe": 1} and not result.near_misses
    (node,) = [n for n in module.main if n.op == "moe"]
    assert (node.attrs["score"], node.attrs["renormalize_eps"]) == ("sigmoid", pytest.approx(1e-6))
    assert not {n.op for n in module.main} & {"topk", "gating", "permute", "log"}
    key = record["checks"]["expected_key"].split(".")[0]
    with np.load(corpus.npz(record["name"])) as stored:
        feeds = {v.name: stored[f"in.{v.name}"] for v in module.main.inputs}
        y = next(iter(run(module, feeds).values())).astype(np.float32)
        np.testing.assert_allclose(y, stored[f"{key}.0"], atol=record["checks"]["tolerance"])

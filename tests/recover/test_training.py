"""Blocks in training steps: weights are inputs, and a backward pass reads what was computed on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from moe_spellings import Block, E, H, spelt

from moec.eval import run
from moec.frontend.onnx import load_onnx
from moec.ir.graph import Module, Node
from moec.ir.text import print_module
from moec.ir.types import F32, TensorType
from moec.ops.build import Builder
from moec.passes.base import Context, PassManager, Result
from moec.passes.recover_moe import RecoverMoE

X = np.random.default_rng(1).standard_normal((9, H)).astype(np.float32)


def with_weights_as_inputs(module: Module) -> dict[str, np.ndarray]:
    """Turn the weights of rank 2 and 3 into inputs of the graph; their contents, with the tokens."""
    feeds = {"x": X}
    for i, node in enumerate([n for n in module.main if n.op == "weight" and len(n.attrs["shape"]) > 1]):
        value = module.main.add_input(f"p{i}", TensorType(F32, node.attrs["shape"]))
        feeds[value.name] = node.attrs["data"].numpy()
        node.result.replace_with(value)
        module.main.erase(node)
    return feeds


@pytest.mark.parametrize("spelling", ["unrolled", "batched", "sorted"])
@pytest.mark.parametrize("block", [Block(), Block(shared="gated", expert_bias=True)], ids=["mixtral", "shared"])
def test_weights_may_be_inputs(block: Block, spelling: str) -> None:
    module = spelt(block, spelling)
    feeds = with_weights_as_inputs(module)
    expected = run(module, feeds)["y"]
    result = RecoverMoE().run(module, Context())
    assert result.counts() == {"recover-moe": 1} and not result.near_misses
    (node,) = [n for n in module.main if n.op == "moe"]
    assert node.operand(0).name == "x" and node.operand(1).type.dims == (E, H)
    np.testing.assert_allclose(run(module, feeds)["y"], expected, atol=2e-6)


def backward(module: Module, read: Node) -> None:
    """Let something outside the block read a value of it, as a gradient does."""
    b = Builder(module.main)
    module.main.set_outputs([*module.main.outputs, b.mul(read.result, read.result)], ["y", "d"])


def test_what_a_backward_pass_reads_is_not_computed_twice() -> None:
    """The expert's first product is read elsewhere: beside a block it would be computed twice, so it stays."""
    module = spelt(Block(), "batched")
    feeds = with_weights_as_inputs(module)
    products = [n for n in module.main if n.op == "matmul"]
    backward(module, products[1])
    expected, text = run(module, feeds), print_module(module)
    (miss,) = RecoverMoE().run(module, Context()).near_misses
    assert "1 values that it computes on the way are read elsewhere, as by the backward pass" in miss.reason
    assert "1 products would be computed a second time: matmul" in miss.reason
    assert print_module(module) == text
    np.testing.assert_array_equal(run(module, feeds)["d"], expected["d"])


@pytest.mark.parametrize("reads", ["softmax", "topk"])
def test_a_router_that_is_read_elsewhere_is_small(reads: str) -> None:
    """A balance loss reads the router's scores: these few are computed again, the experts' products are not."""
    module = spelt(Block(), "sorted")
    feeds = with_weights_as_inputs(module)
    node = next(n for n in module.main if n.op == reads)
    b = Builder(module.main)
    module.main.set_outputs([*module.main.outputs, b.mul(node.results[0], node.results[0])], ["y", "d"])
    expected = run(module, feeds)
    result = PassManager.parse("recover-moe,dce").run(module)[0].result
    assert result.counts() == {"recover-moe": 1}
    assert [n.op for n in module.main if n.op in ("matmul", "grouped_matmul")] == ["matmul"]
    for name, array in run(module, feeds).items():
        np.testing.assert_allclose(array, expected[name], atol=2e-6)


def test_an_input_that_is_also_read_as_tokens_is_no_weight() -> None:
    module = spelt(Block(), "batched")
    feeds = with_weights_as_inputs(module)
    router = next(v for v in module.main.inputs if v.type.shape == (E, H))
    b = Builder(module.main)
    module.main.set_outputs([*module.main.outputs, b.exp(router)], ["y", "d"])
    expected = run(module, feeds)["y"]
    assert not RecoverMoE().run(module, Context()).applied
    np.testing.assert_array_equal(run(module, feeds)["y"], expected)


def recovered(module: Module) -> list[Result]:
    pipeline = "canonicalise,fold,recover-rope,recover-attention,canonicalise,cse,dce,recover-moe,dce"
    return [s.result for s in PassManager.parse(pipeline).run(module) if s.made_by.name.startswith("recover-")]


def test_real_training_steps(corpus: Any) -> None:
    """Whole steps as torch exports them: rotations are recovered; attention and experts stay, each with the reason."""
    for name, ropes, reasons in (
        ("mixtral_moe_trainjoint_batched_mm_static_op20", 0, ["2 products would be computed a second time"]),
        ("deepseek_v3_moe_trainjoint_batched_mm_static_op21", 0, ["4 products would be computed a second time"]),
        (
            "mixtral_layer_trainjoint_batched_mm-eagerattn_static_op20",
            2,
            ["the scores would be computed a second time", "2 products would be computed a second time"],
        ),
    ):
        module = load_onnx(corpus.onnx(name))
        results = recovered(module)
        misses = [m.reason for r in results for m in r.near_misses]
        assert len(misses) == len(reasons) and all(r in m for r, m in zip(reasons, misses, strict=True)), misses
        assert len([n for n in module.main if n.op == "rope"]) == ropes
        with np.load(corpus.npz(name)) as stored:
            feeds = {v.name: stored[f"in.{v.name}"] for v in module.main.inputs}
            for i, array in enumerate(run(module, feeds).values()):
                np.testing.assert_allclose(array, stored[f"out.{i}"], atol=1e-4)

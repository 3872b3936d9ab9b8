"""Blocks that were expanded into the steps that kernels exist for are recovered as they were; near-misses stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from moe_spellings import BLOCKS, Block, E, H, T, spelt

from moec.eval import run
from moec.ir.data import ArrayData
from moec.ir.graph import Graph, Module, Node
from moec.ir.text import print_module
from moec.ir.types import BF16, F32, TensorType
from moec.ops.build import Builder
from moec.passes.base import Context, PassManager, Result
from moec.passes.recover_moe import RecoverMoE


def recovered(module: Module, before: str = "") -> Result:
    """What recover-moe did to the module; it is verified after each pass."""
    return PassManager.parse(before + "recover-moe,dce").run(module)[-2].result


def the_block(module: Module) -> Node:
    (node,) = [n for n in module.main if n.op == "moe"]
    return node


@pytest.mark.parametrize("name", ["qwen2", "granite", "deepseek v3", "biased", "on input", "on activation", "plain"])
def test_a_block_that_was_expanded_is_recovered_as_it_was(name: str) -> None:
    """The steps of a fused operator are gating, permute, grouped products and unpermute."""
    module = spelt(BLOCKS[name], "batched")
    recovered(module)
    before = print_module(module)
    PassManager.parse("expand-moe").run(module)
    assert "moe" not in {n.op for n in module.main}
    result = recovered(module)
    assert result.counts() == {"recover-moe": 1}
    assert print_module(module) == before


def _transposed(b: Builder, slots: Any) -> Any:
    """The slots' weights with choices outermost: another order than that of the rows."""
    weights = slots.producer.operand(0)
    tokens, k = weights.type.dims
    return b.reshape(b.transpose(weights, perm=(1, 0)), shape=(tokens * k, 1))


def _squared(b: Builder, slots: Any) -> Any:
    return b.mul(slots, slots)


@pytest.mark.parametrize(
    "change, reason", [(_transposed, "permute"), (_squared, "the routing weights are changed after they were made")]
)
@pytest.mark.parametrize("name", ["on input", "on activation"])
def test_rows_weighted_by_something_else_stay(name: str, change: Any, reason: str) -> None:
    """Expanded, with row weights that are not those of the same slots."""
    module = spelt(BLOCKS[name], "batched")
    recovered(module)
    PassManager.parse("expand-moe").run(module)
    of_weights = next(n for n in module.main if n.op == "permute" and n.operand(0).type.dims[1] == 1)
    of_weights.set_operand(0, change(Builder(module.main, of_weights), of_weights.operand(0)))
    x = np.random.default_rng(1).standard_normal((5, H)).astype(np.float32)
    expected, text = run(module, {"x": x})["y"], print_module(module)
    (miss,) = RecoverMoE().run(module, Context()).near_misses
    assert reason in miss.reason and print_module(module) == text
    np.testing.assert_array_equal(run(module, {"x": x})["y"], expected)


@pytest.mark.parametrize("dtypes", [(BF16, BF16), (BF16, F32)], ids=lambda p: f"{p[0]}-weights-{p[1]}")
@pytest.mark.parametrize("where", ["input", "activation"])
def test_expanded_16_bit_blocks_are_recovered_with_their_dtypes(where: str, dtypes: Any) -> None:
    """Row weights are multiplied in f32 and rounded; what they were rounded to before stays."""
    module = spelt(Block(weights_on=where), "batched")
    recovered(module)
    attrs = the_block(module).attrs
    module, rng = Module(), np.random.default_rng(2)
    module.symbols["T"] = (0, 4096)
    graph = module.add(Graph("main"))
    b = Builder(graph)
    x = graph.add_input("x", TensorType(BF16, (T, H)))
    shapes = {"router": (E, H), "gate_up": (E, 10, H), "down": (E, H, 5)}
    weights = [
        b.weight(
            name=f"moe0.{n}", dtype=BF16, shape=s, data=ArrayData(rng.standard_normal(s).astype(BF16.carrier), BF16)
        )
        for n, s in shapes.items()
    ]
    y, _ = b.moe(x, *weights, *[None] * 7, **{**attrs, "router_dtype": dtypes[0], "weights_dtype": dtypes[1]})
    graph.set_outputs([y], ["y"])
    before = print_module(module)
    PassManager.parse("expand-moe").run(module)
    assert recovered(module).counts() == {"recover-moe": 1}
    assert print_module(module) == before

"""recover-moe: every spelling of a block becomes one canonical node with all attributes read from the graph; what
only looks alike stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from moe_spellings import BLOCKS, SPELLINGS, Block, E, H, K, T, spelt

from moec.eval import run
from moec.ir.compare import modules_equal
from moec.ir.data import ArrayData
from moec.ir.graph import Module, Node
from moec.ir.text import print_module
from moec.ir.types import BF16, F32, I64, TensorType
from moec.ops.build import Builder
from moec.passes.base import Context, PassManager, Result
from moec.passes.recover_moe import RecoverMoE

CLEAN = "canonicalise,fold,cse,dce,"


def recovered(module: Module, before: str = "") -> Result:
    """What recover-moe did to the module; it is verified after each pass."""
    return PassManager.parse(before + "recover-moe,dce").run(module)[-2].result


def the_block(module: Module) -> Node:
    (node,) = [n for n in module.main if n.op == "moe"]
    return node


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("before", ["", CLEAN], ids=["raw", "cleaned"])
@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS.keys())
def test_u16_attributes_come_from_the_graph(block: Block, spelling: str, before: str) -> None:
    module = spelt(block, spelling)
    x = np.random.default_rng(1).standard_normal((9, H)).astype(np.float32)
    expected = run(module, {"x": x})["y"]
    result = recovered(module, before)
    assert result.counts() == {"recover-moe": 1} and not result.near_misses
    a = the_block(module).attrs
    assert (a["top_k"], a["score"], a["score_order"]) == (K, block.score, block.order)
    assert (a["renormalize"], a["scale"], a["weights_on"]) == (block.renormalize, block.scale, block.weights_on)
    groups = (*block.groups.split(), 3, 2) if block.groups else ("none", "none", 1, 1)
    assert (a["group_score"], a["group_mask"], a["groups"], a["group_top_k"]) == groups
    assert a["renormalize_eps"] == pytest.approx(block.eps)
    assert (a["activation"], a["glu"], a["capacity"]) == (block.activation, block.glu, None)
    alpha, limit, offset = block.clamped or (1.0, None, 0.0)
    assert (a["alpha"], a["limit"], a["up_offset"]) == (pytest.approx(alpha), limit, offset)
    assert [n.op for n in module.main if n.op not in ("weight", "moe")] == []
    assert list(module.symbols) == ["T"]
    np.testing.assert_allclose(run(module, {"x": x})["y"], expected, atol=2e-6)


@pytest.mark.parametrize("before", ["", CLEAN], ids=["raw", "cleaned"])
@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS.keys())
def test_three_spellings_give_the_same_module(block: Block, before: str) -> None:
    modules = [spelt(block, s) for s in SPELLINGS]
    for m in modules:
        recovered(m, before)
    assert print_module(modules[0]) == print_module(modules[1]) == print_module(modules[2])
    assert all(modules_equal(modules[0], m) for m in modules[1:])


def missed(block: Block, spelling: str = "unrolled", before: str = CLEAN) -> str:
    """The reason why the block is not recovered; its numbers and its nodes stay."""
    module = spelt(block, spelling)
    x = np.random.default_rng(1).standard_normal((5, H)).astype(np.float32)
    expected = run(module, {"x": x})["y"]
    result = recovered(module, before)
    assert not result.applied and not [n for n in module.main if n.op == "moe"]
    np.testing.assert_allclose(run(module, {"x": x})["y"], expected, atol=1e-5)
    assert result.near_misses and all(m.nodes for m in result.near_misses)
    return result.near_misses[0].reason


def number(b: Builder, value: float, dtype: Any = F32) -> Any:
    return b.constant(value=ArrayData(np.array(value, dtype.carrier), dtype))


def test_u2_experts_that_the_tracer_dropped_are_named() -> None:
    """A trace in which experts got no token holds fewer bodies than the router has columns."""
    reason = missed(Block(experts=(0, 1, 3)))
    assert reason == "router has 6 columns, bodies found for experts 0, 1, 3; missing 2, 4, 5"
    (miss,) = recovered(spelt(Block(experts=(0, 1, 3)), "sorted")).near_misses
    assert "the rows of experts 2, 3 are taken together" in miss.reason
    (miss,) = recovered(spelt(Block(experts=(0, 1, 2)), "sorted")).near_misses
    assert "the rows of experts 0, 1, 2 are joined, where the router has 6; missing 3, 4, 5" in miss.reason


@pytest.mark.parametrize("before", ["", CLEAN], ids=["raw", "cleaned"])
@pytest.mark.parametrize("block", [Block(), Block(glu="none", activation="relu")], ids=["mixtral", "plain"])
def test_bodies_for_the_experts_that_got_tokens(block: Block, before: str) -> None:
    """As many bodies as experts: that runs only where every expert got a token, and then it is the mixture."""
    module, whole = spelt(block, "active"), spelt(block, "unrolled")
    result = recovered(module, before)
    assert result.counts() == {"recover-moe": 1} and not result.near_misses
    assert {n.op for n in module.main} == {"weight", "moe"}
    for tokens in (1, 9):
        x = np.random.default_rng(tokens).standard_normal((tokens, H)).astype(np.float32)
        np.testing.assert_allclose(run(module, {"x": x})["y"], run(whole, {"x": x})["y"], atol=2e-6)


def test_u2_fewer_bodies_than_experts_whose_numbers_are_data() -> None:
    module = spelt(Block(experts=range(E - 1)), "active")
    text = print_module(module)
    (miss,) = RecoverMoE().run(module, Context()).near_misses
    assert "the expert number is itself data in all 5 bodies" in miss.reason
    assert "it is no mixture of all 6 experts; 1 are missing" in miss.reason
    assert print_module(module) == text


NEAR_MISSES: dict[str, tuple[Block, str]] = {
    "clamped at two limits": (
        Block(clamped=(1.0, 0.75, 0.0), change={"high": lambda b, _: number(b, 0.5)}),
        "gate is clamped at 0.75, up at None",
    ),
    "weight applied twice": (
        Block(change={"weights": lambda b, w: b.mul(w, w)}),
        "multiplied by something that is no constant",
    ),
    "sum over the tokens": (
        Block(change={"total": lambda b, t: b.reduce_sum(t, axes=(0,), keepdims=True)}),
        "no sum over them was found: reduce_sum",
    ),
    "maximum instead of sum": (
        Block(change={"total": lambda b, t: b.maximum(t, number(b, 0.5))}),
        "divided by something else than their sum",
    ),
    "weights are not the scores": (
        Block(change={"chosen": lambda b, w: b.exp(w)}),
        "do not follow from the choice in a known way",
    ),
    "one expert differs": (
        Block(change={"hidden3": lambda b, h: b.tanh(h)}),
        "no activation but tanh",
    ),
    "one expert is scaled": (
        Block(change={"out2": lambda b, y: b.mul(y, number(b, 2.0))}),
        "the down projection is no product with a weight but mul",
    ),
    "gate and up halves swapped": (
        Block(change={"swap halves": lambda b, v: v}),
        "gate and up are the parts",
    ),
    "scores of another router": (
        Block(bias=True, change={"chosen": lambda b, w: b.sub(w, number(b, 0.1))}),
        "do not follow from the choice in a known way",
    ),
}


@pytest.mark.parametrize("case", NEAR_MISSES.values(), ids=NEAR_MISSES.keys())
def test_near_misses_stay_as_they_are(case: tuple[Block, str]) -> None:
    block, reason = case
    assert reason in missed(block, before="cse,")


def test_sorted_rows_whose_experts_compute_differently() -> None:
    def gelu(kind: str) -> Any:
        return lambda b, v: b.gelu(v, approximate=kind)

    change = {f"piece{e}": gelu("tanh" if e == 2 else "none") for e in range(E)}
    assert "the experts are not computed alike" in missed(Block(glu="none", change=change), "sorted")


def test_scatter_that_overwrites_is_no_sum() -> None:
    """A plain scatter where a sum is meant keeps one of a token's rows: what some exporters write for index_add."""
    module = spelt(Block(), "unrolled")
    for n in [n for n in module.main if n.op == "scatter_nd"]:
        n.attrs = {**n.attrs, "reduction": "none"}
    (miss,) = recovered(module).near_misses
    assert "overwrite" in miss.reason


def test_a_value_other_than_the_tokens_is_noticed() -> None:
    def other(b: Builder, v: Any) -> Any:
        return b.add(v, b.reduce_sum(v, axes=(0,), keepdims=True))

    assert "no sum over them was found" in missed(Block(change={f"out{e}": other for e in range(E)}))


def test_logits_that_are_read_elsewhere_come_from_the_block() -> None:
    module = spelt(Block(), "batched")
    graph = module.main
    logits = next(n.operand(0) for n in graph if n.op == "softmax")
    graph.set_outputs([graph.outputs[0], logits], ["y", "logits"])
    x = np.random.default_rng(1).standard_normal((5, H)).astype(np.float32)
    expected = run(module, {"x": x})
    recovered(module)
    node = the_block(module)
    assert graph.outputs == node.results
    for name, array in run(module, {"x": x}).items():
        np.testing.assert_allclose(array, expected[name], atol=2e-6)


def test_weights_without_data_become_operands() -> None:
    module = spelt(Block(), "batched")
    for n in module.main:
        if n.op == "weight":
            n.attrs = {**n.attrs, "data": None, "name": f"w{n.attrs['shape']}"}
    recovered(module)
    node = the_block(module)
    assert [v.type.dims for v in node.operands[1:4] if v is not None] == [(E, H), (E, 10, H), (E, H, 5)]


def test_blocks_of_several_layers_are_each_recovered() -> None:
    from moe_spellings import Spelling

    made = Spelling(Block(glu="none", activation="relu"))
    made.unrolled()
    first = made.graph.outputs[0]
    made.x = first
    made.batched()
    result = recovered(made.module)
    assert result.counts() == {"recover-moe": 2}
    assert [n.op for n in made.module.main if n.op != "weight"] == ["moe", "moe"]


def test_recovery_is_the_same_every_time() -> None:
    texts = set()
    for _ in range(2):
        module = spelt(replace(BLOCKS["qwen2"]), "sorted")
        recovered(module)
        texts.add(print_module(module, origins=True))
    assert len(texts) == 1
    assert str(T) in next(iter(texts)) and I64.name


@pytest.mark.parametrize(
    "wrong", [{"renormalize": False}, {"scale": 1.5}, {"weights_on": "input"}, {"activation": "gelu"}]
)
def test_a_wrong_reading_does_not_pass_the_evaluation(wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the rules read, the block is evaluated on random tokens before it is put in place."""
    from moec.passes import recover_moe

    right = recover_moe.assembled

    def misread(*args: Any) -> Any:
        block = right(*args)
        return replace(block, attrs={**block.attrs, **wrong})

    monkeypatch.setattr(recover_moe, "assembled", misread)
    assert "on random tokens it differs from the canonical block" in missed(Block(), "batched")


def test_values_of_unknown_rank_end_the_search() -> None:
    module = spelt(Block(), "batched")
    rows = next(n for n in module.main if n.op == "expand").result
    rows.type = TensorType(F32, None)
    (miss,) = RecoverMoE().run(module, Context()).near_misses
    assert "no sum over them was found: reshape" in miss.reason and "rank" in miss.reason


@pytest.mark.parametrize("order", ["before_topk", "after_topk"])
def test_scores_rounded_before_the_choice_keep_their_dtype(order: str) -> None:
    """Rounding makes ties, so it belongs to the block: read from the graph, not dropped."""
    module = spelt(Block(order=order, renormalize=False), "batched")
    (score,) = [n for n in module.main if n.op == "softmax"]
    b = Builder(module.main, score.next)
    narrow = b.cast(score.result, to=BF16)
    score.result.replace_with(b.cast(narrow, to=F32))
    narrow.producer.set_operand(0, score.result)
    recovered(module)
    a = the_block(module).attrs
    assert (a["score_dtype"], a["weights_dtype"]) == ((BF16, F32) if order == "before_topk" else (F32, BF16))

"""recover-rope: every spelling becomes one ``rope`` node with layout and width read from the graph; what only looks
alike stays and is reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attention_spellings import ROPES, WIDTH, B, S, number, rope

from moec.eval import run
from moec.ir.data import ArrayData
from moec.ir.graph import Graph, Module, Node, Value
from moec.ir.types import F32, TensorType
from moec.ops.build import Builder
from moec.passes.base import PassManager, Result

CLEAN = "canonicalise,fold,"


def inputs(module: Module, batch: int = 2, length: int = 5) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    sizes = {"B": batch, "S": length}
    return {
        v.name: rng.standard_normal([d if isinstance(d, int) else sizes[str(d)] for d in v.type.dims]).astype(
            np.float32
        )
        for v in module.main.inputs
    }


def recovered(module: Module, before: str = "") -> Result:
    return PassManager.parse(before + "recover-rope,dce").run(module)[-2].result


def checked(module: Module, before: str = "") -> Node:
    """The one node that the rotation becomes; outputs stay what they were."""
    given = inputs(module)
    expected = run(module, given, fp64=True)["y"]
    result = recovered(module, before)
    assert result.counts() == {"recover-rope": 1} and not result.near_misses
    (node,) = [n for n in module.main if n.op == "rope"]
    assert not [n for n in module.main if n.op in ("mul", "add", "sub")]
    np.testing.assert_allclose(run(module, given, fp64=True)["y"], expected, atol=1e-12)
    return node


def missed(module: Module) -> str:
    given = inputs(module)
    expected = run(module, given)["y"]
    result = recovered(module)
    assert not result.applied and not [n for n in module.main if n.op == "rope"]
    np.testing.assert_array_equal(run(module, given)["y"], expected)
    assert all(m.nodes for m in result.near_misses)
    return "; ".join(m.reason for m in result.near_misses)


@pytest.mark.parametrize("before", ["", CLEAN], ids=["raw", "cleaned"])
@pytest.mark.parametrize("name", ROPES)
def test_u14_interleaved_pairs_and_halves(name: str, before: str) -> None:
    spell, layout = ROPES[name]
    node = checked(rope(spell), before)
    assert (node.attrs["layout"], node.attrs["rotary_dim"]) == (layout, WIDTH)
    assert node.operand(0).name == "x", "the tensor itself is rotated, not a part or a permutation of it"
    widths = [node.operand(i).type.dims[-1] for i in (1, 2)]
    assert widths == [WIDTH // 2] * 2, "a table that repeats its half is read once"


@pytest.mark.parametrize("name", ROPES)
def test_u14_partial_rotation(name: str) -> None:
    """rotary_dim = D / 2: one node says both."""
    spell, layout = ROPES[name]
    module = rope(spell, rotary=4)
    node = checked(module)
    assert (node.attrs["layout"], node.attrs["rotary_dim"], node.operand(0).name) == (layout, 4, "x")
    assert not [n for n in module.main if n.op == "concat"]


@pytest.mark.parametrize("name", ROPES)
def test_the_last_elements_are_rotated(name: str) -> None:
    """DeepSeek: the first elements have no position."""
    spell, layout = ROPES[name]
    module = rope(spell, rotary=4, start=4)
    node = checked(module)
    assert (node.attrs["layout"], node.attrs["rotary_dim"], node.operand(0).type.dims[-1]) == (layout, 4, 4)


def test_u14_whole_tables_whose_halves_differ() -> None:
    """Tables as wide as what is rotated: each element has its own cosine and sine."""

    def spell(b: Builder, x: Value, cos: Value, sin: Value) -> Value:
        first, second = (b.slice(x, axis=3, start=i, stop=i + 4, step=1) for i in (0, 4))
        turned = b.concat(b.neg(second), first, axis=3)
        return b.add(b.mul(x, cos), b.mul(turned, sin))  # type: ignore[no-any-return]

    node = checked(rope(spell, table=WIDTH))
    assert [node.operand(i).type.dims[-1] for i in (1, 2)] == [WIDTH, WIDTH]


def test_u14_tables_of_different_shapes() -> None:
    """A whole table of cosines and half a table of sines."""
    module = Module()
    graph = module.add(Graph("main"))
    b = Builder(graph)
    x = graph.add_input("x", TensorType(F32, (B, 4, S, WIDTH)))
    cos = graph.add_input("cos", TensorType(F32, (S, WIDTH)))
    sin = graph.add_input("sin", TensorType(F32, (B, 1, S, WIDTH // 2)))
    first, second = (b.slice(x, axis=3, start=i, stop=i + 4, step=1) for i in (0, 4))
    turned = b.concat(b.neg(second), first, axis=3)
    y = b.add(b.mul(x, cos), b.mul(turned, b.concat(sin, sin, axis=3)))
    graph.set_outputs([y], ["y"])
    node = checked(module)
    assert [node.operand(i).type.dims for i in (1, 2)] == [(S, WIDTH), (B, 1, S, WIDTH // 2)]


def _halves(b: Builder, x: Value) -> list[Value]:
    return [b.slice(x, axis=3, start=i, stop=i + 4, step=1) for i in (0, 4)]


def _both_plus(b: Builder, x: Value, cos: Value, sin: Value) -> Value:
    first, second = _halves(b, x)
    one = b.add(b.mul(first, cos), b.mul(second, sin))
    return b.concat(one, b.add(b.mul(second, cos), b.mul(first, sin)), axis=3)  # type: ignore[no-any-return]


def _crossed(b: Builder, x: Value, cos: Value, sin: Value) -> Value:
    """Element i with element 7 - i."""
    order = b.constant(value=ArrayData(np.array([7, 6, 5, 4], np.int64)))
    first, second = _halves(b, x)[0], b.gather(x, order, axis=3)
    one = b.sub(b.mul(first, cos), b.mul(second, sin))
    return b.concat(one, b.add(b.mul(second, cos), b.mul(first, sin)), axis=3)  # type: ignore[no-any-return]


def _mixed_order(b: Builder, x: Value, cos: Value, sin: Value) -> Value:
    """Halves in, neighbours out."""
    first, second = _halves(b, x)
    one = b.sub(b.mul(first, cos), b.mul(second, sin))
    two = b.add(b.mul(second, cos), b.mul(first, sin))
    apart = [b.reshape(y, shape=(*y.type.dims, 1)) for y in (one, two)]
    return b.reshape(b.concat(*apart, axis=4), shape=x.type.dims)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "spell, reason",
    [
        (_both_plus, "not a table of sines in order, negative for the first"),
        (_crossed, "combined as pairs (0, 7), (1, 6), ...: neither halves nor neighbours"),
        (_mixed_order, "combined as pairs (0, 4), (4, 0), ...: neither halves nor neighbours, or in another order"),
    ],
)
def test_near_misses_say_why(spell: Any, reason: str) -> None:
    assert reason in missed(rope(spell))


def test_the_other_way_round() -> None:
    """The rotation back, as gradients have it, is by the negative sine."""

    def spell(b: Builder, x: Value, cos: Value, sin: Value) -> Value:
        first, second = _halves(b, x)
        one = b.add(b.mul(first, cos), b.mul(second, sin))
        return b.concat(one, b.sub(b.mul(second, cos), b.mul(first, sin)), axis=3)  # type: ignore[no-any-return]

    node = checked(rope(spell))
    sine = node.operand(2).producer
    assert sine is not None and sine.op == "neg"


def test_a_gate_is_no_rotation() -> None:
    module = Module()
    graph = module.add(Graph("main"))
    b = Builder(graph)
    x = graph.add_input("x", TensorType(F32, (B, S, 8)))
    w = graph.add_input("w", TensorType(F32, (1, 4)))
    first, second = (b.slice(x, axis=2, start=i, stop=i + 4, step=1) for i in (0, 4))
    y = b.add(b.mul(first, w), b.mul(second, number(b, 2.0)))
    graph.set_outputs([b.mul(y, b.sigmoid(first))], ["y"])
    result = recovered(module)
    assert not result.applied and not result.near_misses


def test_sizes_that_a_tracer_left() -> None:
    """The tables have 5 positions where the tensor has S: the result has 5."""
    module = Module()
    graph = module.add(Graph("main"))
    b = Builder(graph)
    x = graph.add_input("x", TensorType(F32, (B, 4, S, WIDTH)))
    cos, sin = (graph.add_input(n, TensorType(F32, (1, 1, 5, 4))) for n in ("cos", "sin"))
    graph.set_outputs([ROPES["split halves"][0](b, x, cos, sin)], ["y"])
    assert checked(module).result.type.dims == (B, 4, 5, WIDTH)


@pytest.mark.parametrize("heads_first", [True, False])
def test_heads_of_two_elements(heads_first: bool) -> None:
    """The smallest head: one pair."""
    module = Module()
    graph = module.add(Graph("main"))
    b = Builder(graph)
    x = b.reshape(graph.add_input("x", TensorType(F32, (B, S, 8))), shape=(B, S, 4, 2))
    x = b.transpose(x, perm=(0, 2, 1, 3)) if heads_first else x
    shape = (1, 1, S, 1) if heads_first else (1, S, 1, 1)
    cos, sin = (graph.add_input(n, TensorType(F32, shape)) for n in ("cos", "sin"))
    graph.set_outputs([ROPES["rotated halves"][0](b, x, cos, sin)], ["y"])
    assert checked(module).attrs["rotary_dim"] == 2


@pytest.mark.parametrize("index", [1, [1], [[0, 3], [2, 1]], [-1, 0], np.zeros((0,))], ids=str)
def test_elements_taken_out_by_number(index: Any) -> None:
    """A column of a tensor, as a router's weights of one slot, is no rotation, of whatever rank the index is."""
    module = Module()
    graph = module.add(Graph("main"))
    b = Builder(graph)
    x = graph.add_input("x", TensorType(F32, (B, S, 4)))
    taken = b.gather(x, b.constant(value=ArrayData(np.array(index, np.int64))), axis=2)
    w = graph.add_input("w", taken.type)
    graph.set_outputs([b.add(b.mul(taken, w), b.neg(taken))], ["y"])
    assert missed(module) == ""


@pytest.mark.parametrize("order", [[[0, 4], [1, 5], [2, 6], [3, 7]], [0, 4, 1, 5, 2, 6, 3, 7]], ids=["pairs", "flat"])
def test_a_permutation_by_gather_is_followed(order: list[Any]) -> None:
    """Halves woven into neighbours by an index of rank 1 or 2, then rotated: the index says which elements pair."""
    module = Module()
    graph = module.add(Graph("main"))
    b = Builder(graph)
    x = graph.add_input("x", TensorType(F32, (B, 4, S, WIDTH)))
    cos, sin = (graph.add_input(n, TensorType(F32, (1, 1, S, WIDTH // 2))) for n in ("cos", "sin"))
    woven = b.gather(x, b.constant(value=ArrayData(np.array(order, np.int64))), axis=3)
    flat = b.reshape(woven, shape=(B, 4, S, WIDTH)) if woven.type.rank == 5 else woven
    graph.set_outputs([ROPES["deinterleaved"][0](b, flat, cos, sin)], ["y"])
    node = checked(module)
    assert (node.attrs["layout"], node.operand(0).name) == ("half", "x")

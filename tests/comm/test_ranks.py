"""Programs over groups of ranks against the same program on one rank; and ranks that do not meet."""

from __future__ import annotations

import numpy as np
import pytest

from moec.diagnostics import Refusal
from moec.eval import run
from moec.frontend.dsl import parse_moe
from moec.ir.graph import Module
from moec.ir.text import parse_module

MLP = """
dim T in [1, 64]
H = 8
F = 12
group tp = 4
input x: f32[T, H]
layer mlp(x) {
    weight up:   f32[F / tp, H] sharded(tp, axis = 0),
           down: f32[H, F / tp] sharded(tp, axis = 1)
    return all_reduce(relu(x @ up.T) @ down.T, group = tp, reduction = "sum")
}
output y = mlp[2](x)
"""


def test_a_layer_cut_over_ranks_is_the_whole_layer() -> None:
    rng = np.random.default_rng(0)
    module = parse_moe(MLP)
    weights = {f"mlp.{i}.up": rng.standard_normal((12, 8)) for i in range(2)}
    weights |= {f"mlp.{i}.down": rng.standard_normal((8, 12)) for i in range(2)}
    x = rng.standard_normal((5, 8))
    out = run(module, {"x": x}, weights, fp64=True)
    for i in range(2):
        x = np.maximum(x @ weights[f"mlp.{i}.up"].T, 0) @ weights[f"mlp.{i}.down"].T
    assert list(out) == [f"rank{r}.y" for r in range(4)]
    for y in out.values():
        np.testing.assert_allclose(y, x, rtol=1e-12)


def test_sequence_parallel_regions_agree_with_the_whole() -> None:
    """Megatron's pair: gather the sequence before a product cut by columns, scatter the sum after one cut by rows."""
    text = """
dim T in [1, 64]
group tp = 2
input x: f32[T, 4] sharded(tp, axis = 0)
weight a: f32[3, 4] sharded(tp, axis = 0), b: f32[4, 3] sharded(tp, axis = 1)
h = all_gather(x, group = tp, axis = 0)
output y = reduce_scatter((h @ a.T) @ b.T, group = tp, axis = 0, reduction = "sum")
"""
    rng = np.random.default_rng(1)
    x, a, b = rng.standard_normal((6, 4)), rng.standard_normal((6, 4)), rng.standard_normal((4, 6))
    out = run(parse_moe(text), {"x": x}, {"a": a, "b": b}, fp64=True)
    np.testing.assert_allclose(np.concatenate([out["rank0.y"], out["rank1.y"]]), x @ a.T @ b.T, rtol=1e-12)


def test_wholes_that_do_not_split_and_missing_inputs_are_refused() -> None:
    module = parse_moe(MLP)
    with pytest.raises(Refusal, match=r"'mlp.0.up' with shape \[13, 8\] does not split into 4 parts along axis 0"):
        run(module, {"x": np.zeros((2, 8))}, {"mlp.0.up": np.zeros((13, 8))})
    with pytest.raises(Refusal) as info:
        run(module, {"rank0.x": np.zeros((2, 8)), "rank2.x": np.zeros((2, 8))})
    assert "ranks 1, 3: input 'x'" in str(info.value)
    with pytest.raises(Refusal) as info:
        run(module, {"x": np.zeros((2, 8))})
    assert len(info.value.problems) == 1 and "weight 'mlp.0.up' has no data" in str(info.value)


IF = """
func main(%x: f32[2], %c: bool[]) -> (y: f32[2]) {
  %y = if(%c, %x) {then = "then", otherwise = "otherwise"} : f32[2]
  return %y
}
func then(%x: f32[2]) -> (y: f32[2]) {
  %y = all_reduce(%x) {group = @g(3, 1), reduction = "sum"} : f32[2]
  return %y
}
func otherwise(%x: f32[2]) -> (y: f32[2]) {
  BODY
  return %y
}
"""


def _diverging(body: str) -> Module:
    return parse_module(IF.replace("BODY", body), "if.mir")


def _given(*conditions: bool) -> dict[str, np.ndarray]:
    return {"x": np.ones(2, np.float32)} | {f"rank{i}.c": np.array(c) for i, c in enumerate(conditions)}


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        (
            '%y = all_reduce(%x) {group = @g(3, 1), reduction = "max"} : f32[2]',
            ["ranks 0, 2 in all_reduce over g of [2] (if.mir:7 all_reduce)", "rank 1 in all_reduce over g of [2]"],
        ),
        ("%y = neg(%x) : f32[2]", ["ranks 0, 2 in all_reduce over g", "rank 1 at the end"]),
    ],
)
def test_ranks_that_do_not_meet_are_refused_and_do_not_hang(body: str, texts: list[str]) -> None:
    module = _diverging(body)
    with pytest.raises(Refusal) as info:
        run(module, _given(True, False, True))
    assert "ranks wait for one another in vain" in str(info.value)
    for text in texts:
        assert text in str(info.value)


def test_different_branches_that_come_to_the_same_collective_meet() -> None:
    module = _diverging('%y = all_reduce(%x) {group = @g(3, 1), reduction = "sum"} : f32[2]')
    out = run(module, _given(True, False, True))
    assert all((y == 3).all() for y in out.values())


def test_shapes_that_differ_between_ranks_are_refused() -> None:
    text = 'dim T in [1, 9]\ngroup g = 2\ninput x: f32[T]\noutput y = all_reduce(x, group = g, reduction = "sum")'
    with pytest.raises(Refusal, match=r"member 0 has shape \[3\], member 1 has \[2\]"):
        run(parse_moe(text), {"rank0.x": np.zeros(3), "rank1.x": np.zeros(2)})


def test_a_rank_that_fails_stops_the_others() -> None:
    text = """
group g = 3
dim T in [1, 9]
input x: f32[T], i: i64[2]
output y = all_reduce(gather(x, i, axis = 0), group = g, reduction = "sum")
"""
    given = {"x": np.zeros(4), "i": np.array([0, 1]), "rank1.i": np.array([0, 7])}
    with pytest.raises(Refusal) as info:
        run(parse_moe(text), given)
    assert str(info.value.problems[0].what).startswith("rank 1: cannot evaluate gather")


def test_too_many_ranks_and_two_sizes_of_one_group_are_refused() -> None:
    big = parse_moe('group g = 5000\ninput x: f32[2]\noutput y = all_reduce(x, group = g, reduction = "sum")')
    with pytest.raises(Refusal, match="5000 ranks would be simulated"):
        run(big, {"x": np.zeros(2)})
    both = _diverging('%y = all_reduce(%x) {group = @g(2, 1), reduction = "sum"} : f32[2]')
    with pytest.raises(Refusal, match=r"group g is both @g\(3, 1\) and @g\(2, 1\)"):
        run(both, _given(True, True, True))


def test_a_group_of_one_needs_no_other() -> None:
    text = 'group g = 1\ninput x: f32[2]\noutput y = all_reduce(x, group = g, reduction = "sum")'
    out = run(parse_moe(text), {"x": np.array([1, 2], np.float32)})
    np.testing.assert_array_equal(out["rank0.y"], [1, 2])

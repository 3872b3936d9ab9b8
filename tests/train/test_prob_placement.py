"""Routing weights before the down-projection: equal to the block that is declared so, with the same gradients, and
without the experts' outputs among what is saved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from grad_cases import ACTIVATIONS, ROUTERS, routing
from moe_blocks import block, check_block, expanded, joint, saved

from moec.eval import run
from moec.ir.text import print_module
from moec.ir.types import BF16, F32, DType, TensorType
from moec.ops.build import Builder
from moec.ops.verify import verify
from moec.passes.base import Context
from moec.passes.prob_placement import ProbPlacement
from moec.target import KernelTime

PLAIN = ACTIVATIONS["silu, chunked"]
PLACED: dict[str, dict[str, Any]] = {
    "before autodiff": {"before": [ProbPlacement()]},
    "before autodiff and after": {"before": [ProbPlacement()], "after": [ProbPlacement()]},
    "in the joint graph": {"after": [ProbPlacement()]},
}


def wide(seed: int, router: dict[str, Any], **changes: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """A block whose experts' outputs are wider than their activations."""
    return block(np.random.default_rng(seed), router, PLAIN, **{"hidden": 5, "inner": 2, "experts": 4, **changes})


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_the_placed_block_is_the_one_that_is_declared_so(dtype: DType) -> None:
    operands, attrs = wide(0, routing(top_k=2))
    placed, declared = (expanded(operands, {**attrs, "weights_on": on}, dtype) for on in ("output", "activation"))
    assert ProbPlacement().run(placed, Context()).counts() == {"prob-placement": 1}
    verify(placed)
    ops = [sorted(n.op for n in m.main) for m in (placed, declared)]
    assert ops[0] == ops[1]
    feeds = {n: a.astype(dtype.carrier) for n, a in operands.items()}
    assert run(placed, feeds)["y"].tobytes() == run(declared, feeds)["y"].tobytes()


@pytest.mark.parametrize("where", PLACED)
@pytest.mark.parametrize("router", [r for r in ROUTERS if "groups" not in r])
def test_gradients_are_the_differences(router: str, where: str) -> None:
    attrs, steer = ROUTERS[router]
    changes = {"experts": 8, "tokens": 3, "steer": steer}
    check_block(*wide(1, attrs, **changes), **PLACED[where])


@pytest.mark.parametrize("where", PLACED)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 4, 2), (6, 1, 1), (5, 5, 3)])
def test_sizes_and_a_shared_expert(where: str, sizes: tuple[int, int, int]) -> None:
    tokens, experts, top_k = sizes
    router = routing("sigmoid", top_k=top_k, renormalize=top_k > 1)
    changes = {"tokens": tokens, "experts": experts, "shared": True}
    check_block(*wide(2, router, **changes), **PLACED[where])


@pytest.mark.parametrize("where", PLACED)
def test_the_experts_outputs_are_no_longer_saved(where: str) -> None:
    """In the proportions of Pangu Ultra MoE, of which each is a 240th: hidden 32, inner 8, 8 of 16 experts."""
    operands, attrs = wide(3, routing("sigmoid", top_k=8), tokens=6, experts=16, hidden=32, inner=8)
    plain = saved(joint(operands, attrs, dtype=BF16))
    module = joint(operands, attrs, dtype=BF16, **PLACED[where])
    kept = saved(module)
    outputs = TensorType(BF16, (48, 32))
    count = [sum(t == outputs for t in types.values()) for types in (plain, kept)]
    assert count == [2, 1], "the sorted rows stay, the outputs go"
    bytes_of = [sum(int(str(t.numel())) * t.dtype.bits // 8 for t in types.values()) for types in (plain, kept)]
    weighted, places = 48 * 8 * 2, 48 * 4
    added = {"before autodiff": weighted + places, "before autodiff and after": places, "in the joint graph": 0}[where]
    assert bytes_of[0] - bytes_of[1] == 48 * 32 * 2 - added


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_a_joint_graph_that_is_placed_keeps_the_bits_of_forward(dtype: DType) -> None:
    operands, attrs = wide(4, routing("sigmoid", top_k=3, renormalize=True), tokens=9, experts=6)
    plain, placed = joint(operands, attrs, dtype=dtype), joint(operands, attrs, after=[ProbPlacement()], dtype=dtype)
    rng = np.random.default_rng(0)
    feeds = {v.name: (0.5 * rng.standard_normal(operands.get(v.name, operands["x"]).shape)) for v in plain.main.inputs}
    typed = {v.name: feeds[v.name].astype(v.type.dtype.carrier) for v in plain.main.inputs}
    old, new = run(plain, typed), run(placed, typed)
    assert old["y"].tobytes() == new["y"].tobytes()
    wide_feeds = {n: a.astype(np.float64) for n, a in typed.items()}
    exact = run(plain, wide_feeds, fp64=True)
    for name in exact:
        scale = np.abs(exact[name]).max()
        before, after = (float(np.abs(g[name].astype(np.float64) - exact[name]).max() / scale) for g in (old, new))
        assert after <= max(2 * before, 2.0**-20 if dtype is F32 else 2.0**-7), name


def test_placing_twice_changes_nothing_more() -> None:
    operands, attrs = wide(5, routing(top_k=2))
    for placed in (expanded(operands, attrs), joint(operands, attrs)):
        assert ProbPlacement().run(placed, Context()).applied
        text = print_module(placed)
        assert not ProbPlacement().run(placed, Context()).applied
        assert print_module(placed) == text


def test_outputs_that_others_read_stay_as_they_are() -> None:
    operands, attrs = wide(5, routing(top_k=2))
    module = expanded(operands, attrs)
    outputs = [n for n in module.main if n.op == "grouped_matmul"][-1].result
    module.main.set_outputs([*module.main.outputs, outputs], ["y", "outputs"])
    result = ProbPlacement().run(module, Context())
    assert not result.applied
    assert [m.reason for m in result.near_misses] == ["the outputs are also read by return"]


@pytest.mark.parametrize("biases", [False, True])
def test_a_near_miss_says_what_is_in_the_way(biases: bool) -> None:
    operands, attrs = wide(5, routing(top_k=2), biases=biases)
    module = expanded(operands, attrs)
    if not biases:
        (unpermute,) = [n for n in module.main if n.op == "unpermute"]
        unpermute.set_operand(0, Builder(module.main, unpermute).tanh(unpermute.operand(0)))
    before = print_module(module)
    result = ProbPlacement().run(module, Context())
    wanted = "the down-projection has a bias" if biases else "tanh stands between the down-projection"
    assert any(m.reason.startswith(wanted) for m in result.near_misses)
    assert not result.applied and print_module(module) == before


class Slow:
    """A target on which each op takes what ``times`` says, one microsecond otherwise."""

    name = "slow"

    def __init__(self, times: Mapping[str, float]):
        self.times = times

    def estimate(self, op: str, types: Sequence[Any], attrs: Any, sizes: Any) -> KernelTime:
        return KernelTime(op, "vector", 1, 0, self.times.get(op, 1.0), 0.0, 0.0, "HBM", 0, 0)


@pytest.mark.parametrize(("product", "applied"), [(1.0, False), (30.0, True)])
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_it_is_placed_only_where_that_is_cheaper_than_computing_the_outputs_again(
    where: str, product: float, applied: bool
) -> None:
    operands, attrs = wide(6, routing(top_k=2))
    module = expanded(operands, attrs) if where == "forward" else joint(operands, attrs)
    times = {"mul": 20.0, "gather": 20.0, "grouped_matmul": product}
    result = ProbPlacement().run(module, Context(target=Slow(times)))
    assert bool(result.applied) == applied
    if not applied:
        assert any("on slow it would add" in m.reason for m in result.near_misses)

"""Routing weights before the down-projection of experts that are spread over ranks: they travel with the rows, and
what comes back from the exchange is no longer saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from moec.autodiff import saved_values
from moec.eval import run
from moec.frontend.dsl import parse_moe, read_moe
from moec.ir.graph import Module
from moec.ir.text import print_module
from moec.ops.verify import verify
from moec.passes.base import TRAIN_PIPELINE, Context, PassManager, parse_passes
from moec.passes.prob_placement import ProbPlacement
from moec.target import KernelTime
from tests.support import small_pangu
from tests.support.train import joint

Array = np.ndarray
EXAMPLE = Path(__file__).parents[2] / "examples" / "pangu_ultra_moe_rank.moe"
Feeds = tuple[dict[str, Array], dict[str, Array]]
RANKS, HIDDEN, EXPERTS = 4, 6, 8
HEAD = """
use silu_glu, ungrouped
dim T in [1, 64]
group ep = 4
E = 8
L = E // ep
K = 3
input x: {dtype}[T, 6]
weight router: f32[E, 6], gate_up: {dtype}[L, 4, 6] sharded(ep, axis = 0), down: {dtype}[L, 6, 2] sharded(ep, axis = 0)
routing = {{ top_k = K, score = "sigmoid", score_order = "before_topk", renormalize = true, renormalize_eps = 1e-20,
            scale = 2.5, score_dtype = f32, weights_dtype = f32 }}
probs, experts, counts = gating(cast(x, to = f32) @ router.T, **routing, **ungrouped)
everyone = all_gather(reshape(counts, shape = [1, ep, L]), group = ep, axis = 0)
mine = gather(everyone, group_rank(group = ep), axis = 1)
leaving = to_host(reduce_sum(reshape(counts, shape = [ep, L]), axes = [1], keepdims = false))
coming = to_host(reduce_sum(mine, axes = [1], keepdims = false))
host {{ arriving = reduce_sum(coming, axes = [0], keepdims = false) }}
R = size(arriving, at_most = ep * T * K)
rows, positions = permute(x, experts, counts)
rows = all_to_all_v(rows, leaving, coming, group = ep, rows = R)
chunk = cumsum(histogram(cumsum(reshape(mine, shape = [E]), axis = 0, exclusive = false, reverse = false), bins = R),
               axis = 0, exclusive = false, reverse = false)
order = argsort(chunk % L, axis = 0, descending = false)
load = reduce_sum(mine, axes = [0], keepdims = false)
inner = swiglu(grouped_matmul(gather(rows, order, axis = 0), gate_up, load), **silu_glu)
"""
BACK = "argsort(order, axis = 0, descending = false)"
TAIL = f"""
rows = gather(grouped_matmul(inner, down, load), {BACK}, axis = 0)
rows = all_to_all_v(rows, coming, leaving, group = ep, rows = T * K)
output y = unpermute(rows, positions, probs)
"""
TAILS = {
    "there and back": TAIL,
    "the order is undone last": f"""
home = grouped_matmul(inner, down, load)
back = {BACK}
rows = gather(gather(gather(home, back, axis = 0), order, axis = 0), back, axis = 0)
rows = all_to_all_v(rows, coming, leaving, group = ep, rows = T * K)
output y = unpermute(rows, positions, probs)
""",
    "an order by a key": """
key = argsort(histogram(load * 0, bins = R) * 0 + chunk % 2, axis = 0, descending = true)
mixed = gather(grouped_matmul(inner, down, load), key, axis = 0)
rows = gather(gather(mixed, argsort(key, axis = 0, descending = false), axis = 0), argsort(order, axis = 0,
        descending = false), axis = 0)
output y = unpermute(all_to_all_v(rows, coming, leaving, group = ep, rows = T * K), positions, probs)
""",
    "an inverse by scattering": TAIL.replace(
        BACK, 'scatter_elements(n, order, n, axis = 0, reduction = "none")'
    ).replace("rows = gather", "n = iota(size = R, dtype = i64)\nrows = gather"),
    "two exchanges": TAIL.replace(
        "output y", "rows = all_to_all_v(all_to_all_v(rows, leaving, coming, group = ep, rows = R), coming, leaving,"
        " group = ep, rows = T * K)\noutput y"
    ),
}  # fmt: skip


def layer(tail: str = TAIL, dtype: str = "f32") -> Module:
    return parse_moe(HEAD.format(dtype=dtype) + tail)


def feeds(
    tokens: list[int], seed: int, dtype: np.dtype | type = np.float64
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Inputs of each rank, with the gradients that come in, and the whole weights."""
    rng = np.random.default_rng(seed)
    given = {
        f"rank{i}.{n}": rng.standard_normal((t, HIDDEN)).astype(dtype)
        for i, t in enumerate(tokens)
        for n in ("x", "d_y")
    }
    weights = {"router": (EXPERTS, HIDDEN), "gate_up": (EXPERTS, 4, HIDDEN), "down": (EXPERTS, HIDDEN, 2)}
    return given, {n: rng.standard_normal(s).astype(np.float32 if n == "router" else dtype) for n, s in weights.items()}


def without_gradients(given: Mapping[str, Array]) -> dict[str, Array]:
    return {n: a for n, a in given.items() if not n.endswith("d_y")}


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("tokens", [[3, 3, 3, 3], [1, 5, 2, 1], [1, 1, 1, 1]], ids=str)
def test_forward_and_gradients_are_those_of_weighted_outputs(tail: str, tokens: list[int]) -> None:
    plain, placed = layer(TAILS[tail]), layer(TAILS[tail])
    assert ProbPlacement().run(placed, Context()).counts() == {"prob-placement-moved": 1}
    verify(placed)
    given, weights = feeds(tokens, len(tail))
    old, new = (run(joint(m), given, weights, fp64=True) for m in (plain, placed))
    assert sorted(old) == sorted(new) and any(n.endswith("d_router") for n in old)
    for name, expected in old.items():
        np.testing.assert_allclose(
            new[name], expected, rtol=0, atol=1e-12 * max(1.0, np.abs(expected).max()), err_msg=name
        )


def test_gradients_are_the_differences() -> None:
    placed = layer()
    ProbPlacement().run(placed, Context())
    given, weights = feeds([2, 4, 1, 3], 7)
    got = run(joint(placed), given, weights, fp64=True)

    def loss(step: float, along: Mapping[str, Array]) -> float:
        moved = {n: a + step * along.get(n, 0.0) for n, a in (without_gradients(given) | weights).items()}
        ys = run(placed, {n: moved[n] for n in without_gradients(given)}, {n: moved[n] for n in weights}, fp64=True)
        return sum(float(np.sum(ys[f"rank{i}.y"] * given[f"rank{i}.d_y"])) for i in range(RANKS))

    rng = np.random.default_rng(8)
    for name in ("x", "router", "gate_up", "down"):
        keys = [name] if name in weights else [f"rank{i}.{name}" for i in range(RANKS)]
        along = {k: rng.standard_normal((weights | given)[k].shape) for k in keys}
        expected = (loss(1e-6, along) - loss(-1e-6, along)) / 2e-6
        parts = (
            np.split(along[name], RANKS) if name in ("gate_up", "down") else [along[k] for k in keys * RANKS][:RANKS]
        )
        actual = sum(float(np.sum(got[f"rank{i}.d_{name}"] * part)) for i, part in enumerate(parts))
        assert abs(actual - expected) < 1e-6 * max(1.0, abs(expected)), name


def test_a_whole_layer_with_tensor_parallel_attention_keeps_its_gradients() -> None:
    made = [small_pangu.joint(p) for p in (small_pangu.JOINT.replace("prob-placement,", ""), small_pangu.JOINT)]
    given, weights = ({n: a.astype(np.float64) for n, a in each.items()} for each in small_pangu.feeds(made[0], 2))
    plain, placed = (run(m, given, weights, fp64=True) for m in made)
    assert len(plain) == 4 * 18
    for name, expected in plain.items():
        bound = 1e-10 * max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(placed[name], expected, rtol=0, atol=bound, err_msg=name)


def test_the_lists_of_the_way_there_do_not_matter() -> None:
    """Each weight comes to the row that it scales by the way of that row alone."""
    tokens = [2, 3, 1, 2]
    given, weights = feeds(tokens, 3)
    sizes = run(
        parse_moe(HEAD.format(dtype="f32") + "output y = to_device(arriving)\n"), without_gradients(given), weights
    )
    rng = np.random.default_rng(1)
    for i in range(RANKS):
        given[f"rank{i}.made"] = rng.standard_normal((int(sizes[f"rank{i}.y"]), HIDDEN))
    modules = [_fed(layer()), _fed(layer())]
    assert ProbPlacement().run(modules[1], Context()).applied
    old, new = (run(m, without_gradients(given), weights, fp64=True) for m in modules)
    for name, expected in old.items():
        np.testing.assert_allclose(new[name], expected, rtol=0, atol=1e-12, err_msg=name)


def _fed(module: Module) -> Module:
    """The layer whose experts read an input ``made`` instead of what came from the ranks."""
    (first, _) = [n for n in module.main if n.op == "all_to_all_v"]
    made = module.main.add_input("made", first.result.type)
    first.result.replace_with(made)
    module.main.erase(first)
    return module


MISSES = {
    "tanh stands between the down-projection": TAIL.replace("unpermute(rows,", "unpermute(tanh(rows),"),
    "the down-projection has a bias": TAIL.replace(
        "down, load)", "down, load, reduce_sum(down, axes=[2], keepdims=false))"
    ),
    "rows are gathered by an index that is not known to be a permutation": TAIL.replace(BACK, f"maximum({BACK}, 0)"),
    "the outputs are also read by return": TAIL + "output rows\n",
    "the rows are not summed as they were sorted": TAIL.replace(
        "unpermute(rows, positions", "unpermute(rows, positions * 1"
    ),
    "comes behind the down-projection": TAIL.replace(
        "rows = all_to_all_v(rows, coming, leaving,",
        "late = to_host(to_device(coming) + 0)\nrows = all_to_all_v(rows, late, leaving,",
    ),
}


@pytest.mark.parametrize("reason", MISSES)
def test_a_near_miss_says_what_is_in_the_way(reason: str) -> None:
    module = layer(MISSES[reason])
    before = print_module(module)
    result = ProbPlacement().run(module, Context())
    assert [m.reason for m in result.near_misses if reason in m.reason], [m.reason for m in result.near_misses]
    assert not result.applied and print_module(module) == before


def test_wide_activations_stay_as_they_are() -> None:
    module = parse_moe(
        HEAD.format(dtype="f32").replace("[L, 4, 6]", "[L, 12, 6]").replace("[L, 6, 2]", "[L, 6, 6]") + TAIL
    )
    result = ProbPlacement().run(module, Context())
    assert not result.applied
    assert "no wider than the activations [S, 6]" in result.near_misses[0].reason


def test_a_joint_graph_is_told_that_it_is_too_late() -> None:
    result = ProbPlacement().run(joint(layer()), Context())
    assert not result.applied
    assert any("place the weights before autodiff" in m.reason for m in result.near_misses)


class Slow:
    """A target on which each op takes what ``times`` says, one microsecond otherwise."""

    name = "slow"

    def __init__(self, times: Mapping[str, float]):
        self.times = times

    def estimate(self, op: str, types: object, attrs: object, sizes: object) -> KernelTime:
        return KernelTime(op, "vector", 1, 0, self.times.get(op, 1.0), 0.0, 0.0, "HBM", 0, 0)


@pytest.mark.parametrize(("product", "applied"), [(1.0, False), (90.0, True)])
def test_it_is_placed_only_where_that_is_cheaper_than_making_the_outputs_again(product: float, applied: bool) -> None:
    module = layer()
    before = print_module(module)
    target = Slow({"mul": 40.0, "gather": 20.0, "grouped_matmul": product})
    result = ProbPlacement().run(module, Context(target=target, tune={"T": 4}))
    assert bool(result.applied) == applied
    if not applied:
        assert any("on slow it would add" in m.reason for m in result.near_misses)
        assert print_module(module) == before


def test_what_comes_back_is_no_longer_saved_in_a_layer_of_pangu_ultra_moe() -> None:
    """In bytes of one rank at 1024 positions of 2 sequences: 16384 rows of 7680 go, a weight of each stays."""
    kept: list[dict[str, int]] = []
    for placed in (False, True):
        module = read_moe(EXAMPLE).module
        passes = TRAIN_PIPELINE if placed else TRAIN_PIPELINE.replace("prob-placement,", "")
        steps = PassManager(parse_passes(passes)).run(module, Context(tune={"p": 1024, "mbs": 2}))
        assert placed == any("prob-placement-moved" in s.result.counts() for s in steps)
        kept.append({s.name: s.bytes({"p": 1024, "mbs": 2, "arriving": 16384}) or 0 for s in saved_values(module)})
    before, after = kept
    assert before["all_to_all_v"] == 240 << 20 and "all_to_all_v" not in after
    weights, places = 16384 * 4, 16384 * 4
    assert sum(before.values()) - sum(after.values()) == (240 << 20) - weights - places + 2048 * 8 * 4


DECLARED = """
slots = reshape(experts, shape = [T * K, 1])
each, _ = permute(reshape(probs, shape = [T * K, 1]), slots, counts)
each = gather(all_to_all_v(each, leaving, coming, group = ep, rows = R), order, axis = 0)
inner = cast(cast(inner, to = f32) * each, to = {dtype})
"""


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_it_is_the_layer_that_is_declared_so_bit_by_bit(dtype: str) -> None:
    """The weights travel in f32, and the product is rounded once."""
    declared = layer(DECLARED.format(dtype=dtype) + TAIL.replace("positions, probs", "positions, none"), dtype)
    placed = layer(dtype=dtype)
    ProbPlacement().run(placed, Context())
    given, weights = feeds([4, 2, 3, 5], 5, placed.main.inputs[0].type.dtype.carrier)
    old, new = (run(m, without_gradients(given), weights) for m in (declared, placed))
    assert {n: a.tobytes() for n, a in old.items()} == {n: a.tobytes() for n, a in new.items()}


def test_placing_twice_changes_nothing_more() -> None:
    module = layer()
    ProbPlacement().run(module, Context())
    text = print_module(module)
    assert not ProbPlacement().run(module, Context()).applied
    assert print_module(module) == text


def test_the_gate_of_bisection_holds_it_back() -> None:
    module = layer()
    context = Context()
    context.gate.limit = 0
    assert not ProbPlacement().run(module, context).applied

"""Expert parallelism against the unsharded block: a capacity-free exchange of rows, and Megatron's dispatcher."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from moec.eval import run
from moec.frontend.dsl import parse_moe, read_moe
from moec.ir.compare import modules_equal
from moec.ir.text import parse_module, print_module
from moec.ops.verify import verify
from moec.passes.base import Context, PassManager, parse_passes

EXAMPLE = Path(__file__).parents[2] / "examples" / "megatron_dispatcher.moe"

WHOLE = (
    """
dim T in [0, 8192]
input x: f32[T, 64]
weight router: f32[16, 64], gate_up: f32[16, 64, 64], down: f32[16, 64, 32]
output y, _ = moe(x, router, gate_up, down, top_k = 2, score = "softmax", score_order = "before_topk", groups = 1,
    group_top_k = 1, group_score = "none", group_mask = "none", renormalize = true, renormalize_eps = 0.0, scale = 1.0,
    router_dtype = f32, score_dtype = f32, weights_dtype = f32, activation = "silu", glu = "chunked", alpha = 1.0,
    limit = none, up_offset = 0.0, weights_on = "output", capacity = none, capacity_scope = "none", dropped = "none")
""".replace("output y, _ =", "y, _ =")
    + "output y\n"
)


def _weights(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "router": rng.standard_normal((16, 64)),
        "gate_up": rng.standard_normal((16, 64, 64)) / 8,
        "down": rng.standard_normal((16, 64, 32)) / 6,
    }


def _agrees(module: object, tokens: list[int], only: int | None = None) -> None:
    """Each rank's output is the whole block's on its own tokens; with ``only`` all choose one rank's experts."""
    rng = np.random.default_rng(len(tokens))
    weights = _weights(rng)
    xs = [rng.standard_normal((n, 64)) for n in tokens]
    if only is not None:
        xs = [np.abs(x) for x in xs]
        weights["router"] = np.abs(weights["router"]) * np.where(np.arange(16) // 4 == only, 1, -1)[:, None]
    out = run(module, {f"rank{i}.x": x for i, x in enumerate(xs)}, weights, fp64=True)  # type: ignore[arg-type]
    whole = parse_moe(WHOLE)
    for i, x in enumerate(xs):
        expected = run(whole, {"x": x}, weights, fp64=True)["y"]
        np.testing.assert_allclose(out[f"rank{i}.y"], expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("tokens", [[7, 7, 7, 7], [1, 30, 2, 5]])
def test_megatrons_dispatcher_is_the_moe_block(tokens: list[int]) -> None:
    _agrees(read_moe(EXAMPLE).module, tokens)


@pytest.mark.parametrize("only", [0, 3])
def test_ranks_whose_experts_get_nothing(only: int) -> None:
    _agrees(read_moe(EXAMPLE).module, [6, 2, 1, 4], only)


def test_its_reads_are_in_the_ir() -> None:
    module = read_moe(EXAMPLE).module
    verify(module)
    assert modules_equal(parse_module(print_module(module)), module)
    ops = [n.op for n in module.main]
    assert ops.count("to_host") == 4 and ops.count("host") == 2 and ops.count("all_to_all_v") == 2
    assert set(module.symbols) == {"T", "num_out", "arriving"}
    assert module.symbols["arriving"] == (0, 4 * 8192 * 2)


def test_the_cleaning_passes_keep_every_step_and_the_result() -> None:
    module = read_moe(EXAMPLE).module
    before = [n.op for n in module.main if n.op in ("to_host", "host", "bind_size", "all_gather", "all_to_all_v")]
    PassManager(parse_passes("canonicalise,fold,cse,dce")).run(module, Context())
    verify(module)
    after = [n.op for n in module.main if n.op in ("to_host", "host", "bind_size", "all_gather", "all_to_all_v")]
    assert after == before
    _agrees(module, [3, 8, 1, 5])


EQUAL = (
    """
dim T in [1, 64]
group ep = 4
input x: f32[4 * T, 64]
weight router: f32[16, 64],
       gate_up: f32[16 / ep, 64, 64] sharded(ep, axis = 0),
       down: f32[16 / ep, 64, 32] sharded(ep, axis = 0)
# every rank computes its experts for all tokens, and the sums come home
everything = all_gather(x, group = ep, axis = 0)
probs, experts, _ = gating(everything @ router.T, top_k = 2, score = "softmax", score_order = "before_topk", groups = 1,
    group_top_k = 1, group_score = "none", group_mask = "none", renormalize = true, renormalize_eps = 0.0, scale = 1.0,
    score_dtype = f32, weights_dtype = f32)
first = cast(group_rank(group = ep), to = i32) * 4
mine = experts >= first & experts < first + 4
local = select(mine, experts - first, 0 * experts)
weights = select(mine, probs, 0 * probs)
rows, positions = permute(everything, local, histogram(local, bins = 4))
counts = histogram(local, bins = 4)
h = swiglu(grouped_matmul(rows, gate_up, counts), activation = "silu", glu = "chunked", alpha = 1.0, limit = none,
    up_offset = 0.0)
y = unpermute(grouped_matmul(h, down, counts), positions, weights)
output y = reduce_scatter(y, group = ep, axis = 0, reduction = "sum")
""".replace("output y = reduce", "y = reduce")
    + "output y\n"
)


def test_an_all_gather_dispatcher_is_the_moe_block() -> None:
    _agrees(parse_moe(EQUAL), [8, 8, 8, 8])


def test_host_steps_inside_a_layer_are_kept_apart_where_calls_are_taken_apart() -> None:
    """Sizes that the data decides differ from call to call, also in the functions that the host runs."""
    module = parse_moe(TWICE)
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    limits = np.array([3.0, 8.0])
    expected = [sum(range(int((x > limit).sum()))) for limit in limits]
    before = run(module, {"x": x, "limits": limits}, sizes={"ep": 2})
    PassManager(parse_passes("inline")).run(module, Context())
    verify(module)
    assert [n.op for n in module.main].count("host") == 2 and not any(n.op == "call" for n in module.main)
    after = run(module, {"x": x, "limits": limits}, sizes={"ep": 2})
    for r in range(2):
        for i, name in enumerate(("a", "b")):
            assert before[f"rank{r}.{name}"].tolist() == after[f"rank{r}.{name}"].tolist() == [expected[i]] * 2


TWICE = """
group ep in [1, 4] = 2
dim T in [1, 9] = 6
input x: f32[T, 2], limits: f32[2]
layer counted(x, limit) {
    above = to_host(reduce_sum(cast(x > limit, to = i64), axes = [0, 1], keepdims = false))
    n = size(above, at_most = 2 * T)
    host {
        numbers = iota(size = n, dtype = i64)
        sum = reduce_sum(numbers, axes = [0], keepdims = false)
    }
    return all_gather(reshape(to_device(sum), shape = [1]), group = ep, axis = 0)
}
output a = counted["a"](x, limits[0]), b = counted["b"](x, limits[1])
"""


@pytest.mark.parametrize("tokens", [[7, 7, 7, 7], [1, 30, 2, 5]])
def test_megatrons_tensor_parallel_dispatcher_is_the_moe_block(tokens: list[int]) -> None:
    module = read_moe(EXAMPLE.with_name("megatron_dispatcher_tp.moe")).module
    verify(module)
    assert modules_equal(parse_module(print_module(module)), module)
    assert [n.op for n in module.main].count("to_host") == 5
    rng = np.random.default_rng(7)
    weights = _weights(rng)
    gate, up = np.split(weights["gate_up"], 2, axis=1)
    xs = [rng.standard_normal((n, 64)) for n in tokens]
    given = {f"rank{i}.x": x for i, x in enumerate(xs)}
    out = run(module, given, weights | {"gate": gate, "up": up}, fp64=True)
    whole = parse_moe(WHOLE)
    for i, x in enumerate(xs):
        expected = run(whole, {"x": x}, weights, fp64=True)["y"]
        np.testing.assert_allclose(out[f"rank{i}.y"], expected, rtol=1e-11, atol=1e-12)

"""Exchanges in two tiers and gradients sent with half of their elements: laws over simulated ranks, volumes, bounds."""

from __future__ import annotations

from math import comb
from pathlib import Path

import numpy as np
import pytest

from moec.autodiff.differentiate import differentiate
from moec.autodiff.sides import backward_nodes
from moec.eval import run
from moec.frontend.dsl import parse_moe, read_moe
from moec.ir.graph import Module
from moec.ops import OPS
from moec.ops.verify import verify
from moec.passes.base import Context, default_passes
from moec.passes.compress_a2a import CompressAllToAll
from moec.passes.hierarchical_a2a import FORMS, HierarchicalAllToAll, copies
from moec.passes.sync_removal import SyncRemoval
from moec.timeline.balance import balanced_sizes

EXAMPLES = Path(__file__).parents[2] / "examples"
DISPATCHER = (EXAMPLES / "megatron_dispatcher.moe").read_text()


def dispatcher(ranks: int = 4, top_k: int = 2, dtype: str = "f32") -> Module:
    text = DISPATCHER.replace("group ep = 4", f"group ep = {ranks}").replace("K = 2", f"K = {top_k}")
    return parse_moe(text.replace("f32[", f"{dtype}["))


def feeds(module: Module, tokens: list[int], seed: int, joint: bool = False) -> tuple[dict, dict]:
    rng = np.random.default_rng(seed)
    given = {f"rank{i}.x": rng.standard_normal((n, 64)) for i, n in enumerate(tokens)}
    if joint:
        given |= {f"rank{i}.d_y": rng.standard_normal((n, 64)) for i, n in enumerate(tokens)}
    return given, {
        "router": rng.standard_normal((16, 64)),
        "gate_up": rng.standard_normal((16, 64, 64)) / 8,
        "down": rng.standard_normal((16, 64, 32)) / 6,
    }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("ranks", "per_node", "top_k"), [(4, 2, 2), (8, 2, 3), (8, 4, 1)])
def test_two_tiers_give_the_same(form: str, ranks: int, per_node: int, top_k: int) -> None:
    before, after = dispatcher(ranks, top_k), dispatcher(ranks, top_k)
    result = HierarchicalAllToAll(form=form, ranks_per_node=per_node).run(after, Context())
    verify(after)
    assert result.near_misses == [] and sum("between nodes" in a.rule for a in result.applied) == 1
    groups = {n.attrs["group"].name for n in after.main if "group" in n.attrs}
    assert groups == {"ep_local", "ep_node"}
    given, weights = feeds(before, [5] * ranks, ranks)
    expected, found = (run(m, given, weights, fp64=True) for m in (before, after))
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, atol=1e-13)
    SyncRemoval().run(after, Context())
    verify(after)
    assert not any(n.op == "to_host" for n in after.main)
    again = run(after, given, weights, fp64=True)
    for name in expected:
        np.testing.assert_array_equal(again[name], found[name])


def test_a_token_goes_once_to_each_node_whatever_ranks_hold() -> None:
    """The de-duplicated form takes different numbers of tokens, and moves each only where it is wanted."""
    before, after = dispatcher(8, 4), dispatcher(8, 4)
    HierarchicalAllToAll(form="dedup", ranks_per_node=2).run(after, Context())
    given, weights = feeds(before, [3, 9, 1, 4, 7, 2, 2, 6], 1)
    expected, found = (run(m, given, weights, fp64=True) for m in (before, after))
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, atol=1e-13)
    logits = given["rank0.x"] @ weights["router"].T
    nodes = np.argsort(-logits, axis=1, kind="stable")[:, :4] // 4
    wanted = sum(len(set(row)) for row in nodes)
    sent = []
    run(after, given, weights, fp64=True, observe=lambda n, r: sent.append((n, r)))  # type: ignore[arg-type]
    between = [n for n, _ in sent if n.op == "all_to_all_v" and n.attrs["group"].name == "ep_node"]
    rows = [r[0].shape[0] for n, r in sent if n is between[0].operand(0).producer]
    assert rows == [wanted]


def test_a_balanced_load_goes_through_exchanges_of_rows() -> None:
    """Each rank looks after its share of T*K slots also where choices of experts are exchanged between nodes."""
    module = dispatcher(8, 4)
    HierarchicalAllToAll(form="dedup", ranks_per_node=2).run(module, Context())
    sizes = balanced_sizes(module, {"T": 64})
    assert sizes["sorted"] == 64 * 4 and 64 < sizes["sent"] <= 64 * 4
    assert sizes["came"] % 4 == 0 and abs(sizes["came"] - sizes["sent"]) < 32


@pytest.mark.parametrize("form", FORMS)
def test_gradients_come_back_through_two_tiers(form: str) -> None:
    before, after = dispatcher(), dispatcher()
    HierarchicalAllToAll(form=form, ranks_per_node=2).run(after, Context())
    given, weights = feeds(before, [5, 5, 5, 5], 3, joint=True)
    expected, found = (run(differentiate(m), given, weights, fp64=True) for m in (before, after))
    assert list(expected) == list(found) and "rank3.d_gate_up" in found
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-11, atol=1e-12)


def test_volumes_are_those_worked_out_by_counting() -> None:
    """Four nodes, eight of 256 experts on 32 ranks, bf16 tokens of 7680: 6, 3 and 2.7 copies, 180, 90 and 81 MiB."""
    module = read_moe(EXAMPLES / "megatron_dispatcher_pangu.moe").module
    result = HierarchicalAllToAll().run(module, Context(None, {"T": 2048}))
    volumes = "flat 6.00 (180.0 MiB a rank), all-gather 3.00 (90.0 MiB a rank), dedup 2.71 (81.3 MiB a rank)"
    assert f"copies of a token: {volumes}" in result.applied[-1].rule
    rng = np.random.default_rng(0)
    chosen = np.argsort(rng.random((4000, 256)), axis=1)[:, :8] // 64
    crossing = np.mean([len(set(row) - {0}) for row in chosen])
    assert copies("dedup", 4, 8, 256) == pytest.approx(3 * (1 - comb(192, 8) / comb(256, 8)))
    assert copies("dedup", 4, 8, 256) == pytest.approx(crossing, rel=0.02)


def test_what_does_not_fit_stays_and_says_why() -> None:
    for options, reason in [
        ({"ranks_per_node": 4}, "does not spread over nodes of 4 ranks with several in each"),
        ({"ranks_per_node": 3}, "does not spread over nodes of 3 ranks"),
        ({"form": "ring"}, "form 'ring' is none of all-gather, dedup"),
    ]:
        module = dispatcher()
        result = HierarchicalAllToAll(**options).run(module, Context())  # type: ignore[arg-type]
        assert not result.applied and reason in result.near_misses[0].reason
        assert sum(n.op == "to_host" for n in module.main) == 4


def test_gradients_are_sent_with_two_of_four_elements() -> None:
    exact, sparse = differentiate(dispatcher()), differentiate(dispatcher())
    forward = sum(n.op == "all_to_all_v" and n not in backward_nodes(sparse.main) for n in sparse.main)
    result = CompressAllToAll().run(sparse, Context())
    verify(sparse)
    assert forward == 2 and result.counts() == {"gradient in 53.1% of its bytes": 2}
    given, weights = feeds(exact, [5, 3, 6, 4], 5, joint=True)
    a, b = (run(m, given, weights, fp64=True) for m in (exact, sparse))
    for rank in range(4):
        np.testing.assert_array_equal(a[f"rank{rank}.y"], b[f"rank{rank}.y"])
        np.testing.assert_array_equal(a[f"rank{rank}.d_router"], b[f"rank{rank}.d_router"])
        for name in ("d_x", "d_down", "d_gate_up"):
            error = np.linalg.norm(a[f"rank{rank}.{name}"] - b[f"rank{rank}.{name}"])
            assert 0.05 < error / np.linalg.norm(a[f"rank{rank}.{name}"]) < 0.6


def test_compression_touches_gradients_of_rows_alone() -> None:
    assert "compress-a2a" not in [p.name for p in default_passes()]
    forward = dispatcher()
    assert not CompressAllToAll().run(forward, Context()).changed
    narrow = parse_moe("""
group g = 2
input x: f32[6, 4]
output y = all_to_all(exp(x), group = g, split_axis = 0, concat_axis = 0)
""")
    result = CompressAllToAll().run(differentiate(narrow), Context())
    assert not result.changed and "rows of 4 do not split into pairs of four" in result.near_misses[0].reason


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_the_bound_of_two_of_four_holds_and_is_reached(dtype: str) -> None:
    rng = np.random.default_rng(0)
    sparse, dense = OPS["sparse24"].ref, OPS["dense24"].ref
    x = (rng.standard_normal((50, 64)) * rng.choice([1e-3, 1, 1e3], (50, 64))).astype(dtype)
    values, places = sparse(x)
    assert values.shape == (50, 32) and places.shape == (50, 8) and places.dtype == np.uint8
    back = dense(values, places)
    kept = back != 0
    assert np.array_equal(back[kept], x[kept]) and kept.reshape(50, -1, 4).sum(2).max() == 2
    groups, error = x.reshape(50, -1, 4), (x - back).reshape(50, -1, 4).astype(np.float64)
    assert np.all(np.abs(error).max(2) <= np.sort(np.abs(groups), 2)[..., 2])
    norm = np.linalg.norm(x.astype(np.float64), axis=1)
    assert np.all(np.linalg.norm(error.reshape(50, -1), axis=1) <= norm / np.sqrt(2) * (1 + 1e-12))
    equal = np.ones((1, 8), dtype)
    assert dense(*sparse(equal)).tolist() == [[1, 1, 0, 0, 1, 1, 0, 0]]
    assert sparse(np.array([[0, 5, 0, -7, 1, 2, 3, 4]], dtype))[1].tolist() == [[(1 | 3 << 2) | (2 | 3 << 2) << 4]]
    with pytest.raises(ValueError, match="rows of 12 do not split"):
        OPS["sparse24"].infer([parse_moe("input x: f32[2, 12]\noutput y = x\n").main.inputs[0].type], {})

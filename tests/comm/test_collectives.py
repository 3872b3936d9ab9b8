"""Each collective against its formula, on ranks that hold different numbers; what does not fit is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from moec.diagnostics import Refusal
from moec.eval import run
from moec.frontend.dsl import parse_moe
from moec.ir.compare import modules_equal
from moec.ir.symbol import sym
from moec.ir.text import parse_module, print_module
from moec.ir.types import F32, TensorType
from moec.ops import OPS
from moec.ops.verify import verify

COLLECTIVES = [n for n, d in OPS.items() if "collective" in d.traits]


def on_ranks(body: str, xs: list[np.ndarray], head: str = "group g = 4", dtype: str = "f32") -> list[np.ndarray]:
    """``output y = body`` on ranks that have ``xs``; the text form is read back first."""
    dims = ", ".join(map(str, xs[0].shape))
    module = parse_moe(f"{head}\ninput x: {dtype}[{dims}]\noutput y = {body}\n")
    again = parse_module(print_module(module))
    verify(again)
    assert modules_equal(again, module)
    out = run(again, {f"rank{i}.x": x for i, x in enumerate(xs)})
    return [out[f"rank{i}.y"] for i in range(len(xs))]


def numbers(ranks: int, *shape: int) -> list[np.ndarray]:
    rng = np.random.default_rng(ranks)
    return [rng.integers(-9, 9, shape).astype(np.float32) for _ in range(ranks)]


def test_all_collectives_are_tested_here() -> None:
    assert COLLECTIVES == ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_to_all_v"]
    for name in COLLECTIVES:
        assert OPS[name].cost == "comm" and OPS[name].place == "device" and "effect" in OPS[name].traits


@pytest.mark.parametrize(("reduction", "formula"), [("sum", np.sum), ("max", np.max), ("min", np.min)])
def test_all_reduce(reduction: str, formula: object) -> None:
    xs = numbers(4, 3, 2)
    for y in on_ranks(f'all_reduce(x, group = g, reduction = "{reduction}")', xs):
        np.testing.assert_array_equal(y, formula(xs, axis=0))  # type: ignore[operator]


def test_sums_of_16_bit_tensors_are_rounded_once() -> None:
    xs = [np.array([v], ml_dtypes.bfloat16) for v in (256.0, 1.0, 1.0, 1.0)]
    (y, *_) = on_ranks('all_reduce(x, group = g, reduction = "sum")', xs, dtype="bf16")
    assert y.dtype == ml_dtypes.bfloat16 and float(y[0]) == 260.0  # 259 rounded; 256 if each addition were


@pytest.mark.parametrize("axis", [0, 1])
def test_all_gather(axis: int) -> None:
    xs = numbers(4, 3, 2)
    for y in on_ranks(f"all_gather(x, group = g, axis = {axis})", xs):
        np.testing.assert_array_equal(y, np.concatenate(xs, axis))


@pytest.mark.parametrize("axis", [0, 1])
def test_reduce_scatter(axis: int) -> None:
    xs = numbers(4, 8, 4)
    ys = on_ranks(f'reduce_scatter(x, group = g, axis = {axis}, reduction = "sum")', xs)
    np.testing.assert_array_equal(np.concatenate(ys, axis), sum(xs))
    assert [y.shape for y in ys] == [(2, 4) if axis == 0 else (8, 1)] * 4


@pytest.mark.parametrize(("split", "concat"), [(0, 0), (0, 1), (1, 0)])
def test_all_to_all(split: int, concat: int) -> None:
    xs = numbers(4, 8, 4)
    ys = on_ranks(f"all_to_all(x, group = g, split_axis = {split}, concat_axis = {concat})", xs)
    for i, y in enumerate(ys):
        np.testing.assert_array_equal(y, np.concatenate([np.split(x, 4, split)[i] for x in xs], concat))


COUNTS = np.array([[1, 0, 2], [0, 0, 0], [3, 1, 1]])
"""Rows that rank i sends to rank j."""

V = """
group g = 3
dim S in [0, 9]
dim R in [0, 99]
input x: f32[S, 2], send: i64[g], receive: i32[g]
output y = all_to_all_v(x, send, receive, group = g, rows = R)
"""


def _v_inputs(counts: np.ndarray, received: np.ndarray) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    given: dict[str, np.ndarray] = {}
    for i in range(3):
        given[f"rank{i}.x"] = rng.standard_normal((counts[i].sum(), 2)).astype(np.float32)
        given[f"rank{i}.send"] = counts[i]
        given[f"rank{i}.receive"] = received[:, i].astype(np.int32)
    return given


def test_all_to_all_v() -> None:
    given = _v_inputs(COUNTS, COUNTS)
    out = run(parse_moe(V), given)
    ends = np.cumsum(COUNTS, axis=1)
    for i in range(3):
        parts = [given[f"rank{j}.x"][ends[j, i] - COUNTS[j, i] : ends[j, i]] for j in range(3)]
        np.testing.assert_array_equal(out[f"rank{i}.y"], np.concatenate(parts))


def test_counts_that_disagree_are_refused() -> None:
    received = COUNTS.copy()
    received[2, 0] = 4
    with pytest.raises(Refusal, match="member 0 expects 4 rows of member 2, which sends 3"):
        run(parse_moe(V), _v_inputs(COUNTS, received))
    wrong = _v_inputs(COUNTS, COUNTS)
    wrong["rank2.send"] = np.array([3, 1, 2])
    with pytest.raises(Refusal, match=r"member 2 sends \[3, 1, 2\] of 5 rows"):
        run(parse_moe(V), wrong)


def test_a_size_that_does_not_split_is_refused_when_it_is_written() -> None:
    with pytest.raises(Refusal, match=r"a dimension of 6 does not split into 4 equal parts \(g\)"):
        parse_moe('group g = 4\ninput x: f32[6]\noutput y = reduce_scatter(x, group = g, axis = 0, reduction = "sum")')
    with pytest.raises(Refusal, match="reduction 'mean' is none of sum, max, min"):
        parse_moe('group g = 4\ninput x: f32[6]\noutput y = all_reduce(x, group = g, reduction = "mean")')


def test_sizes_of_groups_may_be_symbols() -> None:
    text = """
group ep in [1, 8] = 4
dim T in [1, 9]
input x: f32[ep * T, 3]
output y = all_gather(all_to_all(x, group = ep, split_axis = 0, concat_axis = 1), group = ep, axis = 0)
"""
    module = parse_moe(text)
    first, second = module.main
    p, t = first.attrs["group"].size, sym("T")
    assert first.result.type == TensorType(F32, (t, 3 * p)) and second.result.type == TensorType(F32, (p * t, 3 * p))
    for ranks in (1, 3):
        xs = numbers(ranks, 2 * ranks, 3)
        out = run(module, {f"rank{i}.x": x for i, x in enumerate(xs)}, sizes={"ep": ranks})
        rows = [np.concatenate([np.split(x, ranks)[i] for x in xs], 1) for i in range(ranks)]
        np.testing.assert_array_equal(out["rank0.y"], np.concatenate(rows))
    with pytest.raises(Refusal, match="the size 'ep' of group ep is not given"):
        run(module, {"x": xs[0]})


def test_groups_over_groups_split_the_ranks_both_ways() -> None:
    head = "group tp = 2\ngroup dp = 3 over tp\ngroup all = 6"
    xs = [np.array([2.0**i], np.float32) for i in range(6)]
    everyone = ' + 0 * all_reduce(x, group = all, reduction = "max")'
    sums = {
        g: [float(y[0]) for y in on_ranks(f'all_reduce(x, group = {g}, reduction = "sum"){everyone}', xs, head)]
        for g in ("tp", "dp", "all")
    }
    assert sums == {"tp": [3, 3, 12, 12, 48, 48], "dp": [21, 42, 21, 42, 21, 42], "all": [63] * 6}
    places = on_ranks("group_rank(group = dp) * 10 + group_rank(group = tp)", xs, head + "\n")
    assert [int(y) for y in places] == [0, 1, 10, 11, 20, 21]

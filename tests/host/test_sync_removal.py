"""Reads taken out of dispatchers: how many are left, by which rule, and the same numbers on every rank."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from moec.diagnostics import CheckFailed, Refusal
from moec.eval import run
from moec.frontend.dsl import parse_moe, read_moe
from moec.ir.compare import modules_equal
from moec.ir.graph import Module
from moec.ir.symbol import DEFAULT_BOUND
from moec.ir.text import parse_module, print_module
from moec.ops.verify import verify
from moec.passes.base import Context, PassManager, Result
from moec.passes.sync_removal import SyncRemoval

EXAMPLES = Path(__file__).parents[2] / "examples"
PLAIN, TENSOR_PARALLEL = "megatron_dispatcher.moe", "megatron_dispatcher_tp.moe"


def removed(name: str, **options: object) -> tuple[Module, Result]:
    module = read_moe(EXAMPLES / name).module
    result = SyncRemoval(**options).run(module, Context())  # type: ignore[arg-type]
    verify(module)
    assert modules_equal(parse_module(print_module(module)), module)
    return module, result


def reads(module: Module, op: str = "to_host") -> int:
    return sum(n.op == op for n in module.nodes())


def numbers(module: Module, tokens: list[int], only: int | None = None, fp64: bool = True) -> dict[str, np.ndarray]:
    """Outputs of all ranks; with ``only`` all tokens choose the experts of one rank."""
    rng = np.random.default_rng(sum(tokens))
    xs = {f"rank{i}.x": rng.standard_normal((n, 64)) for i, n in enumerate(tokens)}
    weights = {
        "router": rng.standard_normal((16, 64)),
        "gate_up": rng.standard_normal((16, 64, 64)) / 8,
        "down": rng.standard_normal((16, 64, 32)) / 6,
    }
    weights["gate"], weights["up"] = np.split(weights["gate_up"], 2, axis=1)
    if only is not None:
        xs = {k: np.abs(x) for k, x in xs.items()}
        weights["router"] = np.abs(weights["router"]) * np.where(np.arange(16) // 4 == only, 1, -1)[:, None]
    return run(module, xs, weights, fp64=fp64)


LOADS = [([7, 7, 7, 7], None), ([1, 30, 2, 5], None), ([6, 2, 1, 4], 0), ([3, 3, 3, 3], 3)]


@pytest.mark.parametrize("fp64", [True, False])
@pytest.mark.parametrize("name", [PLAIN, TENSOR_PARALLEL])
def test_no_read_blocks_by_its_op_and_every_bit_stays(name: str, fp64: bool) -> None:
    before = read_moe(EXAMPLES / name).module
    after, result = removed(name)
    assert reads(before) == (4 if name == PLAIN else 5)
    assert reads(after) == 0 and reads(after, "read_start") == reads(after, "read_wait") == 1
    assert result.near_misses == []
    for tokens, only in LOADS:
        expected, found = numbers(before, tokens, only, fp64), numbers(after, tokens, only, fp64)
        assert list(expected) == list(found)
        for key in expected:
            np.testing.assert_array_equal(found[key], expected[key])


def test_each_read_goes_by_the_rule_that_fits() -> None:
    _, plain = removed(PLAIN)
    assert plain.counts() == {
        "static size": 1,
        "computed on the device": 2,
        "device counts": 2,
        "read waited for late": 1,
    }
    _, parallel = removed(TENSOR_PARALLEL)
    assert parallel.counts()["packed read, waited for late"] == 1 and parallel.counts()["device counts"] == 3


def test_the_copy_starts_behind_its_producer_and_the_wait_stands_behind_what_does_not_need_it() -> None:
    module, _ = removed(PLAIN)
    ops = [n.op for n in module.main]
    assert ops.index("read_start") < ops.index("permute") < ops.index("read_wait") < ops.index("all_to_all_v")


@pytest.mark.parametrize(("tokens", "only"), [([7, 7, 7, 7], None), ([3, 3, 3, 3], 0), ([4, 4, 4, 4], 3)])
def test_an_all_gather_dispatcher_needs_no_read(tokens: list[int], only: int | None) -> None:
    before = read_moe(EXAMPLES / PLAIN).module
    after, result = removed(PLAIN, counts="all-gather")
    assert reads(after) == reads(after, "read_start") == 0 and reads(after, "all_to_all_v") == 0
    assert result.counts()["dispatcher by all-gather"] == 1
    expected, found = numbers(before, tokens, only), numbers(after, tokens, only)
    for key in expected:
        np.testing.assert_allclose(found[key], expected[key], rtol=1e-12, atol=1e-13)


def test_a_capacity_is_exact_and_refuses_an_overflow() -> None:
    before = read_moe(EXAMPLES / PLAIN).module
    after, _ = removed(PLAIN, counts="capacity", capacity_factor=2.5)
    assert reads(after) == reads(after, "read_start") == 0 and reads(after, "all_to_all") == 2
    for fp64 in (True, False):
        expected, found = numbers(before, [8, 8, 8, 8], None, fp64), numbers(after, [8, 8, 8, 8], None, fp64)
        for key in expected:
            np.testing.assert_array_equal(found[key], expected[key])
    with pytest.raises(Refusal, match="16 rows, and there is room for 10"):
        numbers(after, [8, 8, 8, 8], 0)
    tight, _ = removed(PLAIN, counts="all-gather", capacity_factor=1.0)
    with pytest.raises(Refusal, match="64 rows, and there is room for 16"):
        numbers(tight, [8, 8, 8, 8], 0)


def test_choices_that_do_not_fit_say_so() -> None:
    for counts in ("all-gather", "capacity"):
        module, result = removed(TENSOR_PARALLEL, counts=counts, capacity_factor=2.0)
        assert reads(module) == 2
        assert "the rows that arrive go to tile, expected gather alone" in result.near_misses[0].reason
        assert "all_to_all_v takes its lists on the host" in result.near_misses[-1].reason
    with pytest.raises(Refusal, match="counts=capacity needs a capacity_factor of 1 or more"):
        removed(PLAIN, counts="capacity")
    with pytest.raises(Refusal, match="counts 'some' is none of async"):
        removed(PLAIN, counts="some")


def test_keeping_the_lists_leaves_one_read_and_names_its_uses() -> None:
    module, result = removed(PLAIN, counts="keep")
    assert reads(module) == 1
    (miss,) = result.near_misses
    assert "size arriving: shapes and buffers (line 46), after a host step" in miss.reason
    assert "all_to_all_v takes its lists on the host (line 47), after a host step" in miss.reason


def test_a_dispatcher_whose_indices_are_wrong_is_not_replaced() -> None:
    text = (EXAMPLES / PLAIN).read_text()
    for good, bad, reason in [
        ("order = argsort(chunk % L", "order = argsort(chunk", "rows are not sorted by expert and put back"),
        ("send = reduce_sum(reshape(counts, shape = [ep, L]), axes = [1]",
         "send = reduce_sum(reshape(counts, shape = [ep, L]) * 1 + 1 - 1, axes = [0]", "lists of the exchange"),
    ]:  # fmt: skip
        assert good in text
        module = parse_moe(text.replace(good, bad))
        result = SyncRemoval(counts="capacity", capacity_factor=2.0).run(module, Context())
        assert any(reason in m.reason for m in result.near_misses), [m.reason for m in result.near_misses]
        assert reads(module, "all_to_all_v") == 2


def test_a_read_of_what_the_host_must_know_stays() -> None:
    """A size that is no sum of a router's counts, and one of a router whose sum is of some experts only."""
    text = """
dim T in [1, 64] = 8
input x: f32[T, 4]
weight r: f32[6, 4]
p, e, counts = gating(x @ r.T, top_k = 2, score = "softmax", score_order = "before_topk", groups = 1, group_top_k = 1,
    group_score = "none", group_mask = "none", renormalize = true, renormalize_eps = 0.0, scale = 1.0,
    score_dtype = f32, weights_dtype = f32)
n = size(to_host(reduce_sum(counts[:3], axes = [0], keepdims = false)), at_most = 2 * T)
m = size(to_host(reduce_sum(counts, axes = [0], keepdims = false)), at_most = 2 * T)
k = size(to_host(reduce_sum(e, axes = [0, 1], keepdims = false)), at_most = 12 * T)
output a = iota(size = n, dtype = f32), b = iota(size = m, dtype = f32), c = iota(size = k, dtype = f32)
"""
    module = parse_moe(text)
    rng = np.random.default_rng(1)
    given, weights = {"x": rng.standard_normal((8, 4))}, {"r": rng.standard_normal((6, 4))}
    before = run(module, given, weights)
    result = SyncRemoval().run(module, Context())
    verify(module)
    assert result.counts() == {"static size": 1, "packed read, waited for late": 1}
    after = run(module, given, weights)
    for name in "abc":
        np.testing.assert_array_equal(after[name], before[name])
    assert after["b"].shape == (16,)


def test_what_is_in_flight_is_for_a_wait_and_a_wait_for_what_is_in_flight() -> None:
    head = "func main(%x: i32[2]) -> (y: i32[2]) {\n"
    good = head + "  %a = read_start(%x) : i32[2]\n  %b = read_wait(%a) : i32[2]\n  return %b\n}\n"
    module = parse_module(good)
    verify(module)
    assert run(module, {"x": np.array([3, 4])})["y"].tolist() == [3, 4]
    with pytest.raises(CheckFailed, match="neg takes a value that is on its way to the host: read_wait first"):
        verify(
            parse_module(
                good.replace("read_wait(%a)", "neg(%a)").replace("return", "%h = to_host(%x) : i32[2]\n  return")
            )
        )
    with pytest.raises(CheckFailed, match="read_wait waits for what read_start sent"):
        verify(parse_module(good.replace("read_wait(%a)", "read_wait(%x)")))


def test_more_rows_than_there_is_room_for_are_refused() -> None:
    text = """symbol n in [0, 9]
func main(%x: i32[]) -> (y: i32[n]) {
  %a = device_size(%x) {value = n, at_most = 4} : i32[]
  %y = iota() {size = n, dtype = !i32} : i32[n]
  return %y
}
"""
    module = parse_module(text)
    verify(module)
    assert run(module, {"x": np.array(4, np.int32)})["y"].tolist() == [0, 1, 2, 3]
    with pytest.raises(Refusal, match="5 rows, and there is room for 4"):
        run(module, {"x": np.array(5, np.int32)})


TWICE = """
dim T in [1, 9] = 6
input x: f32[T, 2], limits: f32[2]
layer counted(x, limit) {
    above = to_host(reduce_sum(cast(x > limit, to = i64), axes = [0, 1], keepdims = false))
    n = size(above, at_most = 2 * T)
    host {
        numbers = iota(size = n, dtype = i64)
        sum = reduce_sum(numbers, axes = [0], keepdims = false)
    }
    return to_device(sum)
}
output a = counted["a"](x, limits[0]), b = counted["b"](x, limits[1])
"""


def test_a_repeated_layer_reads_late_in_each_copy() -> None:
    """The read stands in a function that is called twice; each copy gets a size of its own."""
    module = parse_moe(TWICE)
    given = {"x": np.arange(12, dtype=np.float32).reshape(6, 2), "limits": np.array([3.0, 8.0])}
    before = run(module, given)
    result = SyncRemoval().run(module, Context())
    assert result.counts() == {"computed on the device": 1, "read waited for late": 1}
    PassManager.parse("inline").run(module, Context())
    verify(module)
    assert reads(module) == reads(module, "host") == 0 and reads(module, "read_wait") == 2
    after = run(module, given)
    assert [after[n].tolist() for n in "ab"] == [before[n].tolist() for n in "ab"] == [28, 3]


def test_a_size_that_only_kernels_use_may_stay_on_the_device() -> None:
    module = parse_moe(TWICE)
    given = {"x": np.arange(12, dtype=np.float32).reshape(6, 2), "limits": np.array([3.0, 8.0])}
    before = run(module, given)
    result = SyncRemoval(lengths="device").run(module, Context())
    assert result.counts() == {"computed on the device": 1, "static upper bound with a device length": 1}
    PassManager.parse("inline").run(module, Context())
    verify(module)
    assert reads(module) == reads(module, "read_wait") == 0 and reads(module, "device_size") == 2
    assert [n.attrs["at_most"] for n in module.main if n.op == "device_size"] == [18, 18]
    after = run(module, given)
    assert [after[n].tolist() for n in "ab"] == [before[n].tolist() for n in "ab"]
    boundless = parse_moe(TWICE)
    boundless.symbols["above"] = DEFAULT_BOUND
    SyncRemoval(lengths="device").run(boundless, Context())
    assert reads(boundless, "device_size") == 0 and reads(boundless, "read_wait") == 1
    _, result = removed(PLAIN, lengths="device")  # its lists and their sum the host must know
    assert "static upper bound with a device length" not in result.counts()
    with pytest.raises(Refusal, match="lengths 'some' is none of host, device"):
        removed(PLAIN, lengths="some")

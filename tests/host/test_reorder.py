"""Orders of launches: legal, no slower, the same numbers, the same collectives in the same order on every rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_double import TimingDouble

from moec.eval import run
from moec.frontend.dsl import parse_moe
from moec.ir.graph import Graph, Module, Node
from moec.ops.registry import OPS
from moec.ops.verify import verify
from moec.passes.base import Context
from moec.passes.launch_order import legal, must_follow, rearrange
from moec.passes.reorder_launch import ReorderLaunch
from moec.passes.reorder_launch_list import Cost, best_window, list_schedule

SHARED = """
group g = 2
input x: f32[40], w: f32[40]
sent = all_gather(x * w, group = g, axis = 0)
there = exp(sent)
back = reduce_scatter(there, group = g, axis = 0, reduction = "sum")
shared = exp(x - w)
output y = back + shared * shared
"""


def effects(module: Module) -> list[tuple[str, int]]:
    """The collectives in order, each with the line that it was written in."""
    return [(n.op, n.origin.sources[0].line) for n in module.main if "collective" in OPS[n.op].traits]


def test_what_needs_no_exchange_stands_beside_it() -> None:
    module = parse_moe(SHARED)
    rng = np.random.default_rng(0)
    feeds = {f"rank{r}.{n}": rng.standard_normal(40) for r in range(2) for n in "xw"}
    before = run(module, feeds)
    result = ReorderLaunch().run(module, Context(TimingDouble()))
    verify(module)
    (done,) = result.applied
    # as written: 40, 40 sent, 80, 80 back beside 3 x 40, 40
    # then: 40, 40 sent beside 40, 80, 80 back beside 2 x 40, 40
    assert done.rule == "order that takes 280.0 us, not 320.0"
    ops = [n.op for n in module.main]
    assert ops.index("all_gather") < ops.index("sub") < ops.index("reduce_scatter")
    assert effects(module) == [("all_gather", 4), ("reduce_scatter", 6)]
    for name, array in run(module, feeds).items():
        np.testing.assert_array_equal(array, before[name])
    again = ReorderLaunch().run(module, Context(TimingDouble()))
    assert not again.changed and again.near_misses[0].reason == "no order found that takes less than 280.0 us"


def test_a_layer_without_reads_or_collectives_is_left_alone() -> None:
    module = parse_moe("input x: f32[4]\noutput y = exp(x) + x\n")
    assert not ReorderLaunch().run(module, Context(TimingDouble())).changed
    assert not ReorderLaunch().run(parse_moe(SHARED), Context()).changed


READ = """
dim T in [1, 64] = 8
input x: f32[T, 5], c: i32[4]
n = size(read_wait(read_start(reduce_sum(c, axes = [0], keepdims = false))), at_most = 64)
few = iota(size = n, dtype = f32)
long = exp(exp(x))
output y = exp(few), z = long
"""


def test_long_kernels_are_issued_ahead_of_a_wait() -> None:
    module = parse_moe(READ)
    given = {"x": np.ones((8, 5)), "c": np.array([1, 2, 3, 4])}
    before = run(module, given)
    ReorderLaunch().run(module, Context(TimingDouble(op=5.0, read=90.0), {"T": 8}))
    verify(module)
    ops = [n.op for n in module.main]
    assert ops.index("exp") < ops.index("read_wait")
    for name, array in run(module, given).items():
        np.testing.assert_array_equal(array, before[name])


def _random(rng: np.random.Generator) -> Module:
    """Elementwise ops, collectives, reads and a size, in some legal order."""
    lines = ["group g = 2", "input x: f32[6], c: i32[6]"]
    lines.append('first = all_reduce(x, group = g, reduction = "sum")')
    values, counts = ["x", "first"], ["c"]
    for i in range(int(rng.integers(4, 14))):
        kind = rng.choice(["op", "op", "op", "reduce", "size", "host"])
        a, b, n = rng.choice(values), rng.choice(values), rng.choice(counts)
        if kind == "op":
            lines.append(f"v{i} = {a} * {b} + {a}")
            values.append(f"v{i}")
        elif kind == "reduce":
            lines.append(f'v{i} = all_reduce({a}, group = g, reduction = "max")')
            values.append(f"v{i}")
        elif kind == "size":
            lines.append(f"n{i} = size(to_host(reduce_sum({n}, axes = [0], keepdims = false)), at_most = 99)")
            lines.append(f"v{i} = {a} * reduce_sum(iota(size = n{i}, dtype = f32), axes = [0], keepdims = false)")
            values.append(f"v{i}")
        else:
            lines += [f"h{i} = to_host({n})", "host {", f"    s{i} = h{i} + 1", "}", f"d{i} = to_device(s{i})"]
            counts.append(f"d{i}")
    total = " + ".join(dict.fromkeys(values))
    return parse_moe("\n".join([*lines, f"output y = {total}"]) + "\n")


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_any_legal_order_computes_the_same(seed: int) -> None:
    """Random legal orders, and the pass's own, of random programs: verified, same bits, same order of collectives."""
    rng = np.random.default_rng(seed)
    module = _random(rng)
    feeds = {f"rank{r}.x": rng.standard_normal(6) for r in range(2)} | {"c": rng.integers(0, 3, 6)}
    before, order = run(module, feeds), effects(module)
    follow = must_follow(module, module.main)
    assert legal(list(module.main), follow)
    left, chosen = list(module.main), list[Node]()
    while left:
        ready = [n for n in left if all(b in chosen for b in follow[n])]
        node = ready[int(rng.integers(0, len(ready)))]
        chosen.append(node)
        left.remove(node)
    rearrange(module.main, chosen)
    for _ in range(2):
        verify(module)
        assert effects(module) == order
        for name, array in run(module, feeds).items():
            np.testing.assert_array_equal(array, before[name])
        ReorderLaunch().run(module, Context(TimingDouble(op=float(rng.integers(0, 9)))))


def _graph(rng: np.random.Generator, size: int) -> tuple[list[Node], dict[Node, list[Node]], dict[Node, Cost]]:
    graph = Graph("g")
    nodes = [graph.append("exp", [], {}, []) for _ in range(size)]
    before = {n: [m for m in nodes[:i] if rng.random() < 0.3] for i, n in enumerate(nodes)}
    streams = ("compute", "communication")
    cost = {n: Cost(float(rng.integers(0, 4)), float(rng.integers(1, 20)), streams[rng.integers(0, 2)]) for n in nodes}
    return nodes, before, cost


def _us(order: Sequence[Node], before: Mapping[Node, Sequence[Node]], cost: Mapping[Node, Cost]) -> float:
    host, free, done = 0.0, dict[str, float](), dict[Node, float]()
    for n in order:
        host += cost[n].host_us
        start = max([host, free.get(cost[n].stream, 0.0), *(done[b] for b in before[n])])
        done[n] = free[cost[n].stream] = start + cost[n].device_us
    return max(done.values())


@pytest.mark.parametrize("seed", range(8))
def test_a_window_of_the_whole_is_the_best_order_and_the_list_is_near_it(seed: int) -> None:
    nodes, before, cost = _graph(np.random.default_rng(seed), 6)
    every = [o for o in permutations(nodes) if legal(o, before)]
    best = min(_us(o, before, cost) for o in every)
    found = best_window(nodes, 0, 6, before, lambda o: _us(o, before, cost))
    assert legal(found, before) and _us(found, before, cost) == best
    listed = list_schedule(nodes, before, cost)
    assert legal(listed, before) and sorted(map(id, listed)) == sorted(map(id, nodes))
    assert _us(listed, before, cost) <= 1.5 * best
    inner = best_window(nodes, 1, 3, before, lambda o: _us(o, before, cost))
    assert inner[:1] == nodes[:1] and inner[4:] == nodes[4:]
    assert _us(inner, before, cost) <= _us(nodes, before, cost)


def test_a_window_makes_it_no_slower() -> None:
    plain, windowed = parse_moe(SHARED), parse_moe(SHARED)
    ReorderLaunch().run(plain, Context(TimingDouble()))
    result = ReorderLaunch(window=4).run(windowed, Context(TimingDouble()))
    verify(windowed)
    taken = float(result.applied[0].rule.split()[3])
    assert taken <= 280.0

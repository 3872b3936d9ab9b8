"""Looking up and multiplying out what repeats gives exactly what simulating every instruction gives."""

from __future__ import annotations

import pytest
from cost_kernels import exp, load, random_kernels, scale_kernel, store
from cost_kernels import kernel as make
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moec.codegen.kernel_ir import Assign, Barrier, For, GmRef, If, Kernel, Let, LoadScalar, SetFlag, Stmt, WaitFlag
from moec.codegen.scalar import Bin, Scalar, Var, choose, eq, smin
from moec.targets.ascend import machine
from moec.targets.ascend.model.scenario import Scenario
from moec.targets.ascend.model.simulate import simulate

B1 = machine.load("ascend910b1")
SLOW = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(random_kernels(), st.lists(st.integers(0, 7), min_size=8, max_size=8))
@SLOW
def test_random_loop_nests(kernel: Kernel, counts: list[int]) -> None:
    scenario = Scenario({"c": counts})
    fast = simulate(kernel, B1, {"n": 3}, scenario)
    full = simulate(kernel, B1, {"n": 3}, scenario, remember=False)
    assert fast == full


@given(random_kernels(syncs=True), st.lists(st.integers(0, 7), min_size=8, max_size=8))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_loop_nests_with_sync_all(kernel: Kernel, counts: list[int]) -> None:
    scenario = Scenario({"c": counts})
    fast = simulate(kernel, B1, {"n": 3}, scenario)
    assert fast == simulate(kernel, B1, {"n": 3}, scenario, remember=False)


@given(st.integers(1, 400), st.sampled_from([512, 1000, 4096]))
@settings(max_examples=20, deadline=None)
def test_double_buffered_tiles(n: int, tile: int) -> None:
    kernel = scale_kernel(tile)
    assert simulate(kernel, B1, {"n": n}) == simulate(kernel, B1, {"n": n}, remember=False)


def loop(var: Var, stop: Scalar, *body: Stmt, start: Scalar = 0) -> For:
    return For(var.name, start, stop, 1, body)


N, J, A, B, V = (Var(name) for name in "njabv")
NESTS: dict[str, tuple[Stmt, ...]] = {
    # The branch taken decides, and both branches depend on nothing.
    "branch": (loop(N, 30, If(eq(N % 3, 1), (load(800),), (exp(8),))),),
    # Whole inner loops with equal bounds and another branch inside.
    "branch outside": (loop(N, 9, loop(J, 5, If(eq(N % 2, 1), (exp(512),), (load(8),)))),),
    # A counter that an inner loop moves on by a number of the outer loop, used after it.
    "carried through": (
        Let(A, 0),
        loop(N, 24, loop(J, 3, Assign(A, A + N), exp(8)), load(A % 5 * 64 + 8)),
    ),
    # The same inside another loop, whose variable decides how far the counter goes.
    "carried from outside": (
        Let(A, 0),
        loop(
            N, 12, loop(J, 4, load(A % 5 * 64 + 8), loop(V, 3, Assign(A, A + N), exp(8))), Barrier("ALL"), Assign(A, 0)
        ),
    ),
    # A counter of counters: a moves by b, b by 1; the inner loop runs a % 4 times.
    "two counters": (
        Let(A, 0),
        Let(B, 0),
        loop(N, 40, Assign(B, B + 1), Assign(A, A + B), loop(J, A % 4, exp(64), store(8))),
    ),
    # Rows off the 512-byte line by a product of two loop variables.
    "product offset": (loop(N, 12, loop(J, 8, load(224, N * J * 8)), Barrier("ALL")),),
    # The line offset comes from a counter alone.
    "counter offset": (Let(A, 0), loop(N, 60, load(224, A), Assign(A, A + 24))),
    "counter moved from outside": (
        Let(A, 0),
        loop(N, 16, loop(J, 8, load(224, A), Assign(A, A + N * 24)), Barrier("ALL"), Assign(A, 0)),
    ),
    # More instructions in flight than a queue holds, issued faster than they run.
    "full queue": (loop(N, 90, exp(4096)), loop(J, 90, load(8), exp(16))),
    # A prefetch a loop ahead with a flag raised in one iteration and waited for in the next.
    "flag across iterations": (
        SetFlag("V", "MTE2", 0),
        loop(N, 50, WaitFlag("V", "MTE2", 0), load(512), exp(2048), SetFlag("V", "MTE2", 0)),
        WaitFlag("V", "MTE2", 0),
    ),
    # The loop variable decides only while the counter lets it.
    "counter times variable": (
        Let(A, 0),
        loop(N, 60, load(A * N % 2 * 512 + 64), Assign(A, (A + 1) % 3), Barrier("ALL")),
    ),
    # Expert counts: bounds read from device memory, equal for some experts.
    "counts": (loop(N, 8, LoadScalar(V, GmRef("c", N, "i64")), loop(J, V, load(256), exp(64)), store(V * 8 + 8)),),
    # A quotient that only runs where the divisor is not 0, inside a loop whose key holds it.
    "empty expert": (
        loop(N, 8, LoadScalar(V, GmRef("c", N, "i64")), loop(J, V, exp(60 // V * 8), load(64 % V * 8 + 8))),
    ),
    # The next expert's count, read only where there is one.
    "look ahead": (
        loop(N, 8, If(Bin("<", N, 7), (LoadScalar(V, GmRef("c", N + 1, "i64")), loop(J, V, exp(64)))), store(8)),
    ),
    # The last, ragged iteration.
    "tail": (loop(N, 33, Let(V, smin(64, 2100 - N * 64)), load(V), exp(V), store(V)),),
    # A value chosen before the loop and used inside it.
    "chosen": (loop(N, 10, Let(V, choose(eq(N % 4, 2), 8, 640)), loop(J, 6, load(V), exp(V))),),
    # Copies in both directions share the pools.
    "both ways": (loop(N, 64, load(1024, N * 1024), store(1024, N * 1024)),),
}


@pytest.mark.parametrize("name", NESTS)
def test_nests(name: str) -> None:
    scenario = Scenario({"c": [3, 3, 0, 5, 3, 0, 1, 3]})
    tested = make(NESTS[name], 5)
    fast = simulate(tested, B1, {"n": 300}, scenario)
    full = simulate(tested, B1, {"n": 300}, scenario, remember=False)
    assert fast == full


def test_repeated_work_is_multiplied_out() -> None:
    """A million iterations are counted exactly, in the time of a few."""
    inner = loop(J, 1000, load(512), SetFlag("MTE2", "V", 0), WaitFlag("MTE2", "V", 0), exp(512))
    once = simulate(make((inner,)), B1, {"n": 3})
    deep = simulate(make((loop(N, 1000, inner),)), B1, {"n": 3})
    assert deep.path_bytes["GM->UB"] == 1000 * once.path_bytes["GM->UB"] == 1000 * 1000 * 2048
    assert deep.instructions["Exp"] == 1000 * once.instructions["Exp"] == 10**6

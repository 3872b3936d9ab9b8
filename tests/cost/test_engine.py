"""The engine by hand: what starts when, to the cycle; and its state carries all that matters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moec.targets.ascend.model.engine import QUEUED, Calendar, Deadlock, Engine, Timed

V, M, MTE1, MTE2, MTE3, FIX = range(6)
assert QUEUED == ("V", "M", "MTE1", "MTE2", "MTE3", "FIX")


def engine(depth: int = 32) -> Engine:
    return Engine([depth] * 6, 0)


def work(pipe: int, busy: int, latency: int = 0, hbm: int = 0, l2: int = 0) -> Timed:
    return Timed(pipe, busy, latency, (hbm, l2), ())


def test_one_instruction() -> None:
    e = engine()
    e.issue(work(V, 10, 5), 3)
    assert (e.now, e.free[V], e.done[V], e.end()) == (3, 13, 18, 18)


def test_one_pipe_is_in_order_and_hides_latency() -> None:
    e = engine()
    e.issue(work(V, 10, 5), 3)
    e.issue(work(V, 10, 5), 3)
    assert (e.now, e.free[V], e.end()) == (6, 23, 28)  # starts at 13, not at 18


def test_issue_limits_short_instructions() -> None:
    e = engine()
    for _ in range(4):
        e.issue(work(V, 1), 3)
    assert e.end() == 13  # the last is issued at 12 and takes 1


def test_barrier_waits_for_the_result() -> None:
    e = engine()
    e.issue(work(V, 10, 5), 3)
    e.barrier(V)
    e.issue(work(V, 10, 5), 3)
    assert e.end() == 3 + 10 + 5 + 10 + 5


def test_barrier_of_one_pipe_leaves_the_others() -> None:
    e = engine()
    e.issue(work(MTE2, 100), 3)
    e.barrier(V)
    e.issue(work(V, 10), 3)
    assert e.free[V] == 16


def test_barrier_all_stops_the_scalar_unit() -> None:
    e = engine()
    e.issue(work(MTE2, 100, 7), 3)
    e.barrier(-1)
    assert e.now == 110


def test_flag_orders_two_pipes() -> None:
    e = engine()
    e.issue(work(MTE2, 100, 20), 3)
    e.set_flag(MTE2, V, 0)
    e.wait_flag(MTE2, V, 0)
    e.issue(work(V, 10), 3)
    assert e.now == 6  # the scalar unit went on
    assert e.end() == 3 + 100 + 20 + 10


def test_flag_raised_long_ago_costs_nothing() -> None:
    e = engine()
    e.set_flag(MTE2, V, 1)
    e.scalar(50)
    e.wait_flag(MTE2, V, 1)
    e.issue(work(V, 10), 3)
    assert e.end() == 63


def test_flag_to_the_scalar_unit() -> None:
    e = engine()
    e.issue(work(V, 30, 20), 3)
    e.set_flag(V, -1, 0)
    e.wait_flag(V, -1, 0)
    assert e.now == 53


def test_flag_never_raised_is_a_deadlock() -> None:
    e = engine()
    with pytest.raises(Deadlock, match="pipe V waits for event 2 of pipe MTE2"):
        e.wait_flag(MTE2, V, 2)
    e.set_flag(MTE2, V, 2)
    e.wait_flag(MTE2, V, 2)
    with pytest.raises(Deadlock):
        e.wait_flag(MTE2, V, 2)  # a wait takes the event down


def test_flags_and_barriers_take_places_in_a_queue() -> None:
    """Depth 2: behind a long instruction two fit; the scalar unit stalls at the third until the first leaves. Flags
    between two pipes take places with the one that is earlier on the way of data."""
    taking = (lambda e: e.set_flag(V, MTE3, 1), lambda e: e.barrier(V), lambda e: e.wait_flag(MTE3, V, 0))
    others = (lambda e: e.set_flag(V, MTE2, 1), lambda e: e.wait_flag(MTE2, V, 0))
    for more in (*taking, *others):
        e = engine(depth=2)
        e.set_flag(MTE2, V, 0)
        e.set_flag(MTE3, V, 0)
        e.issue(work(V, 100, 5), 1)
        for _ in range(2):
            e.scalar(1)
            e.set_flag(V, MTE3, 3)
        assert e.now == 3
        more(e)
        assert e.now == (101 if more in taking else 3)


def test_full_queue_stops_the_scalar_unit() -> None:
    e = engine(depth=2)
    for _ in range(3):
        e.issue(work(V, 100), 1)  # starts at 1, 101, 201; two may wait
    assert e.now == 3
    e.issue(work(V, 100), 1)  # there is room when the second starts
    assert e.now == 101
    assert e.free[V] == 401


def test_pool_share_stretches_a_copy() -> None:
    e = engine()
    e.issue(work(MTE2, 10, 5, hbm=40), 3)
    assert (e.free[MTE2], e.done[MTE2], e.stalls) == (43, 48, [30, 0])
    assert e.busy[MTE2] == 45  # until the data are usable


def test_a_pipe_is_busy_until_its_results_are_usable() -> None:
    e = engine()
    e.issue(work(V, 10, 20), 1)  # 1..11, usable at 31
    e.issue(work(V, 10, 20), 1)  # 11..21, usable at 41
    assert e.busy[V] == 40
    e.scalar(60)
    e.issue(work(V, 10, 20), 1)
    assert e.busy[V] == 70


def test_a_write_runs_ahead_of_hbm() -> None:
    """It waits only for what the L2 does not take in, but the core has not ended before HBM has it all."""
    e = engine()
    e.issue(Timed(MTE3, 10, 5, (40, 0), (), late=25), 1)
    assert (e.free[MTE3], e.end()) == (1 + 40 - 25, 41)
    e.issue(Timed(MTE3, 10, 5, (40, 0), (), late=25), 1)
    assert (e.free[MTE3], e.end()) == (81 - 25, 81)


def test_a_pipe_that_ran_dry_starts_cold() -> None:
    e = engine()
    e.issue(Timed(M, 10, 5, (0, 0), (), cold=7), 1)
    e.issue(Timed(M, 10, 5, (0, 0), (), cold=7), 1)
    assert e.free[M] == 1 + 17 + 10
    e.scalar(40)  # 42, later than 28 + 5
    e.issue(Timed(M, 10, 5, (0, 0), (), cold=7), 1)
    assert e.free[M] == 43 + 17


def test_unit_flags_hand_over_piece_by_piece() -> None:
    e = engine()
    e.issue(Timed(M, 100, 5, (0, 0), (), piece=4), 1)  # 1..101
    e.issue(Timed(FIX, 50, 0, (0, 0), (), piece=4), 1)  # taken up at 2, ends 4 after the Mmad
    assert (e.free[FIX], e.busy[FIX]) == (105, 103)
    e.issue(Timed(M, 2, 5, (0, 0), (), piece=4), 1)  # may not end before the Fixpipe
    assert e.free[M] == 105


def test_a_flag_takes_its_time() -> None:
    e = Engine([32] * 6, 0, handover=6)
    e.issue(work(MTE2, 100, 20), 3)
    e.set_flag(MTE2, V, 0)
    e.wait_flag(MTE2, V, 0)
    e.issue(work(V, 10), 3)
    assert e.end() == 3 + 100 + 20 + 6 + 10


def test_two_pipes_share_a_pool() -> None:
    """In and out together take (in + out) / rate."""
    e = engine()
    e.issue(work(MTE2, 10, hbm=40), 1)
    e.issue(work(MTE3, 10, hbm=40), 1)
    assert (e.free[MTE2], e.free[MTE3]) == (41, 81)


def test_a_copy_uses_what_a_later_one_left_free() -> None:
    """A store issued first but starting later does not hold back the load that could start at once."""
    e = engine()
    e.issue(work(V, 100), 1)
    e.set_flag(V, MTE3, 0)
    e.wait_flag(V, MTE3, 0)
    e.issue(work(MTE3, 10, hbm=40), 1)  # reserves 101..141
    e.issue(work(MTE2, 10, hbm=40), 1)  # 3..43
    e.issue(work(MTE2, 10, hbm=70), 1)  # 43..101, goes on 141..153
    assert (e.free[MTE3], e.free[MTE2]) == (141, 153)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8)), max_size=14))
def test_calendar_takes_the_first_free_cycles(asked: list[tuple[int, int]]) -> None:
    calendar, taken = Calendar(), set[int]()
    for at, cycles in asked:
        t, left = at, cycles
        while left:
            left -= t not in taken
            taken.add(t)
            t += 1
        assert calendar.reserve(at, cycles) == t
        held = {t for a, b in zip(calendar.starts, calendar.stops, strict=True) for t in range(a, b)}
        assert held == taken


Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("issue", "copy", "unit", "flag", "barrier", "scalar")), st.integers(0, 5), st.integers(1, 60)
    ),
    max_size=25,
)


def _play(e: Engine, steps: list[Step]) -> list[int]:
    ends = []
    for kind, pipe, size in steps:
        if kind == "issue":
            e.issue(work(pipe, size, size % 7), 3)
        elif kind == "unit":
            e.issue(Timed(M if pipe % 2 else FIX, size, 7, (size // 2, 0), (), cold=size % 5, piece=4, late=size), 3)
        elif kind == "copy":
            e.issue(work(MTE2 + pipe % 3, size, 9, hbm=size * 2 // 3, l2=size // 2), 3)
        elif kind == "barrier":
            e.barrier(pipe - 1)
        elif kind == "scalar":
            e.scalar(size)
        elif (pipe, (pipe + 1) % 6, size % 2) in e.flags:
            e.wait_flag(pipe, (pipe + 1) % 6, size % 2)
        else:
            e.set_flag(pipe, (pipe + 1) % 6, size % 2)
        ends.append(e.end())
    return ends


@given(STEPS, STEPS, st.integers(1, 4), st.integers(0, 1000))
def test_the_canonical_state_is_all_that_matters(before: list[Step], after: list[Step], depth: int, shift: int) -> None:
    first, second = engine(depth), engine(depth)
    _play(first, before)
    second.now = first.now + shift
    second.restore(first.canonical())
    assert second.canonical() == first.canonical()
    there, here = _play(first, after), _play(second, after)
    assert [t + shift for t in there] == here

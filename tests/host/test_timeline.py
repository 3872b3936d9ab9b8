"""The two timelines against cases worked by hand; what holds for every program."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moec.timeline.idle import TYPES, alone, steady
from moec.timeline.model import Machine, Task, simulate
from moec.timeline.report import host_entry, host_events


def kernel(host: float, device: float, *after: int, where: str = "") -> Task:
    return Task("k", "kernel", where, host, device, "compute", after=after)


def exchange(host: float, device: float, *after: int) -> Task:
    return Task("x", "collective", "", host, device, "communication", "network", after)


PLAIN = Machine()


def times(tasks: list[Task], machine: Machine = PLAIN) -> list[tuple[float, float]]:
    return [(p.start, p.end) for p in simulate(tasks, machine)]


def test_a_kernel_waits_for_its_stream_and_for_its_launch() -> None:
    assert times([kernel(5, 20), kernel(5, 3), kernel(30, 1)]) == [(5, 25), (25, 28), (40, 41)]


def test_latency_and_events_between_streams() -> None:
    tasks = [kernel(1, 10), exchange(1, 4, 0), kernel(1, 5, 1), kernel(1, 2)]
    machine = Machine(latency_us=2, event_us=3)
    assert times(tasks, machine) == [(3, 13), (16, 20), (23, 28), (28, 30)]


def test_a_blocking_read_stops_the_host_until_its_copy_is_done() -> None:
    read = Task("to_host", "read", "f:7", 1, 2, "compute", after=(0,), blocks=True)
    placed = simulate([kernel(5, 100), read, kernel(5, 10)], Machine(wake_us=4))
    assert (placed[1].start, placed[1].end, placed[1].waited, placed[1].host_end) == (105, 107, 105, 111)
    assert (placed[2].start, placed[2].end) == (116, 126)


def test_a_late_wait_waits_only_for_what_is_left() -> None:
    start = Task("read_start", "read", "", 1, 2, "copy", "pcie", (0,))
    for between, waited in ((0, 12.0), (5, 7.0), (50, 0.0)):
        step = Task("step", "step", "", between)
        wait = Task("read_wait", "wait", "", 3, awaits=1)
        placed = simulate([kernel(5, 10), start, step, wait], Machine(wake_us=1))
        assert placed[3].waited == waited and placed[3].host_end == 6 + between + waited + 3


def test_a_full_queue_holds_the_host() -> None:
    placed = simulate([kernel(1, 10) for _ in range(4)], Machine(depth=2))
    assert [p.queued for p in placed] == [0, 0, 0, 8]
    assert [p.start for p in placed] == [1, 11, 21, 31]
    free = simulate([kernel(1, 10) for _ in range(4)], Machine())
    assert [p.host_end for p in free] == [1, 2, 3, 4] and placed[3].host_end == 12


def test_a_link_is_used_by_one_at_a_time_and_a_second_thread_issues_beside_the_first() -> None:
    tasks = [
        Task("a", "copy", "", 1, 10, "copy", "pcie"),
        Task("b", "copy", "", 1, 10, "communication", "pcie"),
        Task("c", "step", "", 4, thread=1),
        Task("d", "kernel", "", 1, 1, "compute", thread=1, needs=(0,)),
    ]
    placed = simulate(tasks, Machine())
    assert [(p.start, p.end) for p in placed[:2]] == [(1, 11), (11, 21)]
    assert placed[2].host_end == 4 and placed[3].start == 5
    with pytest.raises(ValueError, match="needs one that stands behind it"):
        simulate([kernel(1, 1, 1), kernel(1, 1)], Machine())


def test_idle_time_has_a_type_and_an_op_to_blame() -> None:
    read = Task("to_host", "read", "f:7", 1, 2, "compute", after=(0,), blocks=True)
    step = Task("work", "step", "f:9", 40)
    tasks = [
        kernel(5, 10, where="f:1"),
        read,
        kernel(5, 20, where="f:8"),
        step,
        kernel(5, 10, where="f:10"),
        exchange(1, 5, 4),
    ]
    time = alone(tasks, Machine(wake_us=3, event_us=2))
    assert [(i.type, i.blame, i.where, i.us) for i in time.idle] == [
        ("sync", "to_host", "f:7", 10.0),  # 2 copy, 3 wake, 5 issue
        ("dispatch", "work", "f:9", 25.0),  # 40 + 5 from the issue of the kernel before, which ran for 20
        ("dependency", "x", "", 2.0),  # the event between the streams
    ]
    assert time.gap_us == 35 and time.blocking_reads == 1
    assert time.reads[0].waited_us == 14 and time.reads[0].idle_us == 10
    assert time.us == 10 + 10 + 20 + 25 + 10 + 2 + 5
    assert time.free_time_percent == pytest.approx(100 * 37 / time.us)
    assert time.exposed_us == 5 and time.communication_us == 5


def test_in_a_row_the_host_runs_ahead_of_a_busy_device_and_behind_an_idle_one() -> None:
    busy, idle = steady([kernel(1, 10)], Machine()), steady([kernel(10, 4)], Machine())
    assert (busy.us, busy.gap_us) == (10, 0)
    assert (idle.us, idle.gap_us, idle.free_time_percent) == (10, 6, 60)
    chained = steady([kernel(1, 4), exchange(1, 6, 0)], Machine(), {"": (1,)})
    apart = steady([kernel(1, 4), exchange(1, 6, 0)], Machine())
    assert chained.us == 10 and apart.us == 6


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_every_program_keeps_the_rules(seed: int) -> None:
    """Streams in order and one at a time; inputs first; idle and busy time make up the window; more host time or longer
    kernels never end earlier.
    """
    rng = np.random.default_rng(seed)
    tasks: list[Task] = []
    for i in range(int(rng.integers(2, 14))):
        device = [j for j, t in enumerate(tasks) if t.stream]
        after = tuple(sorted({int(rng.choice(device)) for _ in range(rng.integers(0, 3))})) if device else ()
        kind = rng.choice(["kernel", "collective", "read", "step"])
        host, us = float(rng.integers(0, 9)), float(rng.integers(1, 30))
        if kind == "kernel":
            tasks.append(kernel(host, us, *after))
        elif kind == "collective":
            tasks.append(exchange(host, us, *after))
        elif kind == "step":
            tasks.append(Task(f"step{i}", "step", "", host))
        else:
            tasks.append(Task(f"read{i}", "read", "", host, us, "compute", after=after, blocks=True))
    machine = Machine(depth=int(rng.integers(1, 4)), latency_us=2, event_us=1, wake_us=3)
    placed = simulate(tasks, machine)
    last: dict[str, float] = {}
    for p in placed:
        if p.task.stream:
            assert p.start >= last.get(p.task.stream, 0) and p.start >= p.host_start
            assert all(p.start >= placed[i].end for i in p.task.after)
            last[p.task.stream] = p.end
    time = alone(tasks, machine)
    assert 0 <= time.idle_us() <= time.us + 1e-9
    assert time.idle_us() == pytest.approx(sum(time.idle_us(t) for t in TYPES))
    works = [(p.start, p.end) for p in placed if p.task.kind in ("kernel", "collective")]
    points = sorted({x for pair in works for x in pair})
    busy = sum(b - a for a, b in pairwise(points) if any(s <= a and b <= e for s, e in works))
    assert busy + time.idle_us() == pytest.approx(time.us)
    number = int(rng.integers(0, len(tasks)))
    slower = list(tasks)
    slower[number] = replace(tasks[number], host_us=tasks[number].host_us + 5)
    for a, b in zip(placed, simulate(slower, machine), strict=True):
        assert b.end >= a.end and b.host_end >= a.host_end


def test_the_summary_and_the_trace_say_the_same() -> None:
    read = Task("to_host", "read", "f:7", 1, 2, "compute", after=(0,), blocks=True)
    time = alone([kernel(5, 10), read, kernel(5, 20), exchange(1, 5, 2)], Machine(wake_us=3))
    entry = host_entry(time, None)
    assert entry["blocking_reads"] == 1 and entry["gap_us"] == 10 and entry["before"] is None
    assert entry["after"]["reads"] == [{"op": "to_host", "at": "f:7", "waited_us": 14, "idle_us": 10}]
    events = host_events(time)
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert list(names.values()) == [
        "host thread 0",
        "launch queue",
        "stream compute",
        "stream communication",
        "free time",
    ]
    shown: dict[str, list[tuple[float, float]]] = {}
    for e in events:
        if e["ph"] == "X":
            shown.setdefault(names[e["tid"]], []).append((e["ts"], e["ts"] + e["dur"]))
    assert shown["stream compute"] == [(5, 15), (15, 17), (25, 45)] and shown["stream communication"] == [(45, 50)]
    assert shown["free time"] == [(15, 25)]
    assert shown["host thread 0"] == [(0, 5), (5, 6), (6, 20), (20, 25), (25, 26)]
    for spans in shown.values():
        assert all(a[1] <= b[0] for a, b in pairwise(spans))

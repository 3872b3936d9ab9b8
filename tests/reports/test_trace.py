"""``trace.json`` and ``schedule.json`` against a schedule worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from schedules import small_schedule

from moec.report.schedule import schedule_json
from moec.report.trace import trace
from moec.target import Span


def test_kernels_follow_each_other_on_the_device_track() -> None:
    events = [e for e in trace(small_schedule())["traceEvents"] if e["ph"] == "X" and e["pid"] == 1]
    assert [(e["name"], e["ts"], e["dur"]) for e in events] == [("router_matmul", 0.0, 3.0), ("gating", 3.0, 2.5)]


def test_instructions_stand_on_their_pipe_after_the_launch() -> None:
    document = trace(small_schedule())
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"}
    spans = [e for e in document["traceEvents"] if e["ph"] == "X" and e["pid"] == 2]
    found = [(tracks[2, e["tid"]], e["name"], e["ts"], e["dur"]) for e in spans]
    assert found == [
        ("MTE2", "DataCopy", 2.0, pytest.approx(0.9)),
        ("M", "Mmad", 2.75, pytest.approx(0.25)),
        ("V", "Sort32", 5.0, pytest.approx(0.5)),
    ]


def test_every_event_lies_within_the_schedule() -> None:
    schedule = small_schedule()
    for event in trace(schedule)["traceEvents"]:
        if event["ph"] == "X":
            assert event["ts"] >= 0 and event["ts"] + event["dur"] <= schedule.us + 1e-9


@pytest.mark.parametrize("each", [1 / 3, 0.12996, 7.00005])
def test_no_event_begins_before_the_one_in_front_of_it_ends(each: float) -> None:
    """Back to back instructions, in tenths of a nanosecond: the viewers drop what overlaps on a track."""
    schedule = small_schedule()
    first = schedule.kernels[0]
    spans = tuple(Span("V", 5 * i, 5 * i + 5, "Add") for i in range(200))
    kernels = tuple(replace(first, kernel=f"k{i}", us=2.0 + each, spans=spans) for i in range(50))
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for e in trace(replace(schedule, kernels=kernels))["traceEvents"]:
        if e["ph"] == "X":
            tracks.setdefault((e["pid"], e["tid"]), []).append((round(e["ts"] * 1e4), round(e["dur"] * 1e4)))
    for events in tracks.values():
        assert all(at + length <= after for (at, length), (after, _) in pairwise(events))


def test_schedule_json_holds_the_figures() -> None:
    document = schedule_json(small_schedule())
    assert (document["us"], document["cycles"], document["sizes"]) == (5.5, 1500, {"T": 4})
    first, second = document["kernels"]
    assert (first["start_us"], second["start_us"]) == (0.0, 3.0)
    assert first["busy"] == {"MTE2": 0.9, "M": 0.25} and first["bound"] == "MTE2" and first["blocks"] == 24
    assert first["nodes"] == ["m.onnx:3 MatMul"]


def test_a_kernel_that_is_listed_in_part_says_so() -> None:
    from dataclasses import replace

    schedule = small_schedule()
    (first, second) = schedule.kernels
    cut = replace(schedule, kernels=(first, replace(second, spans=(replace(second.spans[0], stop=100),))))
    (rest,) = [e for e in trace(cut)["traceEvents"] if e["name"] == "..."]
    assert (rest["ts"], rest["dur"]) == (pytest.approx(5.1), pytest.approx(0.4))
    assert rest["args"]["V"] == 1.0 and "not listed" in rest["args"]["note"]
    assert not [e for e in trace(schedule)["traceEvents"] if e["name"] == "..."]

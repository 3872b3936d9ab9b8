"""``trace.json``: the schedule as Chrome trace events, which Perfetto and chrome://tracing open. Times are
microseconds.

Process 1 is the device: one track with the kernels in launch order. Process 2 is one core (the slowest of each
kernel): one track a pipe. Process 3 is host and device together (``moec.timeline``), in a row of like layers: one track
a host thread, the launch queue, one a stream, and the device's free time with what is to blame.
"""

from __future__ import annotations

from typing import Any

from moec.target import Schedule
from moec.timeline.idle import HostTime
from moec.timeline.report import host_events

PIPES = ("MTE2", "MTE1", "M", "FIX", "V", "MTE3", "S")
"""Tracks from top to bottom: data moves down."""


MOST_SHOWN = 0.98
"""A kernel whose listed instructions end before this share of its cycles gets an event that says so."""


def trace(schedule: Schedule | None, timed: HostTime | None = None) -> dict[str, Any]:
    """The trace as a JSON value, of the kernels and of the two timelines, as far as there are any."""
    events = _kernel_events(schedule) if schedule is not None else []
    events += host_events(timed) if timed is not None else []
    return {"displayTimeUnit": "ns", "traceEvents": events}


def _kernel_events(schedule: Schedule) -> list[dict[str, Any]]:
    pipes = [p for p in PIPES if any(s.pipe == p for k in schedule.kernels for s in k.spans)]
    pipes += sorted({s.pipe for k in schedule.kernels for s in k.spans} - set(PIPES))
    events = [
        _name("process_name", 1, 0, f"{schedule.target}: kernels"),
        _name("thread_name", 1, 1, "stream 0"),
        _name("process_name", 2, 0, "one core: pipes"),
        *(_name("thread_name", 2, i, pipe) for i, pipe in enumerate(pipes, 1)),
    ]
    start = 0.0
    for k in schedule.kernels:
        figures = {
            "cycles": k.cycles,
            "bound": k.bound,
            "bytes": k.bytes,
            "flops": k.flops,
            "floor_us": round(k.floor_us, 4),
        }
        events.append(_event(k.kernel, 1, 1, start, start + k.us, figures | {"nodes": list(k.nodes)}))
        scale = (k.us - k.launch_us) / k.cycles if k.cycles else 0.0
        for s in k.spans:
            at, end = (start + k.launch_us + cycle * scale for cycle in (s.start, s.stop))
            events.append(_event(s.label, 2, pipes.index(s.pipe) + 1, at, end, {"cycles": s.stop - s.start}))
        shown = max((s.stop for s in k.spans), default=0)
        if k.spans and shown < MOST_SHOWN * k.cycles:
            at = start + k.launch_us + shown * scale
            rest = {"note": "later instructions are not listed"} | {p: round(b, 4) for p, b in k.busy.items() if b}
            for pipe in dict.fromkeys(s.pipe for s in k.spans):
                track = pipes.index(pipe) + 1
                events.append(_event("...", 2, track, at, start + k.us, rest))
        start += k.us
    return events


def _name(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _event(name: str, process: int, thread: int, at: float, end: float, args: dict[str, Any]) -> dict[str, Any]:
    """An event from ``at`` to ``end`` µs. Both are rounded, not the length: viewers drop an event that begins before
    the one in front of it on its track ends.
    """
    begin = round(at, 4)
    times = {"ts": begin, "dur": round(round(end, 4) - begin, 4)}
    return {"ph": "X", "name": name, "pid": process, "tid": thread, **times, "args": args}

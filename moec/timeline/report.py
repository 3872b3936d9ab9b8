"""What the two timelines say, as data: the summary's ``host``, tracks of ``trace.json``, rows for tables.

``host`` of ``summary.json``: ``blocking_reads``, ``gap_us``, ``free_time_percent`` of the layer as it is compiled, in a
row of its like; ``before`` and ``after`` have the same and ``us``, ``exposed_us`` (communication while nothing
computes), ``idle_us`` by type, ``reads`` (``op``, ``at``, ``waited_us``, ``idle_us``) and ``idle`` (the longest
intervals: ``us``, ``type``, ``op``, ``at``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moec.timeline.idle import TYPES, HostTime
from moec.timeline.model import Placed

MOST_INTERVALS = 20
"""Idle intervals that are listed, the longest first."""

PROCESS = 3
"""The trace's process of the two timelines: host threads, launch queues, streams."""


def host_entry(after: HostTime, before: HostTime | None) -> dict[str, Any]:
    """The summary's entry; ``before`` is the layer as it was read, None where nothing of it could be timed."""
    return {
        "blocking_reads": after.blocking_reads,
        "gap_us": _us(after.gap_us),
        "free_time_percent": round(after.free_time_percent, 3),
        "before": None if before is None else side(before),
        "after": side(after),
    }


def side(time: HostTime) -> dict[str, Any]:
    """The figures of one layer."""
    longest = sorted(time.idle, key=lambda i: (-i.us, i.start))[:MOST_INTERVALS]
    return {
        "us": _us(time.us),
        "blocking_reads": time.blocking_reads,
        "gap_us": _us(time.gap_us),
        "free_time_percent": round(time.free_time_percent, 3),
        "exposed_us": _us(time.exposed_us),
        "idle_us": {t: _us(time.idle_us(t)) for t in TYPES},
        "reads": [
            {"op": r.label, "at": r.where, "waited_us": _us(r.waited_us), "idle_us": _us(r.idle_us)} for r in time.reads
        ],
        "idle": [{"us": _us(i.us), "type": i.type, "op": i.blame, "at": i.where} for i in longest],
    }


def host_events(time: HostTime) -> list[dict[str, Any]]:
    """Chrome trace events of the window: a track for each host thread, the launch queue, and each stream."""
    shown = [p for p in time.placed if p.host_end > time.begin or p.end > time.begin]
    threads = sorted({p.task.thread for p in shown})
    streams = sorted({p.task.stream for p in shown if p.task.stream}, key=lambda s: (s != "compute", s))
    origin = min([time.begin, *(p.host_start for p in shown)])
    names = [*(f"host thread {t}" for t in threads), "launch queue", *(f"stream {s}" for s in streams), "free time"]
    events = [_meta("process_name", 0, "host and device")]
    events += [_meta("thread_name", i, name) for i, name in enumerate(names, 1)]
    queue = len(threads) + 1
    for p in shown:
        events += _host_events(p, threads.index(p.task.thread) + 1, origin)
        if p.task.stream:
            issued = p.host_end - (p.waited if p.task.blocks else 0.0)
            if p.start > issued:
                events.append(_counted(p, queue, issued - origin, p.start - origin))
            events.append(
                _event(p, queue + 1 + streams.index(p.task.stream), p.start - origin, p.end - origin, p.task.label)
            )
    for i in time.idle:
        args = {"type": i.type, "op": i.blame, "at": i.where}
        events.append(_named(f"{i.type}: {i.blame}", len(names), i.start - origin, i.end - origin, args))
    return events


def _host_events(p: Placed, track: int, origin: float) -> list[dict[str, Any]]:
    """What the host does in a task, its waits apart."""
    found = []
    at = p.host_start - origin
    if p.task.awaits is not None and p.waited:
        found.append(_event(p, track, at, at + p.waited, f"wait: {p.task.label}"))
        at += p.waited
    if p.queued:
        found.append(_event(p, track, at, at + p.queued, "queue full"))
        at += p.queued
    if p.task.host_us:
        found.append(_event(p, track, at, at + p.task.host_us, p.task.label))
        at += p.task.host_us
    if p.task.blocks and p.waited:
        found.append(_event(p, track, at, at + p.waited, f"wait: {p.task.label}"))
    return found


def _counted(p: Placed, track: int, begin: float, end: float) -> dict[str, Any]:
    """An asynchronous event: queued tasks overlap, which a track of complete events cannot show."""
    args = {"at": p.task.where, "until": round(end, 4)}
    return {
        "ph": "i",
        "s": "t",
        "name": p.task.label,
        "pid": PROCESS,
        "tid": track,
        "ts": round(begin, 4),
        "args": args,
    }


def _event(p: Placed, track: int, begin: float, end: float, name: str) -> dict[str, Any]:
    return _named(name, track, begin, end, {"kind": p.task.kind, "at": p.task.where})


def _named(name: str, track: int, begin: float, end: float, args: Mapping[str, Any]) -> dict[str, Any]:
    start = round(begin, 4)
    times = {"ts": start, "dur": round(round(end, 4) - start, 4)}
    return {"ph": "X", "name": name, "pid": PROCESS, "tid": track, **times, "args": dict(args)}


def _meta(kind: str, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": PROCESS, "tid": track, "args": {"name": name}}


def _us(value: float) -> float:
    return round(value, 3)

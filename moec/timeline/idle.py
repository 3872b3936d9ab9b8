"""Free time: where the device idles because of the host, and which op is to blame.

The device idles while none of its streams computes or communicates; copies of reads and of parked activations do not
count as work. An idle interval ends with the start of some task, and what held that task back names its type:

- ``sync``: the host issued it late because it had waited for a read that ended in the interval (blame the read);
- ``dispatch``: the host issued it late without such a wait (blame the longest host work in the interval);
- ``dependency``: it was issued in time and waited for an event or a link (blame the task).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moec.timeline.model import Machine, Outputs, Placed, Task, repeated, simulate

TYPES = ("sync", "dispatch", "dependency")
WORK = ("kernel", "collective", "copy")
LEAST = 1e-6
"""Microseconds below which an interval is rounding."""


@dataclass(frozen=True)
class Idle:
    """The device idled from ``start`` to ``end``; ``blame`` is the label of the op, ``where`` its source line."""

    start: float
    end: float
    type: str
    blame: str
    where: str

    @property
    def us(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class Read:
    """A read of the program: how long the host waited in it, and how long the device idled because of it."""

    label: str
    where: str
    waited_us: float
    idle_us: float

    @property
    def blocking(self) -> bool:
        """Whether the host waits more than 0."""
        return self.waited_us > LEAST


@dataclass(frozen=True)
class HostTime:
    """A program on the two timelines, over the window from ``begin`` to ``end``."""

    placed: tuple[Placed, ...]
    begin: float
    end: float
    idle: tuple[Idle, ...]
    reads: tuple[Read, ...]

    @property
    def us(self) -> float:
        return self.end - self.begin

    @property
    def blocking_reads(self) -> int:
        """Reads in which the host waits more than 0."""
        return sum(r.blocking for r in self.reads)

    def idle_us(self, *types: str) -> float:
        """Idle microseconds of the given types; of all where none is given."""
        return sum(i.us for i in self.idle if not types or i.type in types)

    @property
    def gap_us(self) -> float:
        """Host-bound gap: the device idles because the host has not issued anything."""
        return self.idle_us("sync", "dispatch")

    @property
    def free_time_percent(self) -> float:
        return 100 * self.idle_us() / self.us if self.us else 0.0

    @property
    def exposed_us(self) -> float:
        """Communication while nothing computes."""
        return self.exposed_in()

    def exposed_in(self, groups: str = "") -> float:
        """Communication over groups whose names begin with ``groups`` while nothing computes."""
        window = (self.begin, self.end)
        compute = [p for p in self.placed if p.task.kind == "kernel"]
        sent = [p for p in self.placed if p.task.kind == "collective" and p.task.group.startswith(groups)]
        return _length(_union([*compute, *sent], window)) - _length(_union(compute, window))

    def communication_in(self, groups: str = "") -> float:
        """Microseconds of communication over groups whose names begin with ``groups``."""
        sent = [p for p in self.placed if p.task.kind == "collective" and p.task.group.startswith(groups)]
        return _length(_union(sent, (self.begin, self.end)))

    @property
    def communication_us(self) -> float:
        return self.communication_in()


Interval = tuple[float, float]


def steady(tasks: Sequence[Task], machine: Machine, outputs: Outputs | None = None, turns: int = 4) -> HostTime:
    """The program in a row of its like, as layers follow one another: the window of the last of ``turns`` turns.

    The window runs from the end of the last device work of the turn before to that of the last turn, so that what one
    turn leaves to the next (a host that is ahead, or behind) is counted. The next turn reads the tasks ``outputs``.
    """
    placed = simulate(repeated(tasks, turns, outputs or {}), machine)
    size = len(tasks)
    ends = [max((p.end for p in placed[: size * k] if _works(p)), default=0.0) for k in range(turns + 1)]
    return measured(placed, ends[turns - 1], ends[turns], size * (turns - 1), machine.latency_us)


def alone(tasks: Sequence[Task], machine: Machine) -> HostTime:
    """The program once, from the start of the first device work to the end of the last."""
    placed = simulate(tasks, machine)
    work = [p for p in placed if _works(p)]
    begin, end = min((p.start for p in work), default=0.0), max((p.end for p in work), default=0.0)
    return measured(placed, begin, end, 0, machine.latency_us)


def measured(placed: Sequence[Placed], begin: float, end: float, first: int, latency: float) -> HostTime:
    """Idle time in a window; ``first`` is the number of the first task of the turn that it is about, ``latency`` the
    time from an issue to the earliest start.
    """
    idle = _idle(placed, begin, end, latency)
    reads = []
    for p in placed[first:]:
        if p.task.blocks or p.task.awaits is not None:
            cost = sum(i.us for i in idle if i.type == "sync" and (i.blame, i.where) == (p.task.label, p.task.where))
            reads.append(Read(p.task.label, p.task.where, p.waited, cost))
    return HostTime(tuple(placed), begin, end, tuple(idle), tuple(reads))


def _works(p: Placed) -> bool:
    return bool(p.task.stream) and p.task.kind in WORK and p.end > p.start


def _union(placed: Sequence[Placed], window: Interval) -> list[Interval]:
    """The times in which any of these works, as disjoint intervals within the window."""
    found: list[Interval] = []
    for start, end in sorted((p.start, p.end) for p in placed if _works(p)):
        start, end = max(start, window[0]), min(end, window[1])
        if end <= start:
            continue
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def _length(intervals: Sequence[Interval]) -> float:
    return sum(b - a for a, b in intervals)


def _idle(placed: Sequence[Placed], begin: float, end: float, latency: float) -> list[Idle]:
    busy = _union(placed, (begin, end))
    gaps, at = [], begin
    for a, b in busy:
        if a - at > LEAST:
            gaps.append((at, a))
        at = b
    first: dict[float, Placed] = {}
    for p in placed:
        if _works(p):
            first.setdefault(p.start, p)
    return [_blamed(a, b, first[b], placed, latency) for a, b in gaps]


def _blamed(a: float, b: float, ended_by: Placed, placed: Sequence[Placed], latency: float) -> Idle:
    """The idle interval with its type and the op to blame."""
    thread = [p for p in placed if p.task.thread == ended_by.task.thread]
    issued = ended_by.host_end if not ended_by.task.blocks else ended_by.host_end - ended_by.waited
    if b > issued + latency + LEAST:
        return Idle(a, b, "dependency", ended_by.task.label, ended_by.task.where)
    waits = [p for p in thread if p.waited > LEAST and a - LEAST <= _resumed(p) <= issued + LEAST]
    if waits:
        task = max(waits, key=lambda p: (min(p.waited, _resumed(p) - a), _resumed(p))).task
        return Idle(a, b, "sync", task.label, task.where)
    inside = [p for p in thread if p.host_end > a and p.host_start < b]
    task = max(inside, key=lambda p: min(p.host_end, b) - max(p.host_start, a)).task if inside else ended_by.task
    return Idle(a, b, "dispatch", task.label, task.where)


def _resumed(p: Placed) -> float:
    """When the host goes on after its wait in a task."""
    return p.host_end if p.task.blocks else p.host_end - p.task.host_us

"""One core in time: the scalar unit issues in order, each pipe runs its instructions in order, flags order the pipes.

All times are whole cycles. An instruction starts when it has been issued, its pipe is free and the flags its pipe
waited for are raised; it frees its pipe after ``busy`` cycles and its result is usable ``latency`` later. A queue
holds what was issued and has not started; the scalar unit stalls when it is full. Flags take places as well, set or
waited for, with the pipe that is earlier on the way of data (``STAGE``), and barriers with theirs. Copies also need
their share of the pools of device memory: they take what earlier copies have not reserved.

A pipe counts as busy from the start of an instruction until its result is usable, as profilers count it. An
instruction that finds its pipe run dry pays ``cold`` cycles more. A Mmad and a Fixpipe with unit flags hand the tile
over piece by piece: the Fixpipe is taken up at once, works from ``piece`` cycles after the start of the last Mmad on
and ends no earlier than that after its end; a later Mmad does not end before the Fixpipe has. Of a copy that HBM
serves in part, the ``rest`` follows. A write takes its share of HBM but waits for it only as far as that runs
``late`` cycles behind, what the L2 takes in meanwhile; the core has ended when HBM has it all.

Everything later than now can be read off ``canonical()``: the state with times relative to the scalar unit's and what
is past set to 0. Two cores with equal canonical states behave alike from then on, shifted in time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add, sub
from typing import Any

from moec.codegen.kernel_ir import PIPES

QUEUED = PIPES[1:]
"""Pipes with a queue: all but the scalar unit. An index into it names a pipe here."""

POOLS = ("HBM", "L2")
STAGE = (*(("MTE2", "MTE1", "M", "V", "FIX", "MTE3").index(pipe) for pipe in QUEUED), -1)
"""Where a pipe stands on the way of data through a core; the scalar unit (-1) before all."""
_FIX = QUEUED.index("FIX")


@dataclass(frozen=True, slots=True)
class Timed:
    """An instruction as the engine takes it. ``pool`` has the cycles it needs of this core's share of each pool.

    ``counts`` are (counter, amount) pairs added when it is issued. ``piece`` > 0: it hands over by unit flags.
    """

    pipe: int
    busy: int
    latency: int
    pool: tuple[int, int]
    counts: tuple[tuple[int, int], ...]
    label: str = ""
    cold: int = 0
    piece: int = 0
    late: int = 0
    rest: int = 0


class Calendar:
    """Reserved cycles of one core's share of a pool: disjoint intervals in order, touching ones joined."""

    __slots__ = ("starts", "stops")

    def __init__(self, intervals: Sequence[tuple[int, int]] = ()):
        self.starts = [a for a, _ in intervals]
        self.stops = [b for _, b in intervals]

    def reserve(self, at: int, cycles: int) -> int:
        """Takes the first ``cycles`` free cycles from ``at`` on; returns when the last of them ends."""
        if cycles <= 0:
            return at
        starts, stops = self.starts, self.stops
        if not stops or at > stops[-1]:
            starts.append(at)
            stops.append(at + cycles)
            return at + cycles
        i = bisect_right(stops, at)
        first = i
        start = now = at
        left = cycles
        while True:
            if i < len(starts) and starts[i] <= now:
                now = max(now, stops[i])
                start = min(start, starts[i])
                i += 1
                continue
            room = starts[i] - now if i < len(starts) else left
            if room >= left:
                now += left
                break
            left -= room
            now = starts[i]
        while i < len(starts) and starts[i] <= now:
            i += 1
        if first > 0 and stops[first - 1] == start:
            first -= 1
            start = starts[first]
        stop = max(now, stops[i - 1]) if i > first else now
        starts[first:i] = [start]
        stops[first:i] = [stop]
        return now

    def after(self, now: int) -> tuple[tuple[int, int], ...]:
        """Intervals that end after ``now``, relative to it."""
        stops = self.stops
        if not stops or stops[-1] <= now:
            return ()
        i = bisect_right(stops, now)
        return tuple([(a - now if a > now else 0, b - now) for a, b in zip(self.starts[i:], stops[i:], strict=True)])

    def forget(self, now: int) -> None:
        """Drops what ends before ``now``; nothing can start there any more."""
        i = bisect_right(self.stops, now)
        if i:
            del self.starts[:i]
            del self.stops[:i]

    def end(self) -> int:
        """When the last reserved cycle ends."""
        return self.stops[-1] if self.stops else 0


class Deadlock(Exception):
    """A pipe waits for an event that was never raised."""


class Engine:
    """The state of one core. ``counters`` is a flat list that ``Timed.counts`` add to; ``stalls`` are cycles that
    copies waited for each pool beyond their own path; ``handover`` the cycles from a result to the pipe that waits for
    its flag; ``unit`` a piece after start and end of the last Mmad with unit flags, and the end of the last Fixpipe."""

    def __init__(self, depths: Sequence[int], counters: int, handover: int = 0):
        n = len(QUEUED)
        self.depths = list(depths)
        self.handover = handover
        self.now = 0
        self.free = [0] * n
        self.done = [0] * n
        self.queue: list[list[int]] = [[] for _ in range(n)]
        self.flags: dict[tuple[int, int, int], int] = {}
        self.unit = [0, 0, 0]
        self.pools = [Calendar(), Calendar()]
        self.busy = [0] * (n + 1)  # the last is the scalar unit's
        self.stalls = [0] * len(POOLS)
        self.counters = [0] * counters
        self.record: list[tuple[int, int, int, str]] | None = None

    def issue(self, instr: Timed, cycles: int) -> None:
        """The scalar unit spends ``cycles`` and hands ``instr`` to its pipe (-1: executes it itself)."""
        now = self.now + cycles
        self.busy[-1] += cycles
        for counter, amount in instr.counts:
            self.counters[counter] += amount
        pipe = instr.pipe
        if pipe < 0:
            self.now = now
            return
        queue, depth = self.queue[pipe], self.depths[pipe]
        if len(queue) >= depth and queue[0] > now:
            now = queue[0]
        self.now = now
        start = self.free[pipe]
        if start < now:
            start = now
        covered = self.done[pipe]
        work = start
        if instr.piece and pipe == _FIX and self.unit[0] > start:
            work = self.unit[0]
        end = work + instr.busy
        if instr.cold and covered <= start:
            end += instr.cold
        hbm, l2 = instr.pool
        if hbm:
            ready = self.pools[0].reserve(work, hbm) + instr.rest - instr.late
            if ready > end:
                self.stalls[0] += ready - end
                end = ready
        if l2:
            ready = self.pools[1].reserve(work, l2)
            if ready > end:
                self.stalls[1] += ready - end
                end = ready
        if instr.piece:
            end = self._by_pieces(pipe, start, end, instr.piece)
        queue.append(start)
        if len(queue) > depth:
            del queue[0]
        self.free[pipe] = end
        usable = end + instr.latency
        if usable > covered:
            self.busy[pipe] += usable - (start if start > covered else covered)
            self.done[pipe] = usable
        if self.record is not None:
            self.record.append((pipe, start, end, instr.label))

    def _enter(self, pipe: int) -> None:
        """The scalar unit waits until the queue of ``pipe`` has room."""
        queue = self.queue[pipe]
        if len(queue) >= self.depths[pipe] and queue[0] > self.now:
            self.now = queue[0]

    def _leave(self, pipe: int, at: int) -> None:
        """What was handed to ``pipe`` leaves its queue at cycle ``at``."""
        queue = self.queue[pipe]
        queue.append(at)
        if len(queue) > self.depths[pipe]:
            del queue[0]

    def _by_pieces(self, pipe: int, start: int, end: int, piece: int) -> int:
        """The end of an instruction with unit flags, which may not overtake its partner by more than a piece."""
        if pipe == _FIX:
            self.unit[2] = max(end, self.unit[1])
            return self.unit[2]
        end = max(end, self.unit[2])
        self.unit[0], self.unit[1] = start + piece, end + piece
        return end

    def scalar(self, cycles: int) -> None:
        """The scalar unit works for ``cycles``."""
        self.now += cycles
        self.busy[-1] += cycles

    def set_flag(self, src: int, dst: int, event: int) -> None:
        """Raises the event when ``src`` (-1: the scalar unit) has finished what it was given."""
        self.flags[src, dst, event] = self.signal(src, STAGE[src] < STAGE[dst]) + self.handover

    def signal(self, pipe: int, queued: bool = True) -> int:
        """When ``pipe`` (-1: the scalar unit) has finished what it was given. ``queued``: saying so takes a place in
        its queue."""
        if pipe < 0:
            return self.now
        if queued:
            self._enter(pipe)
        at = max(self.now, self.free[pipe])
        if queued:
            self._leave(pipe, at)
        return max(at, self.done[pipe])

    def wait_flag(self, src: int, dst: int, event: int) -> None:
        """``dst`` (-1: the scalar unit) goes on when the event is raised, and takes it down."""
        at = self.flags.pop((src, dst, event), None)
        if at is None:
            raise Deadlock(f"{_name(dst)} waits for event {event} of {_name(src)}, which was not raised")
        if dst < 0:
            self.now = max(self.now, at)
            return
        queued = STAGE[dst] < STAGE[src]
        if queued:
            self._enter(dst)
        if at > self.free[dst]:
            self.free[dst] = at
        if queued:
            self._leave(dst, max(self.now, self.free[dst]))

    def barrier(self, pipe: int) -> None:
        """Later instructions of ``pipe`` start after the results of earlier ones; -1: all pipes and the scalar unit."""
        if pipe < 0:
            self.idle()
            return
        self._enter(pipe)
        self.free[pipe] = max(self.free[pipe], self.done[pipe])
        self._leave(pipe, max(self.now, self.free[pipe]))

    def idle(self) -> int:
        """The scalar unit waits for every pipe to finish; returns when."""
        self.now = max(self.now, *self.done, *self.free)
        return self.now

    def end(self) -> int:
        """When everything issued so far is finished, and what it wrote is where it belongs."""
        return max(self.now, *self.done, *self.free, *(pool.end() for pool in self.pools))

    def canonical(self) -> tuple[Any, ...]:
        """The state relative to ``now``; what can no longer matter is 0 or left out."""
        now = self.now
        flags = [(k, t - now if t > now else 0) for k, t in self.flags.items()]
        flags.sort()
        return (
            tuple([t - now if t > now else 0 for t in (*self.free, *self.done, *self.unit)]),
            tuple([tuple([t - now for t in q if t > now]) if q and q[-1] > now else () for q in self.queue]),
            tuple(flags),
            self.pools[0].after(now),
            self.pools[1].after(now),
        )

    def restore(self, state: tuple[Any, ...]) -> None:
        """Takes on a canonical state at the present ``now``; counters stay."""
        now = self.now
        times, queues, flags, hbm, l2 = state
        n = len(self.free)
        at = [now + t for t in times]
        self.free, self.done, self.unit = at[:n], at[n : 2 * n], at[2 * n :]
        self.queue = [[now + t for t in q] if q else [] for q in queues]
        self.flags = {k: now + t for k, t in flags}
        self.pools = [Calendar([(now + a, now + b) for a, b in pool]) for pool in (hbm, l2)]

    def totals(self) -> list[int]:
        """All counters in one list: busy per pipe, stalls per pool, then the instruction counters."""
        return [*self.busy, *self.stalls, *self.counters]

    def since(self, before: Sequence[int]) -> list[int]:
        """What was added to ``totals`` since they were ``before``."""
        return list(map(sub, self.totals(), before))

    def add(self, totals: Sequence[int], times: int) -> None:
        """Adds ``times`` times a difference of ``totals``."""
        if times != 1:
            totals = [times * b for b in totals]
        n = len(self.busy)
        self.busy = list(map(add, self.busy, totals))
        self.stalls = list(map(add, self.stalls, totals[n : n + len(POOLS)]))
        if self.counters:
            self.counters = list(map(add, self.counters, totals[n + len(POOLS) :]))


def _name(pipe: int) -> str:
    return "the scalar unit" if pipe < 0 else f"pipe {QUEUED[pipe]}"

"""A plan: the fate of every tensor that a chunk saves, and the order of events that it comes to."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from moec.memory.problem import KEEP, RECOMPUTE, SWAP, Problem


@dataclass(frozen=True)
class Choice:
    """Which forward tensors stay (``kept``), which go to the host and come back (``swapped``), and which forward steps
    run again in backward (``again``, ascending).
    """

    kept: frozenset[int]
    swapped: frozenset[int]
    again: frozenset[int]

    def fate(self, v: int) -> str:
        """``keep``, ``swap`` or ``recompute``."""
        return KEEP if v in self.kept else SWAP if v in self.swapped else RECOMPUTE


@dataclass(frozen=True)
class Event:
    """``run`` and ``again`` (a forward step a second time) name a step; ``free``, ``out`` (copy to the host, then
    free) and ``in`` (room, then copy back) name a tensor.
    """

    what: str
    index: int


@dataclass(frozen=True)
class Plan:
    """The events of a chunk's forward and backward. Between two backwards another chunk runs forward; ``ahead`` are the
    copies back that are issued that early, where the backward itself is too short for them.
    """

    forward: tuple[Event, ...]
    backward: tuple[Event, ...]
    ahead: tuple[tuple[int, int], ...] = ()
    """(position, tensor): the position counts the compute events of the backward before, then of the forward."""


def pruned(problem: Problem, choice: Choice) -> Choice:
    """The choice without second runs that nobody reads and without tensors that wait for nobody, or that a second run
    makes anyway, beside another that is wanted.
    """
    wanted = set(problem.needed)
    stays = choice.kept | choice.swapped
    again: set[int] = set()
    stack = list(wanted)
    while stack:
        v = stack.pop()
        n = problem.producer.get(v)
        if v in stays or n is None or n not in choice.again or n in again:
            continue
        again.add(n)
        new = [r for r in problem.forward[n].reads if r not in wanted]
        wanted.update(new)
        stack += new
    wanted -= {v for n in again for v in problem.forward[n].writes}
    return Choice(choice.kept & wanted, choice.swapped & wanted, frozenset(again))


def everything_kept(problem: Problem) -> Choice:
    """The plan of a framework without one: what backward reads stays."""
    return Choice(frozenset(problem.needed), frozenset(), frozenset())


def check_choice(problem: Problem, choice: Choice) -> list[str]:
    """What is wrong with a choice: a tensor that backward or a recomputation reads and that is nowhere, a step that
    may not run again.
    """
    wrong = []
    given = set(problem.given)
    here = given | choice.kept | choice.swapped | {v for n in choice.again for v in problem.forward[n].writes}
    name = [t.name for t in problem.tensors]
    wrong += [f"{name[v]} is both kept and swapped" for v in sorted(choice.kept & choice.swapped)]
    wrong += [f"backward reads {name[v]}, which is nowhere" for v in problem.needed if v not in here]
    for n in sorted(choice.again):
        step = problem.forward[n]
        if n not in problem.recomputable:
            wrong.append(f"{step.name} may not run again: {problem.why_fixed(step.writes[0])}")
        wrong += [f"{step.name} runs again and reads {name[v]}, which is nowhere" for v in step.reads if v not in here]
    return wrong


def order(problem: Problem, choice: Choice) -> Plan:
    """The events of a choice: every recomputation right before its first reader, every copy out behind the last reader
    in forward, every copy back in time for its first reader if the copy stream allows, everything freed behind its
    last reader. ValueError where the choice is wrong.
    """
    if wrong := check_choice(problem, choice):
        raise ValueError("; ".join(wrong))
    forward = _forward(problem, choice)
    runs = _with_recomputation(problem, choice)
    ins, ahead = _copies_back(problem, choice, runs)
    return Plan(forward, _with_frees(problem, choice, runs, ins), ahead)


def _forward(problem: Problem, choice: Choice) -> tuple[Event, ...]:
    last: dict[int, int] = {}
    for i, step in enumerate(problem.forward):
        for v in (*step.reads, *step.writes):
            last[v] = i
    events: list[Event] = []
    dying: dict[int, list[int]] = {}
    for v in problem.producer:
        if v not in choice.kept:
            dying.setdefault(last[v], []).append(v)
    for i in range(len(problem.forward)):
        events.append(Event("run", i))
        events += [Event("out" if v in choice.swapped else "free", v) for v in dying.get(i, ())]
    return tuple(events)


def _with_recomputation(problem: Problem, choice: Choice) -> list[Event]:
    """Backward's runs with each recomputation, and what it needs, right before the first run that reads it."""
    events: list[Event] = []
    done: set[int] = set()
    stays = choice.kept | choice.swapped

    def provide(v: int) -> None:
        stack = [v]
        while stack:
            w = stack[-1]
            n = problem.producer.get(w)
            if n is None or n in done or w in stays:
                stack.pop()
                continue
            waiting = [
                r
                for r in problem.forward[n].reads
                if r not in stays and problem.producer.get(r) is not None and problem.producer[r] not in done
            ]
            if waiting:
                stack += reversed(waiting)
            else:
                stack.pop()
                done.add(n)
                events.append(Event("again", n))

    for i, step in enumerate(problem.backward):
        for v in step.reads:
            provide(v)
        events.append(Event("run", i))
    return events


def step_of(problem: Problem, event: Event) -> tuple[float, tuple[int, ...], tuple[int, ...]]:
    """Time, reads and writes of a compute event of backward."""
    step = problem.forward[event.index] if event.what == "again" else problem.backward[event.index]
    return step.us, step.reads, step.writes


def _copies_back(
    problem: Problem, choice: Choice, runs: list[Event]
) -> tuple[Mapping[int, list[int]], tuple[tuple[int, int], ...]]:
    """For each position in ``runs`` the tensors whose copy back is issued before it, and those issued in the backward
    before. Each copy starts as late as it may; the copy stream is one queue.
    """
    need: dict[int, tuple[int, float]] = {}
    starts, now = [], 0.0
    for position, event in enumerate(runs):
        us, reads, _ = step_of(problem, event)
        starts.append(now)
        for v in reads:
            if v in choice.swapped:
                need.setdefault(v, (position, now))
        now += us
    latest = float("inf")
    begin: dict[int, float] = {}
    for v, (_, when) in sorted(need.items(), key=lambda item: (-item[1][1], -item[0])):
        latest = min(latest, when) - problem.copy_us(v)
        begin[v] = latest
    inside: dict[int, list[int]] = {}
    ahead: list[tuple[int, int]] = []
    period = [*starts, *(now + t for t in _starts(problem))]
    length = now + problem.forward_us
    for v in sorted(need, key=lambda v: (begin[v], v)):
        if begin[v] < 0 and problem.in_flight > 1:
            ahead.append((_position(period, length + begin[v]), v))
        else:
            inside.setdefault(min(_position(starts, begin[v]), need[v][0]), []).append(v)
    return inside, tuple(ahead)


def _starts(problem: Problem) -> list[float]:
    starts, now = [], 0.0
    for step in problem.forward:
        starts.append(now)
        now += step.us
    return starts


def _position(starts: list[float], when: float) -> int:
    """The last event that starts no later than ``when``."""
    return max(0, bisect_right(starts, when) - 1)


def _with_frees(problem: Problem, choice: Choice, runs: list[Event], ins: Mapping[int, list[int]]) -> tuple[Event, ...]:
    last: dict[int, int] = {}
    for position, event in enumerate(runs):
        _, reads, writes = step_of(problem, event)
        for v in (*reads, *writes):
            last[v] = position
    given = set(problem.given)
    dying: dict[int, list[int]] = {}
    for v, position in last.items():
        if v not in given:
            dying.setdefault(position, []).append(v)
    unread = [v for v in sorted(choice.kept | choice.swapped) if v not in last]
    events = [Event("free", v) for v in unread if v in choice.kept]
    for position, event in enumerate(runs):
        events += [Event("in", v) for v in ins.get(position, ())]
        events.append(event)
        events += [Event("free", v) for v in sorted(dying.get(position, ()))]
    return tuple(events)

"""The choice with the least added time under a memory limit, as a mixed-integer program that HiGHS solves.

For every forward tensor v that backward or a second run may read: k_v (kept), s_v (swapped); for every forward step n:
r_n (runs again). What backward reads is kept, swapped or written by a step that runs again, and what such a step reads
likewise: k_v + s_v + r_p(v) >= 1, and >= r_n for each v that n reads. Chains come out by themselves. With whole k and
s the least r is whole too; declared so, HiGHS closes in a second what it does not in a minute otherwise.

Least sum of r_n us_n + e, where e is what the copies of a period take beyond its compute: the link is one queue each
way. Memory: a row for each step at which a card may be fullest. All chunks but the one that runs hold what they keep;
that one holds what it keeps and has not read yet, and, whatever the fate of a tensor, from its first reader to its last
what is read. A step that runs again has its operands, results and workspace there. What copies have not taken away by
the end of a pipeline's warm-up is there besides. Left out is what chains of second runs hold together and when copies
back come, so that no plan of a less limit adds less than the bound.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from moec.memory.plan import Choice, everything_kept, pruned
from moec.memory.problem import Problem, Step

GAP = 0.0005
"""Share of a period within which an optimum is close enough, where there are more than ``FEW`` tensors."""

FEW = 12
"""Tensors up to which the optimum itself is looked for."""

MOMENTS = 16
"""Steps of each side that get a row: those at which most is there whatever is kept."""

TIE = 1e-5
"""A swap costs this share of its copy's time, so that nothing is swapped for nothing."""


@dataclass
class _Rows:
    """Rows ``terms >= least`` over numbered columns."""

    starts: list[int] = field(default_factory=lambda: [0])
    columns: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    least: list[float] = field(default_factory=list)

    def add(self, terms: Iterable[tuple[int, float]], least: float) -> None:
        """One row; each column at most once."""
        for column, weight in terms:
            self.columns.append(column)
            self.weights.append(weight)
        self.starts.append(len(self.columns))
        self.least.append(least)

    def constraint(self, columns: int) -> LinearConstraint:
        """All rows."""
        shape = len(self.least), columns
        return LinearConstraint(csr_array((self.weights, self.columns, self.starts), shape=shape), self.least, np.inf)


@dataclass(frozen=True)
class Moment:
    """A step at which a card may be fullest: ``bytes`` that the running chunk holds there whatever is planned, and the
    tensors ``held`` of which it holds those that are kept.
    """

    bytes: int
    held: tuple[int, ...]


def least_time(problem: Problem, limit: int, seconds: float, cautious: bool = False) -> tuple[Choice, float] | None:
    """The best choice that fits into ``limit`` bytes besides what is fixed, and the solver's lower bound of added
    microseconds; None where there is none. ``cautious`` hides copies behind forward and backward apart, for which no
    plan is needed that is ahead of its time.
    """
    if limit < 0:
        return None
    tensors, swaps = list(problem.candidates), problem.pcie > 0
    if not tensors:
        return everything_kept(problem), 0.0
    steps = sorted(problem.recomputable)
    kept = {v: i for i, v in enumerate(tensors)}
    swapped = {v: len(tensors) + i for i, v in enumerate(tensors)} if swaps else {}
    again = {n: len(kept) + len(swapped) + i for i, n in enumerate(steps)}
    exposed, backlog, period = (len(kept) + len(swapped) + len(again) + i for i in range(3))
    rows = _Rows()
    _sources(problem, rows, kept, swapped, again)
    _memory(problem, rows, kept, swapped, backlog, limit)
    _second_runs(problem, rows, kept, again, limit)
    if swaps:
        _time(problem, rows, swapped, again, exposed, cautious)
    cost = np.zeros(period + 1)
    cost[list(again.values())] = [problem.forward[n].us for n in steps]
    cost[exposed] = 1.0
    tie = cost.copy()
    tie[list(swapped.values())] += [TIE * problem.copy_us(v) for v in swapped]
    # a gap is a share of the objective, and is to be one of the period: so that counts as well
    tie[period] = problem.us
    integral = np.zeros(period + 1, np.uint8)
    integral[:exposed] = 1
    lower, upper = np.zeros(period + 1), np.ones(period + 1)
    upper[exposed] = upper[backlog] = np.inf
    lower[period] = 1.0
    with _quiet():
        found = milp(
            tie,
            integrality=integral,
            bounds=Bounds(lower, upper),
            constraints=rows.constraint(period + 1),
            options={"time_limit": seconds, "mip_rel_gap": 1e-7 if len(tensors) <= FEW else GAP},
        )
    if found.x is None:
        return None
    on = found.x > 0.5
    keeps = frozenset(v for v, c in kept.items() if on[c])
    choice = Choice(keeps, frozenset(v for v, c in swapped.items() if on[c] and v not in keeps), problem.recomputable)
    dual = found.mip_dual_bound if found.mip_dual_bound is not None else found.fun
    ties = TIE * sum(problem.copy_us(v) for v in swapped)
    return pruned(problem, choice), max(0.0, float(dual) - problem.us - ties)


@contextmanager
def _quiet() -> Iterator[None]:
    """HiGHS writes a line to the process's standard output here and there, whatever it is told."""
    sys.stdout.flush()
    own = os.dup(1)
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
        yield
    finally:
        os.dup2(own, 1)
        os.close(own)


def _sources(
    problem: Problem, rows: _Rows, kept: dict[int, int], swapped: dict[int, int], again: dict[int, int]
) -> None:
    """What is read is there."""

    def there(v: int) -> list[tuple[int, float]]:
        columns = [kept[v], swapped.get(v), again.get(problem.producer[v])]
        return [(c, 1.0) for c in columns if c is not None]

    for v in problem.needed:
        rows.add(there(v), 1.0)
    for n, column in again.items():
        for v in dict.fromkeys(problem.forward[n].reads):
            if v in problem.producer:
                rows.add([*there(v), (column, -1.0)], 0.0)


def _memory(
    problem: Problem, rows: _Rows, kept: dict[int, int], swapped: dict[int, int], backlog: int, limit: int
) -> None:
    """What is held at each moment fits; in units of the largest tensor. So does the host's share."""
    size = {v: problem.tensors[v].bytes for v in kept}
    unit = float(max(1, *size.values()))
    many = problem.in_flight
    full = [(c, -many * size[v] / unit) for v, c in kept.items()]
    rows.add([*full, (backlog, -float(many))], -limit / unit)
    for moment in (*_records(backward_moments(problem)), *_records(forward_moments(problem)[::-1])):
        running = {kept[v] for v in moment.held}
        terms = [(c, -(many - 1 + (c in running)) * size[v] / unit) for v, c in kept.items()]
        rows.add([(c, w) for c, w in terms if w], (moment.bytes - limit) / unit)
    if swapped:
        parked = [(c, -size[v] / unit) for v, c in swapped.items()]
        rows.add([(c, many * w) for c, w in parked], -problem.host_bytes / unit)
        rows.add([*parked, (backlog, 1.0)], -problem.pcie * problem.forward_us / unit)


def _second_runs(problem: Problem, rows: _Rows, kept: dict[int, int], again: dict[int, int], limit: int) -> None:
    """A step that runs again has what it reads, writes and needs besides there at once: those that need most."""
    unit = float(max(1, *(problem.tensors[v].bytes for v in kept)))
    given = set(problem.given)

    def needs(n: int) -> int:
        step = problem.forward[n]
        there = sum(problem.tensors[v].bytes for v in {*step.reads, *step.writes} - given)
        return there + step.workspace

    others = [(c, -(problem.in_flight - 1) * problem.tensors[v].bytes / unit) for v, c in kept.items()]
    for n in sorted(again, key=lambda n: (-needs(n), n))[:MOMENTS]:
        rows.add([*((c, w) for c, w in others if w), (again[n], -needs(n) / unit)], -limit / unit)


def _time(
    problem: Problem, rows: _Rows, swapped: dict[int, int], again: dict[int, int], exposed: int, cautious: bool
) -> None:
    """What copies take beyond the compute that hides them."""
    copies = [(c, -problem.copy_us(v)) for v, c in swapped.items()]
    longer = [(c, problem.forward[n].us) for n, c in again.items()]
    hidden = problem.us if problem.in_flight > 1 and not cautious else problem.backward_us
    rows.add([(exposed, 1.0), *copies, *longer], -hidden)
    if cautious:
        rows.add([(exposed, 1.0), *copies], -problem.forward_us)


def backward_moments(problem: Problem) -> list[Moment]:
    """One for each backward step."""
    first, last = _span(problem.backward)
    unread = sorted(problem.needed, key=first.__getitem__)
    outside = {*problem.producer, *problem.given}
    opens: dict[int, list[int]] = {}
    closes: dict[int, list[int]] = {}
    for v in (*problem.needed, *(v for v in last if v not in outside)):
        opens.setdefault(first[v], []).append(v)
        closes.setdefault(last[v], []).append(v)
    found, here, read = [], 0, 0
    for i, step in enumerate(problem.backward):
        here += sum(problem.tensors[v].bytes for v in opens.get(i, ()))
        read += sum(v in problem.producer for v in opens.get(i, ()))
        found.append(Moment(here + step.workspace, tuple(unread[read:])))
        here -= sum(problem.tensors[v].bytes for v in closes.get(i, ()))
    return found


def forward_moments(problem: Problem) -> list[Moment]:
    """One for each forward step."""
    _, last = _span(problem.forward)
    over = set(problem.candidates)
    found, here = [], 0
    closes: dict[int, list[int]] = {}
    held: tuple[int, ...] = ()
    for i, step in enumerate(problem.forward):
        for v in step.writes:
            here += problem.tensors[v].bytes
            closes.setdefault(last[v], []).append(v)
        found.append(Moment(here + step.workspace, held))
        gone = closes.get(i, ())
        here -= sum(problem.tensors[v].bytes for v in gone)
        held = (*held, *(v for v in gone if v in over))
    return found


def _span(steps: Sequence[Step]) -> tuple[dict[int, int], dict[int, int]]:
    """The first and the last step that reads or writes each tensor."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for i, step in enumerate(steps):
        for v in (*step.reads, *step.writes):
            first.setdefault(v, i)
            last[v] = i
    return first, last


def _records(moments: Sequence[Moment]) -> list[Moment]:
    """The moments that no earlier one exceeds (which holds no less of what is kept), at most ``MOMENTS``: the fullest
    ones.
    """
    found: list[Moment] = []
    for moment in moments:
        if not found or moment.bytes > found[-1].bytes:
            found.append(moment)
    return found[-MOMENTS:]

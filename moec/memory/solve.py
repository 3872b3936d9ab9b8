"""The choice with the least added time under a memory limit: exactly, as a mixed-integer program, or greedily.

For every forward tensor v that a reader of backward may need: k_v (kept), s_v (swapped), and for every forward step n:
r_n (runs again). What backward reads is kept, swapped or written by a step that runs again, and what such a step reads
likewise: k_v + s_v + r_p(v) >= 1, and >= r_n for each v that n reads. Chains of recomputation come out by themselves.
Least sum of r_n us_n + e, where e is what copies take beyond the compute that hides them: those out beyond forward
(in the warm-up of a pipeline one forward follows another), those back beyond backward.
Solved by HiGHS (scipy.optimize.milp). What the program does not see (what lives only within forward or backward, and
copies under way) replay measures; the limit is then tightened by what the peak is above it.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from moec.diagnostics import Refusal
from moec.memory.plan import Choice, Plan, everything_kept, order, pruned
from moec.memory.problem import RECOMPUTE, SWAP, Problem
from moec.memory.replay import Outcome, replay

CLOSE = 0.002
"""A plan whose added time is this share of a period above the bound, or less, is taken."""

COPY_US = 10.0
"""Microseconds that the copy stream loses to one copy, whatever its size (assumed): few large copies beat many."""

TRIES = 12
"""How many limits are tried before a budget is called unreachable."""


@dataclass(frozen=True)
class Solved:
    """A plan that keeps the budget in replay. ``added_us`` a period over the plan that keeps everything;
    ``bound_us``: no plan adds less, by the solver's dual bound (0 for the greedy one: unknown).
    """

    choice: Choice
    plan: Plan
    outcome: Outcome
    added_us: float
    bound_us: float


def plan_memory(problem: Problem, budget: int, exact: bool = True, seconds: float = 60.0) -> Solved:
    """The plan of least added time whose replayed peak is at most ``budget`` bytes. Refusal where there is none, with
    the least peak that was found. ``seconds`` limits the solver; what it then has is taken, with its bound.
    """
    fixed = sum(problem.fixed_bytes.values())
    search = _Bracket(0, budget - fixed)
    bound, best, least = None, None, None
    while (limit := search.next()) is not None:
        found = least_time(problem, limit, seconds) if exact else greedy(problem, limit)
        if found is None:
            search.too_little(limit)
            if bound is None:
                break
            continue
        choice, dual = pruned(problem, found[0]), found[1]
        bound = dual if bound is None else bound
        plan = order(problem, choice)
        outcome = replay(problem, plan)
        least = outcome.peak_bytes if least is None else min(least, outcome.peak_bytes)
        if outcome.peak_bytes > budget or outcome.host_bytes > problem.host_bytes:
            search.too_much(min(limit, _held(problem, choice)), outcome.peak_bytes - budget)
            continue
        added = max(0.0, outcome.period_us - problem.us)
        if best is None or added < best.added_us:
            best = Solved(choice, plan, outcome, added, bound)
        if exact and best.added_us - bound <= CLOSE * problem.us:
            break
        search.too_little(limit)
    if best is None:
        raise _unreachable(problem, budget, least)
    return best


@dataclass
class _Bracket:
    """Looks for the largest limit on kept bytes whose plan keeps the budget once what is under way is counted too."""

    low: int
    high: int
    tried: int = 0
    guess: int | None = None
    step: int = 0
    """How far the next guess goes down: twice as far each time that was not enough."""

    def next(self) -> int | None:
        """The next limit to try; None where it is known well enough."""
        if self.tried == 0:
            self.guess = self.high
        elif self.high - self.low <= max(self.high // 256, 1) or self.tried >= TRIES:
            return None
        elif self.guess is None or not self.low < self.guess < self.high:
            self.guess = (self.low + self.high) // 2
        self.tried += 1
        guess, self.guess = self.guess, None
        return guess

    def too_much(self, held: int, over: int) -> None:
        """A plan that holds ``held`` bytes is ``over`` the budget."""
        self.high = held
        self.step = max(2 * self.step, over)
        self.guess = held - self.step

    def too_little(self, limit: int) -> None:
        """A limit that may be raised, or under which there is no plan."""
        self.low = limit


def _unreachable(problem: Problem, budget: int, best: int | None) -> Refusal:
    fixed = ", ".join(f"{name} {_size(n)}" for name, n in problem.fixed_bytes.items())
    least = f"; the least peak that a plan reached is {_size(best)}" if best is not None else ""
    what = f"no plan keeps the peak within {_size(budget)} ({fixed or 'nothing'} fixed){least}"
    return Refusal(what, todo="give a larger --budget, more host memory, or split the model over more cards")


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


def _held(problem: Problem, choice: Choice) -> int:
    return problem.in_flight * sum(problem.tensors[v].bytes for v in choice.kept)


def least_time(problem: Problem, limit: int, seconds: float) -> tuple[Choice, float] | None:
    """The best choice that keeps at most ``limit`` bytes over all chunks, and the solver's lower bound; None where
    there is none.
    """
    if limit < 0:
        return None
    tensors = list(problem.candidates)
    steps = [i for i in range(len(problem.forward)) if i in problem.recomputable]
    column = {("k", v): i for i, v in enumerate(tensors)}
    column |= {("s", v): len(tensors) + i for i, v in enumerate(tensors)}
    column |= {("r", n): 2 * len(tensors) + i for i, n in enumerate(steps)}
    exposed = len(column)
    size = np.array([problem.tensors[v].bytes for v in tensors], float)
    rows: list[tuple[int, int, float]] = []
    least: list[float] = []

    def at_least(terms: list[tuple[int, float]], value: float) -> None:
        rows.extend((len(least), c, w) for c, w in terms)
        least.append(value)

    def sources(v: int) -> list[tuple[int, float]]:
        again = [(column["r", problem.producer[v]], 1.0)] if ("r", problem.producer[v]) in column else []
        return [(column["k", v], 1.0), (column["s", v], 1.0), *again]

    for v in problem.needed:
        at_least(sources(v), 1.0)
    for n in steps:
        for v in problem.forward[n].reads:
            if v in problem.producer:
                at_least([*sources(v), (column["r", n], -1.0)], 0.0)
    scale = max(1.0, float(size.max(initial=1.0)))
    at_least(
        [(column["k", v], -problem.in_flight * b / scale) for v, b in zip(tensors, size, strict=True)], -limit / scale
    )
    if problem.pcie > 0:
        at_least(
            [(column["s", v], -problem.in_flight * b / scale) for v, b in zip(tensors, size, strict=True)],
            -problem.host_bytes / scale,
        )
        copies = [(column["s", v], -(b / problem.pcie + COPY_US)) for v, b in zip(tensors, size, strict=True)]
        longer = [(column["r", n], problem.forward[n].us) for n in steps]  # recomputation lengthens backward
        at_least([(exposed, 1.0), *copies], -sum(s.us for s in problem.forward))
        at_least([(exposed, 1.0), *copies, *longer], -sum(s.us for s in problem.backward))
    cost = np.zeros(exposed + 1)
    for n in steps:
        cost[column["r", n]] = problem.forward[n].us
    cost[exposed] = 1.0
    upper = np.ones(exposed + 1)
    upper[exposed] = np.inf
    if problem.pcie <= 0:
        upper[len(tensors) : 2 * len(tensors)] = 0
    if not tensors:
        return everything_kept(problem), 0.0
    r, c, w = zip(*rows, strict=True)
    matrix = coo_array((w, (r, c)), shape=(len(least), exposed + 1)).tocsr()
    integral = np.ones(exposed + 1, np.uint8)
    integral[exposed] = 0
    tie = cost.copy()
    tie[: len(tensors)] += 1e-6 * size / scale
    tie[len(tensors) : 2 * len(tensors)] += 2e-6 * size / scale + 1e-3
    found = milp(
        tie,
        integrality=integral,
        bounds=Bounds(np.zeros(exposed + 1), upper),
        constraints=LinearConstraint(matrix, np.array(least), np.inf),
        options={"time_limit": seconds, "mip_rel_gap": 1e-4},
    )
    if found.x is None:
        return None
    on = found.x > 0.5
    choice = Choice(
        frozenset(v for v in tensors if on[column["k", v]]),
        frozenset(v for v in tensors if on[column["s", v]] and not on[column["k", v]]),
        frozenset(n for n in steps if on[column["r", n]]),
    )
    dual = found.mip_dual_bound if found.mip_dual_bound is not None else found.fun
    return choice, max(0.0, float(dual) - float((tie - cost) @ np.where(tie > cost, 1.0, 0.0)))


def greedy(problem: Problem, limit: int) -> tuple[Choice, float] | None:
    """A choice by repeatedly dropping or swapping what adds least time per byte; None where that does not reach
    ``limit``. The fast one, for sweeps: what a move costs is asked again only when its turn comes.
    """
    choice, room = everything_kept(problem), sum(s.us for s in problem.forward)
    queue = [m for v in sorted(choice.kept) for m in _moves(problem, choice, v, room)]
    heapify(queue)
    while _held(problem, choice) > limit:
        if not queue:
            return None
        was, v, how = heappop(queue)
        if v not in choice.kept:
            continue
        now = next((m for m in _moves(problem, choice, v, room) if m[2] == how), None)
        if now is None:
            continue
        if now[0] > was and queue and now > queue[0]:
            heappush(queue, now)
            continue
        made = _moved(problem, choice, v, how)
        assert made is not None
        room -= problem.tensors[v].bytes / problem.pcie if how == SWAP else 0.0
        choice = made
    return choice, 0.0


def _moves(problem: Problem, choice: Choice, v: int, room: float) -> list[tuple[float, int, str]]:
    """Ways to stop keeping ``v``: (microseconds a byte, tensor, how). ``room`` is what the copy stream has left."""
    size = problem.tensors[v].bytes
    moves = []
    dropped = _moved(problem, choice, v, RECOMPUTE)
    if dropped is not None:
        moves.append((sum(problem.forward[n].us for n in dropped.again - choice.again) / max(size, 1), v, RECOMPUTE))
    on_host = problem.in_flight * (size + sum(problem.tensors[w].bytes for w in choice.swapped))
    if problem.pcie > 0 and on_host <= problem.host_bytes:
        exposed = max(0.0, size / problem.pcie + COPY_US - max(room, 0.0))
        moves.append((exposed / max(size, 1), v, SWAP))
    return moves


def _moved(problem: Problem, choice: Choice, v: int, how: str) -> Choice | None:
    """``choice`` with ``v`` swapped or recomputed; None where it may not be."""
    kept = choice.kept - {v}
    if how == SWAP:
        return Choice(kept, choice.swapped | {v}, choice.again)
    return _completed(problem, Choice(kept, choice.swapped, choice.again), v)


def _completed(problem: Problem, choice: Choice, v: int) -> Choice | None:
    """``choice`` with every step that must run again so that ``v`` is there for whoever reads it; None where one may
    not.
    """
    if v not in problem.needed and not any(v in problem.forward[n].reads for n in choice.again):
        return choice
    again = set(choice.again)
    stays = choice.kept | choice.swapped
    stack = [v]
    while stack:
        w = stack.pop()
        n = problem.producer.get(w)
        if n is None or w in stays or n in again:
            continue
        if n not in problem.recomputable:
            return None
        again.add(n)
        stack += problem.forward[n].reads
    return Choice(choice.kept, choice.swapped, frozenset(again))

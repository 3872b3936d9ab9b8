"""The plan of least added time whose replayed peak keeps a budget.

A choice comes from the mixed-integer program of ``moec.memory.program`` or from the greedy search; its plan is
replayed, and where that shows more than the budget (second runs, copies under way), a little more is dropped, or the
limit is tightened by as much.
"""

from __future__ import annotations

from dataclasses import dataclass

from moec.diagnostics import Refusal
from moec.memory.greedy import greedy, held
from moec.memory.plan import Choice, Plan, everything_kept, order, pruned
from moec.memory.problem import Problem
from moec.memory.program import least_time
from moec.memory.replay import Outcome, replay

CLOSE = 0.002
"""A plan whose added time is this share of a period above the bound, or less, is taken."""

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
    """The plan of least added time whose replayed peak is at most ``budget`` bytes. Refusal where there is none.
    ``seconds`` limits each call of the solver; what it then has is taken, with its bound.
    """
    whole = _tried(problem, everything_kept(problem), 0.0)
    if _fits(problem, whole, budget):
        return whole
    search = _Search(problem, budget, exact, seconds)
    search.run()
    if search.best is None:
        fixed = ", ".join(f"{name} {size(n)}" for name, n in problem.fixed_bytes.items() if n)
        todo = "give a larger budget, more host memory, or split the model over more cards"
        raise Refusal(f"no plan keeps the peak within {size(budget)} ({fixed or 'nothing'} fixed)", todo=todo)
    return search.best


def _tried(problem: Problem, choice: Choice, bound: float) -> Solved:
    """A choice as it replays."""
    plan = order(problem, choice)
    outcome = replay(problem, plan)
    return Solved(choice, plan, outcome, max(0.0, outcome.period_us - problem.us), bound)


def _fits(problem: Problem, solved: Solved, budget: int) -> bool:
    return solved.outcome.peak_bytes <= budget and solved.outcome.host_bytes <= problem.host_bytes


@dataclass
class _Search:
    """Tries limits until a plan is close to the bound."""

    problem: Problem
    budget: int
    exact: bool
    seconds: float
    best: Solved | None = None
    bound: float = 0.0

    def run(self) -> None:
        room = self.budget - sum(self.problem.fixed_bytes.values())
        if not self.exact:
            self._down(room, False)
            return
        found = least_time(self.problem, room, self.seconds)
        if found is None:
            return
        self.bound = found[1]
        self._down(room, False, found[0])
        if not self._is_close():
            self._down(room, True)

    def _is_close(self) -> bool:
        return self.best is not None and self.best.added_us - self.bound <= CLOSE * self.problem.us

    def _down(self, room: int, cautious: bool, choice: Choice | None = None) -> None:
        """Look for the largest limit whose plan keeps the budget, from ``room`` on; ``choice`` is that of ``room``."""
        search = _Bracket(0, room)
        while (limit := search.next()) is not None:
            choice = choice or self._choose(limit, cautious)
            if choice is None:
                search.too_little(limit)
                if limit == room:
                    return
                continue
            tried, choice = self._try(choice), None
            over = tried.outcome.peak_bytes - self.budget
            if not _fits(self.problem, tried, self.budget):
                used = held(self.problem, tried.choice)
                search.too_much(limit if self.exact else min(limit, used), over)
                repaired = greedy(self.problem, used - over, tried.choice) if self.exact else None
                if repaired is not None:
                    self._try(pruned(self.problem, repaired))
            else:
                search.too_little(limit)
            if self.exact and (self._is_close() or self._waits(tried)):
                return

    def _try(self, choice: Choice) -> Solved:
        """A choice as it replays, which is the best from now on where it is."""
        tried = _tried(self.problem, choice, self.bound)
        if _fits(self.problem, tried, self.budget) and (self.best is None or tried.added_us < self.best.added_us):
            self.best = tried
        return tried

    def _choose(self, limit: int, cautious: bool) -> Choice | None:
        if self.exact:
            found = least_time(self.problem, limit, self.seconds, cautious)
            return found[0] if found is not None else None
        greedily = greedy(self.problem, limit)
        return pruned(self.problem, greedily) if greedily is not None else None

    def _waits(self, tried: Solved) -> bool:
        """Whether a plan waits for its copies, which another limit does not change."""
        return self.best is not None and tried.outcome.waited_us > CLOSE * self.problem.us


@dataclass
class _Bracket:
    """Looks for the largest limit whose plan keeps the budget once what is under way is counted too."""

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

    def too_much(self, used: int, over: int) -> None:
        """A plan that uses ``used`` bytes is ``over`` the budget."""
        self.high = used
        self.step = max(2 * self.step, over)
        self.guess = used - self.step

    def too_little(self, limit: int) -> None:
        """A limit that may be raised, or under which there is no plan."""
        self.low = limit


def size(count: float) -> str:
    """Bytes, in the unit that fits."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"

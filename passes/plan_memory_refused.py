"""What to do where no plan keeps a budget: the least peak that there is, and what other options come down to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from moec.diagnostics import Refusal
from moec.memory.plan import everything_kept, order
from moec.memory.problem import Problem
from moec.memory.replay import replay
from moec.memory.solve import Solved, plan_memory, size

CLOSE = 0.01
"""Share of what is not fixed within which the least peak is found."""

SECONDS = 2.0
"""What each call of the solver may take in looking for it."""

PCIE = 25e3
"""Bytes a microsecond of the link where none is given: what --pcie assumes by itself."""

ENOUGH = 1 << 50
"""Bytes of a host that holds all that there is to park."""


def least(problem: Problem) -> Solved | None:
    """A plan of about the least peak of all, found by halving; None where not even everything kept can be replayed."""
    fixed = sum(problem.fixed_bytes.values())
    high = replay(problem, order(problem, everything_kept(problem))).peak_bytes
    best, low = _within(problem, high), fixed
    while best is not None and high - low > CLOSE * max(high - fixed, 1):
        middle = (low + high) // 2
        found = _within(problem, middle)
        if found is None:
            low = middle
        else:
            best, high = found, min(found.outcome.peak_bytes, middle)
    return best


def _within(problem: Problem, budget: int) -> Solved | None:
    try:
        return plan_memory(problem, budget, True, SECONDS)
    except Refusal:
        return None


def refusal(problem: Problem, budget: int, exchanging: Problem | None) -> Refusal:
    """Why there is no plan within ``budget``, the least peak of one, and which options would do. ``exchanging`` is the
    same with exchanges that may run again, None where they may anyway or there are none.
    """
    fixed = ", ".join(f"{name} {size(n)}" for name, n in problem.fixed_bytes.items() if n)
    what = f"no plan keeps the peak within {size(budget)}"
    if sum(problem.fixed_bytes.values()) >= budget:
        todo = "split the model over more cards, share the optimizer over more (--optimizer-shards), or raise --budget"
        return Refusal(f"{what}: {fixed} are there whatever is planned", todo=todo)
    found = least(problem)
    reached = found.outcome.peak_bytes if found is not None else 0
    if found is not None:
        what += f"; the least that a plan reaches is {size(reached)}"
    ways = [f"{name}: {told}" for name, told in _ways(problem, budget, exchanging).items()]
    ways += [f"--budget {-(-reached // 2**20)}MiB or more"] if found is not None else []
    ways += ["fewer forwards in flight"] if problem.in_flight > 1 else []
    return Refusal(f"{what} ({fixed or 'nothing'} fixed)", todo="; or ".join([*ways, "more cards"]))


def _ways(problem: Problem, budget: int, exchanging: Problem | None) -> Mapping[str, str]:
    """Options that change what can be planned, alone and together, and what they come to; up to the first that does."""
    parks = "more --host-memory" if problem.pcie > 0 else "--pcie 25GB/s (parking)"
    roomy = {"pcie": problem.pcie or PCIE, "host_bytes": ENOUGH}
    tried = {parks: replace(problem, **roomy)}  # type: ignore[arg-type]
    if exchanging is not None:
        tried |= {"--recompute-exchanges": exchanging}
        tried |= {f"{parks} and --recompute-exchanges": replace(exchanging, **roomy)}  # type: ignore[arg-type]
    told: dict[str, str] = {}
    for name, each in tried.items():
        found = _within(each, budget)
        if found is not None and not (told and " and " in name):
            host = found.outcome.host_bytes
            told[name] = f"a plan within {size(budget)}" + (f", {size(host)} on the host" if host else "")
    return told

"""What a memory plan says of itself: the summary's ``memory``, and the sweep of other budgets."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from moec.diagnostics import Refusal
from moec.memory.build import Built
from moec.memory.plan import Choice
from moec.memory.problem import KEEP, RECOMPUTE, SWAP, Problem
from moec.memory.replay import Outcome
from moec.memory.solve import Solved, plan_memory

EXACT_SWEEP = 600
"""Tensors up to which the sweep is solved exactly."""

SWEEP_SECONDS = 5.0
"""What each call of the solver may take in it."""

LEAST_ROOM = 0.02
"""The least budget of a sweep: the share of what everything kept takes, besides what is fixed."""


def entry(built: Built, solved: Solved, plain: Outcome, budget: int) -> dict[str, Any]:
    """The summary's ``memory``: bytes a card, percent, and a row for each tensor that backward reads or that stays."""
    problem, choice, n = built.problem, solved.choice, built.problem.in_flight
    saved = n * sum(problem.tensors[v].bytes for v in problem.needed)
    kept = n * sum(problem.tensors[v].bytes for v in choice.kept)
    shown = dict.fromkeys((*problem.needed, *sorted(choice.kept | choice.swapped)))
    return {
        "budget_bytes": budget,
        "peak_bytes": solved.outcome.peak_bytes,
        "peak_at": solved.outcome.peak_at,
        "parts": {**problem.fixed_bytes, **solved.outcome.parts},
        "workspace": _workspace(problem),
        "unplanned_peak_bytes": plain.peak_bytes,
        "fixed_bytes": dict(problem.fixed_bytes),
        "in_flight": n,
        "saved_bytes": kept,
        "unplanned_saved_bytes": saved,
        "saved_percent": percent(saved - kept, saved),
        "host_bytes": solved.outcome.host_bytes,
        "period_us": round(solved.outcome.period_us, 3),
        "added_time_percent": percent(solved.added_us, problem.us),
        "waited_us": round(solved.outcome.waited_us, 3),
        "bound_gap_percent": percent(max(0.0, solved.added_us - solved.bound_us), problem.us),
        "tensors": [_row(built, choice, v) for v in shown],
    }


def _workspace(problem: Problem) -> dict[str, Any]:
    """The step that needs most besides what it reads and writes."""
    most = max((*problem.forward, *problem.backward), key=lambda s: s.workspace)
    return {"bytes": most.workspace, "step": most.name, "at": most.origin if most.workspace else ""}


def sweep(problem: Problem, plain: Outcome, exact: bool, steps: int) -> list[dict[str, Any]]:
    """``steps`` other budgets, from what everything kept takes down to where no plan keeps them any more: the peak, the
    share of activations that is gone, and the added time of each. What a smaller budget costs is enough for a larger
    one.
    """
    saved = sum(problem.tensors[v].bytes for v in problem.needed)
    fixed = sum(problem.fixed_bytes.values())
    small = exact and len(problem.candidates) <= EXACT_SWEEP
    found: dict[float, tuple[int, Solved | None]] = {}
    while len(found) < steps:
        share = _next_share({s: solved is not None for s, (_, solved) in found.items()})
        budget = fixed + int((plain.peak_bytes - fixed) * share)
        found[share] = budget, _solved(problem, budget, small)
    rows: list[dict[str, Any]] = []
    best: Solved | None = None
    for budget, solved in (found[share] for share in sorted(found)):
        if solved is None:
            continue
        if best is None or solved.added_us <= best.added_us:
            best = solved
        kept = sum(problem.tensors[v].bytes for v in best.choice.kept)
        rows.append(
            {
                "budget_bytes": budget,
                "peak_bytes": best.outcome.peak_bytes,
                "saved_bytes": problem.in_flight * kept,
                "period_us": round(best.outcome.period_us, 3),
                "saved_percent": percent(saved - kept, saved),
                "added_time_percent": percent(best.added_us, problem.us),
            }
        )
    return rows


def _next_share(tried: dict[float, bool]) -> float:
    """The share of the room to try next, of those tried with whether there was a plan: everything, the least, then the
    middle (of ratios) of the widest gap that does not lie between two without a plan.
    """
    for share in (1.0, LEAST_ROOM):
        if share not in tried:
            return share
    shares = sorted(tried)
    gaps = [(a, b) for a, b in pairwise(shares) if tried[b]]
    low, high = max(gaps, key=lambda gap: (gap[1] / gap[0], -gap[0]), default=(LEAST_ROOM, 1.0))
    return math.sqrt(low * high)


def _solved(problem: Problem, budget: int, exact: bool) -> Solved | None:
    try:
        return plan_memory(problem, budget, exact, SWEEP_SECONDS)
    except Refusal:
        return None


def _row(built: Built, choice: Choice, v: int) -> dict[str, Any]:
    problem = built.problem
    tensor, step = problem.tensors[v], problem.forward[problem.producer[v]]
    fate = choice.fate(v)
    why = {
        KEEP: problem.why_fixed(v) or f"{step.us:.1f} us to make again",
        RECOMPUTE: f"{step.us:.1f} us to make again",
        SWAP: problem.why_fixed(v) or f"{step.us:.1f} us to make again, its copies hide",
    }[fate]
    return {
        "tensor": tensor.name,
        "kind": tensor.kind,
        "bytes": tensor.bytes,
        "fate": fate,
        "why": why,
        "at": tensor.origin,
    }


def percent(part: float, whole: float) -> float:
    """A share in percent; 0 of nothing."""
    return round(100.0 * part / whole, 4) if whole else 0.0

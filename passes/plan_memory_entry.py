"""What a memory plan says of itself: the summary's ``memory``, and the sweep of other budgets."""

from __future__ import annotations

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
    """Other budgets, from what everything kept takes down, each leaving the same share of the room that the one before
    leaves for what is not fixed: the peak, the share of activations that is gone, and the added time. A budget that no
    plan keeps has no row. What a smaller budget costs is enough for a larger one.
    """
    saved = sum(problem.tensors[v].bytes for v in problem.needed)
    fixed = sum(problem.fixed_bytes.values())
    rows: list[dict[str, Any]] = []
    best: Solved | None = None
    small = exact and len(problem.candidates) <= EXACT_SWEEP
    for step in reversed(range(steps)):
        budget = fixed + int((plain.peak_bytes - fixed) * LEAST_ROOM ** (step / max(1, steps - 1)))
        try:
            found = plan_memory(problem, budget, small, SWEEP_SECONDS)
        except Refusal:
            continue
        if best is None or found.added_us <= best.added_us:
            best = found
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

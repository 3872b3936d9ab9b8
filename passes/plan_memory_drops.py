"""Dropping saved tensors by an algebraic rewrite, as one of the planner's choices.

A rewrite that makes a saved tensor needless must be done before the layer is differentiated, and a plan is made of what
is saved then. So the layer is differentiated and planned both ways, all places alike, and the way whose period is
shorter is taken: what the rewrite adds, what it keeps instead and what it saves are all in the two plans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from moec.diagnostics import Refusal
from moec.ir.graph import Module
from moec.memory.plan import everything_kept, order
from moec.memory.problem import Problem
from moec.memory.replay import replay
from moec.memory.solve import Solved
from moec.passes.base import Context, Gate, Pass, PassManager
from moec.passes.plan_memory import PlanMemory
from moec.passes.plan_memory_entry import percent
from moec.passes.prob_placement import ProbPlacement
from moec.passes.sync_removal_choices import copy_module

DROP = "drop"
DROPS = (ProbPlacement.name,)
"""Passes that make saved tensors needless."""


@dataclass(frozen=True)
class Way:
    """One way to differentiate: its problem, and its plan (None where none keeps the budget)."""

    problem: Problem
    solved: Solved | None

    @property
    def period_us(self) -> float:
        """A planned forward and backward; infinite without a plan."""
        return self.solved.outcome.period_us if self.solved is not None else float("inf")

    @property
    def saved_bytes(self) -> int:
        """What all chunks in flight keep where nothing is planned."""
        return self.problem.in_flight * sum(self.problem.tensors[v].bytes for v in self.problem.needed)


@dataclass(frozen=True)
class Drops:
    """Both ways; ``why`` says what the rewrite does."""

    kept: Way
    dropped: Way
    why: str

    @property
    def chosen(self) -> bool:
        """Whether dropping is the better way."""
        return self.dropped.period_us <= self.kept.period_us

    def told(self, memory: dict[str, Any]) -> dict[str, Any]:
        """The summary's ``memory`` of the chosen way, with shares of what is there where nothing is dropped or planned,
        a row for each tensor that is dropped, and both ways under ``drops``.
        """
        base, whole = self.kept.problem, self.kept.saved_bytes
        ways = {"kept": self.kept, "dropped": self.dropped}
        told = memory | {"drops": {"chosen": self.chosen, "tensors": self._rows()}}
        told["drops"] |= {name: _figures(way, base) for name, way in ways.items()}
        if not self.chosen:
            return told
        least = min(w.problem.us + w.solved.bound_us for w in ways.values() if w.solved is not None)
        told["unplanned_saved_bytes"] = whole
        told["unplanned_peak_bytes"] = replay(base, order(base, everything_kept(base))).peak_bytes
        told["saved_percent"] = percent(whole - memory["saved_bytes"], whole)
        told["added_time_percent"] = percent(memory["period_us"] - base.us, base.us)
        told["bound_gap_percent"] = percent(max(0.0, memory["period_us"] - least), base.us)
        told["tensors"] = [*self._rows(), *memory["tensors"]]
        told["sweep"] = [
            row
            | {
                "saved_percent": percent(whole - row["saved_bytes"], whole),
                "added_time_percent": percent(row["period_us"] - base.us, base.us),
            }
            for row in memory["sweep"]
        ]
        return told

    def _rows(self) -> list[dict[str, Any]]:
        kept, dropped = self.kept.problem, self.dropped.problem
        gone, new = _saved_without(kept, dropped), _saved_without(dropped, kept)
        instead = sum(dropped.tensors[v].bytes for v in new) / 2**20
        why = f"{self.why}: {dropped.us - kept.us:+.1f} us a period, {instead:.3g} MiB kept instead"
        rows = []
        for v in gone:
            tensor, again = kept.tensors[v], kept.forward[kept.producer[v]]
            rows.append(
                {"tensor": tensor.name, "kind": tensor.kind, "bytes": tensor.bytes, "fate": DROP}
                | {"why": f"{why}; {again.us:.1f} us for {again.name} to make it again", "at": tensor.origin}
            )
        return rows


def _saved_without(problem: Problem, other: Problem) -> list[int]:
    """What a problem saves and the other does not, by what makes it, how large it is and where it is from."""

    def key(p: Problem, v: int) -> tuple[str, int, str]:
        return p.forward[p.producer[v]].name, p.tensors[v].bytes, p.tensors[v].origin.split(" by ")[0]

    there = Counter(key(other, v) for v in other.needed)
    found = []
    for v in reversed(problem.needed):
        if there[key(problem, v)]:
            there[key(problem, v)] -= 1
        else:
            found.append(v)
    return found[::-1]


def _figures(way: Way, base: Problem) -> dict[str, Any]:
    figures = {"saved_bytes": way.saved_bytes, "us": round(way.problem.us, 3)}
    if way.solved is None:
        return figures | {"reason": "no plan keeps the budget"}
    return figures | {
        "period_us": round(way.period_us, 3),
        "added_time_percent": percent(way.period_us - base.us, base.us),
        "peak_bytes": way.solved.outcome.peak_bytes,
    }


def choose_drops(module: Module, passes: Sequence[Pass], context: Context) -> tuple[list[Pass], Drops | None]:
    """``passes`` with the rewrites that drop, or without, whichever plans better; ``module`` stays as it is. None where
    there is nothing to choose: no plan is made, or no rewrite drops anything. Refusal where no plan keeps the budget.
    """
    at = next((i for i, p in enumerate(passes) if isinstance(p, PlanMemory)), None)
    first = next((i for i, p in enumerate(passes[:at]) if p.name in DROPS), None)
    if at is None or first is None:
        return list(passes), None
    plan = passes[at]
    assert isinstance(plan, PlanMemory)
    alone = replace(context, witness=None, gate=Gate())
    base = copy_module(module)
    PassManager(passes[:first]).run(base, alone)
    between = passes[first:at]
    with_drops = copy_module(base)
    steps = PassManager(between).run(with_drops, alone)
    if not any(s.result.applied for s in steps if s.made_by.name in DROPS):
        return list(passes), None
    PassManager([p for p in between if p.name not in DROPS]).run(base, alone)
    why = "routing weights go before the down-projection, whose output backward then does not read"
    found = Drops(_way(plan, base, alone), _way(plan, with_drops, alone), why)
    if found.kept.solved is None and found.dropped.solved is None:
        return list(passes), None
    return [p for i, p in enumerate(passes) if found.chosen or i >= at or p.name not in DROPS], found


def _way(plan: PlanMemory, module: Module, context: Context) -> Way:
    problem = plan.built(module, context).problem
    try:
        return Way(problem, plan.solved(problem))
    except Refusal:
        return Way(problem, None)

"""Activation memory of Pangu Ultra MoE in training, stage by stage, and what a plan at 64 GiB makes of it.

    python benchmarks/pangu_memory.py [--budget GIB] [--exchanges]

Micro-batch 2, sequence 8192, 16 pipeline stages of 2 virtual ones, tensor parallel 8, expert parallel 32 (arXiv
2505.04519): 2 layers a chunk, 4 on a card; stage i of interleaved 1F1B has 2 (15 - i) + 17 chunks in flight. Every
layer counts as one of the 58 with experts; embedding and loss are left out. Published: 70 % of activation memory saved.
The experts' outputs are dropped (routing weights before the down-projection) where that plans better. Shares count from
what is saved and takes time where nothing is planned or dropped.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from moec.diagnostics import Refusal
from moec.driver import load_target
from moec.memory.pipeline import Pipeline
from moec.memory.plan import everything_kept, order
from moec.memory.problem import Problem
from moec.memory.replay import replay
from moec.memory.solve import Solved, plan_memory
from moec.passes.base import Context, train_passes
from moec.passes.plan_memory_drops import choose_drops
from moec.sources import read

ROOT = Path(__file__).resolve().parents[1]
STAGES, VIRTUAL, LAYERS = 16, 2, 2
SIZES = {"s": 8192, "mbs": 2}
GIB = 1 << 30


def ways(exchanges: bool) -> tuple[Problem, Problem]:
    """One layer of one rank: as it is, and with experts' outputs dropped; ``exchanges`` may be done again or not."""
    more = ",exchanges=true" if exchanges else ""
    passes = train_passes("", f"plan-memory{{layers={VIRTUAL * LAYERS},shards=48,sweep=0{more}}}")
    layer = read(ROOT / "examples" / "pangu_ultra_moe_rank.moe")
    _, drops = choose_drops(layer.module, passes, Context(load_target("ascend910b1"), layer.sizes(SIZES)))
    assert drops is not None
    return drops.kept.problem, drops.dropped.problem


def saved(problem: Problem) -> int:
    """Bytes that all forwards in flight keep where nothing is planned."""
    return problem.in_flight * sum(problem.tensors[v].bytes for v in problem.needed)


def peak(problem: Problem) -> int:
    """The card's peak where nothing is planned."""
    return replay(problem, order(problem, everything_kept(problem))).peak_bytes


class Plan:
    """The better of both ways under a budget. Refusal where neither keeps it."""

    def __init__(self, kept: Problem, dropped: Problem, budget: int):
        found: list[tuple[float, Problem, Solved]] = []
        for problem in (kept, dropped):
            try:
                solved = plan_memory(problem, budget)
            except Refusal as refusal:
                missing = refusal
                continue
            found.append((solved.outcome.period_us, problem, solved))
        if not found:
            raise missing
        self.us, self.problem, self.solved = min(found, key=lambda f: f[0])
        bound = min(p.us + s.bound_us for _, p, s in found)
        stays = kept.in_flight * sum(self.problem.tensors[v].bytes for v in self.solved.choice.kept)
        self.drops = self.problem is dropped
        self.gone = 100 * (1 - stays / saved(kept))
        self.added = round(100 * (self.us - kept.us) / kept.us, 4) + 0.0
        self.gap = 100 * max(0.0, self.us - bound) / kept.us


def sweep(kept: Problem, dropped: Problem) -> Iterator[Plan]:
    """Plans from what everything kept takes down to where there is none."""
    fixed = sum(kept.fixed_bytes.values())
    whole = peak(kept) - fixed
    for share in (1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.05, 0.03, 0.02):
        try:
            yield Plan(kept, dropped, fixed + int(share * whole))
        except Refusal:
            return


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=64.0, help="GiB of the card")
    parser.add_argument("--exchanges", action="store_true", help="what ranks exchanged may be exchanged again")
    options = parser.parse_args()
    budget = int(options.budget * GIB)
    start = time.process_time()
    kept, dropped = ways(options.exchanges)
    print(f"one layer and micro-batch saves {saved(kept) / 2**20:.0f} MiB, {saved(dropped) / 2**20:.0f} with experts'")
    print(
        f"outputs dropped; forward {kept.forward_us / 1e3:.1f} ms, backward {kept.backward_us / 1e3:.1f} ms, dropping ",
        end="",
    )
    print(
        f"adds {(dropped.us - kept.us) / 1e3:.2f} ms; fixed on the card {sum(kept.fixed_bytes.values()) / GIB:.1f} GiB;"
    )
    most = max((*kept.forward, *kept.backward), key=lambda s: s.workspace)
    print(
        f"most workspace {most.workspace / 2**20:.0f} MiB ({most.name}); priced in {time.process_time() - start:.0f} s"
    )
    print("stage  in flight  saved GiB  peak GiB | plan: peak  host GiB  % gone  % time  gap %  drops")
    for stage in range(STAGES):
        many = Pipeline(STAGES, VIRTUAL, LAYERS, stage).in_flight
        here, less = (replace(p, in_flight=many) for p in (kept, dropped))
        plan = Plan(here, less, budget)
        seen = plan.solved.outcome
        print(
            f"{stage:5}  {many:9}  {saved(here) / GIB:9.1f}  {peak(here) / GIB:8.1f} | "
            f"{seen.peak_bytes / GIB:10.1f}  {seen.host_bytes / GIB:8.1f}  {plan.gone:6.1f}  {plan.added:6.2f}  "
            f"{plan.gap:5.2f}  {'yes' if plan.drops else 'no'}"
        )
    first = [replace(p, in_flight=Pipeline(STAGES, VIRTUAL, LAYERS).in_flight) for p in (kept, dropped)]
    for name, pair in (("recompute and swap", first), ("recompute alone", [replace(p, pcie=0.0) for p in first])):
        print(f"stage 0, {name}: peak GiB, % gone, % time, gap %, drops")
        plans = list(sweep(*pair))
        for plan in plans:
            drops = "yes" if plan.drops else "no"
            print(
                f"  {plan.solved.outcome.peak_bytes / GIB:6.1f}  {plan.gone:5.1f}  {plan.added:6.2f}  {plan.gap:5.2f}  "
                f"{drops}"
            )
        best = max((p for p in plans if p.added <= 5.0), key=lambda p: p.gone)
        print(f"  at most {best.gone:.1f} % gone for {best.added:.2f} % of time (limit 5 %)")


if __name__ == "__main__":
    main()

"""Activation memory of Pangu Ultra MoE in training, stage by stage, and what a plan at 64 GiB makes of it.

    python benchmarks/pangu_memory.py [--budget GIB]

Micro-batch 2, sequence 8192, 16 pipeline stages of 2 virtual ones, tensor parallel 8, expert parallel 32 (arXiv
2505.04519): 2 layers a chunk, 4 on a card; stage i of interleaved 1F1B has 2 (15 - i) + 17 chunks in flight. Every
layer counts as one of the 58 with experts; embedding and loss are left out. Published: 70 % of activation memory saved.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from moec.diagnostics import Refusal
from moec.driver import load_target
from moec.memory.plan import everything_kept, order
from moec.memory.problem import Problem
from moec.memory.replay import replay
from moec.memory.solve import Solved, plan_memory
from moec.passes.base import TRAIN_PIPELINE, Context, PassManager, parse_passes
from moec.passes.plan_memory import PlanMemory
from moec.sources import load

ROOT = Path(__file__).resolve().parents[1]
STAGES, VIRTUAL, LAYERS = 16, 2, 2
SIZES = {"s": 1024, "B": 2}
GIB = 1 << 30


def layer() -> Problem:
    """One layer of one rank."""
    module = load(ROOT / "examples" / "pangu_ultra_moe_rank.moe")
    target = load_target("ascend910b1")
    passes = TRAIN_PIPELINE.split(",fuse-residual")[0] + ",inline,canonicalise,cse,dce"
    PassManager(parse_passes(passes)).run(module, Context(target, SIZES))
    plan = PlanMemory(in_flight=1, layers=VIRTUAL * LAYERS, shards=48)
    return plan.built(module, Context(target, SIZES)).problem


def saved(problem: Problem) -> int:
    """Bytes that all forwards in flight keep where nothing is planned."""
    return problem.in_flight * sum(problem.tensors[v].bytes for v in problem.needed)


def gone(problem: Problem, solved: Solved) -> float:
    """Percent of those that a plan takes off the card."""
    kept = problem.in_flight * sum(problem.tensors[v].bytes for v in solved.choice.kept)
    return 100 * (1 - kept / saved(problem))


def largest_saving(problem: Problem, percent: float) -> tuple[float, float]:
    """The largest share of activations that is gone at no more than ``percent`` of added time, and that time."""
    fixed = sum(problem.fixed_bytes.values())
    whole = replay(problem, order(problem, everything_kept(problem))).peak_bytes - fixed
    best = (0.0, 0.0)
    for share in (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.05, 0.03):
        try:
            solved = plan_memory(problem, fixed + int(share * whole))
        except Refusal:
            break
        added = 100 * solved.added_us / problem.us
        if added <= percent:
            best = max(best, (gone(problem, solved), added))
    return best


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=64.0, help="GiB of the card")
    budget = int(parser.parse_args().budget * GIB)
    one = layer()
    forward = sum(s.us for s in one.forward)
    print(f"one layer and micro-batch saves {saved(one) / 2**20:.0f} MiB; forward {forward / 1e3:.1f} ms, ", end="")
    print(
        f"backward {(one.us - forward) / 1e3:.1f} ms; fixed on the card {sum(one.fixed_bytes.values()) / GIB:.1f} GiB"
    )
    print("stage  in flight  saved GiB  peak GiB | plan: peak  % gone  % time  gap %")
    for stage in range(STAGES):
        chunks = 2 * (STAGES - 1 - stage) + (VIRTUAL - 1) * STAGES + 1
        problem = replace(one, in_flight=chunks * LAYERS)
        whole = replay(problem, order(problem, everything_kept(problem)))
        solved = plan_memory(problem, budget)
        gap = 100 * max(0.0, solved.added_us - solved.bound_us) / problem.us
        print(
            f"{stage:5}  {chunks * LAYERS:9}  {saved(problem) / GIB:9.1f}  {whole.peak_bytes / GIB:8.1f} | "
            f"{solved.outcome.peak_bytes / GIB:10.1f}  {gone(problem, solved):6.1f}  "
            f"{100 * solved.added_us / problem.us:6.2f}  {gap:5.2f}"
        )
    first = replace(one, in_flight=(2 * (STAGES - 1) + STAGES + 1) * LAYERS)
    for name, problem in (("recompute and swap", first), ("recompute alone", replace(first, pcie=0.0))):
        share, added = largest_saving(problem, 5.0)
        print(f"stage 0, {name}: at most {share:.1f} % gone for {added:.2f} % of time (limit 5 %)")


if __name__ == "__main__":
    main()

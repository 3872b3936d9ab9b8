"""How long the memory planner takes at 50, 200 and 600 tensors, beside its greedy search in the same run: seconds of
this process on a processor (with what replays take), and in brackets on the clock, where others run at the same time.

    python benchmarks/planner_speed.py
"""

from __future__ import annotations

import time

import numpy as np

from moec.memory.plan import everything_kept, order
from moec.memory.problem import Problem, Step, Tensor
from moec.memory.replay import replay
from moec.memory.solve import Solved, plan_memory

MIB = 1 << 20


def step(count: int) -> Problem:
    """A training step of ``count`` forward tensors: a chain whose every ninth is a choice that must be kept."""
    rng = np.random.default_rng(count)
    tensors, forward, backward = [Tensor("x", 0)], [], []
    for i in range(count):
        tensors.append(Tensor(f"t{i}", int(rng.integers(1, 240)) * MIB, "a choice" if i % 9 == 5 else ""))
        forward.append(Step(f"f{i}", float(rng.uniform(50, 3000)), (i,), (i + 1,)))
    for i in reversed(range(count)):
        tensors.append(Tensor(f"g{i}", tensors[i + 1].bytes))
        reads = {i, i + 1} - {0} | ({backward[-1].writes[0]} if backward else set())
        backward.append(Step(f"b{i}", 2 * forward[i].us, tuple(sorted(reads)), (len(tensors) - 1,)))
    return Problem(tuple(tensors), tuple(forward), tuple(backward), {"weights": 1024 * MIB}, 16, 2.5e4, 1 << 42)


def main() -> None:
    """Print the table."""
    print("tensors  budget |   exact s          % time  gap % |  greedy s         % time")
    for count in (50, 200, 600):
        problem = step(count)
        budget = int(0.4 * replay(problem, order(problem, everything_kept(problem))).peak_bytes)
        exact, took = timed(problem, budget, True)
        greedy, quick = timed(problem, budget, False)
        added, gap, plain = (
            100 * t / problem.us for t in (exact.added_us, exact.added_us - exact.bound_us, greedy.added_us)
        )
        print(f"{count:7}  {budget / 2**30:4.0f} G | {took}  {added:6.2f}  {gap:5.2f} | {quick}  {plain:6.2f}")


def timed(problem: Problem, budget: int, exact: bool) -> tuple[Solved, str]:
    """The plan, and what it took."""
    clock, processor = time.perf_counter(), time.process_time()
    solved = plan_memory(problem, budget, exact)
    return solved, f"{time.process_time() - processor:6.2f} ({time.perf_counter() - clock:6.2f})"


if __name__ == "__main__":
    main()

"""How long the memory planner takes at 50, 200 and 600 tensors, beside its greedy search in the same run.

python benchmarks/planner_speed.py
"""

from __future__ import annotations

import time

import numpy as np

from moec.memory.plan import everything_kept, order
from moec.memory.problem import Problem, Step, Tensor
from moec.memory.replay import replay
from moec.memory.solve import plan_memory

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
    print("tensors  budget | exact s  % time  gap % | greedy s  % time")
    for count in (50, 200, 600):
        problem = step(count)
        budget = int(0.4 * replay(problem, order(problem, everything_kept(problem))).peak_bytes)
        start = time.perf_counter()
        exact = plan_memory(problem, budget)
        middle = time.perf_counter()
        greedy = plan_memory(problem, budget, exact=False)
        end = time.perf_counter()
        added, gap, plain = (
            100 * t / problem.us for t in (exact.added_us, exact.added_us - exact.bound_us, greedy.added_us)
        )
        print(
            f"{count:7}  {budget / 2**30:4.0f} G | {middle - start:7.2f}  {added:6.2f}  {gap:5.2f} | "
            f"{end - middle:8.2f}  {plain:6.2f}"
        )


if __name__ == "__main__":
    main()

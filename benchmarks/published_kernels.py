"""The cycle model beside published measurements of single kernels, all that it is held against.

    python benchmarks/published_kernels.py [--only matmul|copies|"vector addition"|"bank conflicts"]

The staged product of 8192^3 (task time, and busy times of pipes in the mean over cores), copies into UB and L1 with and
without the L2, the ladder of a vector addition, and the bank conflicts of UB, from the CANN asc-devkit examples on
910B1. An error is modelled / measured - 1; the tests hold products to 10 per cent, all else to 15.
"""

from __future__ import annotations

import argparse
import sys
from itertools import pairwise
from pathlib import Path

from moec.targets.ascend.machine import load

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from published_tables import TABLES, modelled
from staged_matmul import STAGES, Stage, mean_busy
from staged_matmul import modelled as modelled_stage

PIPES = (("M", "cube"), ("MTE1", "mte1"), ("MTE2", "mte2"), ("FIX", "fixpipe"))
STAGED = 9
"""Stages that follow one another; those of the basic API come after."""


def matmul() -> None:
    """A line a stage: task and pipes, modelled, with the error in per cent."""
    print(f"{'matmul, us':26}" + "".join(f"{name:>20}" for name in ("task", *(pipe for pipe, _ in PIPES))))
    worst: dict[str, float] = {}
    for stage in STAGES:
        busy = mean_busy(stage)
        pairs = [("task", modelled_stage(stage).us, stage.task)]
        pairs += [(pipe, busy[pipe], float(getattr(stage, field))) for pipe, field in PIPES]
        for name, model, measured in pairs:
            worst[name] = max(worst.get(name, 0.0), abs(model / measured - 1))
        print(f"{stage.name:26}" + "".join(f"{m:12.0f} {100 * (m / x - 1):+6.1f}%" for _, m, x in pairs))
    print(f"{'largest error':26}" + "".join(f"{100 * e:19.1f}%" for e in worst.values()))
    print(f"{'in the measured order wherever a step exceeds 2 %: ' + ('yes' if in_order(STAGES[:STAGED]) else 'no')}\n")


def in_order(stages: tuple[Stage, ...]) -> bool:
    """Whether each step of over 2 % is one of the model's too."""
    steps = [(a, b) for a, b in pairwise(stages) if a.task / b.task > 1.02]
    return all(modelled_stage(a).us > modelled_stage(b).us for a, b in steps)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("matmul", *TABLES))
    only = parser.parse_args().only
    if only in (None, "matmul"):
        matmul()
    machine = load("ascend910b1")
    for title, rows in TABLES.items():
        if only not in (None, title):
            continue
        print(f"{title:48}{'measured':>12}{'modelled':>12}{'error':>9}")
        errors = []
        for row in rows:
            found = modelled(row, machine)
            errors.append(abs(found / row.measured - 1))
            unit = "ticks" if row.what == "ticks" else f"us, {row.what}"
            name, off = f"{row.name} ({unit})", 100 * (found / row.measured - 1)
            print(f"  {name:46}{row.measured:12.1f}{found:12.1f}{off:+8.1f}%")
        print(f"  {'largest error':46}{'':24}{100 * max(errors):8.1f}%\n")


if __name__ == "__main__":
    main()

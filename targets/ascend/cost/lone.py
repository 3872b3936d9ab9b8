"""Copies measured alone, where a line does not describe them: what a single one takes beyond it.

``data/lone.csv`` holds points of the mskpp measured table (910B1). Between two of them cycles are interpolated.
Copies in a loop keep their pipe for as long as the line says; the rest is latency: it ends when the data are usable.

GM->L1 by nd2nz is a saw-tooth over the size: copies of a multiple of 32 KiB, and all up to 16 KiB, lie on a lower
line, others up to 1000 cycles above. Only the teeth count here: the lower line, 780 cycles for any copy up to 64 KiB,
is what the 8192^3 products of the CANN asc-devkit examples exclude (257 cycles for 8 KiB, waited for every time),
while the teeth are in them (a tile of 171 rows of 128 bytes)."""

from __future__ import annotations

import csv
from bisect import bisect_right
from functools import lru_cache

from moec.targets.ascend.cost.table import DATA

TOOTHED = "GM->L1.nd2nz"
STEP, SMALL = 32 * 1024, 16 * 1024
"""Sizes on the lower line of the saw-tooth: multiples of one, and all up to the other."""


@lru_cache(maxsize=1)
def _points() -> dict[str, tuple[list[float], list[float]]]:
    """Sizes and cycles by path, smallest first."""
    out: dict[str, tuple[list[float], list[float]]] = {}
    with open(DATA / "lone.csv", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            sizes, cycles = out.setdefault(row["path"], ([], []))
            sizes.append(float(row["size"]))
            cycles.append(float(row["cycles"]))
    return out


def _between(sizes: list[float], cycles: list[float], size: float) -> float | None:
    """Cycles at ``size``: those of the smallest point below it, None beyond the largest."""
    i = bisect_right(sizes, size)
    if i == 0:
        return cycles[0]
    if i == len(sizes):
        return cycles[-1] if size == sizes[-1] else None
    share = (size - sizes[i - 1]) / (sizes[i] - sizes[i - 1])
    return cycles[i - 1] + share * (cycles[i] - cycles[i - 1])


@lru_cache(maxsize=16384)
def lone_cycles(path: str, nbytes: int) -> float | None:
    """Cycles of one copy of ``nbytes`` over ``path``, waited for; None where it was not measured."""
    points = _points().get(path)
    return None if points is None else _between(*points, nbytes)


@lru_cache(maxsize=16384)
def tooth(nbytes: int) -> float:
    """Cycles of a GM->L1 nd2nz copy above the lower line of its saw-tooth; 0 beyond the measured sizes."""
    sizes, cycles = _points()[TOOTHED]
    low = [(s, c) for s, c in zip(sizes, cycles, strict=True) if s % STEP == 0 or s <= SMALL]
    here = _between(sizes, cycles, nbytes)
    line = _between([s for s, _ in low], [c for _, c in low], nbytes)
    return max(0.0, here - line) if here is not None and line is not None else 0.0

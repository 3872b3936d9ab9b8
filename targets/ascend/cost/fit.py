"""Derive the tables in ``data/`` from the measured instruction table.

    python -m moec.targets.ascend.cost.fit mskpp_910b1.csv

Source: mskpp, resource910b.cpp; one row a measurement with the columns instr_class, instruction, dtype_sig, direction,
chip, size_bytes, repeat, m, n, k, value_raw, bytes_per_cycle (at 1.8 GHz). See ``data/README.md`` for the models.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

import numpy as np

DATA = Path(__file__).parent.parent / "data"
LONE = {"GM->L1": 20, "GM->L1.nd2nz": 40, "UB->GM": 20, "L0C->GM": 30}
"""Paths whose single copies a line does not describe, and how many of their points are kept."""
Point = tuple[float, float]
"""(size in repeats, bytes or fractals; measured cycles)"""

PATH_CHIPS = {"GM->L0A": "910B3", "GM->L0B": "910B3"}
"""Paths that 910B1 was measured on by repeat only; GM->UB is kept for both chips, as the two disagree."""


def vector_cycles(floor: float, base: float, rate: float, repeats: float) -> int:
    """Cycles of one vector instruction (the model of ``vector.csv``)."""
    return math.ceil(max(floor, base + rate * repeats))


def errors(pairs: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Median and largest |model - measured| / measured of (model, measured) pairs."""
    relative = sorted(abs(model - measured) / measured for model, measured in pairs)
    return median(relative), relative[-1]


def without_outliers(points: Sequence[Point]) -> list[Point]:
    """Points at most four times the median cycles-per-size of their series, or of its smallest size."""
    limit = 4 * median(cycles / size for size, cycles in points)
    first = 4 * points[0][1]
    return [(size, cycles) for size, cycles in points if cycles <= max(limit * size, first)]


def fit_vector(points: Sequence[Point]) -> tuple[float, float, float]:
    """(floor, base, rate) of a series of (repeats, cycles): median slope of the upper half, then what is left."""
    floor = round(min(cycles for size, cycles in points if size == points[0][0]))
    upper = points[len(points) // 2 :]
    slope = median((d - b) / (c - a) for i, (a, b) in enumerate(upper) for c, d in upper[i + 1 :] if c > a)
    rate = round(slope * 2) / 2 if abs(slope * 2 - round(slope * 2)) < 0.1 else round(slope, 2)
    base = round(median(cycles - rate * size for size, cycles in upper))
    return floor, base, rate


def fit_line(points: Sequence[Point]) -> tuple[float, float]:
    """(latency in cycles, rate in bytes per cycle) by least squares of the relative error."""
    sizes = np.array([p[0] for p in points])
    cycles = np.array([p[1] for p in points])
    system = np.stack([np.ones_like(sizes), sizes], 1) / cycles[:, None]
    (latency, slope), *_ = np.linalg.lstsq(system, np.ones_like(cycles), rcond=None)
    return round(float(latency), 1), round(1 / float(slope), 1)


def _series(rows: Iterable[dict[str, str]]) -> dict[tuple[str, ...], list[Point]]:
    out: dict[tuple[str, ...], list[Point]] = {}
    for row in rows:
        if row["chip"] not in ("910B1", "910B3"):
            continue
        kind = row["instr_class"]
        if kind == "VecType":
            size = float(row["repeat"])
            key: tuple[str, ...] = ("vector", row["instruction"], row["dtype_sig"])
            cycles = float(row["size_bytes"]) / float(row["bytes_per_cycle"])
        elif kind == "MovType":
            layout = ".nd2nz" if row["instruction"] != "MOV" else ""
            size = float(row["size_bytes"])
            key = ("path", row["direction"] + layout, row["chip"])
            cycles = size / float(row["bytes_per_cycle"])
        elif kind == "MmadType":
            work = float(row["m"]) * float(row["n"]) * float(row["k"])
            size = work / 4096
            key = ("mmad", row["chip"])
            cycles = 2 * work / float(row["value_raw"])
        else:
            continue
        out.setdefault(key, []).append((size, cycles))
    return {key: sorted(points) for key, points in out.items()}


def _thin(points: Sequence[Point], count: int) -> list[Point]:
    """About ``count`` points, first and last among them."""
    picks = sorted({round(i * (len(points) - 1) / max(1, count - 1)) for i in range(count)})
    return [points[i] for i in picks]


def _write(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def main(table: str, out: Path = DATA) -> None:
    """Read the measured table; write ``vector.csv``, ``paths.csv``, ``mmad.csv``, ``points.csv`` and ``lone.csv`` into
    ``out``."""
    with open(table, encoding="utf-8", newline="") as file:
        series = _series(csv.DictReader(file))
    vector, paths, mmad, sample = [], [], [], []
    lone: list[tuple[str, str, str]] = []
    for key, raw in series.items():
        points = without_outliers(raw)
        lost = len(raw) - len(points)
        if key[0] == "vector":
            floor, base, rate = fit_vector(points)
            mid, worst = errors((vector_cycles(floor, base, rate, s), c) for s, c in points)
            vector.append((*key[1:], floor, base, rate, len(points), lost, f"{mid:.4f}", f"{worst:.4f}"))
            sample += [("vector", "/".join(key[1:]), f"{s:g}", f"{c:.2f}") for s, c in _thin(points, 3)]
        elif key[0] == "path":
            path, chip = key[1:]
            if chip != PATH_CHIPS.get(path, "910B1") and path != "GM->UB":
                continue
            latency, rate = fit_line(points)
            mid, worst = errors((latency + s / rate, c) for s, c in points)
            paths.append((path, chip, latency, rate, len(points), lost, f"{mid:.4f}", f"{worst:.4f}"))
            sample += [("path", f"{path}/{chip}", f"{s:g}", f"{c:.2f}") for s, c in _thin(points, 10)]
            lone += [(path, f"{s:g}", f"{c:.0f}") for s, c in _thin(points, LONE[path])] if path in LONE else []
        else:
            head = round(median(c - s for s, c in points), 1)
            mid, worst = errors((head + s, c) for s, c in points)
            mmad.append((key[1], head, len(points), lost, f"{mid:.4f}", f"{worst:.4f}"))
            sample += [("mmad", key[1], f"{s:g}", f"{c:.2f}") for s, c in _thin(points, 10)]
    tail = ("points", "outliers", "median_error", "max_error")
    _write(out / "vector.csv", ("instruction", "dtypes", "floor", "base", "rate", *tail), sorted(vector))
    _write(out / "paths.csv", ("path", "chip", "latency", "rate", *tail), sorted(paths))
    _write(out / "mmad.csv", ("chip", "head", *tail), sorted(mmad))
    lone.sort(key=lambda row: (row[0], float(row[1])))
    _write(out / "lone.csv", ("path", "size", "cycles"), lone)
    _write(out / "points.csv", ("kind", "key", "size", "cycles"), sorted(sample))


if __name__ == "__main__":
    main(sys.argv[1])

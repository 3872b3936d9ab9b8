"""How far measurements lie from an estimate: bands by class of operator, from rows left out of the fit.

``data/op_bands.csv`` is written by ``benchmarks/model_accuracy.py --write``: for each class the factors between which
nine in ten measurements of a left-out operator fell.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from pathlib import Path

FILE = Path(__file__).parents[1] / "data" / "op_bands.csv"

LAUNCH, UNSEEN = "launch", "unseen"
"""Classes besides the operators' own: small kernels, whatever they do; and classes that no calibration row has."""


@dataclass(frozen=True)
class Band:
    """Measured over estimated time lies between ``low`` and ``high`` in about nine of ten; ``rows`` it rests on."""

    low: float
    high: float
    rows: int

    @property
    def confidence(self) -> str:
        """``high`` up to a factor of 1.4 either way, ``medium`` up to 2, else ``low``, as where it rests on no rows."""
        worst = max(1 / self.low, self.high) if self.rows else inf
        return "high" if worst <= 1.4 else "medium" if worst <= 2.0 else "low"


CYCLES = Band(0.65, 1.25, 24)
"""The band of kernels that the cycle model runs. Published products and copies took 0.96 to 1.04 of its estimate, which
is fitted to them; the vendor's profiled kernels of the same ops 0.8 to 1.2 of it (moec's own were never measured), and
less where L2 still held their operands, which it takes to be in HBM (inferred)."""

IN_NODE, ACROSS_NODES = Band(0.85, 1.25, 14), Band(0.5, 2.0, 0)
"""Bands of collectives: 8 rows of a server's AllReduce and 6 of pairs of cards lie within 0.91 to 1.17 of the estimate;
between nodes nothing was measured."""


@lru_cache(maxsize=1)
def bands() -> dict[str, Band]:
    """The committed bands by class."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return {r["class"]: Band(float(r["low"]), float(r["high"]), int(r["rows"])) for r in csv.DictReader(file)}


def band_of(kind: str, bound: str) -> Band:
    """The band of a class of operators; that of small kernels where the launch decides."""
    known = bands()
    if bound == LAUNCH and LAUNCH in known:
        return known[LAUNCH]
    return known.get(kind, known[UNSEEN])

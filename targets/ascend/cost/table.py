"""The fitted tables in ``data/``, read once."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

DATA = Path(__file__).parent.parent / "data"


@dataclass(frozen=True)
class VectorFit:
    """cycles = ceil(max(floor, base + rate * repeats)); ``max_error`` is relative, over the measured points."""

    floor: float
    base: float
    rate: float
    points: int
    median_error: float
    max_error: float


@lru_cache(maxsize=1)
def vector_fits() -> Mapping[tuple[str, str], VectorFit]:
    """Fits by (instruction, dtypes joined with ``_``), e.g. ``("VADD", "FP32_FP32_FP32")``."""
    with open(DATA / "vector.csv", encoding="utf-8", newline="") as file:
        return {
            (row["instruction"], row["dtypes"]): VectorFit(
                float(row["floor"]), float(row["base"]), float(row["rate"]), int(row["points"]),
                float(row["median_error"]), float(row["max_error"]),
            )
            for row in csv.DictReader(file)
        }  # fmt: skip

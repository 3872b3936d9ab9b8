"""The constants of the operator model: few, each with its unit, source and how sure it is, in ``data/opmodel.csv``."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path

FILE = Path(__file__).parents[1] / "data" / "opmodel.csv"

OP_MODEL_VERSION = "ascend-ops 5"
"""Changes whenever an estimate of this model may change; every estimate carries it."""


@dataclass(frozen=True)
class Constants:
    """Times in microseconds, rates in bytes per cycle of one core; what each is stands in ``data/opmodel.csv``."""

    launch: float
    launch_core: float
    start: float
    start_core: float
    operand: float
    hbm_share: float
    hbm_share_small: float
    l2_vector: float
    l2_cube: float
    vector_slack: float
    issue_slack: float
    exposed_vector: float
    exposed_cube: float
    exposed_mixed: float
    start_cube: float
    start_mixed: float
    resident: float
    evicted: float
    strayed: float

    def with_values(self, values: Mapping[str, float]) -> Constants:
        """These with others in their place."""
        return replace(self, **values)


@lru_cache(maxsize=1)
def constants() -> Constants:
    """The committed constants."""
    return read(FILE)


def read(path: Path) -> Constants:
    """The constants of a file; KeyError for a missing one."""
    with path.open(encoding="utf-8", newline="") as file:
        values = {row["name"]: float(row["value"]) for row in csv.DictReader(file)}
    return Constants(**{f.name: values[f.name] for f in fields(Constants)})

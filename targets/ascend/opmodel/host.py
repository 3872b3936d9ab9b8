"""What host calls cost, from profiled runs (inflated by the profiler) and a few measurements without one."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from moec.diagnostics import Refusal, Where, suggest

FILE = Path(__file__).parents[1] / "data" / "host_calls.csv"


@dataclass(frozen=True)
class HostCall:
    """Microseconds of host time, and the band that the sources leave."""

    us: float
    low_us: float
    high_us: float
    confidence: str
    source: str
    meaning: str


@lru_cache(maxsize=1)
def host_calls() -> dict[str, HostCall]:
    """All known calls by name."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return {
            r["call"]: HostCall(
                float(r["us"]), float(r["low_us"]), float(r["high_us"]), r["confidence"], r["source"], r["meaning"]
            )
            for r in csv.DictReader(file)
        }


def host_us(call: str) -> float:
    """Microseconds of one call; Refusal for an unknown one."""
    found = host_calls().get(call)
    if found is None:
        hint = suggest(call, host_calls())
        todo = f"{hint + '; ' if hint else ''}known: {', '.join(host_calls())}"
        raise Refusal(f"unknown host call '{call}'", Where(node=call), todo)
    return found.us

"""Fitting the operator model's constants to measured rows, and judging it on rows that it was not fitted to."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from moec.diagnostics import Refusal, Where
from moec.targets.ascend.opmodel.bands import LAUNCH, UNSEEN, Band
from moec.targets.ascend.opmodel.chip import Chip
from moec.targets.ascend.opmodel.constants import FILE, Constants, constants
from moec.targets.ascend.opmodel.predict import predict
from moec.targets.ascend.opmodel.rows_in import Declined, read_row
from moec.targets.ascend.opmodel.table import chip_for
from moec.targets.ascend.opmodel.vendor import described
from moec.targets.ascend.opmodel.work import Work

Array = np.ndarray

PRIOR_WIDTH = 0.3
"""Standard deviation, as a logarithm, by which a constant may differ from its physical prior."""

NOISE = 0.15
"""Relative error beyond which a row counts less and less in the fit."""

SHRINK = 6
"""Rows of all classes together that stand beside a class's own when its band is drawn."""

UNSEEN_WIDER = 2.5
"""Factor on the logarithm of the band of a class without rows: its description was never held against
a measurement, where those of the others were written with rows in view."""

EDGE = 0.03
"""Part of a class's left-out errors beyond either end of its band: less than a twentieth, as new rows stray further."""

FEW = 5
"""Rows below which a class has no band of its own."""


@dataclass(frozen=True)
class Sample:
    """A measured row: what it does, where it ran, how long it took (us)."""

    op: str
    source: str
    tuned: bool
    work: Work
    chip: Chip
    blocks: int | None
    us: float

    def error(self, c: Constants) -> float:
        """Logarithm of predicted over measured."""
        return log(predict(self.work, self.chip, self.blocks, c).us / self.us)


def read_samples(path: Path) -> tuple[list[Sample], list[str]]:
    """The rows of a CSV with ``duration_us``, and the reasons for rows left out. Refusal where columns are missing."""
    samples, left_out = [], []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        for wanted in ("chip", "op", "input_shapes", "duration_us"):
            if wanted not in (reader.fieldnames or ()):
                raise Refusal(f"no column '{wanted}'", Where(str(path), 1), "give a table of measured rows")
        for cells in reader:
            try:
                row = read_row(cells)
                chip, _ = chip_for(cells["chip"], None, row.mhz)
                work, _ = described(row.op, row.ins, row.outs, row.result)
            except (Declined, ValueError) as error:
                left_out.append(f"{path.name}:{reader.line_num}: {error}")
                continue
            tuned = not cells.get("implementation", "").startswith("tutorial")
            us = float(cells["duration_us"])
            samples.append(Sample(row.op, cells.get("source_repo", ""), tuned, work, chip, row.blocks, us))
    return samples, left_out


def priors() -> dict[str, float]:
    """The constants that are fitted, with what physics or documentation has them at: ``data/opmodel.csv``."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return {row["name"]: float(row["prior"]) for row in csv.DictReader(file) if row["prior"]}


def fit(samples: Sequence[Sample]) -> Constants:
    """Constants near their priors with the least robust error in logarithms; rows of one operator and source share the
    root of their number of votes.
    """
    before = priors()
    base = constants().with_values(before)
    votes = Counter((s.op, s.source) for s in samples)
    weights = np.array([votes[s.op, s.source] ** -0.5 for s in samples])

    def moved(x: Array) -> Constants:
        return base.with_values({n: v * exp(d) for (n, v), d in zip(before.items(), x, strict=True)})

    def residuals(x: Array) -> Array:
        c = moved(x)
        errors = np.array([s.error(c) for s in samples]) / NOISE
        robust = np.sign(errors) * np.sqrt(2 * (np.sqrt(1 + errors**2) - 1))
        return np.concatenate([weights * robust, x / PRIOR_WIDTH])

    return moved(least_squares(residuals, np.zeros(len(before)), diff_step=[1e-2] * len(before), max_nfev=12).x)


def errors(samples: Sequence[Sample], c: Constants) -> Array:
    """Logarithms of predicted over measured."""
    return np.array([s.error(c) for s in samples])


def left_out(samples: Sequence[Sample], group: Callable[[Sample], str]) -> Array:
    """Errors of each row under constants fitted without its group."""
    found = np.zeros(len(samples))
    for name in sorted({group(s) for s in samples}):
        c = fit([s for s in samples if group(s) != name])
        for i, s in enumerate(samples):
            if group(s) == name:
                found[i] = s.error(c)
    return found


def band_class(s: Sample, c: Constants) -> str:
    """The class whose band a row's estimate has."""
    return LAUNCH if predict(s.work, s.chip, s.blocks, c).bound == LAUNCH else s.work.kind


def draw_bands(classes: Sequence[str], found: Array) -> dict[str, Band]:
    """Bands from errors of left-out rows: all but ``EDGE`` at either end of measured over predicted in each class, some
    rows of all classes standing in for what a small class does not show. What has fewer than ``FEW`` rows gets the band
    of unseen classes, as wide either way.
    """
    groups = {
        name: np.array([-e for e, k in zip(found, classes, strict=True) if k == name]) for name in sorted(set(classes))
    }
    quantiles = np.linspace(EDGE, 1 - EDGE, SHRINK)
    pooled = np.concatenate([np.quantile(g, quantiles) for _, g in sorted(groups.items())])
    drawn = {}
    for name in sorted(groups):
        if len(groups[name]) < FEW:
            continue
        own = np.concatenate([groups[name], np.quantile(pooled, quantiles)])
        low, high = np.quantile(own, [EDGE, 1 - EDGE])
        drawn[name] = Band(exp(min(low, -0.05)), exp(max(high, 0.05)), len(groups[name]))
    widest = np.abs(np.quantile(pooled, [EDGE, 1 - EDGE])).max() * UNSEEN_WIDER
    return drawn | {UNSEEN: Band(exp(-widest), exp(widest), 0)}


def covered(found: Array, bands: Sequence[Band]) -> float:
    """The part of rows whose measurement lies in its band."""
    inside = [b.low <= exp(-e) <= b.high for e, b in zip(found, bands, strict=True)]
    return float(np.mean(inside)) if inside else 0.0

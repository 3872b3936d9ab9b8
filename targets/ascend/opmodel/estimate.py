"""A prediction with the band that measurements of its class fell into."""

from __future__ import annotations

from dataclasses import dataclass

from moec.targets.ascend.opmodel.bands import band_of
from moec.targets.ascend.opmodel.chip import Chip
from moec.targets.ascend.opmodel.predict import Prediction, predict
from moec.targets.ascend.opmodel.work import Work


@dataclass(frozen=True)
class Estimate:
    """A prediction with its band in microseconds."""

    prediction: Prediction
    low_us: float
    high_us: float
    confidence: str


def estimate_work(work: Work, chip: Chip, blocks: int | None = None, wider: float = 1.0) -> Estimate:
    """The prediction of ``work`` and the band of its class, a factor of ``wider`` larger at both ends; no band reaches
    below what the hardware allows.
    """
    p = predict(work, chip, blocks)
    band = band_of(work.kind, p.bound)
    low = max(p.us * band.low / wider, min(p.us, p.floor_us + p.launch_us))
    return Estimate(p, low, p.us * band.high * wider, band.confidence if wider == 1 else "low")

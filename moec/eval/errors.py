"""How far two arrays are apart."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def error_between(actual: Array, expected: Array) -> tuple[float, float]:
    """The largest absolute error, and the largest relative to the largest magnitude expected; NaN or infinity in one
    only counts as infinite.
    """
    a, e = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    if a.shape != e.shape:
        raise ValueError(f"shapes differ: {list(a.shape)} against {list(e.shape)}")
    if a.size == 0:
        return 0.0, 0.0
    with np.errstate(invalid="ignore"):
        difference = np.where((a == e) | (np.isnan(a) & np.isnan(e)), 0.0, np.abs(a - e))
    worst = float("inf") if np.isnan(difference).any() else float(difference.max())
    scale = float(np.max(np.abs(e[np.isfinite(e)]), initial=0.0))
    return worst, worst / scale if scale else worst

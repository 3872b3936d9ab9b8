"""The curve of a sweep: points that can be told apart, labels within the picture."""

from __future__ import annotations

import re

from moec.report.curve import GIB, WIDTH, curve

SWEEP = [
    {"budget_bytes": n * GIB, "added_time_percent": p, "saved_percent": 10.0 * p}
    for n, p in ((20, 4.0), (30, 1.0), (60, 0.0))
]


def places(svg: str) -> list[float]:
    return [float(x) for x in re.findall(r'circle cx="([0-9.]+)"', svg)]


def test_a_budget_within_the_sweep_is_an_upright_line() -> None:
    svg = curve(SWEEP, 30 * GIB)
    assert f'M{places(svg)[1]} 14V184" stroke="var(--ink)" stroke-dasharray' in svg and "upright" in svg
    assert re.search(r'text-anchor="end">60 GiB', svg), "the last label ends where the axis does"
    assert places(svg)[-1] < WIDTH


def test_a_budget_far_above_does_not_squeeze_the_sweep() -> None:
    near, far = curve(SWEEP, 60 * GIB), curve(SWEEP, 4000 * GIB)
    assert places(near) == places(far) and "stroke-dasharray" not in far and "asked for: 4,000 GiB" in far


def test_one_point_is_no_curve() -> None:
    assert curve(SWEEP[:1], GIB) == ""

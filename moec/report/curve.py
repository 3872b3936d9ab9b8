"""The curve of a memory plan's sweep as inline SVG: added time over budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 220, 64, 36, 14
GIB = 1 << 30
FAR = 2.0
"""How many times the width of the sweep a budget may lie above it and still be drawn."""


def curve(sweep: Sequence[Mapping[str, Any]], budget: int) -> str:
    """The sweep's points joined by a line, the chosen budget an upright one, unless it lies so far above them that they
    could not be told apart; empty where there are fewer than two.
    """
    if len(sweep) < 2:
        return ""
    least, most = (f(s["budget_bytes"] for s in sweep) for f in (min, max))
    shown = budget <= most + FAR * (most - least)
    if shown:
        least, most = min(least, budget), max(most, budget)
    highest = max(s["added_time_percent"] for s in sweep) or 1.0

    def x(size: float) -> float:
        return LEFT + (WIDTH - LEFT - 12) * (size - least) / max(1, most - least)

    def y(percent: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * percent / highest

    points = " ".join(f"{x(s['budget_bytes']):.1f},{y(s['added_time_percent']):.1f}" for s in sweep)
    dots = "".join(
        f'<circle cx="{x(s["budget_bytes"]):.1f}" cy="{y(s["added_time_percent"]):.1f}" r="3.5" fill="var(--k0)">'
        f"<title>{s['budget_bytes'] / GIB:.2f} GiB: {s['added_time_percent']:.2f} % of time, "
        f"{s['saved_percent']:.1f} % of activations gone</title></circle>"
        for s in sweep
    )
    floor = HEIGHT - BOTTOM
    labels = "".join(
        f'<text x="{x(size):.1f}" y="{floor + 16}" text-anchor="{anchor}">{size / GIB:.3g} GiB</text>'
        for size, anchor in ((least, "middle"), ((least + most) / 2, "middle"), (most, "end"))
    )
    upright = f'<path d="M{x(budget):.1f} {TOP}V{floor}" stroke="var(--ink)" stroke-dasharray="4 3"/>' if shown else ""
    which = "upright: the one asked for" if shown else f"asked for: {budget / GIB:,.0f} GiB, far to the right"
    labels += "".join(
        f'<text x="{LEFT - 6}" y="{y(p) + 4:.1f}" text-anchor="end">{p:.2g} %</text>' for p in (0.0, highest)
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" aria-label="added time over memory budget" '
        f'style="font-size:11px;fill:var(--ink)"><path d="M{LEFT} {TOP}V{floor}H{WIDTH - 12}" fill="none" '
        f'stroke="var(--ink)" stroke-opacity=".4"/>{upright}'
        f'<polyline points="{points}" fill="none" stroke="var(--k0)" stroke-width="2"/>{dots}'
        f'{labels}<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 4}" text-anchor="middle">added time over the '
        f"budget of the card; {which}</text></svg>"
    )

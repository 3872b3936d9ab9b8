"""The schedule as an SVG timeline: kernels on the device, and below them the pipes of one core."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from moec.report.trace import PIPES
from moec.target import KernelTime, Schedule

WIDTH, LABEL, TRACK, GAP = 1080.0, 64.0, 26.0, 6.0
MOST_TICKS = 8


def timeline(schedule: Schedule) -> str:
    """The drawing; empty where the schedule has no kernels."""
    total = schedule.us
    if not schedule.kernels or total <= 0:
        return ""
    scale = (WIDTH - LABEL - 4) / total
    pipes = [p for p in PIPES if any(k.busy.get(p) for k in schedule.kernels)]
    height = 20 + (len(pipes) + 1) * (TRACK + GAP) + 6
    parts = [*_ticks(total, scale, height), _track(0, "kernels")]
    parts += [_track(i, pipe) for i, pipe in enumerate(pipes, 1)]
    start = 0.0
    for number, k in enumerate(schedule.kernels):
        parts.append(_kernel(number, k, LABEL + start * scale, scale))
        for i, pipe in enumerate(pipes, 1):
            parts += _pipe(k, pipe, i, LABEL + (start + k.launch_us) * scale, (k.us - k.launch_us) * scale)
        start += k.us
    head = f'<svg class="timeline" viewBox="0 0 {WIDTH:.0f} {height:.0f}" width="100%" role="img">'
    return head + "".join(parts) + "</svg>"


def _y(track: int) -> float:
    return 20 + track * (TRACK + GAP)


def _track(i: int, name: str) -> str:
    y = _y(i)
    band = (
        f'<rect class="band" x="{LABEL:.0f}" y="{y:.1f}" width="{WIDTH - LABEL - 4:.1f}" height="{TRACK:.0f}" rx="3"/>'
    )
    return band + f'<text class="track" x="0" y="{y + 17:.1f}">{escape(name)}</text>'


def _ticks(total: float, scale: float, height: float) -> list[str]:
    step = 10.0 ** _exponent(total / MOST_TICKS)
    step = next(step * m for m in (1, 2, 5, 10) if total / (step * m) <= MOST_TICKS)
    parts, at, n = [], 0.0, 0
    while at <= total:
        x = LABEL + at * scale
        parts.append(f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="16" y2="{height - 4:.1f}"/>')
        if x < WIDTH - 48:
            parts.append(f'<text class="time" x="{x + 3:.1f}" y="12">{at:g} µs</text>')
        n += 1
        at = n * step
    return parts


def _exponent(value: float) -> int:
    exponent = 0
    while 10.0 ** (exponent + 1) <= value:
        exponent += 1
    while 10.0**exponent > value:
        exponent -= 1
    return exponent


def _kernel(number: int, k: KernelTime, x: float, scale: float) -> str:
    y, launch, width = _y(0), k.launch_us * scale, k.us * scale
    title = f"{k.kernel}\n{k.us:.2f} µs, {k.cycles:,} cycles on {k.blocks} cores\nbound by {k.bound}"
    work = max(width - launch - 0.6, 0.6)
    text = ""
    if work > 7.0 * len(k.kernel) + 8:
        text = f'<text class="name" x="{x + launch + work / 2:.1f}" y="{y + 17:.1f}">{escape(k.kernel)}</text>'
    place = f'y="{y:.1f}" height="{TRACK:.0f}"'
    rects = (
        f'<rect class="launch" x="{x:.2f}" width="{launch:.2f}" {place}/>'
        f'<rect class="kernel k{number % 6}" x="{x + launch:.2f}" width="{work:.2f}" {place} rx="2"/>'
    )
    return f"<g><title>{escape(title)}</title>{rects}{text}</g>"


def _pipe(k: KernelTime, pipe: str, track: int, x: float, width: float) -> list[str]:
    """One pipe within a kernel: a bar as high as the pipe's busy share, and over it the busy intervals that are known.

    Intervals closer than half a pixel are drawn as one.
    """
    share = k.busy.get(pipe, 0.0)
    if not share or not k.cycles:
        return []
    height = (TRACK - 8) * min(share, 1.0)
    floor = _y(track) + TRACK - 4
    title = f"<title>{escape(f'{pipe} in {k.kernel}: busy {share:.0%}')}</title>"
    parts = [f'<path class="share p{pipe}" d="{_bar(x, floor - height, max(width, 0.3), height)}">{title}</path>']
    spans = sorted((s.start, s.stop) for s in k.spans if s.pipe == pipe)
    if spans:
        scale = width / k.cycles
        merged = _merge(spans, 0.5 / scale if scale else 0.0)
        full = TRACK - 8
        path = "".join(_bar(x + a * scale, floor - full, max((b - a) * scale, 0.3), full) for a, b in merged)
        parts.append(f'<path class="span p{pipe}" d="{path}">{title}</path>')
    return parts


def _bar(x: float, y: float, width: float, height: float) -> str:
    return f"M{x:.2f} {y:.2f}h{width:.2f}v{height:.2f}h{-width:.2f}z"


def _merge(spans: Sequence[tuple[int, int]], gap: float) -> list[tuple[int, int]]:
    merged = [spans[0]]
    for start, stop in spans[1:]:
        if start - merged[-1][1] <= gap:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged

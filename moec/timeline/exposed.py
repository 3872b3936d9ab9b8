"""Why communication is exposed: which exchange has no kernel beside it, and what each lane's next kernel waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moec.timeline.idle import LEAST, HostTime, Interval
from moec.timeline.model import Placed


@dataclass(frozen=True)
class Exposed:
    """``exchange`` (label), of ``lane`` and source line ``where``, takes ``whole_us`` and has no kernel beside it for
    ``us``. ``held``: by lane the kernel that starts next, empty if none is left, and the last exchange that it needs,
    empty if it needs none.
    """

    exchange: str
    lane: str
    where: str
    whole_us: float
    us: float
    held: tuple[tuple[str, str, str], ...]


def exposures(time: HostTime, groups: str = "") -> tuple[Exposed, ...]:
    """The exchanges over groups whose names begin with ``groups`` that are exposed in the window, in order."""
    placed = time.placed
    kernels = sorted((p.start, i) for i, p in enumerate(placed) if p.task.kind == "kernel" and p.end > p.start)
    lanes = sorted({p.task.lane for p in placed if p.task.lane}) or [""]
    found = []
    for p in placed:
        if p.task.kind != "collective" or not p.task.group.startswith(groups):
            continue
        bare = _bare((max(p.start, time.begin), min(p.end, time.end)), [placed[i] for _, i in kernels])
        us = sum(b - a for a, b in bare)
        if us > LEAST:
            held = []
            for lane in lanes:
                behind = [i for start, i in kernels if start >= bare[-1][1] - LEAST and placed[i].task.lane == lane]
                label = placed[behind[0]].task.label if behind else ""
                held.append((lane, label, _last_exchange(placed, behind[0], bare[0][0]) if behind else ""))
            found.append(Exposed(p.task.label, p.task.lane, p.task.where, p.end - p.start, us, tuple(held)))
    return tuple(found)


def _bare(window: Interval, kernels: Sequence[Placed]) -> list[Interval]:
    """The parts of ``window`` in which none of ``kernels``, given by their start, works."""
    bare, at = [], window[0]
    for k in kernels:
        if k.start >= window[1]:
            break
        if k.start > at:
            bare.append((at, k.start))
        at = max(at, k.end)
    return [*bare, (at, window[1])] if at < window[1] else bare


def _last_exchange(placed: Sequence[Placed], number: int, since: float) -> str:
    """Label of the exchange, of those that task ``number`` needs and that end after ``since``, which ends last."""
    stack, seen, last = [number], {number}, ""
    end = since
    while stack:
        for i in placed[stack.pop()].task.after:
            if i in seen or placed[i].end <= since:
                continue
            seen.add(i)
            stack.append(i)
            if placed[i].task.kind == "collective" and placed[i].end > end:
                last, end = placed[i].task.label, placed[i].end
    return last

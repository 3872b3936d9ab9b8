"""A layered drawing of a directed acyclic graph: ranks from top to bottom, few crossings, straight long edges.

Sugiyama's method with small parts: longest-path ranks are given, edges over several ranks get bend points, the
order within ranks comes from barycentre sweeps, and the x positions are the least-squares ones for that order (pool
adjacent violators).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

SWEEPS = 8
MOST_BENDS = 4000
"""Above this many bend points, long edges are drawn without any."""


@dataclass
class Box:
    """A node of the drawing, ``width`` wide in rank ``rank``; ``x`` is its centre."""

    rank: int
    width: float
    x: float = 0.0


@dataclass
class Layout:
    """Where things are: the boxes with x set, and for each edge the indices of the boxes and bends that it passes."""

    boxes: list[Box]
    paths: list[list[int]]
    ranks: list[list[int]]

    @property
    def width(self) -> float:
        """From 0 to the right edge of the rightmost box."""
        return max((b.x + b.width / 2 for b in self.boxes), default=0.0)


def layered(boxes: Sequence[Box], edges: Sequence[tuple[int, int]], gap: float) -> Layout:
    """Lay out ``boxes``; every edge goes from a lower rank to a higher one. Bends are appended to the boxes."""
    placed = list(boxes)
    paths = _with_bends(placed, edges)
    ranks: list[list[int]] = [[] for _ in range(max((b.rank for b in placed), default=-1) + 1)]
    for i, b in enumerate(placed):
        ranks[b.rank].append(i)
    above: list[list[int]] = [[] for _ in placed]
    below: list[list[int]] = [[] for _ in placed]
    for path in paths:
        for a, b_ in pairwise(path):
            above[b_].append(a)
            below[a].append(b_)
    _order(ranks, above, below)
    for row in ranks:
        _pack(placed, row, [0.0] * len(row), gap)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for row in ranks if down else ranks[::-1]:
            near = above if down else below
            wanted = [_mean([placed[j].x for j in near[i]], placed[i].x) for i in row]
            _pack(placed, row, wanted, gap)
    left = min((b.x - b.width / 2 for b in placed), default=0.0)
    for b in placed:
        b.x -= left
    return Layout(placed, paths, ranks)


def _with_bends(boxes: list[Box], edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    bends = sum(boxes[b].rank - boxes[a].rank - 1 for a, b in edges)
    paths = []
    for a, b in edges:
        path = [a]
        if bends <= MOST_BENDS:
            for rank in range(boxes[a].rank + 1, boxes[b].rank):
                path.append(len(boxes))
                boxes.append(Box(rank, 4.0))
        paths.append([*path, b])
    return paths


def _order(ranks: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    position = {i: float(k) for row in ranks for k, i in enumerate(row)}
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        near = above if down else below
        for row in ranks if down else ranks[::-1]:
            key = {i: _mean([position[j] for j in near[i]], position[i]) for i in row}
            row.sort(key=key.__getitem__)
            for k, i in enumerate(row):
                position[i] = float(k)


def _mean(numbers: list[float], default: float) -> float:
    return sum(numbers) / len(numbers) if numbers else default


def _pack(boxes: list[Box], row: list[int], wanted: list[float], gap: float) -> None:
    """Set the x of a row's boxes as near to ``wanted`` (squared) as their order and widths allow."""
    offsets, total = [], 0.0
    for k, i in enumerate(row):
        if k:
            total += (boxes[row[k - 1]].width + boxes[i].width) / 2 + gap
        offsets.append(total)
    blocks: list[tuple[float, int]] = []
    for w, offset in zip(wanted, offsets, strict=True):
        mean, count = w - offset, 1
        while blocks and blocks[-1][0] > mean:
            other, n = blocks.pop()
            mean, count = (mean * count + other * n) / (count + n), count + n
        blocks.append((mean, count))
    k = 0
    for mean, count in blocks:
        for _ in range(count):
            boxes[row[k]].x = mean + offsets[k]
            k += 1

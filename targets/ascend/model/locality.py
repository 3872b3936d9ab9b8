"""What the L2 makes of the order in which the cores touch device memory.

The cores are taken to keep pace. A block that is touched again is found in the L2 unless more than the L2 holds was
touched in between (least recently used goes first). Long kernels are followed for a sample of their blocks, in an L2
that is smaller by as much. Cores whose copies at one place in the order are of the same block read the same lines at
one time, and get them one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import zip_longest

from moec.targets.ascend.model.order import Copies, Copy

SAMPLED = 25_000
"""Copies that are followed through the L2, about."""


@dataclass(frozen=True)
class Locality:
    """By parameter: ``lost``, the share of its re-reads that the L2 no longer has; ``together``, how many cores read a
    line of it at one time, in the mean over its copies."""

    lost: Mapping[str, Fraction] = field(default_factory=dict)
    together: Mapping[str, Fraction] = field(default_factory=dict)


def locality(copies: Copies, capacity: int) -> Locality:
    """The order's locality in an L2 of ``capacity`` bytes."""
    return Locality(_lost(copies, capacity // copies.share) if copies.share else {}, _together(copies))


def _together(copies: Copies) -> dict[str, Fraction]:
    readers: dict[str, list[int]] = {}  # copies, sum of cores that share each
    for turn in zip_longest(*copies.start):
        counts: dict[Copy, int] = {}
        for copy in turn:
            if copy is not None:
                counts[copy] = counts.get(copy, 0) + 1
        for copy, count in counts.items():
            block = copies.describe(copy)
            if not block.writes:
                tally = readers.setdefault(block.tensor, [0, 0])
                tally[0] += count
                tally[1] += count * count
    return {tensor: Fraction(shared, count) for tensor, (count, shared) in readers.items()}


def _lost(copies: Copies, capacity: int) -> dict[str, Fraction]:
    touched: dict[str, list[int]] = {}  # bytes read, read for the first time, missed
    cache: dict[Copy, int] = {}
    seen: set[Copy] = set()
    free = capacity
    for copy in copies.sample:
        block = copies.describe(copy)
        kept = cache.pop(copy, None)
        if not block.writes:
            total = touched.setdefault(block.tensor, [0, 0, 0])
            total[0] += block.bytes
            total[1] += block.bytes if copy not in seen else 0
            total[2] += block.bytes if kept is None else 0
        seen.add(copy)
        cache[copy] = block.bytes
        if kept is None:
            free -= block.bytes
            while free < 0 and cache:
                free += cache.pop(next(iter(cache)))
    return {
        t: Fraction(missed - first, total - first) for t, (total, first, missed) in touched.items() if total > first
    }

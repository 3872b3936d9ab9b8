"""What the L2 makes of the order in which the cores touch device memory.

The cores are taken to keep pace. A block that is touched again is found in the L2 unless more than the L2 holds was
touched in between (least recently used goes first). Long kernels are followed for a sample of their blocks, in an L2
that is smaller by as much. Cores whose copies at one place in the order are of the same block read the same lines at
one time, and get them one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from moec.targets.ascend.model.order import Copies

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
    place, block = copies.start
    read = sorted({b.tensor for b in copies.blocks if not b.writes})
    number = {tensor: i for i, tensor in enumerate(read)}
    of = np.array([-1 if b.writes else number[b.tensor] for b in copies.blocks], np.int64)
    shared, cores = np.unique(place * max(1, len(copies.blocks)) + block, return_counts=True)
    tensor = of[shared % max(1, len(copies.blocks))]
    out: dict[str, Fraction] = {}
    for i, name in enumerate(read):
        each = cores[tensor == i]
        if len(each):
            out[name] = Fraction(int((each * each).sum()), int(each.sum()))
    return out


def _lost(copies: Copies, capacity: int) -> dict[str, Fraction]:
    blocks = copies.blocks
    sizes = [b.bytes for b in blocks]
    missed = _missed(copies.sample.tolist(), sizes, capacity)
    touched: dict[str, list[int]] = {}  # bytes read, read for the first time, missed
    for block, times, first, misses in zip(blocks, *missed, strict=True):
        if times and not block.writes:
            total = touched.setdefault(block.tensor, [0, 0, 0])
            total[0] += block.bytes * times
            total[1] += block.bytes * first
            total[2] += block.bytes * misses
    return {
        t: Fraction(missed - first, total - first) for t, (total, first, missed) in touched.items() if total > first
    }


def _missed(order: Sequence[int], sizes: Sequence[int], capacity: int) -> tuple[list[int], list[int], list[int]]:
    """How often each block is touched, whether it is at all, and how often the L2 does not have it."""
    times, misses = [0] * len(sizes), [0] * len(sizes)
    cache: dict[int, int] = {}
    free = capacity
    for one in order:
        times[one] += 1
        size = cache.pop(one, -1)
        if size < 0:
            misses[one] += 1
            size = sizes[one]
            free -= size
            cache[one] = size
            while free < 0:
                free += cache.pop(next(iter(cache)))
        else:
            cache[one] = size
    return times, [min(1, n) for n in times], misses

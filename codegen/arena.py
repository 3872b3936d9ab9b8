"""Where temporaries lie in one block of device memory: offsets such that no two that live at once overlap.

The host program places them when it runs, since sizes are known only then (``arena.h`` of a target's templates does
what ``place`` here does, and a test compares them); this is what reports say of it.

Best fit: tensors in decreasing size, each into the gap that it leaves least of. Then, as long as that helps, the tensor
that reaches highest is placed first and all are placed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from moec.codegen.program import Program
from moec.ir.symbol import evaluate

ALIGN = 512
"""Byte alignment of each tensor: what copies from device memory like best (CANN documentation of aclrtMalloc)."""

ROUNDS = 16
"""Attempts at a lower peak."""


@dataclass(frozen=True)
class Life:
    """A tensor of ``bytes`` that is in use from step ``first`` to step ``last``, both counted."""

    first: int
    last: int
    bytes: int


@dataclass(frozen=True)
class Placement:
    """The offset of each tensor, the peak that this comes to, and the least that any placement takes."""

    offsets: tuple[int, ...]
    peak: int
    bound: int


def place(lives: Sequence[Life]) -> Placement:
    """Offsets for tensors; their sizes are rounded up to ``ALIGN`` first."""
    sizes = [-(-max(life.bytes, 1) // ALIGN) * ALIGN for life in lives]
    bound = lower_bound([Life(life.first, life.last, size) for life, size in zip(lives, sizes, strict=True)])
    order = sorted(range(len(lives)), key=lambda i: (-sizes[i], i))
    best, peak = _placed(lives, sizes, order)
    offsets = best
    for _ in range(ROUNDS):
        if peak <= bound:
            break
        top = max(range(len(lives)), key=lambda i: (offsets[i] + sizes[i], -i))
        order = [top, *(i for i in order if i != top)]
        offsets, reached = _placed(lives, sizes, order)
        if reached < peak:
            best, peak = offsets, reached
    return Placement(tuple(best), peak, bound)


def lower_bound(lives: Sequence[Life]) -> int:
    """Most bytes alive at one step."""
    change: dict[int, int] = {}
    for life in lives:
        change[life.first] = change.get(life.first, 0) + life.bytes
        change[life.last + 1] = change.get(life.last + 1, 0) - life.bytes
    alive = most = 0
    for step in sorted(change):
        alive += change[step]
        most = max(most, alive)
    return most


def _placed(lives: Sequence[Life], sizes: Sequence[int], order: Sequence[int]) -> tuple[list[int], int]:
    """Best fit in a given order: offsets and their peak."""
    offsets = [0] * len(lives)
    done: list[int] = []  # by offset
    peak = 0
    for i in order:
        end, best, waste = 0, -1, -1
        for j in done:
            if lives[j].first > lives[i].last or lives[j].last < lives[i].first:
                continue
            gap = offsets[j] - end
            if gap >= sizes[i] and (best < 0 or gap - sizes[i] < waste):
                best, waste = end, gap - sizes[i]
            end = max(end, offsets[j] + sizes[j])
        offsets[i] = best if best >= 0 else end
        at = next((k for k, j in enumerate(done) if offsets[j] > offsets[i]), len(done))
        done.insert(at, i)
        peak = max(peak, offsets[i] + sizes[i])
    return offsets, peak


def temporaries(program: Program, sizes: Mapping[str, int]) -> dict[str, Life]:
    """The life of each temporary of a program at ``sizes``, in the program's order."""
    lives = program.lifetimes()
    size = {t.name: int(evaluate(t.bytes, sizes)) for t in program.of_kind("temp")}
    return {name: Life(*lives[name], size[name]) for name in size if name in lives}

"""When the host program makes its tensors: those whose sizes it knows from the start, and those that wait for a size
that it reads from the device. Each moment has one block of memory for its temporaries.
"""

from __future__ import annotations

from dataclasses import dataclass

from moec.codegen.program import Program, Tensor
from moec.ir.symbol import symbols_of


@dataclass(frozen=True)
class Block:
    """``step``: the tensors are made behind this one (-1: at the start). ``temporaries``: name, first and last use."""

    step: int
    tensors: tuple[Tensor, ...]
    temporaries: tuple[tuple[str, int, int], ...]


def blocks(program: Program) -> list[Block]:
    """The moments in order; the first stands for the start."""
    binds = program.binds()
    lives = program.lifetimes()
    moments: dict[int, list[Tensor]] = {at: [] for at in [-1, *sorted(binds.values())]}
    for t in program.tensors:
        moments[max((binds[s] for d in t.shape for s in symbols_of(d) if s in binds), default=-1)].append(t)
    return [
        Block(at, tuple(tensors), tuple((t.name, *lives[t.name]) for t in tensors if t.name in lives))
        for at, tensors in moments.items()
    ]

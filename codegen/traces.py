"""What the cores of a group run under a witness, step by step, with what each step must wait for.

Which accesses conflict does not depend on flags and barriers. So ``Needs`` are found once, of a kernel without them,
and ``steps_of`` lays them under any synchronisation of that kernel, for which accesses need no numbers.

On one pipe, vector instructions may overlap their neighbours (PIPE_V barrier), and a Mmad that accumulates into a small
tile may start before the one before it has written (CANN asc-devkit docs, Mmad: fewer than 10 fractals of 16 x 16). The
other pipes keep order by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from moec.codegen.courses import ALWAYS, NEVER, Courses, Entry, Leaf
from moec.codegen.interpret import Path, seats
from moec.codegen.kernel_ir import PIPES, Kernel, SetFlag, WaitFlag, Witness

SAMPLE = 2
"""Iterations of a long loop that a check looks at, besides the last two."""

NUMBER = {pipe: i for i, pipe in enumerate(PIPES)}
SCALAR = NUMBER["S"]

Needs = Sequence[tuple[tuple[int, int], ...]]
"""For each access in order: (pipe, number of the access) that must be over before it starts, one for each pipe."""


@dataclass(slots=True)
class Step:
    """A statement that ran as number ``pos``: what happens on ``pipe``, and (pipe, position, path) that must be over.

    Pipes are numbered through the cores of a group: ``len(PIPES)`` times the seat, plus the pipe. ``tag``: a mark of
    who put it there."""

    kind: str  # instr, set, wait, barrier, all, cross set, cross wait
    pipe: int
    path: Path
    pos: int
    needs: tuple[tuple[int, int, Path], ...] = ()
    channel: tuple[int, int, int] = (0, 0, 0)
    tag: int = -1


class Conflicts:
    """The needs of accesses, which are added in the order in which they run. By space: writes that nothing has
    overwritten since, as bytes and (pipe, number), and reads, as (bytes, pipe) and number; of equal ones the last."""

    def __init__(self, courses: Courses) -> None:
        self.courses = courses
        self.writes: dict[int, dict[tuple[int, int], tuple[int, int]]] = {}
        self.reads: dict[int, dict[tuple[int, int, int], int]] = {}
        self.needs: list[tuple[tuple[int, int], ...]] = []

    def add(self, seat: int, entry: Entry) -> None:
        """Adds an access of core ``seat``."""
        touches, own = self.courses.touches(seat, entry)
        pipe = seat * len(PIPES) + NUMBER[self.courses.leaves[entry[0]].pipe]
        latest: dict[int, int] = {}
        for space, at, first, many, write in touches:
            lo = entry[at] if at else first
            hi = lo + many
            for (low, high), (other, number) in self.writes.get(space, _NONE).items():
                if low < hi and lo < high and (other != pipe or own != NEVER) and latest.get(other, -1) < number:
                    latest[other] = number
            if write:
                for (low, high, other), number in self.reads.get(space, _NONE).items():
                    if low < hi and lo < high and (other != pipe or own == ALWAYS) and latest.get(other, -1) < number:
                        latest[other] = number
        for space, at, first, many, write in touches:
            lo = entry[at] if at else first
            if write:
                self._written(space, lo, lo + many, pipe)
            else:
                self.reads.setdefault(space, {})[lo, lo + many, pipe] = len(self.needs)
        self.needs.append(tuple(sorted(latest.items())))

    def _written(self, space: int, lo: int, hi: int, pipe: int) -> None:
        """Takes note of a write and forgets what it covers."""
        writes = self.writes.setdefault(space, {})
        for old in [b for b in writes if lo <= b[0] and b[1] <= hi]:
            del writes[old]
        writes[lo, hi] = pipe, len(self.needs)
        reads = self.reads.get(space, _NONE)
        for covered in [r for r in reads if lo <= r[0] and r[1] <= hi]:
            del reads[covered]


_NONE: dict[Any, Any] = {}


def cores_of(witness: Witness) -> Sequence[int]:
    """Cores that differ in what they run: the first, the second and the last."""
    return sorted({0, min(1, witness.cores - 1), witness.cores - 1})


def alone(courses: Courses, witness: Witness, core: int) -> tuple[tuple[Entry, ...], ...]:
    """What each core of group ``core`` issues."""
    return tuple([tuple(courses.of(witness, core, seat)) for seat in seats(courses.kernel)])


def interleaved(courses: Courses, runs: Sequence[Sequence[Entry]]) -> Iterator[tuple[int, Entry]]:
    """(seat, entry) of what the cores of a group issue, each going on until it waits for a flag that is not raised yet.

    Ends early, with the wait that none answers, where the group is stuck.
    """
    if len(runs) == 1:
        yield from ((0, entry) for entry in runs[0])
        return
    kinds = [leaf.kind for leaf in courses.leaves]
    raised: dict[tuple[int, int], int] = {}  # (sender, flag): sets so far
    taken: dict[tuple[int, int], int] = {}  # (waiter, flag)
    at = [0] * len(runs)
    moved = True
    while moved:
        moved = False
        for seat, run in enumerate(runs):
            while at[seat] < len(run):
                entry = run[at[seat]]
                kind = kinds[entry[0]]
                if kind == "cross wait":
                    number = taken.get((seat, entry[1]), 0)
                    if any(raised.get((s, entry[1]), 0) <= number for s in senders(seat)):
                        break
                    taken[seat, entry[1]] = number + 1
                elif kind == "cross set":
                    raised[seat, entry[1]] = raised.get((seat, entry[1]), 0) + 1
                moved = True
                at[seat] += 1
                yield seat, entry
    yield from ((seat, run[at[seat]]) for seat, run in enumerate(runs) if at[seat] < len(run))


def senders(seat: int) -> Sequence[int]:
    """Whose flags of mode 2 a core waits for: the vector cores of the group, or its cube core."""
    return (1, 2) if seat == 0 else (0,)


def program_of(kernel: Kernel, witness: Witness, core: int, needs: Needs | None = None) -> list[Step]:
    """What core ``core`` (in a mixed kernel: its group) runs under ``witness``, ready for checking.

    ``needs`` are those of the same kernel, whatever its flags and barriers were then. Accesses that need nothing are
    left out.
    """
    return steps_of(Courses(kernel, SAMPLE, numbers=needs is None), witness, core, needs)


def steps_of(courses: Courses, witness: Witness, core: int, needs: Needs | None = None) -> list[Step]:
    """``program_of`` the kernel of ``courses``, which are with numbers where ``needs`` are not given."""
    order = list(interleaved(courses, alone(courses, witness, core)))
    leaves = courses.leaves
    if needs is None:
        found = Conflicts(courses)
        for seat, entry in order:
            if leaves[entry[0]].kind == "access":
                found.add(seat, entry)
        needs = found.needs
    out: list[Step] = []
    ran: list[tuple[int, Path]] = []  # position and path of each access so far
    for pos, (seat, entry) in enumerate(order):
        leaf = leaves[entry[0]]
        if leaf.kind == "access":
            if mine := needs[len(ran)]:
                after = tuple([(pipe, *ran[number]) for pipe, number in mine])
                out.append(Step("instr", seat * len(PIPES) + NUMBER[leaf.pipe], leaf.path, pos, after))
            ran.append((pos, leaf.path))
        else:
            out.append(step_of(seat, leaf, entry, pos))
    return out


def step_of(seat: int, leaf: Leaf, entry: Entry, pos: int) -> Step:
    """What is no access: a flag, a barrier, or what cores tell one another."""
    s, base = leaf.stmt, seat * len(PIPES)
    if isinstance(s, SetFlag | WaitFlag):
        src, dst = base + NUMBER[s.src], base + NUMBER[s.dst]
        return Step(leaf.kind, src if leaf.kind == "set" else dst, leaf.path, pos, channel=(src, dst, entry[1]))
    channel = (seat, 0, entry[1]) if leaf.kind in ("cross set", "cross wait") else (0, 0, 0)
    return Step(leaf.kind, base + NUMBER.get(leaf.pipe, SCALAR), leaf.path, pos, channel=channel)

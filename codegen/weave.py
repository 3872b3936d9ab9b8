"""What a kernel runs with flags and barriers in it, without running it anew for each choice of them.

A kernel without flags is run once under each witness, with a mark at every place where one may come to stand. ``Plan``
says what stands at each mark for one choice; ``Run.program`` lays it in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from moec.codegen.depend import Sync, innermost_loop, outermost_loop
from moec.codegen.interpret import Path
from moec.codegen.kernel_ir import PIPES, Kernel, SetFlag, Stmt, Witness
from moec.codegen.placing import RANK, rebuild
from moec.codegen.scalar import Scalar
from moec.codegen.traces import ACCESSES, NUMBER, Conflicts, Needs, Step, cores_of, interleaved, step_of

Place = tuple[Path, bool]
"""A statement, and whether what is meant stands behind it."""


@dataclass(frozen=True, slots=True)
class Item:
    """A flag or barrier at a place: event ``base``, plus the place's number ``value`` if there is one; a barrier is
    left out where that number is 0. ``tag``: of which sync it is."""

    kind: str
    src: str
    dst: str
    base: int
    value: int | None
    tag: int


class Places:
    """The places of a kernel's candidates, with the scalars that are evaluated there."""

    def __init__(self, kernel: Kernel, syncs: Sequence[Sync]):
        self.kernel = kernel
        self.scalars: dict[Place, list[Scalar]] = {}
        for s in syncs:
            self._add(((*s.block, s.before), False), s.when if s.is_barrier else s.slot)
            if not s.is_barrier:
                self._add(((*s.block, s.after), True), s.slot)
            for loop in self._loops(s):
                for behind in (False, True):
                    self._add((loop, behind), None)

    def _loops(self, s: Sync) -> list[Path]:
        return [of(self.kernel, s.block) for of in (innermost_loop, outermost_loop)] if s.carried else []

    def _add(self, place: Place, scalar: Scalar | None) -> None:
        known = self.scalars.setdefault(place, [0])
        if scalar is not None and scalar not in known:
            known.append(scalar)

    def marked(self) -> tuple[Kernel, dict[Path, tuple[Place, int]]]:
        """The kernel with a flag for each scalar of each place, and by its path what each stands for."""
        marks: list[tuple[Place, int]] = []
        sides: tuple[dict[Path, list[tuple[Stmt, int]]], dict[Path, list[tuple[Stmt, int]]]] = ({}, {})
        for (path, behind), scalars in self.scalars.items():
            for number, scalar in enumerate(scalars):
                sides[behind].setdefault(path, []).append((SetFlag("S", "S", scalar), len(marks)))
                marks.append(((path, behind), number))
        tags: dict[Path, int] = {}
        body = rebuild(self.kernel.body, (), (), sides[0], sides[1], tags)
        return replace(self.kernel, body=body), {path: marks[i] for path, i in tags.items()}

    def plan(self, syncs: Sequence[Sync], bases: Sequence[int]) -> dict[Place, list[Item]]:
        """What stands where if ``syncs``, whose places are among these, have the event ids from ``bases`` on."""
        plan: dict[Place, list[Item]] = {}
        for i, (s, base) in enumerate(zip(syncs, bases, strict=True)):
            here = ((*s.block, s.before), False)
            if s.is_barrier:
                value = None if s.when is None else self.scalars[here].index(s.when)
                plan.setdefault(here, []).append(Item("barrier", s.src, s.dst, 0, value, i))
                continue
            there = ((*s.block, s.after), True)
            for kind, place in (("wait", here), ("set", there)):
                value = None if s.slots == 1 else self.scalars[place].index(s.slot)
                plan.setdefault(place, []).append(Item(kind, s.src, s.dst, base, value, i))
            if s.carried:
                loop = (innermost_loop if s.near else outermost_loop)(self.kernel, s.block)
                for slot in range(s.slots):
                    for kind, behind in (("set", False), ("wait", True)):
                        plan.setdefault((loop, behind), []).append(Item(kind, s.src, s.dst, base + slot, None, i))
        for (_, behind), items in plan.items():
            items.sort(key=lambda item: -RANK[item.kind] if behind else RANK[item.kind])
        return plan


@dataclass(frozen=True, slots=True)
class Mark:
    """A place passed by a core, and the numbers of its scalars then."""

    seat: int
    place: Place
    values: tuple[int, ...]


@dataclass(frozen=True)
class Run:
    """What a core (of a mixed kernel: a group) runs under a witness: steps and marks, and what accesses need."""

    witness: Witness
    core: int
    needs: Needs
    course: tuple[Step | Mark, ...]

    def program(self, plan: dict[Place, list[Item]]) -> list[Step]:
        """The steps with what ``plan`` has; accesses that need nothing are left out."""
        out: list[Step] = []
        ran: list[tuple[int, Path]] = []
        pos = 0
        for entry in self.course:
            if isinstance(entry, Step):
                if entry.kind == "instr":
                    if mine := self.needs[len(ran)]:
                        found = tuple((pipe, *ran[number]) for pipe, number in mine)
                        out.append(Step("instr", entry.pipe, entry.path, pos, found))
                    ran.append((pos, entry.path))
                else:
                    out.append(replace(entry, pos=pos))
                pos += 1
                continue
            seat = entry.seat * len(PIPES)
            for item in plan.get(entry.place, ()):
                value = 0 if item.value is None else entry.values[item.value]
                if item.kind == "barrier" and item.value is not None and not value:
                    continue
                src, dst = seat + NUMBER[item.src], seat + NUMBER[item.dst]
                channel = (0, 0, 0) if item.kind == "barrier" else (src, dst, item.base + value)
                pipe = src if item.kind == "set" else dst
                out.append(Step(item.kind, pipe, entry.place[0], pos, (), channel, item.tag))
                pos += 1
        return out


def runs_of(kernel: Kernel, places: Places) -> tuple[Run, ...]:
    """The runs of ``kernel``, which has no flags of its own, under each of its witnesses."""
    marked, marks = places.marked()
    return tuple(_run(marked, marks, w, core) for w in kernel.witnesses for core in cores_of(w))


def _run(marked: Kernel, marks: dict[Path, tuple[Place, int]], witness: Witness, core: int) -> Run:
    course: list[Step | Mark] = []
    conflicts = Conflicts()
    for seat, e in interleaved(marked, witness, core, True):
        if isinstance(e.stmt, ACCESSES):
            conflicts.add(seat, e)
            course.append(Step("instr", seat * len(PIPES) + NUMBER[e.pipe], e.path, 0))
        elif e.path in marks:
            place, number = marks[e.path]
            if number == 0:
                course.append(Mark(seat, place, (e.id,)))
            else:
                last = course[-1]
                assert isinstance(last, Mark) and last.place == place and last.seat == seat
                course[-1] = replace(last, values=(*last.values, e.id))
        else:
            course.append(step_of(seat, e, 0))
    return Run(witness, core, conflicts.needs, tuple(course))

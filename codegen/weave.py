"""What a kernel runs with flags and barriers in it, without running it anew for each choice of them.

A kernel without flags is run once under each witness, with a mark at every place where one may come to stand. ``Plan``
says what stands at each mark for one choice; ``Run.program`` lays it in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moec.codegen.courses import Courses, Entry, Leaf
from moec.codegen.depend import Sync, innermost_loop, outermost_loop
from moec.codegen.interpret import Path
from moec.codegen.kernel_ir import PIPES, Kernel, Witness
from moec.codegen.placing import RANK
from moec.codegen.scalar import Scalar
from moec.codegen.traces import NUMBER, SAMPLE, Conflicts, Needs, Step, alone, cores_of, interleaved, step_of

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


@dataclass(frozen=True)
class Run:
    """What a core (of a mixed kernel: a group) runs under a witness: what accesses need, and in ``course`` as (seat,
    index of a leaf, numbers) accesses, marks, and what cores tell one another."""

    witness: Witness
    core: int
    needs: Needs
    course: tuple[Entry, ...]
    leaves: Sequence[Leaf]

    def program(self, plan: dict[Place, list[Item]]) -> list[Step]:
        """The steps with what ``plan`` has; accesses that need nothing are left out."""
        out: list[Step] = []
        ran: list[tuple[int, Path]] = []
        pos = 0
        for seat, index, *numbers in self.course:
            leaf, base = self.leaves[index], seat * len(PIPES)
            if leaf.kind == "access":
                if mine := self.needs[len(ran)]:
                    found = tuple([(pipe, *ran[number]) for pipe, number in mine])
                    out.append(Step("instr", base + NUMBER[leaf.pipe], leaf.path, pos, found))
                ran.append((pos, leaf.path))
                pos += 1
                continue
            if leaf.place is None:
                out.append(step_of(seat, leaf, (index, *numbers), pos))
                pos += 1
                continue
            for item in plan.get(leaf.place, ()):
                value = 0 if item.value is None else numbers[item.value]
                if item.kind == "barrier" and item.value is not None and not value:
                    continue
                src, dst = base + NUMBER[item.src], base + NUMBER[item.dst]
                channel = (0, 0, 0) if item.kind == "barrier" else (src, dst, item.base + value)
                pipe = src if item.kind == "set" else dst
                out.append(Step(item.kind, pipe, leaf.path, pos, (), channel, item.tag))
                pos += 1
        return out


def runs_of(kernel: Kernel, places: Places) -> tuple[Run, ...]:
    """The runs of ``kernel``, which has no flags of its own, under each of its witnesses; of equal ones the first."""
    courses = Courses(kernel, SAMPLE, places.scalars)
    issued: set[tuple[tuple[Entry, ...], ...]] = set()
    found: dict[tuple[object, ...], Run] = {}
    for witness in kernel.witnesses:
        for core in cores_of(witness):
            each = alone(courses, witness, core)
            if each not in issued:
                issued.add(each)
                run = _run(courses, witness, core, each)
                found.setdefault((run.course, run.needs), run)
    return tuple(found.values())


def _run(courses: Courses, witness: Witness, core: int, each: Sequence[Sequence[Entry]]) -> Run:
    course: list[Entry] = []
    conflicts = Conflicts(courses)
    leaves = courses.leaves
    for seat, entry in interleaved(courses, each):
        if leaves[entry[0]].kind == "access":
            conflicts.add(seat, entry)
            course.append((seat, entry[0]))
        else:
            course.append((seat, *entry))
    return Run(witness, core, tuple(conflicts.needs), tuple(course), leaves)

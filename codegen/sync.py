"""Gives a kernel the flags and barriers it needs, and no others.

Candidates come from the structure (moec.codegen.depend). Each is then tried without: if the happens-before check finds
nothing unordered on any witness, it was redundant and is not emitted. Event ids 0 to 5 of each pipe pair are handed
out to what remains; pairs that need more share ids where the check shows that this is safe.
"""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b

from moec.codegen.courses import Courses
from moec.codegen.depend import Sync, candidates, innermost_loop, outermost_loop
from moec.codegen.hazards import Violation, violations
from moec.codegen.interpret import Path
from moec.codegen.kernel_ir import For, If, Kernel, Stmt
from moec.codegen.ordered import Code, coded, ordered
from moec.codegen.placing import insert
from moec.codegen.traces import SAMPLE, steps_of
from moec.codegen.weave import Places, Run, runs_of
from moec.diagnostics import Problem, Refusal, Where

EVENT_IDS = 6
"""Events 6 and 7 of a pipe pair are reserved (CANN asc-devkit docs, NPU arch 2201)."""


def synchronise(kernel: Kernel) -> Kernel:
    """``kernel`` (written without synchronisation) with the flags and barriers its witnesses show to be needed.

    Refusal where a pipe pair has too few event ids.
    """
    try:
        done = _synchronised(replace(kernel, name="", source=()))
    except Refusal as refusal:
        at = Where(node=", ".join(kernel.source))
        raise Refusal([replace(p, what=f"kernel {kernel.name} {p.what}", where=at) for p in refusal.problems]) from None
    except AssertionError as wrong:
        raise AssertionError(f"kernel {kernel.name}: {wrong}") from None
    return replace(done, name=kernel.name, source=kernel.source)


@lru_cache(maxsize=2048)
def _synchronised(kernel: Kernel) -> Kernel:
    if not kernel.witnesses:
        raise AssertionError("no witness to check the synchronisation with")
    tried = candidates(kernel)
    runs = _Runs.of(kernel, tried)
    shape = runs.shape(tried)
    known = _CHOSEN.get(shape)
    if known is not None:
        return insert(kernel, *known)[0]
    chosen = _chosen(runs, tried)
    done, _ = insert(kernel, *chosen)
    wrong = runs.check(done)
    if wrong:
        raise AssertionError(str(wrong[0]))
    _CHOSEN[shape] = chosen
    return done


Chosen = tuple[list[Sync], list[int]]
"""The syncs that a kernel gets, and the first event id of each."""
_CHOSEN: dict[bytes, Chosen] = {}
"""By shape of their runs, what kernels got: those that differ in sizes alone mostly run alike."""


def _chosen(runs: _Runs, tried: Sequence[Sync]) -> Chosen:
    needed = _minimal(runs, tried)
    joined = _within_ids(needed)
    if joined != needed:
        needed = _minimal(runs, joined)
    nearer = _nearer(runs.places.kernel, needed)
    if nearer != needed and not runs.faults(nearer, _own_ids(nearer)):
        needed = _minimal(runs, nearer)
    return needed, _allocate(runs, needed)


@dataclass(frozen=True)
class _Runs:
    """What a kernel is checked on, and the places of flags in it."""

    places: Places
    on: tuple[Run, ...]

    @classmethod
    def of(cls, kernel: Kernel, syncs: Sequence[Sync]) -> _Runs:
        places = Places(kernel, syncs)
        return cls(places, runs_of(kernel, places))

    def shape(self, syncs: Sequence[Sync]) -> bytes:
        """What all that follows depends on: ``syncs``, what runs do, and the loops around each statement."""
        leaves = [(leaf.kind, leaf.pipe, leaf.path) for run in self.on[:1] for leaf in run.leaves]
        about = repr((syncs, leaves, _loops(self.places.kernel.body))).encode()
        return blake2b(marshal.dumps([(run.course, run.needs) for run in self.on], 2) + about).digest()

    def trials(self, syncs: Sequence[Sync], bases: Sequence[int]) -> list[tuple[Sequence[Code], int]]:
        """With ``syncs`` in it, tagged by number, and how many pipes that takes; those that run alike once."""
        plan = self.places.plan(syncs, bases)
        return list(dict.fromkeys(coded(run.program(plan)) for run in self.on))

    def faults(self, syncs: Sequence[Sync], bases: Sequence[int]) -> list[Violation]:
        """What is unordered with ``syncs`` in it."""
        plan = self.places.plan(syncs, bases)
        programs = [program for run in self.on if not ordered(*coded(program := run.program(plan)))]
        return [v for program in programs for v in violations(program)]

    def check(self, done: Kernel) -> list[Violation]:
        """What is unordered in the kernel with its flags, as it runs."""
        courses = Courses(done, SAMPLE, numbers=False)
        programs = (steps_of(courses, run.witness, run.core, run.needs) for run in self.on)
        return [v for program in programs for v in violations(program)]


def _loops(block: Sequence[Stmt]) -> tuple[object, ...]:
    """Where loops and branches stand in ``block``."""
    return tuple(
        (i, _loops(s.body)) if isinstance(s, For) else (i, _loops(s.then), _loops(s.orelse))
        for i, s in enumerate(block)
        if isinstance(s, For | If)
    )


def _minimal(runs: _Runs, syncs: Sequence[Sync]) -> list[Sync]:
    """``syncs`` without those that none of ``runs`` needs, each tried in turn."""
    trials = runs.trials(syncs, _own_ids(syncs))
    if not all(ordered(*trial) for trial in trials):
        raise AssertionError(f"candidates do not suffice: {runs.faults(syncs, _own_ids(syncs))[0]}")
    dropped: set[int] = set()
    for i in sorted(range(len(syncs)), key=lambda i: _order(syncs[i], i)):
        if _ordered_without(trials, i):
            dropped.add(i)
            trials = [([step for step in program if step[-1] != i], pipes) for program, pipes in trials]
    return [s for i, s in enumerate(syncs) if i not in dropped]


def _ordered_without(trials: list[tuple[Sequence[Code], int]], i: int) -> bool:
    """Whether every trial is ordered without sync ``i``."""
    for number, (program, pipes) in enumerate(trials):
        rest = [step for step in program if step[-1] != i]
        if len(rest) < len(program) and not ordered(rest, pipes):
            trials.insert(0, trials.pop(number))  # likely to find the next fault too
            return False
    return True


def _own_ids(syncs: Sequence[Sync]) -> list[int]:
    """Event ids that no two share, however many that takes."""
    return [sum(s.slots for s in syncs[:i]) for i in range(len(syncs))]


def _order(s: Sync, i: int) -> tuple[int, int, int]:
    """What to try to drop first: carried flags (they hold pipes back most), then others, then barriers, last first."""
    if s.is_barrier:
        return (3, 0, -i)
    return (0 if s.carried and s.slots == 1 else 1 if s.carried else 2, len(s.block), i)


def _within_ids(syncs: Sequence[Sync]) -> list[Sync]:
    """``syncs`` with neighbours of one pipe pair joined until the pair's event ids suffice, or nothing can be joined.

    A joint flag is raised after the later of the two statements and awaited before the earlier of the two.
    """
    out = list(syncs)
    for pair in sorted({(s.src, s.dst) for s in out if not s.is_barrier}):
        while sum(s.slots for s in out if (s.src, s.dst) == pair) > EVENT_IDS:
            mine = [i for i, s in enumerate(out) if (s.src, s.dst) == pair]
            options = [
                (_loss(joint, out[i]) + _loss(joint, out[j]), i, j, joint)
                for n, i in enumerate(mine)
                for j in mine[n + 1 :]
                if (joint := _join(out[i], out[j])) is not None
            ]
            if not options:
                break
            _, i, j, joint = min(options, key=lambda o: o[:3])
            out[i] = joint
            del out[j]
    return out


def _nearer(kernel: Kernel, syncs: Sequence[Sync]) -> list[Sync]:
    """``syncs`` with the carried flags by slot of pipe pairs that have too few ids kept to their innermost loops.

    Such a flag is down between two runs of its loop, so loops that follow one another can share ids; the price is that
    the awaiting pipe stops at the loop's end until the other has caught up.
    """
    total: dict[tuple[str, str], int] = {}
    for s in syncs:
        total[s.src, s.dst] = total.get((s.src, s.dst), 0) + (0 if s.is_barrier else s.slots)
    return [
        replace(s, near=True)
        if s.carried and s.slots > 1 and total[s.src, s.dst] > EVENT_IDS and _inside(kernel, s.block)
        else s
        for s in syncs
    ]


def _inside(kernel: Kernel, block: Path) -> bool:
    """Whether ``block`` is in a loop in a loop."""
    return innermost_loop(kernel, block) != outermost_loop(kernel, block)


def _loss(joint: Sync, one: Sync) -> int:
    """By how many statements ``joint`` is raised later and awaited earlier than ``one`` was."""
    return joint.after - one.after + one.before - joint.before


def _join(a: Sync, b: Sync) -> Sync | None:
    """One flag that does the work of both, where there is one."""
    if (a.block, a.carried, a.slot, a.slots) != (b.block, b.carried, b.slot, b.slots):
        return None
    after, before = max(a.after, b.after), min(a.before, b.before)
    return replace(a, after=after, before=before) if a.carried or after < before else None


def _allocate(runs: _Runs, syncs: Sequence[Sync]) -> list[int]:
    """The first event id of each sync."""
    bases: list[int] = []
    used: dict[tuple[str, str], int] = {}
    for s in syncs:
        top = used.get((s.src, s.dst), 0)
        if s.is_barrier:
            bases.append(0)
        elif top + s.slots <= EVENT_IDS:
            bases.append(top)
            used[s.src, s.dst] = top + s.slots
        else:
            bases.append(_share(runs, syncs, bases))
    return bases


def _share(runs: _Runs, syncs: Sequence[Sync], bases: Sequence[int]) -> int:
    """An id for the first of ``syncs`` without one that another of its pair has, where no set can overtake a wait."""
    mine, rest = syncs[len(bases)], syncs[len(bases) + 1 :]
    later = [EVENT_IDS + sum(s.slots for s in rest[:i]) for i in range(len(rest))]  # numbers of their own for now
    for base in range(EVENT_IDS - mine.slots + 1):
        flags = [v for v in runs.faults(syncs, [*bases, base, *later]) if v.what.startswith(("flag", "wait"))]
        if not flags:
            return base
    raise Refusal(
        Problem(
            f"needs more than {EVENT_IDS} events between {mine.src} and {mine.dst}",
            todo="use fewer independent buffers or split the kernel",
        )
    )

"""Gives a kernel the flags and barriers it needs, and no others.

Candidates come from the structure (moec.codegen.depend). Each is then tried without: if the happens-before check finds
nothing unordered on any witness, it was redundant and is not emitted. Event ids 0 to 5 of each pipe pair are handed
out to what remains; pairs that need more share ids where the check shows that this is safe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from moec.codegen.depend import Sync, candidates, innermost_loop, outermost_loop
from moec.codegen.hazards import Violation, violations
from moec.codegen.interpret import Path
from moec.codegen.kernel_ir import Barrier, For, If, Kernel, SetFlag, Stmt, WaitFlag, Witness
from moec.codegen.scalar import Scalar, binary
from moec.codegen.traces import Needs, Step, cores_of, needs_of, program_of
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
    runs = _Runs.of(kernel)
    needed = _minimal(kernel, runs, candidates(kernel))
    joined = _within_ids(needed)
    if joined != needed:
        needed = _minimal(kernel, runs, joined)
    nearer = _nearer(kernel, needed)
    if nearer != needed and not runs.faults(_with_own_ids(kernel, nearer)[0]):
        needed = _minimal(kernel, runs, nearer)
    done, _ = insert(kernel, needed, _allocate(kernel, runs, needed))
    wrong = runs.faults(done)
    if wrong:
        raise AssertionError(str(wrong[0]))
    return done


@dataclass(frozen=True)
class _Runs:
    """What a kernel is checked on: witnesses and cores, with what each access needs there."""

    on: tuple[tuple[Witness, int, Needs], ...]

    @classmethod
    def of(cls, kernel: Kernel) -> _Runs:
        return cls(tuple((w, core, needs_of(kernel, w, core)) for w in kernel.witnesses for core in cores_of(w)))

    def programs(self, kernel: Kernel) -> list[list[Step]]:
        """Of the same kernel with flags and barriers in it; those that run alike once."""
        found: dict[tuple[object, ...], list[Step]] = {}
        for witness, core, needs in self.on:
            program = program_of(kernel, witness, core, needs)
            alike = tuple((s.kind, s.pipe, s.path, s.needs, s.channel) for s in program)
            found.setdefault(alike, program)
        return list(found.values())

    def faults(self, kernel: Kernel) -> list[Violation]:
        """What is unordered in it."""
        return [v for program in self.programs(kernel) for v in violations(program)]


def _minimal(kernel: Kernel, runs: _Runs, syncs: Sequence[Sync]) -> list[Sync]:
    """``syncs`` without those that none of ``runs`` needs, each tried in turn."""
    full, tags = _with_own_ids(kernel, syncs)
    programs = runs.programs(full)
    for program in programs:
        wrong = violations(program)
        if wrong:
            raise AssertionError(f"candidates do not suffice: {wrong[0]}")
    dropped: set[int] = set()
    for i in sorted(range(len(syncs)), key=lambda i: _order(syncs[i], i)):
        without: dict[int, list[Step]] = {}
        for number, program in enumerate(programs):
            rest = [step for step in program if tags.get(step.path) != i]
            if len(rest) < len(program):
                if violations(rest, first=True):
                    programs.insert(0, programs.pop(number))  # likely to find the next fault too
                    break
                without[number] = rest
        else:
            dropped.add(i)
            programs = [without.get(number, program) for number, program in enumerate(programs)]
    return [s for i, s in enumerate(syncs) if i not in dropped]


def _with_own_ids(kernel: Kernel, syncs: Sequence[Sync]) -> tuple[Kernel, dict[Path, int]]:
    """``insert`` with event ids that no two share, however many that takes."""
    bases, total = [], 0
    for s in syncs:
        bases.append(total)
        total += s.slots
    return insert(kernel, syncs, bases)


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


def _allocate(kernel: Kernel, runs: _Runs, syncs: Sequence[Sync]) -> list[int]:
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
            bases.append(_share(kernel, runs, syncs, bases))
    return bases


def _share(kernel: Kernel, runs: _Runs, syncs: Sequence[Sync], bases: Sequence[int]) -> int:
    """An id for the first of ``syncs`` without one that another of its pair has, where no set can overtake a wait."""
    mine, rest = syncs[len(bases)], syncs[len(bases) + 1 :]
    later = [EVENT_IDS + sum(s.slots for s in rest[:i]) for i in range(len(rest))]  # numbers of their own for now
    for base in range(EVENT_IDS - mine.slots + 1):
        trial, _ = insert(kernel, syncs, [*bases, base, *later])
        flags = [v for v in runs.faults(trial) if v.what.startswith(("flag", "wait"))]
        if not flags:
            return base
    raise Refusal(
        Problem(
            f"needs more than {EVENT_IDS} events between {mine.src} and {mine.dst}",
            todo="use fewer independent buffers or split the kernel",
        )
    )


def insert(kernel: Kernel, syncs: Sequence[Sync], bases: Sequence[int]) -> tuple[Kernel, dict[Path, int]]:
    """The kernel with ``syncs`` in place, and which of them each new statement (by its new path) belongs to."""
    before: dict[Path, list[tuple[Stmt, int]]] = {}
    after: dict[Path, list[tuple[Stmt, int]]] = {}
    for i, (s, base) in enumerate(zip(syncs, bases, strict=True)):
        here = (*s.block, s.before)
        if s.is_barrier:
            stmt: Stmt = Barrier(s.src)
            before.setdefault(here, []).append((stmt if s.when is None else If(s.when, (stmt,)), i))
            continue
        event: Scalar = base if s.slots == 1 else binary("+", s.slot, base)
        before.setdefault(here, []).append((WaitFlag(s.src, s.dst, event), i))
        after.setdefault((*s.block, s.after), []).append((SetFlag(s.src, s.dst, event), i))
        if s.carried:
            loop = (innermost_loop if s.near else outermost_loop)(kernel, s.block)
            for slot in range(s.slots):
                before.setdefault(loop, []).append((SetFlag(s.src, s.dst, base + slot), i))
                after.setdefault(loop, []).append((WaitFlag(s.src, s.dst, base + slot), i))
    tags: dict[Path, int] = {}
    body = _rebuild(kernel.body, (), (), before, after, tags)
    return replace(kernel, body=body), tags


_RANK = {WaitFlag: 0, Barrier: 1, If: 1, SetFlag: 2}


def _rebuild(
    block: Sequence[Stmt],
    old: Path,
    new: Path,
    before: dict[Path, list[tuple[Stmt, int]]],
    after: dict[Path, list[tuple[Stmt, int]]],
    tags: dict[Path, int],
) -> tuple[Stmt, ...]:
    out: list[Stmt] = []

    def add(extra: list[tuple[Stmt, int]], sets_first: bool) -> None:
        for stmt, i in sorted(extra, key=lambda e: -_RANK[type(e[0])] if sets_first else _RANK[type(e[0])]):
            path = (*new, len(out))
            tags[path] = i
            if isinstance(stmt, If):
                tags[(*path, 0, 0)] = i
            out.append(stmt)

    for i, stmt in enumerate(block):
        here = (*old, i)
        add(before.get(here, []), sets_first=False)
        path = (*new, len(out))
        if isinstance(stmt, For):
            body = _rebuild(stmt.body, (*here, 0), (*path, 0), before, after, tags)
            out.append(replace(stmt, body=body))
        elif isinstance(stmt, If):
            then = _rebuild(stmt.then, (*here, 0), (*path, 0), before, after, tags)
            out.append(
                replace(stmt, then=then, orelse=_rebuild(stmt.orelse, (*here, 1), (*path, 1), before, after, tags))
            )
        else:
            out.append(stmt)
        add(after.get(here, []), sets_first=True)
    return tuple(out)

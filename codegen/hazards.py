"""Static happens-before check of a kernel's synchronisation.

A core's scalar unit issues instructions in program order; each pipe runs its own in order, at its own pace. What one
pipe may rely on of another comes only through flags, barriers and the scalar unit's waits. This module follows that
knowledge over the trace of a witness: every pair of conflicting accesses (two uses of the same bytes, one of them a
write) must be ordered, every wait must meet a set, a flag is set again only when its last wait is known to be over, and
no flag stays set at the end.

The cores of a mixed kernel's group are followed together, in an order that their cross-core flags allow: device memory
is one for all of them, and what one may rely on of another comes through those flags alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moec.codegen.courses import Courses
from moec.codegen.interpret import Path
from moec.codegen.kernel_ir import (
    PIPES,
    Barrier,
    CrossCoreSet,
    CrossCoreWait,
    Kernel,
    SetFlag,
    Stmt,
    SyncAll,
    WaitFlag,
)
from moec.codegen.traces import SAMPLE, SCALAR, Step, cores_of, senders, steps_of


@dataclass(frozen=True, slots=True)
class Violation:
    """What is wrong at ``path``; ``other`` is the statement it collides with, where there is one."""

    what: str
    path: Path
    other: Path | None = None
    witness: int = 0

    def __str__(self) -> str:
        return f"{self.what} at {self.path}" + (f", against {self.other}" if self.other else "")


def _name(pipe: int) -> str:
    seat, own = divmod(pipe, len(PIPES))
    return PIPES[own] if seat == 0 else f"{PIPES[own]} of vector core {seat - 1}"


CROSS_DEPTH = 15
"""What the counter of a cross-core flag holds (CANN asc-devkit docs, NPU arch 2201)."""


def violations(program: Sequence[Step], first: bool = False) -> list[Violation]:
    """Everything unordered in ``program``; only the first one if asked."""
    per = len(PIPES)
    n = per * (1 + max([step.pipe for step in program], default=0) // per)
    known = [[-1] * n for _ in range(n)]  # known[p][q]: position up to which pipe q is over, as far as pipe p can tell
    moves = [0] * (n // per)  # how often each core's scalar unit has learnt something
    seen = [0] * n  # and up to which of these each pipe has
    sent: dict[tuple[int, int, int], list[list[int]]] = {}  # (sender, receiver, flag): what its sets tell
    raised: dict[tuple[int, int, int], list[int]] = {}
    last_wait: dict[tuple[int, int, int], int] = {}
    found: list[Violation] = []
    for step in program:
        mine, pos = known[step.pipe], step.pos
        seat, own = divmod(step.pipe, per)
        if own != SCALAR and seen[step.pipe] < moves[seat]:
            _merge(mine, known[seat * per + SCALAR])
            seen[step.pipe] = moves[seat]
        if step.kind == "instr":
            for q, need, path in step.needs:
                if mine[q] < need:
                    found.append(Violation(f"{_name(step.pipe)} may start before {_name(q)} is done", step.path, path))
        elif step.kind == "set":
            channel = step.channel
            if channel in raised:
                found.append(Violation("flag set twice without a wait", step.path))
            elif channel in last_wait and channel[1] % per != SCALAR and mine[channel[1]] < last_wait[channel]:
                # the scalar unit is past its waits when it issues the set
                found.append(Violation("flag may be set again before its wait is over", step.path))
            snapshot = list(mine)
            snapshot[step.pipe] = pos
            raised[channel] = snapshot
        elif step.kind == "wait":
            got = raised.pop(step.channel, None)
            if got is None:
                found.append(Violation("wait for a flag that nobody sets", step.path))
            else:
                _merge(mine, got)
                last_wait[step.channel] = pos
                moves[seat] += own == SCALAR
        elif step.kind == "barrier":
            mine[step.pipe] = pos
        elif step.kind == "cross set":
            snapshot = list(mine)
            snapshot[step.pipe] = pos
            for other in senders(seat):
                waiting = sent.setdefault((seat, other, step.channel[2]), [])
                waiting.append(snapshot)
                if len(waiting) > CROSS_DEPTH:
                    found.append(Violation("cross-core flag raised more often than its counter holds", step.path))
        elif step.kind == "cross wait":
            told = [sent.get((other, seat, step.channel[2]), []) for other in senders(seat)]
            if not all(told):
                found.append(Violation("wait for a cross-core flag that nobody raises", step.path))
            for queue in told:
                if queue:
                    _merge(mine, queue.pop(0))
            moves[seat] += 1
        else:
            for row in known[seat * per : (seat + 1) * per]:
                row[seat * per : (seat + 1) * per] = [pos] * per
        if found and first:
            return found
    found += [
        Violation(f"flag {_name(c[0])} to {_name(c[1])} {c[2]} is still set at the end", program[-1].path)
        for c in raised
    ]
    found += [
        Violation(f"cross-core flag {flag} is still raised at the end", program[-1].path)
        for (_, _, flag), waiting in sorted(sent.items())
        if waiting
    ]
    return found


def _merge(into: list[int], other: Sequence[int]) -> None:
    into[:] = [x if x > y else y for x, y in zip(into, other, strict=True)]


def check(kernel: Kernel) -> list[Violation]:
    """Violations over all witnesses of the kernel (none: synchronisation is sufficient for what they run)."""
    found: list[Violation] = []
    courses = Courses(kernel, SAMPLE)
    for i, witness in enumerate(kernel.witnesses):
        for core in cores_of(witness):
            program = steps_of(courses, witness, core)
            found += [Violation(v.what, v.path, v.other, i) for v in violations(program)]
    return found


def is_site(stmt: Stmt) -> bool:
    """Whether removing ``stmt`` is a synchronisation fault."""
    return isinstance(stmt, (SetFlag, WaitFlag, Barrier, SyncAll, CrossCoreSet, CrossCoreWait))

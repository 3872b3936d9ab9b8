"""Static happens-before check of a kernel's synchronisation.

A core's scalar unit issues instructions in program order; each pipe runs its own in order, at its own pace. What one
pipe may rely on of another comes only through flags, barriers and the scalar unit's waits. This module follows that
knowledge over the trace of a witness: every pair of conflicting accesses (two uses of the same bytes, one of them a
write) must be ordered, every wait must meet a set, a flag is set again only when its last wait is known to be over, and
no flag stays set at the end.

On one pipe, vector instructions may overlap their neighbours (PIPE_V barrier), and a Mmad that accumulates into a small
tile may start before the one before it has written (CANN asc-devkit docs, Mmad: fewer than 10 fractals of 16 x 16). The
other pipes keep order by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from moec.codegen.interpret import Access, Event, Path, trace
from moec.codegen.kernel_ir import PIPES, Barrier, Instr, Kernel, SetFlag, Stmt, SyncAll, WaitFlag, Witness

SMALL_MMAD = 10
"""Fractals of the output tile below which accumulating Mmads need a PIPE_M barrier."""

_NUMBER = {pipe: i for i, pipe in enumerate(PIPES)}
_S = _NUMBER["S"]


@dataclass(frozen=True, slots=True)
class Violation:
    """What is wrong at ``path``; ``other`` is the statement it collides with, where there is one."""

    what: str
    path: Path
    other: Path | None = None
    witness: int = 0

    def __str__(self) -> str:
        return f"{self.what} at {self.path}" + (f", against {self.other}" if self.other else "")


@dataclass(slots=True)
class Step:
    """An event made ready for checking: ``needs`` lists (pipe, position, path) that must be over before it starts."""

    kind: str  # instr, set, wait, barrier, all
    pipe: int
    path: Path
    needs: list[tuple[int, int, Path]] = field(default_factory=list)
    channel: tuple[int, int, int] = (0, 0, 0)


class _Memory:
    """Accesses so far, by space; gives the conflicting earlier ones of a new access and forgets what is overwritten."""

    def __init__(self) -> None:
        self.past: dict[str, list[tuple[int, int, int, int, bool, Path]]] = {}

    def conflicts(self, a: Access) -> list[tuple[int, int, bool, Path]]:
        """(pipe, position, was a write, path) of earlier accesses that share bytes with ``a``, one of them a write."""
        return [
            (pipe, pos, wrote, path)
            for lo, hi, pipe, pos, wrote, path in self.past.get(a.space, ())
            if lo < a.hi and a.lo < hi and (wrote or a.write)
        ]

    def add(self, a: Access, pipe: int, pos: int, path: Path) -> None:
        old = self.past.get(a.space, [])
        if a.write:
            old = [e for e in old if not (a.lo <= e[0] and e[1] <= a.hi)]
        else:
            old = [e for e in old if not (a.lo <= e[0] and e[1] <= a.hi and e[2] == pipe and not e[4])]
        old.append((a.lo, a.hi, pipe, pos, a.write, path))
        self.past[a.space] = old


def _needs(event: Event, pipe: int, memory: _Memory) -> list[tuple[int, int, Path]]:
    """The latest conflicting access on each pipe."""
    latest: dict[int, tuple[int, Path]] = {}
    for a in event.accesses:
        for other, pos, wrote, path in memory.conflicts(a):
            if other == pipe and not _same_pipe_hazard(event, wrote):
                continue
            if other not in latest or latest[other][0] < pos:
                latest[other] = (pos, path)
    return [(p, pos, path) for p, (pos, path) in sorted(latest.items())]


def _same_pipe_hazard(event: Event, wrote: bool) -> bool:
    if event.pipe == "V":
        return True
    if event.pipe == "M" and event.resolved is not None and wrote:
        r = event.resolved
        return not r.p["cmatrixInitVal"] and -(-r.n("m") // 16) * -(-r.n("n") // 16) < SMALL_MMAD
    return False


def by_unit_flags(stmt: Stmt) -> bool:
    """Whether ``stmt`` is a Fixpipe that the cube hands its tile piece by piece: hardware orders its reads of L0C."""
    return isinstance(stmt, Instr) and stmt.op == "Fixpipe" and stmt.param("unitFlag") != 0


def steps(events: Iterable[Event]) -> list[Step]:
    """The events of one core with what each must wait for."""
    out: list[Step] = []
    memory = _Memory()
    for pos, e in enumerate(events):
        s: Stmt = e.stmt
        if isinstance(s, SetFlag):
            src, dst = _NUMBER[s.src], _NUMBER[s.dst]
            out.append(Step("set", src, e.path, channel=(src, dst, e.id)))
        elif isinstance(s, WaitFlag):
            src, dst = _NUMBER[s.src], _NUMBER[s.dst]
            out.append(Step("wait", dst, e.path, channel=(src, dst, e.id)))
        elif isinstance(s, Barrier):
            out.append(Step("all" if s.pipe == "ALL" else "barrier", _NUMBER.get(s.pipe, _S), e.path))
        elif isinstance(s, SyncAll):
            out.append(Step("all", _S, e.path))
        else:
            pipe = _NUMBER[e.pipe]
            if by_unit_flags(s):
                e = replace(e, accesses=[a for a in e.accesses if a.space != "L0C"])
            out.append(Step("instr", pipe, e.path, _needs(e, pipe, memory)))
            for a in e.accesses:
                memory.add(a, pipe, pos, e.path)
    return out


def violations(
    program: Sequence[Step], skip: Callable[[Step], bool] | None = None, first: bool = False
) -> list[Violation]:
    """Everything unordered in ``program`` with the steps that ``skip`` picks left out; only the first one if asked."""
    n = len(PIPES)
    known = [[-1] * n for _ in range(n)]  # known[p][q]: position up to which pipe q is over, as far as pipe p can tell
    scalar_moved = False
    raised: dict[tuple[int, int, int], list[int]] = {}
    last_wait: dict[tuple[int, int, int], int] = {}
    found: list[Violation] = []
    for pos, step in enumerate(program):
        if skip is not None and step.kind != "instr" and skip(step):
            continue
        mine = known[step.pipe]
        if scalar_moved and step.pipe != _S:
            _merge(mine, known[_S])
        if step.kind == "instr":
            for q, need, path in step.needs:
                if mine[q] < need:
                    found.append(Violation(f"{PIPES[step.pipe]} may start before {PIPES[q]} is done", step.path, path))
        elif step.kind == "set":
            channel = step.channel
            if channel in raised:
                found.append(Violation("flag set twice without a wait", step.path))
            elif channel in last_wait and channel[1] != _S and mine[channel[1]] < last_wait[channel]:
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
                scalar_moved = scalar_moved or step.pipe == _S
        elif step.kind == "barrier":
            mine[step.pipe] = pos
        else:
            for row in known:
                row[:] = [pos] * n
        if found and first:
            return found
    found += [
        Violation(f"flag {PIPES[c[0]]}_{PIPES[c[1]]} {c[2]} is still set at the end", program[-1].path) for c in raised
    ]
    return found


def _merge(into: list[int], other: Sequence[int]) -> None:
    for i, x in enumerate(other):
        if x > into[i]:
            into[i] = x


SAMPLE = 2
"""Iterations of a long loop that a check looks at, besides the last two."""


def cores_of(witness: Witness) -> Sequence[int]:
    """Cores that differ in what they run: the first, the second and the last."""
    return sorted({0, min(1, witness.cores - 1), witness.cores - 1})


def check(kernel: Kernel) -> list[Violation]:
    """Violations over all witnesses of the kernel (none: synchronisation is sufficient for what they run)."""
    found: list[Violation] = []
    for i, witness in enumerate(kernel.witnesses):
        for core in cores_of(witness):
            program = steps(trace(kernel, witness, core, SAMPLE))
            found += [Violation(v.what, v.path, v.other, i) for v in violations(program)]
    return found


def is_site(stmt: Stmt) -> bool:
    """Whether removing ``stmt`` is a synchronisation fault."""
    return isinstance(stmt, (SetFlag, WaitFlag, Barrier, SyncAll))

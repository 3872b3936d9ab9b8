"""Static happens-before check of a kernel's synchronisation.

A core's scalar unit issues instructions in program order; each pipe runs its own in order, at its own pace. What one
pipe may rely on of another comes only through flags, barriers and the scalar unit's waits. This module follows that
knowledge over the trace of a witness: every pair of conflicting accesses (two uses of the same bytes, one of them a
write) must be ordered, every wait must meet a set, a flag is set again only when its last wait is known to be over, and
no flag stays set at the end.

The cores of a mixed kernel's group are followed together, in an order that their cross-core flags allow: device memory
is one for all of them, and what one may rely on of another comes through those flags alone.

On one pipe, vector instructions may overlap their neighbours (PIPE_V barrier), and a Mmad that accumulates into a small
tile may start before the one before it has written (CANN asc-devkit docs, Mmad: fewer than 10 fractals of 16 x 16). The
other pipes keep order by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from moec.codegen.interpret import Access, Event, Path, seats, trace
from moec.codegen.kernel_ir import (
    PIPES,
    Barrier,
    CrossCoreSet,
    CrossCoreWait,
    Instr,
    Kernel,
    SetFlag,
    Stmt,
    SyncAll,
    WaitFlag,
    Witness,
)

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
    """An event made ready for checking: ``needs`` lists (pipe, position, path) that must be over before it starts.

    Pipes are numbered through the cores of a group: ``len(PIPES)`` times the seat, plus the pipe."""

    kind: str  # instr, set, wait, barrier, all, cross set, cross wait
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


def interleaved(kernel: Kernel, witness: Witness, core: int) -> Iterator[tuple[int, Event]]:
    """(seat, event) of every core of group ``core``, each going on until it waits for a flag that is not raised yet.

    Ends early, with the wait that none answers, where the group is stuck.
    """
    runs = [trace(kernel, witness, core, SAMPLE, seat) for seat in seats(kernel)]
    raised: dict[tuple[int, int], int] = {}  # (sender, flag): sets so far
    taken: dict[tuple[int, int], int] = {}  # (waiter, flag)
    held: list[Event | None] = [None] * len(runs)
    live = set(range(len(runs)))
    while live:
        moved = False
        for seat in sorted(live):
            while True:
                event = held[seat] or next(runs[seat], None)
                held[seat] = None
                if event is None:
                    live.discard(seat)
                    break
                if isinstance(event.stmt, CrossCoreWait):
                    number = taken.get((seat, event.id), 0)
                    if any(raised.get((s, event.id), 0) <= number for s in _senders(seat)):
                        held[seat] = event
                        break
                    taken[seat, event.id] = number + 1
                elif isinstance(event.stmt, CrossCoreSet):
                    raised[seat, event.id] = raised.get((seat, event.id), 0) + 1
                moved = True
                yield seat, event
        if not moved and live:
            yield from ((seat, e) for seat, e in enumerate(held) if e is not None)
            return


def _senders(seat: int) -> Sequence[int]:
    """Whose flags of mode 2 a core waits for: the vector cores of the group, or its cube core."""
    return (1, 2) if seat == 0 else (0,)


def program_of(kernel: Kernel, witness: Witness, core: int) -> list[Step]:
    """What core ``core`` (in a mixed kernel: its group) runs under ``witness``, ready for checking."""
    return steps(interleaved(kernel, witness, core))


def steps(events: Iterable[tuple[int, Event]]) -> list[Step]:
    """(seat, event) of the cores of a group with what each must wait for."""
    out: list[Step] = []
    memory = _Memory()
    for pos, (seat, e) in enumerate(events):
        s: Stmt = e.stmt
        base = seat * len(PIPES)
        if isinstance(s, SetFlag):
            src, dst = base + _NUMBER[s.src], base + _NUMBER[s.dst]
            out.append(Step("set", src, e.path, channel=(src, dst, e.id)))
        elif isinstance(s, WaitFlag):
            src, dst = base + _NUMBER[s.src], base + _NUMBER[s.dst]
            out.append(Step("wait", dst, e.path, channel=(src, dst, e.id)))
        elif isinstance(s, Barrier):
            out.append(Step("all" if s.pipe == "ALL" else "barrier", base + _NUMBER.get(s.pipe, _S), e.path))
        elif isinstance(s, SyncAll):
            out.append(Step("all", base + _S, e.path))
        elif isinstance(s, CrossCoreSet):
            out.append(Step("cross set", base + _NUMBER[s.pipe], e.path, channel=(seat, 0, e.id)))
        elif isinstance(s, CrossCoreWait):
            out.append(Step("cross wait", base + _S, e.path, channel=(seat, 0, e.id)))
        else:
            pipe = base + _NUMBER[e.pipe]
            if by_unit_flags(s):
                e = replace(e, accesses=[a for a in e.accesses if a.space != "L0C"])
            if seat:
                e = replace(e, accesses=[_of_seat(a, seat) for a in e.accesses])
            out.append(Step("instr", pipe, e.path, _needs(e, pipe, memory)))
            for a in e.accesses:
                memory.add(a, pipe, pos, e.path)
    return out


def _of_seat(a: Access, seat: int) -> Access:
    """On-chip memory is each core's own."""
    return a if a.space.startswith("GM:") else replace(a, space=f"{seat}:{a.space}")


def _name(pipe: int) -> str:
    seat, own = divmod(pipe, len(PIPES))
    return PIPES[own] if seat == 0 else f"{PIPES[own]} of vector core {seat - 1}"


CROSS_DEPTH = 15
"""What the counter of a cross-core flag holds (CANN asc-devkit docs, NPU arch 2201)."""


def violations(
    program: Sequence[Step], skip: Callable[[Step], bool] | None = None, first: bool = False
) -> list[Violation]:
    """Everything unordered in ``program`` with the steps that ``skip`` picks left out; only the first one if asked."""
    per = len(PIPES)
    n = per * (1 + max((step.pipe for step in program), default=0) // per)
    known = [[-1] * n for _ in range(n)]  # known[p][q]: position up to which pipe q is over, as far as pipe p can tell
    moves = [0] * (n // per)  # how often each core's scalar unit has learnt something
    seen = [0] * n  # and up to which of these each pipe has
    sent: dict[tuple[int, int, int], list[list[int]]] = {}  # (sender, receiver, flag): what its sets tell
    raised: dict[tuple[int, int, int], list[int]] = {}
    last_wait: dict[tuple[int, int, int], int] = {}
    found: list[Violation] = []
    for pos, step in enumerate(program):
        if skip is not None and step.kind != "instr" and skip(step):
            continue
        mine = known[step.pipe]
        seat, own = divmod(step.pipe, per)
        if own != _S and seen[step.pipe] < moves[seat]:
            _merge(mine, known[seat * per + _S])
            seen[step.pipe] = moves[seat]
        if step.kind == "instr":
            for q, need, path in step.needs:
                if mine[q] < need:
                    found.append(Violation(f"{_name(step.pipe)} may start before {_name(q)} is done", step.path, path))
        elif step.kind == "set":
            channel = step.channel
            if channel in raised:
                found.append(Violation("flag set twice without a wait", step.path))
            elif channel in last_wait and channel[1] % per != _S and mine[channel[1]] < last_wait[channel]:
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
                moves[seat] += own == _S
        elif step.kind == "barrier":
            mine[step.pipe] = pos
        elif step.kind == "cross set":
            snapshot = list(mine)
            snapshot[step.pipe] = pos
            for other in (1, 2) if seat == 0 else (0,):
                waiting = sent.setdefault((seat, other, step.channel[2]), [])
                waiting.append(snapshot)
                if len(waiting) > CROSS_DEPTH:
                    found.append(Violation("cross-core flag raised more often than its counter holds", step.path))
        elif step.kind == "cross wait":
            told = [sent.get((other, seat, step.channel[2]), []) for other in _senders(seat)]
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
            program = program_of(kernel, witness, core)
            found += [Violation(v.what, v.path, v.other, i) for v in violations(program)]
    return found


def is_site(stmt: Stmt) -> bool:
    """Whether removing ``stmt`` is a synchronisation fault."""
    return isinstance(stmt, (SetFlag, WaitFlag, Barrier, SyncAll, CrossCoreSet, CrossCoreWait))

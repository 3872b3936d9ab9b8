"""What the cores of a group run under a witness, step by step, with what each step must wait for.

Which accesses conflict does not depend on flags and barriers. So ``Needs`` are found once, of a kernel without them,
and ``program_of`` lays them under any synchronisation of that kernel, for which instructions need no numbers.

On one pipe, vector instructions may overlap their neighbours (PIPE_V barrier), and a Mmad that accumulates into a small
tile may start before the one before it has written (CANN asc-devkit docs, Mmad: fewer than 10 fractals of 16 x 16). The
other pipes keep order by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from moec.codegen.interpret import Access, Event, Path, seats, trace
from moec.codegen.kernel_ir import (
    PIPES,
    Barrier,
    CrossCoreSet,
    CrossCoreWait,
    Instr,
    Kernel,
    LoadScalar,
    SetFlag,
    Stmt,
    StoreScalar,
    SyncAll,
    WaitFlag,
    Witness,
)

SMALL_MMAD = 10
"""Fractals of the output tile below which accumulating Mmads need a PIPE_M barrier."""
SAMPLE = 2
"""Iterations of a long loop that a check looks at, besides the last two."""

NUMBER = {pipe: i for i, pipe in enumerate(PIPES)}
SCALAR = NUMBER["S"]

ACCESSES = (Instr, LoadScalar, StoreScalar)
"""Statements that access memory."""

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


class _Memory:
    """Accesses so far, by space; gives the conflicting earlier ones of a new access and forgets what is overwritten."""

    def __init__(self) -> None:
        self.past: dict[str, list[tuple[int, int, int, int, bool]]] = {}

    def conflicts(self, a: Access) -> list[tuple[int, int, bool]]:
        """(pipe, number, was a write) of earlier accesses that share bytes with ``a``, one of them a write."""
        return [
            (pipe, number, wrote)
            for lo, hi, pipe, number, wrote in self.past.get(a.space, ())
            if lo < a.hi and a.lo < hi and (wrote or a.write)
        ]

    def add(self, a: Access, pipe: int, number: int) -> None:
        old = self.past.get(a.space, [])
        if a.write:
            old = [e for e in old if not (a.lo <= e[0] and e[1] <= a.hi)]
        else:
            old = [e for e in old if not (a.lo <= e[0] and e[1] <= a.hi and e[2] == pipe and not e[4])]
        old.append((a.lo, a.hi, pipe, number, a.write))
        self.past[a.space] = old


def _needs(event: Event, pipe: int, memory: _Memory) -> tuple[tuple[int, int], ...]:
    """The latest conflicting access on each pipe."""
    latest: dict[int, int] = {}
    for a in event.accesses:
        for other, number, wrote in memory.conflicts(a):
            if other == pipe and not _same_pipe_hazard(event, wrote):
                continue
            if latest.get(other, -1) < number:
                latest[other] = number
    return tuple(sorted(latest.items()))


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


def cores_of(witness: Witness) -> Sequence[int]:
    """Cores that differ in what they run: the first, the second and the last."""
    return sorted({0, min(1, witness.cores - 1), witness.cores - 1})


def interleaved(kernel: Kernel, witness: Witness, core: int, numbers: bool) -> Iterator[tuple[int, Event]]:
    """(seat, event) of every core of group ``core``, each going on until it waits for a flag that is not raised yet.

    Ends early, with the wait that none answers, where the group is stuck.
    """
    runs = [trace(kernel, witness, core, SAMPLE, seat, numbers) for seat in seats(kernel)]
    if len(runs) == 1:
        yield from ((0, event) for event in runs[0])
        return
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
                    if any(raised.get((s, event.id), 0) <= number for s in senders(seat)):
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


def senders(seat: int) -> Sequence[int]:
    """Whose flags of mode 2 a core waits for: the vector cores of the group, or its cube core."""
    return (1, 2) if seat == 0 else (0,)


def needs_of(kernel: Kernel, witness: Witness, core: int) -> Needs:
    """What each access of core ``core`` (in a mixed kernel: of its group) must come after under ``witness``."""
    found = Conflicts()
    for seat, e in interleaved(kernel, witness, core, True):
        if isinstance(e.stmt, ACCESSES):
            found.add(seat, e)
    return found.needs


class Conflicts:
    """The needs of accesses, which are added in the order in which they run."""

    def __init__(self) -> None:
        self.memory, self.needs = _Memory(), list[tuple[tuple[int, int], ...]]()

    def add(self, seat: int, e: Event) -> None:
        pipe = seat * len(PIPES) + NUMBER[e.pipe]
        if by_unit_flags(e.stmt):
            e = replace(e, accesses=[a for a in e.accesses if a.space != "L0C"])
        if seat:
            e = replace(e, accesses=[_of_seat(a, seat) for a in e.accesses])
        number = len(self.needs)
        self.needs.append(_needs(e, pipe, self.memory))
        for a in e.accesses:
            self.memory.add(a, pipe, number)


def _of_seat(a: Access, seat: int) -> Access:
    """On-chip memory is each core's own."""
    return a if a.space.startswith("GM:") else replace(a, space=f"{seat}:{a.space}")


def program_of(kernel: Kernel, witness: Witness, core: int, needs: Needs | None = None) -> list[Step]:
    """What core ``core`` (in a mixed kernel: its group) runs under ``witness``, ready for checking.

    ``needs`` are those of the same kernel, whatever its flags and barriers were then. Accesses that need nothing are
    left out.
    """
    if needs is None:
        needs = needs_of(kernel, witness, core)
    out: list[Step] = []
    ran: list[tuple[int, Path]] = []  # position and path of each access so far
    for pos, (seat, e) in enumerate(interleaved(kernel, witness, core, False)):
        if isinstance(e.stmt, ACCESSES):
            if mine := needs[len(ran)]:
                found = tuple((pipe, *ran[number]) for pipe, number in mine)
                out.append(Step("instr", seat * len(PIPES) + NUMBER[e.pipe], e.path, pos, found))
            ran.append((pos, e.path))
        else:
            out.append(step_of(seat, e, pos))
    return out


def step_of(seat: int, e: Event, pos: int) -> Step:
    """What is no access: a flag, a barrier, or what cores tell one another."""
    s, base = e.stmt, seat * len(PIPES)
    if isinstance(s, SetFlag | WaitFlag):
        src, dst = base + NUMBER[s.src], base + NUMBER[s.dst]
        if isinstance(s, SetFlag):
            return Step("set", src, e.path, pos, channel=(src, dst, e.id))
        return Step("wait", dst, e.path, pos, channel=(src, dst, e.id))
    if isinstance(s, Barrier):
        return Step("all" if s.pipe == "ALL" else "barrier", base + NUMBER.get(s.pipe, SCALAR), e.path, pos)
    if isinstance(s, SyncAll):
        return Step("all", base + SCALAR, e.path, pos)
    if isinstance(s, CrossCoreSet):
        return Step("cross set", base + NUMBER[s.pipe], e.path, pos, channel=(seat, 0, e.id))
    assert isinstance(s, CrossCoreWait)
    return Step("cross wait", base + SCALAR, e.path, pos, channel=(seat, 0, e.id))

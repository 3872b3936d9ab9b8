"""Static check across cores: what two cores do to the same device memory must be ordered by SyncAll, or be atomic.

The cores' work is cut at every SyncAll; inside one piece nothing orders them. Accesses are taken byte by byte, row by
row of strided copies, from the traces of the witnesses that have several cores. Addresses that come from data on the
chip (scattered rows) are not known here; the CPU model checks those as they run. The cores of a mixed kernel's group
count as one: what they do to one another is checked with their flags (moec.codegen.hazards).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from moec.codegen.hazards import Violation
from moec.codegen.instructions import INSTRUCTIONS
from moec.codegen.interpret import Access, Event, Path, seats, trace
from moec.codegen.kernel_ir import Assign, For, GmRef, Instr, Kernel, Let, LoadScalar, SyncAll, Witness, statements
from moec.codegen.scalar import names_in
from moec.codegen.traces import SAMPLE

MOST_CORES = 4
"""Cores of a witness that are compared; more would only repeat them."""


@dataclass(frozen=True, slots=True, order=True)
class _Piece:
    """Consecutive bytes of one tensor that a core touches between two SyncAll."""

    phase: int
    tensor: str
    lo: int
    hi: int
    core: int
    write: bool
    atomic: bool
    path: Path


def check_races(kernel: Kernel) -> list[Violation]:
    """Pairs of accesses by different cores that nothing orders, each pair of statements once."""
    found: dict[tuple[Path, Path], Violation] = {}
    for i, witness in enumerate(kernel.witnesses):
        if witness.cores < 2:
            continue
        pieces = sorted(p for core in range(min(witness.cores, MOST_CORES)) for p in _pieces(kernel, witness, core))
        for a, b in _overlaps(pieces):
            what = f"cores {a.core} and {b.core} use the same bytes of {a.tensor}, one of them writing, without SyncAll"
            found.setdefault((a.path, b.path), Violation(what, b.path, a.path, i))
    return list(found.values())


def _overlaps(pieces: list[_Piece]) -> Iterator[tuple[_Piece, _Piece]]:
    """Conflicting neighbours in a list sorted by phase, tensor and first byte."""
    live: list[_Piece] = []
    for p in pieces:
        live = [q for q in live if (q.phase, q.tensor) == (p.phase, p.tensor) and q.hi > p.lo]
        for q in live:
            if q.core != p.core and (q.write or p.write) and not (q.atomic and p.atomic):
                yield q, p
        live.append(p)


def _pieces(kernel: Kernel, witness: Witness, core: int) -> Iterator[_Piece]:
    for seat in seats(kernel):
        yield from _seat(kernel, witness, core, seat)


def _seat(kernel: Kernel, witness: Witness, core: int, seat: int) -> Iterator[_Piece]:
    phase, atomic = 0, False
    unknown = _from_data(kernel, {name for name, _ in witness.data})
    for event in trace(kernel, witness, core, SAMPLE, seat):
        if isinstance(event.stmt, SyncAll):
            phase += 1
        elif isinstance(event.stmt, Instr) and event.stmt.op in ("SetAtomicAdd", "SetAtomicNone"):
            atomic = event.stmt.op == "SetAtomicAdd"
        elif isinstance(event.stmt, Instr) and _addressed_by(event.stmt, unknown):
            continue
        for a in event.accesses:
            if a.space.startswith("GM:"):
                for lo, hi in _rows(event, a):
                    yield _Piece(phase, a.space[3:], lo, hi, core, a.write, a.write and atomic, event.path)


def _from_data(kernel: Kernel, known: set[str]) -> set[str]:
    """Variables whose value comes from memory that the witness does not give."""
    out: set[str] = set()
    before = -1
    while before != len(out):
        before = len(out)
        for s in statements(kernel.body):
            read = isinstance(s, LoadScalar) and not (isinstance(s.ref, GmRef) and s.ref.tensor in known)
            if read or (isinstance(s, Let | Assign) and names_in(s.value) & out):
                assert isinstance(s, LoadScalar | Let | Assign)
                out.add(s.var.name)
            elif isinstance(s, For) and (names_in(s.start) | names_in(s.stop)) & out:
                out.add(s.var)
    return out


def _addressed_by(stmt: Instr, names: set[str]) -> bool:
    return any(isinstance(r, GmRef) and names_in(r.offset) & names for r in stmt.operands)


def _rows(event: Event, a: Access) -> Iterator[tuple[int, int]]:
    """The contiguous parts of an access to device memory."""
    if event.resolved is None:
        yield a.lo, a.hi
        return
    work = INSTRUCTIONS[event.resolved.op].work(event.resolved, "GM->" if not a.write else "->GM")
    if work.bursts <= 1 or work.pitch <= work.burst_bytes:
        yield a.lo, a.hi
        return
    for i in range(work.bursts):
        lo = a.lo + i * work.pitch
        yield lo, min(lo + work.burst_bytes, a.hi)

"""Static check of operands and parameters: what an instruction is given must be what the hardware takes.

Over the traces of a kernel's witnesses: parameters inside their fields, repeats at most 255, operands aligned as their
memory wants (CANN asc-devkit docs, NPU arch 2201), every access inside its buffer's slot or its tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

from moec.codegen.hazards import Violation
from moec.codegen.instructions import INSTRUCTIONS
from moec.codegen.instructions.spec import FIELD
from moec.codegen.interpret import Event, Interpreter, seats, value
from moec.codegen.kernel_ir import ALIGN, ITEMSIZE, GmRef, Instr, Kernel, LoadScalar, Ref, StoreScalar, Witness
from moec.codegen.traces import SAMPLE, cores_of


def check_limits(kernel: Kernel) -> list[Violation]:
    """What is outside a limit on some witness, each statement once."""
    found: dict[tuple[str, tuple[int, ...]], Violation] = {}
    for i, witness in enumerate(kernel.witnesses):
        for core, seat in product(cores_of(witness), seats(kernel)):
            for what, event in _witness(kernel, witness, core, seat):
                found.setdefault((what.split(":")[0], event.path), Violation(what, event.path, None, i))
    return list(found.values())


def _witness(kernel: Kernel, witness: Witness, core: int, seat: int) -> Iterator[tuple[str, Event]]:
    walk = Interpreter(kernel, witness, core, SAMPLE, seat)
    sizes = {p.name: prod(int(value(d, walk.env)) for d in p.shape) * ITEMSIZE[p.dtype] for p in kernel.params}
    for event in walk.run():
        stmt = event.stmt
        refs: tuple[Ref, ...] = ()
        aligned: tuple[int, ...] = ()
        if isinstance(stmt, Instr):
            refs = stmt.operands
            aligned = tuple(o.align for o in INSTRUCTIONS[stmt.op].operands)
            yield from ((what, event) for what in _parameters(event))
        elif isinstance(stmt, LoadScalar | StoreScalar):
            refs, aligned = (stmt.ref,), (0,)
        for ref, unit in zip(refs, aligned, strict=True):
            yield from ((what, event) for what in _operand(walk, event, ref, sizes, unit))


def _parameters(event: Event) -> Iterator[str]:
    assert event.resolved is not None
    for p in INSTRUCTIONS[event.resolved.op].params:
        number = event.resolved.p[p.name]
        if p.kind in FIELD and isinstance(number, int) and not 0 <= number <= p.top:
            yield f"{event.resolved.op} {p.name} out of range: {number}, at most {p.top}"


def _operand(walk: Interpreter, event: Event, ref: Ref, sizes: dict[str, int], least: int) -> Iterator[str]:
    """``least``: the alignment in bytes that the instruction asks for, besides that of the memory."""
    if isinstance(ref, GmRef):
        lo, hi, name, unit = 0, sizes[ref.tensor], f"GM:{ref.tensor}", 1
    else:
        b = walk.buffers[ref.buffer]
        lo = b.offset + int(value(ref.slot, walk.env)) * b.slot_bytes
        hi, name, unit = lo + b.slot_bytes, b.space, max(least, ALIGN[b.space])
    start = walk.start_of(ref)
    if not isinstance(event.stmt, LoadScalar | StoreScalar) and start % unit:
        yield f"{name} operand misaligned: byte {start}, must be a multiple of {unit}"
    for a in event.accesses:
        if a.space == name and a.lo == start and not lo <= a.lo <= a.hi <= hi:
            yield f"{name} accessed outside its bounds: bytes {a.lo - lo} to {a.hi - lo} of {hi - lo}"

"""The cost of one declared instruction with numbers in it: from the instruction table to the cost functions."""

from __future__ import annotations

from dataclasses import dataclass

from moec.codegen.instructions import InstrSpec, Resolved, Work
from moec.targets.ascend.cost.banks import DENSE, Strides, reads_meet, write_meets
from moec.targets.ascend.cost.copies import copy_cost
from moec.targets.ascend.cost.cube import DTYPES, mmad_cycles
from moec.targets.ascend.cost.vector import ARITHMETIC, base_name, vector_cycles
from moec.targets.ascend.machine import Machine


@dataclass(frozen=True, slots=True)
class InstrCost:
    """``busy`` and ``latency`` in cycles; ``bytes`` asked for and ``moved`` by device memory in ``requests``; ``flops``
    by unit: ``macs`` counts cube FLOP, ``lanes`` bytes of vector arithmetic; ``dtype`` is the cube's operand dtype.
    ``cold`` and ``piece`` as the engine takes them (moec.targets.ascend.model.engine)."""

    busy: int
    latency: int
    bytes: int = 0
    moved: int = 0
    macs: int = 0
    lanes: int = 0
    dtype: str = ""
    requests: int = 0
    cold: int = 0
    piece: int = 0


@dataclass(frozen=True, slots=True)
class Distances:
    """Bytes in UB modulo 512, -1 where two operands cannot meet: from the second to the first source, and from each
    source to the result where they share banks."""

    reads: int = -1
    writes: tuple[int, ...] = ()


def instruction_cost(
    machine: Machine, spec: InstrSpec, resolved: Resolved, path: str, offset: int, apart: Distances,
    past_l2: bool = False,
) -> InstrCost:  # fmt: skip
    """Cost of one call. ``path``: "SRC->DST" of moves; ``offset``: byte offset in device memory, modulo a line;
    ``apart``: how a vector instruction's operands lie in UB; ``past_l2``: whether it reads past the L2."""
    work = spec.work(resolved, path)
    if work.kind in ("copy", "nd2nz", "load2d", "fixpipe"):
        name = f"{path}.nd2nz" if work.kind == "nd2nz" else path
        copy = copy_cost(machine, name, work.bytes, work.bursts or 1, work.burst_bytes, work.pitch, offset, past_l2)
        piece = int(machine["cube.piece"]) if work.kind == "fixpipe" and resolved.p["unitFlag"] else 0
        return InstrCost(copy.busy, copy.latency, work.bytes, copy.moved, requests=copy.requests, piece=piece)
    if work.kind == "mmad":
        cycles = mmad_cycles(machine, work.dtype, work.m, work.n, work.k)
        flops = 2 * work.m * work.n * work.k
        piece = int(machine["cube.piece"]) if resolved.p["unitFlag"] else 0
        latency, cold = int(machine["cube.latency"]), int(machine["cube.cold"])
        return InstrCost(cycles, latency, macs=flops, dtype=DTYPES[work.dtype], cold=cold, piece=piece)
    if work.kind == "vector":
        return _vector(machine, spec, resolved, work, apart)
    if work.kind == "scalar":
        return InstrCost(0, 0)
    raise ValueError(f"instruction {spec.name} has work of unknown kind {work.kind}")


def _vector(machine: Machine, spec: InstrSpec, resolved: Resolved, work: Work, apart: Distances) -> InstrCost:
    result = resolved.dtypes.get("dst", work.dtype)
    names = [o.name for o in spec.operands if o.name in ("src", "src0", "src1")]
    strides = {name: _strides(resolved, name) for name in (*names, "dst")}
    reads = reads_meet(apart.reads, strides["src1"], strides["src0"]) if apart.reads >= 0 else 0.0
    meets = [
        write_meets(distance, strides[name], strides["dst"])
        for name, distance in zip(names, apart.writes, strict=False)
        if distance >= 0
    ]
    cycles = vector_cycles(machine, spec.name, work.dtype, result, work.repeats, reads, max(meets, default=0.0))
    lanes = 0
    if base_name(spec.name) in ARITHMETIC:
        repeat = int(machine["vector.repeat_bytes"])
        lanes = min(work.bytes, work.repeats * repeat)
    return InstrCost(cycles, int(machine["vector.drain"]), work.bytes, lanes=lanes)


def _strides(resolved: Resolved, operand: str) -> Strides:
    """Block and repeat stride of an operand: dense where the call states none."""
    block, repeat = resolved.p.get(f"{operand}BlkStride"), resolved.p.get(f"{operand}RepStride")
    return (int(block), int(repeat)) if isinstance(block, int) and isinstance(repeat, int) else DENSE

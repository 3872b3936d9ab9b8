"""The cost of one declared instruction with numbers in it: from the instruction table to the cost functions."""

from __future__ import annotations

from dataclasses import dataclass

from moec.codegen.instructions import InstrSpec, Resolved, Work
from moec.targets.ascend.cost.copies import copy_cost
from moec.targets.ascend.cost.cube import DTYPES, mmad_cycles
from moec.targets.ascend.cost.vector import ARITHMETIC, base_name, vector_cycles
from moec.targets.ascend.machine import Machine


@dataclass(frozen=True, slots=True)
class InstrCost:
    """``busy`` and ``latency`` in cycles; ``bytes`` asked for and ``moved`` by device memory; ``flops`` by unit:
    ``macs`` counts cube FLOP, ``lanes`` bytes of vector arithmetic; ``dtype`` is the cube's operand dtype."""

    busy: int
    latency: int
    bytes: int = 0
    moved: int = 0
    macs: int = 0
    lanes: int = 0
    dtype: str = ""


def instruction_cost(
    machine: Machine, spec: InstrSpec, resolved: Resolved, path: str, offset: int, conflict: bool | None
) -> InstrCost:
    """Cost of one call. ``path``: "SRC->DST" of moves; ``offset``: byte offset in device memory, modulo a line;
    ``conflict``: whether two vector sources meet in a bank group (None: unknown)."""
    work = spec.work(resolved, path)
    if work.kind in ("copy", "nd2nz", "load2d", "fixpipe"):
        name = f"{path}.nd2nz" if work.kind == "nd2nz" else path
        copy = copy_cost(machine, name, work.bytes, work.bursts or 1, work.burst_bytes, work.pitch, offset)
        return InstrCost(copy.busy, copy.latency, work.bytes, copy.moved)
    if work.kind == "mmad":
        cycles = mmad_cycles(machine, work.dtype, work.m, work.n, work.k)
        flops = 2 * work.m * work.n * work.k
        return InstrCost(cycles, int(machine["cube.latency"]), macs=flops, dtype=DTYPES[work.dtype])
    if work.kind == "vector":
        return _vector(machine, spec, resolved, work, conflict)
    if work.kind == "scalar":
        return InstrCost(0, 0)
    raise ValueError(f"instruction {spec.name} has work of unknown kind {work.kind}")


def _vector(machine: Machine, spec: InstrSpec, resolved: Resolved, work: Work, conflict: bool | None) -> InstrCost:
    result = resolved.dtypes.get("dst", work.dtype)
    cycles = vector_cycles(machine, spec.name, work.dtype, result, work.repeats, conflict)
    lanes = 0
    if base_name(spec.name) in ARITHMETIC:
        repeat = int(machine["vector.repeat_bytes"])
        lanes = min(work.bytes, work.repeats * repeat)
    return InstrCost(cycles, int(machine["vector.drain"]), work.bytes, lanes=lanes)

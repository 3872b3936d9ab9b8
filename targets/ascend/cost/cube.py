"""Cycles of Mmad (CANN asc-devkit docs, cube throughput; mskpp measured table).

An Mmad holds the cube for ``issue`` + ceil(m/16) * ceil(n/16) * ceil(k/k') cycles, k' being the depth that one cycle
covers (16 for 16-bit, 4 for f32, 32 for int8); its result is usable ``latency`` cycles later.
"""

from __future__ import annotations

from moec.targets.ascend.machine import Machine

DTYPES = {"f16": "f16", "bf16": "bf16", "f32": "f32", "i8": "int8", "u8": "int8", "hf32": "hf32", "i4": "int4"}
"""Operand dtype of an Mmad -> its key under ``cube.mac``."""


def mmad_cycles(machine: Machine, dtype: str, m: int, n: int, k: int) -> int:
    """Cycles an Mmad of ``m`` x ``n`` x ``k`` elements of ``dtype`` holds the cube."""
    m0, n0 = int(machine["cube.m0"]), int(machine["cube.n0"])
    depth = int(machine[f"cube.mac.{DTYPES[dtype]}"]) // (m0 * n0)
    return int(machine["cube.issue"]) + -(-m // m0) * -(-n // n0) * -(-k // depth)

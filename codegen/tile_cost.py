"""A coarse count of the cycles of a tile program of a product, by which tiles are chosen.

It counts what the cycle model charges (constants: fits to the mskpp measured table, 910B1, and to CANN asc-devkit
examples), without running anything: per tile each pipe is taken to be busy all the time, and the slowest decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from moec.codegen.tile import CubeTile

COPY, COPY_ROW, COPY_RATE = 20, 2.42, 133
"""GM to L1 with layout change: cycles of a copy and of a row, bytes a cycle."""
LINE, TURN = 512, 0.375
"""Bytes of a line of device memory, and cycles that a core waits for each other core that reads it."""
HBM_RATE = 32
"""Bytes a cycle that a core gets of device memory."""
SHORT_ROW = 42
"""Bytes that a row below a line costs beyond its own."""
FEED, L0A_RATE, L0B_RATE, SHARED = 2, 263, 131.6, 1.2
"""L1 to L0: cycles of an instruction, bytes a cycle, and how much longer it takes while L1 is written."""
MMAD, MMAD_HEAD = 2, 21
K_PER_CYCLE = {2: 16, 4: 4}
"""Inner length of the 16 x 16 x k block that one cycle multiplies, by item size."""
FIX, FIX_ROW, FIX_RATE = 64, 3.6, 122
"""L0C to GM: cycles of a copy and of a row, bytes a cycle."""
REQUEST, OFF_REQUEST = 128, 46
"""Bytes of a request, and cycles of a row out of L0C that does not start on one."""
UNIT_TAIL = 0.2
"""Share of the way out that unit flags leave uncovered (assumed)."""
QUEUE, FLAGS, ARRIVAL = 32, 3, 350
"""Places of MTE1's queue, those that flags take in a step of K, cycles until a copy into L1 arrives: the scalar unit
asks for the next piece of K when the queue holds what is left of this one."""
ISSUE, STEP, INDEX = 5, 25, 22
"""Scalar cycles of an instruction in a loop, of a step of K beside its loads, and of a row that an index names."""
SECOND, SUM_RATE = 10_000, 800
"""Cycles until a second kernel, on all vector cores, has its first data (launch: CANN asc-devkit examples), and bytes a
cycle that it moves (device memory; parts may still be in the L2)."""
PART = 256
"""What parts of K are multiples of (moec.codegen.kernels.vector.parts)."""
START = 600
"""Cycles until the first data of a kernel arrives."""


@dataclass(frozen=True, slots=True)
class ProductSize:
    """``groups`` products of [m, k] by [n, k] of ``size`` bytes an element into ``out`` bytes, on ``cores``.

    ``a_by_k``, ``b_by_k``: the operand lies [k, m], [k, n]. ``gathered``: "a" or "b" where that operand's rows are
    copied one by one ("b": of [k, n]). ``known_k``: K is known when the kernel is made. ``may_split``: parts of K may
    be computed apart and summed by a second kernel.
    """

    m: int
    n: int
    k: int
    size: int
    out: int = 4
    groups: int = 1
    cores: int = 24
    a_by_k: bool = False
    b_by_k: bool = False
    gathered: str = ""
    known_k: bool = False
    may_split: bool = False


def _up(x: int, to: int) -> int:
    return -(-max(x, 1) // to) * to


def _load(across: int, deep: int, p: ProductSize, by_k: bool, single: bool, together: float, cold: float) -> float:
    """Cycles of MTE2 for one operand of a tile: ``across`` rows of M or N, ``deep`` of K at a time."""
    total = 0.0
    whole, rest = divmod(p.k, deep)
    for count, length in ((whole, deep), (1 if rest else 0, rest)):
        if not count:
            continue
        rows, width = (length, across * p.size) if by_k else (across, length * p.size)
        copies = rows if single else -(-rows // 16) if by_k and p.size == 4 else 1
        dense = not by_k and length == p.k
        busy = copies * COPY + (0 if dense else (rows - copies) * COPY_ROW) + rows * width / COPY_RATE
        if together > 1:
            busy = max(busy, rows * -(-width // LINE) * TURN * together)
        moved = rows * width + (rows * SHORT_ROW if width < LINE else 0)
        total += count * max(busy, moved * cold / HBM_RATE + (1 - cold) * busy)
    return total


def cycles(t: CubeTile, p: ProductSize) -> float:
    """Coarse cycles of the busiest core."""
    block_m, block_n = t.block
    down, wide = -(-p.m // t.m), -(-p.n // t.n)
    rows, cols = -(-p.m // block_m), -(-p.n // block_n)
    each = min(down, -(-block_m // t.m)) * min(wide, -(-block_n // t.n))
    rounds = -(-rows * cols * p.groups * t.splits // p.cores)
    tall = min(t.panel or rows, rows)
    together = float(min(cols, max(1, p.cores // tall))), float(min(tall, p.cores))
    if t.diagonal:
        together = together[0], max(1.0, together[1] / cols)
    cold = 1 / (cols if t.keep == "a" else wide), 1 / (rows if t.keep == "b" else down)
    if t.splits == 1:
        return START + rounds * _block_cycles(t, p, each, together, cold)
    part = replace(p, k=min(p.k, _up(-(-p.k // t.splits), PART)), out=4)
    summed = p.m * p.n * p.groups * (4 * t.splits + p.out)
    return START + rounds * _block_cycles(t, part, each, together, cold) + SECOND + summed / SUM_RATE


def _block_cycles(
    t: CubeTile, p: ProductSize, each: int, together: tuple[float, float], cold: tuple[float, float]
) -> float:
    """Cycles of a block of ``each`` tiles. Of the first and second operand: how many cores read one line at a time, and
    which share of it comes from device memory."""
    m, n = min(t.m, p.m), min(t.n, p.n)
    m16, n16 = _up(m, 16), _up(n, 16)
    if t.stagger:
        chunks = -(-p.k // max(t.k1, t.depth_b))
        together = max(1.0, together[0] / chunks), max(1.0, together[1] / chunks)
    a = _load(m, t.k1, p, p.a_by_k, p.gathered == "a", together[0], cold[0])
    b = _load(n, t.depth_b, p, p.b_by_k, p.gathered == "b", together[1], cold[1])
    kept = {"a": a, "b": b}.get(t.keep, 0.0)
    mte2 = each * (a + b - kept)
    steps = -(-p.k // t.k0)
    columns = -(-min(t.k0, p.k) * p.size // 32)
    loads = (1 if m == 1 or t.m == 16 else columns) + 1
    mte1 = FEED * loads + m16 * t.k0 * p.size / L0A_RATE + n16 * t.k0 * p.size / L0B_RATE
    pieces = -(-p.k // min(t.k1, t.depth_b))
    queued = -(-steps // pieces) * (loads + FLAGS)
    if queued > QUEUE:
        mte2 += each * pieces * (ARRIVAL + steps / pieces * mte1 * (1 - QUEUE / queued))
    cube = MMAD + m16 // 16 * (n16 // 16) * -(-t.k0 // K_PER_CYCLE[p.size])
    scalar = each * steps * (ISSUE * loads + STEP)
    if p.gathered:
        copies = m * -(-p.k // t.k1) if p.gathered == "a" else p.k
        scalar += INDEX * copies * (1 if t.keep == p.gathered else each)
    off = 1 - math.gcd(t.n * p.out, REQUEST) / REQUEST
    fix = FIX + m * (FIX_ROW + off * OFF_REQUEST) + m * n * p.out / FIX_RATE
    if t.keep:  # it has one buffer, which is free once the block before is done
        kept += ARRIVAL + steps / pieces * mte1
    busy = kept + max(mte2, each * steps * mte1 * SHARED, each * (steps * cube + MMAD_HEAD), scalar)
    if t.c_slots == 1:
        return busy + each * fix * (UNIT_TAIL if t.unit else 1)
    return max(busy, each * fix)

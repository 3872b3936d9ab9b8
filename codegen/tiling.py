"""Tile sizes of the cube kernels: the fastest by a coarse count of cycles among those that fit the on-chip memories."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import ITEMSIZE
from moec.diagnostics import Problem, Refusal, Where

L1_BYTES_PER_CYCLE = 80
"""GM to L1 with layout change, 64 KiB pieces (mskpp measured table, 910B1)."""
L0A_BYTES_PER_CYCLE, L0B_BYTES_PER_CYCLE = 263, 131
"""L1 to L0A and L0B (mskpp measured table, 910B1)."""
FIX_BYTES_PER_CYCLE = 120
"""L0C to GM (mskpp measured table, 910B1)."""
MMAD_HEAD = 21
"""Cycles before the first fractal of a Mmad (CANN asc-devkit docs, mmad performance test)."""
K_PER_CYCLE = {2: 16, 4: 4}
"""Inner length of the 16 x 16 x k block that one cycle multiplies, by item size (CANN asc-devkit docs)."""
LINE_ROW, LINE_TURN = 6.3, 0.375
"""Cycles of a row of 512 bytes into L1, and of a core's turn at a line that others read too (CANN asc-devkit examples:
8192^3 product, data_copy)."""
HBM_BYTES_PER_CYCLE = 34
"""Device memory, one of 24 cores (CANN asc-devkit examples, data_copy)."""
L2_BYTES = 96 * 1024 * 1024
"""L2 of the smallest chip of NPU arch 2201 (platform ini)."""
PANELS = (0, 16, 8)
"""Rows of tiles that are taken before the next rows; 0: all."""
ROW_COPY = 20
"""Cycles of a copy into L1 beyond those of its bytes, one copy for each gathered row (CANN asc-devkit examples: rows of
128 bytes)."""
TILE_HEAD = 600
"""Cycles until the first data of a tile arrives when nothing hides them (GM to L1 latency and layout change)."""


@dataclass(frozen=True, slots=True)
class CubeTile:
    """Output tile ``m`` x ``n``; ``k1`` of K in L1, ``k0`` of K in L0; ``c_slots`` output tiles in L0C.

    Choices beyond: ``k1b`` of K of the second operand in L1 (0: ``k1``), in ``l1_slots`` buffers each; a core takes
    ``block_m`` x ``block_n`` of the output at a time (0: one tile), in ``panel`` rows of blocks before the next rows
    (0: all), along ``diagonal``s, so that cores side by side read different rows of both operands; ``stagger``: each
    core starts at another place of K; ``unit``: Mmad and Fixpipe hand over by unit flags; ``bypass``: operands (a, b)
    that are read past the L2.
    """

    m: int
    n: int
    k1: int
    k0: int
    c_slots: int
    k1b: int = 0
    l1_slots: int = 2
    block_m: int = 0
    block_n: int = 0
    panel: int = 0
    diagonal: bool = False
    stagger: bool = False
    unit: bool = False
    bypass: str = ""

    @property
    def depth_b(self) -> int:
        """K of the second operand in L1."""
        return self.k1b or self.k1


def _fits(t: CubeTile, size: int, caps: Capacities) -> bool:
    return (
        2 * t.m * t.k0 * size <= caps.l0a
        and 2 * t.n * t.k0 * size <= caps.l0b
        and t.c_slots * t.m * t.n * 4 <= caps.l0c
        and t.l1_slots * (t.m * t.k1 + t.n * t.depth_b) * size <= caps.l1
        and t.n // 16 * (t.k0 * size // 32) <= 255
    )


def _up(x: int, to: int) -> int:
    return -(-max(x, 1) // to) * to


def _candidates(m: int, n: int, k: int, grain: int, gathered: str) -> Iterator[CubeTile]:
    """Tiles no larger than the product itself; ``grain`` is what lengths along K are rounded to. With gathered rows of
    the first operand, ones that hold more of its K in L1 than of the second's, too."""
    m, n, k = _up(m, 16), _up(n, 16), _up(k, grain)
    for tm in sorted({min(t, m) for t in (16, 32, 64, 128, 256)}):
        for tn in sorted({min(t, n) for t in (16, 32, 64, 128, 256)}):
            for k0 in sorted({min(t, k) for t in (16, 32, 64, 128, 256)}):
                for k1 in sorted({min(k0 * ratio, k) for ratio in (1, 2, 4, 8)}):
                    yield CubeTile(tm, tn, k1, k0, 2)
                    yield CubeTile(tm, tn, k1, k0, 1)
                    if gathered == "a":
                        for deep in sorted({min(k1 * ratio, k) for ratio in (2, 4, 8, 16)} - {k1}):
                            yield CubeTile(tm, tn, deep, k0, 2, k1)
                            yield CubeTile(tm, tn, deep, k0, 1, k1)


def cycles(t: CubeTile, m: int, n: int, k: int, size: int, cores: int, gathered: str = "") -> float:
    """Coarse cycles of the busiest core for [m, k] x [n, k]; ``gathered`` as in ``cube_tile``."""
    tiles = -(-m // t.m) * -(-n // t.n)
    rounds = -(-tiles // cores)
    rows, cols = min(t.m, m), min(t.n, n)
    row16, col16 = -(-rows // 16) * 16, -(-cols // 16) * 16
    steps = -(-k // t.k0)
    mte2 = (rows + cols) * k * size / L1_BYTES_PER_CYCLE + -(-k // t.k1) * 2 * 20
    if gathered == "a":
        mte2 += rows * -(-k // t.k1) * ROW_COPY
    elif gathered == "b":
        mte2 += k * ROW_COPY
    mte1 = row16 * k * size / L0A_BYTES_PER_CYCLE + col16 * k * size / L0B_BYTES_PER_CYCLE
    mte1 += steps * (t.k0 * size // 32 + 1) * 2
    cube = row16 // 16 * (col16 // 16) * -(-k // K_PER_CYCLE[size]) + steps * 4
    fix = rows * cols * 4 / FIX_BYTES_PER_CYCLE
    tile = max(mte2, mte1, cube) + (fix if t.c_slots == 1 else fix / 4) + MMAD_HEAD
    return TILE_HEAD + rounds * tile


def cube_tile(m: int, n: int, k: int, dtype: str, caps: Capacities, node: str = "", gathered: str = "") -> CubeTile:
    """The tile for a product of [m, k] by [n, k] (typical sizes) on all cube cores. ``gathered``: "a" where the rows of
    the first operand are copied one by one, "b" those of the second, which lies by K."""
    size = ITEMSIZE[dtype]
    m, n, k = max(m, 1), max(n, 1), max(k, 1)
    fitting = [t for t in _candidates(m, n, k, 16, gathered) if _fits(t, size, caps)]
    if not fitting:
        raise Refusal(
            Problem(
                f"no tile of a {dtype} product fits: the smallest needs {2 * 16 * 32 / 1024:.1f} KiB of L0A and L0B "
                f"each, there are {caps.l0a / 1024:.1f} and {caps.l0b / 1024:.1f}",
                Where(node=node),
                "choose a target with larger buffers",
            )
        )
    best = min(fitting, key=lambda t: (cycles(t, m, n, k, size, caps.aic, gathered), -t.m * t.n, -t.k1, -t.k0, t.m))
    return replace(best, panel=panel(best, m, n, k, size, caps.aic))


def panel(t: CubeTile, m: int, n: int, k: int, size: int, cores: int) -> int:
    """The panel height that moves [m, k] x [n, k] fastest.

    Down whole columns all cores read the same rows of the second operand at a time, and the first may not stay in the
    L2; in panels the second is read once a panel.
    """
    rows, cols = -(-m // t.m), -(-n // t.n)

    def cost(height: int) -> float:
        tall = min(height or rows, rows)
        wide = -(-cores // tall)
        first, second = m * k * size, n * k * size
        kept = tall * t.m * k * size + wide * t.n * k * size <= L2_BYTES
        a = first if kept else first * -(-cols // wide)
        b = second if second + tall * t.m * k * size <= L2_BYTES else second * -(-rows // tall)
        lines = rows * cols * -(-k * size // 512)
        turns = t.n * max(0.0, LINE_TURN * min(tall, cores) - LINE_ROW)
        return (a + b) / HBM_BYTES_PER_CYCLE + lines * turns

    return min(PANELS, key=cost)

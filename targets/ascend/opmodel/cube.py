"""Time of matrix products on the cube cores: the best of a few tile sizes, each limited by cube, loads or stores."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from moec.targets.ascend.opmodel.chip import Chip
from moec.targets.ascend.opmodel.constants import Constants
from moec.targets.ascend.opmodel.tensor import Tensor
from moec.targets.ascend.opmodel.work import Gemm

SIDES = (16, 32, 64, 96, 128, 192, 256, 384, 512)
ACCUMULATOR = 128 * 256
"""f32 results that L0C holds."""

K0 = {"i8": 32, "u8": 32, "i4": 64, "f16": 16, "bf16": 16}
"""Depth of a fractal; 8 of f32."""

STORE_RATE = 122.0
"""Bytes per cycle out of L0C (mskpp)."""

HEAD = 60.0
"""Cycles of a tile that neither load nor cube fills: latencies of its first load and its store's start (mskpp)."""

FRACTAL = 0.8
"""Cost of loading fractal storage over row-major (CANN asc-devkit examples: nd2nz 84 to 111 bytes a cycle, plain copies
139 to 156 in the mskpp table, shared by all cores about 110)."""

TILE_ROW = 4.5
"""Cycles a row takes at least in a load that changes it to fractals (CANN asc-devkit examples: 8192^3 with rows of 128
bytes, 24 cores, 10178 us)."""

UNALIGNED, RAGGED = 1 / 0.7, 1 / 0.51
"""Cost of loading rows that are no multiple of 512 bytes: CANN optimisation docs, at worst 70 % of the rate where 32
bytes divide them; examples, 51 % where they do not."""


@dataclass(frozen=True)
class CubeTime:
    """Microseconds that the busiest core spends computing, loading and storing."""

    cube: float
    load: float
    store: float


def load_cost(row: float) -> float:
    """Factor on loading rows of ``row`` bytes; 0 stands for fractal storage."""
    if row == 0:
        return FRACTAL
    if row % 512 == 0:
        return 1.0
    return UNALIGNED if row % 32 == 0 else RAGGED


def short_rows(row: float, across: float, along: float, c: Constants) -> float:
    """Factor on loading a tile of a side whose stored rows are ``row`` bytes: where they run along k (``along`` bytes)
    a tile takes long parts of them, else only its own width (``across`` bytes).
    """
    return 1.0 if row in (0, along) else max(1.0, TILE_ROW * c.l2_cube / max(1.0, across))


@lru_cache(maxsize=65536)
def gemm_time(g: Gemm, chip: Chip, cores: int, c: Constants) -> CubeTime:
    """The tile size with the least time; k is split over cores where there are too few tiles."""
    best: CubeTime | None = None
    for m0 in _sides(g.m):
        for n0 in _sides(g.n):
            if m0 * n0 > ACCUMULATOR:
                continue
            for split in _splits(g, m0, n0, cores):
                time = _tiled(g, chip, cores, c, m0, n0, split)
                if best is None or _rank(time, c) < _rank(best, c):
                    best = time
    assert best is not None
    return best


def _rank(t: CubeTime, c: Constants) -> float:
    longest = max(t.cube, t.load, t.store)
    return longest + c.exposed_cube * (t.cube + t.load + t.store - longest)


def _sides(size: int) -> tuple[int, ...]:
    fits = tuple(s for s in SIDES if s < size)
    above = next((s for s in SIDES if s >= size), None)
    return fits + ((above,) if above is not None else ()) or (16,)


def _splits(g: Gemm, m0: int, n0: int, cores: int) -> tuple[int, ...]:
    tiles = g.batch * ceil(g.m / m0) * ceil(g.n / n0)
    if 2 * tiles > cores or g.k < 2048:
        return (1,)
    return tuple(s for s in (1, 2, 4, 8, 16) if s * tiles <= cores and g.k // s >= 512) or (1,)


def _tiled(g: Gemm, chip: Chip, cores: int, c: Constants, m0: int, n0: int, split: int) -> CubeTime:
    tiles = g.batch * ceil(g.m / m0) * ceil(g.n / n0) * split
    rounds = max(tiles / cores, 1.0)
    rounds = ceil(rounds) if rounds < 8 else rounds + 0.5
    item = Tensor((), "f32" if g.dtype == "hf32" else g.dtype).itemsize
    k0 = K0.get(g.dtype, 8)
    k = ceil(g.k / split / k0) * k0
    macs = chip.macs(g.dtype)
    m_part, n_part = min(m0, ceil(g.m / 16) * 16), min(n0, ceil(g.n / 16) * 16)
    cube = rounds * (m_part * n_part * k / macs + HEAD)
    a = m_part * load_cost(g.a_row) * short_rows(g.a_row, m_part * item, g.k * item, c) / g.a_uses
    b = n_part * load_cost(g.b_row) * short_rows(g.b_row, n_part * item, g.k * item, c)
    loaded = (a + b) * k * item
    load = rounds * (loaded / c.l2_cube + HEAD)
    store = rounds * m_part * n_part * (g.out_itemsize if split == 1 else 4.0) / STORE_RATE
    return CubeTime(cube / chip.mhz, load / chip.mhz, store / chip.mhz)

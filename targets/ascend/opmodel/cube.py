"""Time of matrix products on the cube cores: the best of a few tile sizes, each limited by cube, loads or stores."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf

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

FRACTAL = 0.65
"""Cost of loading fractal storage over row-major (nd2nz 84 to 111 bytes a cycle in CANN asc-devkit examples, plain
copies 139 to 156 in the mskpp table)."""

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


def read_again(g: Gemm, chip: Chip, cores: int, c: Constants) -> float:
    """Bytes of both operands that HBM delivers more than once, as L2 does not hold them: blocks of the result whose
    rows and columns fit are finished one after the other, each reading its own; what cores work on at a time is read
    once.
    """
    item = _itemsize(g.dtype)
    a, b = g.batch * g.m * g.k * item / g.a_uses, g.batch * g.k * g.n * item
    if a + b <= c.resident * chip.l2_bytes:
        return 0.0
    side = max(c.resident * chip.l2_bytes / (2 * g.k * item), (cores * ACCUMULATOR) ** 0.5)
    return a * max(0.0, g.n / side - 1) + b * max(0.0, g.m / side - 1)


def _itemsize(dtype: str) -> float:
    return Tensor((), "f32" if dtype == "hf32" else dtype).itemsize


@lru_cache(maxsize=65536)
def gemm_time(g: Gemm, chip: Chip, cores: int, c: Constants) -> CubeTime:
    """The tile size with the least time; k is split over cores where there are too few tiles."""
    item, macs = _itemsize(g.dtype), chip.macs(g.dtype)
    rows = [
        (*_side(g.m, m0, g.uneven), _cost(g.a_row, g.m, m0, g.k * item, item, c) / g.a_uses)
        for m0 in _sides(2 * g.m if g.uneven else g.m)
    ]
    columns = [(*_side(g.n, n0), _cost(g.b_row, g.n, n0, g.k * item, item, c)) for n0 in _sides(g.n)]
    k0 = K0.get(g.dtype, 8)
    best, least = (0.0, 0.0, 0.0), inf
    for m_tiles, m0, m_part, a in rows:
        for n_tiles, n0, n_part, b in columns:
            if m0 * n0 > ACCUMULATOR:
                continue
            tiles = g.batch * m_tiles * n_tiles
            for split in ONE if 2 * tiles > cores or g.k < 2048 else _splits(g.k, tiles, cores):
                rounds = max(tiles * split / cores, 1.0)
                if rounds < 8 and not g.uneven:
                    rounds = ceil(rounds)
                elif rounds > 1:
                    rounds += min(0.5, rounds - 1)
                k = ceil(g.k / split / k0) * k0
                area = m_part * n_part
                cube = rounds * (area * k / macs + HEAD)
                load = rounds * ((a + b) * k * item / c.l2_cube + HEAD)
                store = rounds * area * (g.out_itemsize if split == 1 else 4.0) / STORE_RATE
                longest = max(cube, load, store)
                rank = longest + c.exposed_cube * (cube + load + store - longest)
                if rank < least:
                    best, least = (cube, load, store), rank
    return CubeTime(*(cycles / chip.mhz for cycles in best))


def _side(size: int, tile: int, uneven: bool = False) -> tuple[float, int, float]:
    """Tiles along a side, their size, and what of the first is filled; of groups of all sizes in the mean, whose last
    tiles are half full.
    """
    filled = min(tile, ceil(size / 16) * 16)
    if not uneven or size <= 16:
        return ceil(size / tile), tile, filled
    tiles = size / tile + 0.5
    return max(1.0, tiles), tile, min(filled, (size + 8) / tiles)


def _cost(row: float, size: int, tile: int, along: float, item: float, c: Constants) -> float:
    """Rows of a tile, each counted as often as its way of storage slows it."""
    part = min(tile, ceil(size / 16) * 16)
    return part * load_cost(row) * short_rows(row, part * item, along, c)


def _sides(size: int) -> tuple[int, ...]:
    fits = tuple(s for s in SIDES if s < size)
    above = next((s for s in SIDES if s >= size), None)
    return fits + ((above,) if above is not None else ()) or (16,)


ONE = (1,)


def _splits(k: int, tiles: float, cores: int) -> tuple[int, ...]:
    """Parts that a long k may be cut into where there are too few tiles for the cores."""
    return tuple(s for s in (1, 2, 4, 8, 16) if s * tiles <= cores and k // s >= 512) or ONE

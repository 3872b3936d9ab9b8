"""The tile program of a cube kernel: the fastest by a coarse count of cycles among those that fit the on-chip memories.

For each size of output tile the rest is chosen first; then come the choices beyond sizes, of which each must pay for
itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import ITEMSIZE
from moec.codegen.tile import CubeTile
from moec.codegen.tile_cost import ProductSize, cycles
from moec.diagnostics import Problem, Refusal, Where

LINE_ROW, LINE_TURN = 6.3, 0.375
"""Cycles of a row of 512 bytes into L1, and of a core's turn at a line that others read too (CANN asc-devkit examples:
8192^3 product, data_copy)."""
HBM_BYTES_PER_CYCLE = 34
"""Device memory, one of 24 cores (CANN asc-devkit examples, data_copy)."""
L2_BYTES = 96 * 1024 * 1024
"""L2 of the smallest chip of NPU arch 2201 (platform ini)."""
PANELS = (0, 16, 8)
"""Rows of tiles that are taken before the next rows; 0: all."""
SPLITS = (2, 3, 4, 6, 8, 12, 16, 24)
"""Parts of K that are tried where there are fewer tiles than cores."""
KEPT = (2, 4, 8, 16, 32)
"""Tiles on end that share a kept operand."""
BEST, FAR = 3, 2.5
"""For each size of output tile, the programs that are tried with the choices beyond sizes, and how many times the
cycles of the fastest they may take without (a kept operand saves no more than that).
"""
WORTH = 0.99
"""A choice beyond sizes is taken where it leaves no more than this share of the cycles."""


def fits(t: CubeTile, p: ProductSize, caps: Capacities) -> bool:
    """Whether the buffers of a tile fit, and its instructions' counts their fields."""
    a1, b1 = t.m * t.k1 * t.slots("a"), t.n * t.depth_b * t.slots("b")
    return (
        2 * t.m * t.k0 * p.size <= caps.l0a
        and 2 * t.n * t.k0 * p.size <= caps.l0b
        and t.c_slots * t.m * t.n * 4 <= caps.l0c
        and (a1 + b1) * p.size <= caps.l1
        and t.n // 16 * (t.k0 * p.size // 32) <= 255
    )


def _up(x: int, to: int) -> int:
    return -(-max(x, 1) // to) * to


def sizes(p: ProductSize) -> Iterator[CubeTile]:
    """Tiles no larger than the product itself. With gathered rows of the first operand, ones that hold more of its K in
    L1 than of the second's, too."""
    m, n, k = (_up(x, 16) for x in (p.m, p.n, p.k))
    for tm in sorted({min(t, m) for t in (16, 32, 64, 128, 256)}):
        for tn in sorted({min(t, n) for t in (16, 32, 64, 128, 256)}):
            for k0 in sorted({min(t, k) for t in (16, 32, 64, 128, 256)}):
                for k1 in sorted({min(k0 * ratio, k) for ratio in (1, 2, 4, 8)}):
                    yield CubeTile(tm, tn, k1, k0, 2)
                    yield CubeTile(tm, tn, k1, k0, 1)
                    if p.gathered == "a":
                        for deep in sorted({min(k1 * ratio, k) for ratio in (2, 4, 8, 16)} - {k1}):
                            yield CubeTile(tm, tn, deep, k0, 2, k1)
                            yield CubeTile(tm, tn, deep, k0, 1, k1)


def split(t: CubeTile, p: ProductSize) -> Iterator[CubeTile]:
    """``t`` for parts of K, each no shorter than what L1 takes, where there are fewer tiles than cores."""
    tiles = -(-p.m // t.m) * -(-p.n // t.n) * p.groups
    if p.may_split and tiles < p.cores:
        for parts in SPLITS:
            if tiles * parts <= 2 * p.cores and p.k >= parts * max(t.k1, t.depth_b):
                yield replace(t, splits=parts)


def beyond(t: CubeTile, p: ProductSize) -> Iterator[CubeTile]:
    """``t`` with each of the choices beyond sizes that it does not make yet."""
    down, wide = -(-p.m // t.m), -(-p.n // t.n)
    if t.c_slots == 1 and not t.unit:
        yield replace(t, unit=True)
    if down > 1 and wide > 1 and not t.diagonal:
        yield replace(t, diagonal=True)
    if p.k > max(t.k1, t.depth_b) and not t.stagger:
        yield replace(t, stagger=True)
    if p.known_k and not t.keep and t.splits == 1:
        whole = _up(p.k, 16)
        for share in KEPT:
            if wide > share - 1:
                yield replace(t, keep="a", k1=whole, k1b=t.depth_b, block_n=share * t.n, stagger=False)
            if down > share - 1:
                yield replace(t, keep="b", k1b=whole, block_m=share * t.m, stagger=False)


def cube_tile(
    m: int,
    n: int,
    k: int,
    dtype: str,
    caps: Capacities,
    node: str = "",
    *,
    out: str = "f32",
    groups: int = 1,
    a_by_k: bool = False,
    b_by_k: bool = False,
    gathered: str = "",
    known_k: bool = False,
    may_split: bool = False,
) -> CubeTile:
    """The tile program of ``groups`` products of [m, k] by [n, k], typical sizes, on all cube cores; see ProductSize.
    ``known_k``: K is no run-time argument.
    """
    m, n, k, groups = (max(x, 1) for x in (m, n, k, groups))
    item = ITEMSIZE[dtype], ITEMSIZE[out]
    p = ProductSize(m, n, k, *item, groups, caps.aic, a_by_k, b_by_k, gathered, known_k, may_split)
    found = _fastest(p, caps)
    if found is None:
        raise Refusal(
            Problem(
                f"no tile of a {dtype} product fits: the smallest needs {2 * 16 * 16 * p.size / 1024:.1f} KiB of L0A "
                f"and L0B each, there are {caps.l0a / 1024:.1f} and {caps.l0b / 1024:.1f}",
                Where(node=node),
                "choose a target with larger buffers",
            )
        )
    return found


@lru_cache(maxsize=1024)
def _fastest(p: ProductSize, caps: Capacities) -> CubeTile | None:
    """The tile program of a product; None where nothing fits."""
    fitting = [t for t in sizes(p) if fits(t, p, caps)]
    found = sorted([*fitting, *(s for t in fitting for s in split(t, p))], key=lambda t: _order(t, p))
    tried: dict[tuple[int, int], list[CubeTile]] = {}
    for t in found:
        same = tried.setdefault((t.m, t.n), [])
        if len(same) < BEST and cycles(t, p) <= FAR * cycles(found[0], p):
            same.append(t)
    made = [_with_choices(t, p, caps) for same in tried.values() for t in same]
    return min(made, key=lambda t: _order(t, p), default=None)


def _with_choices(t: CubeTile, p: ProductSize, caps: Capacities) -> CubeTile:
    """``t`` with every choice beyond sizes that pays, the best first."""
    t = replace(t, panel=panel(t, p))
    while True:
        tried = [x for x in beyond(t, p) if fits(x, p, caps)]
        better = min(tried, key=lambda x: _order(x, p), default=t)
        if cycles(better, p) >= WORTH * cycles(t, p):
            return t
        t = better


def _order(t: CubeTile, p: ProductSize) -> tuple[float, ...]:
    return cycles(t, p), -t.m * t.n, -t.k1, -t.k0, t.m


def streamed(t: CubeTile, m: int | None, n: int | None) -> str:
    """The operands that no tile reads again, which need not push out of the L2 what others will: those across which
    there is one tile. ``m``, ``n`` None: given at run time, so that there may be more."""
    return ("a" if n is not None and n <= t.n else "") + ("b" if m is not None and m <= t.m else "")


def panel(t: CubeTile, p: ProductSize) -> int:
    """The panel height that moves [m, k] x [n, k] fastest.

    Down whole columns all cores read the same rows of the second operand at a time, and the first may not stay in the
    L2; in panels the second is read once a panel.
    """
    rows, cols = -(-p.m // t.m), -(-p.n // t.n)

    def cost(height: int) -> float:
        tall = min(height or rows, rows)
        wide = -(-p.cores // tall)
        first, second = p.m * p.k * p.size, p.n * p.k * p.size
        kept = tall * t.m * p.k * p.size + wide * t.n * p.k * p.size <= L2_BYTES
        a = first if kept else first * -(-cols // wide)
        b = second if second + tall * t.m * p.k * p.size <= L2_BYTES else second * -(-rows // tall)
        lines = rows * cols * -(-p.k * p.size // 512)
        turns = t.n * max(0.0, LINE_TURN * min(tall, p.cores) - LINE_ROW)
        return (a + b) / HBM_BYTES_PER_CYCLE + lines * turns

    return min(PANELS, key=cost)

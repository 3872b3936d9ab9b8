"""Strided copies: slices, parts of a concatenation, transposes, pads, tiles and broadcasts are all one of two moves.

*Rows*: runs of columns that are contiguous on both sides, many in one strided copy in and one out. *Turned*: what is
contiguous on one side is not on the other; a tile is fetched row by row and gathered column by column. Element (i, j,
...) goes from ``src_at + i * src_i + j * src_j + ...`` of its source to ``dst_at + i * dst_i + ...`` of y.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import ITEMSIZE, Buffer, GmTensor, LocalRef
from moec.codegen.kernels.vector.assemble import balanced
from moec.codegen.scalar import Scalar, align, binary, ceildiv, smax, smin

TILE_BYTES = 32 * 1024
"""Bytes of one copy: what runs near peak bandwidth is half of it (CANN asc-devkit docs, hardware constraints)."""
BURSTS = 4095
"""Most rows of one strided copy."""
DOWN = 128
"""Most elements that one gather brings together."""
TURNED_BYTES = 24 * 1024
"""Bytes of a tile that is turned; four of them, two copied and what one vector core has left."""


@dataclass(frozen=True)
class Axis:
    """A dimension of a move: its size, and how many elements apart its steps are on both sides."""

    size: Scalar
    src: Scalar
    dst: Scalar


@dataclass(frozen=True)
class Rows:
    """``rows`` of ``cols`` contiguous elements, for each index of ``outer``. ``rows.src`` 0: one row many times.

    ``source`` None: every element is the kernel's fill value.
    """

    source: GmTensor | None
    outer: tuple[Axis, ...]
    rows: Axis
    cols: Scalar
    src_at: Scalar = 0
    dst_at: Scalar = 0


@dataclass(frozen=True)
class Turned:
    """``across`` is contiguous in the source, ``down`` in y (elements of 2 or 4 bytes)."""

    source: GmTensor
    outer: tuple[Axis, ...]
    down: Axis
    across: Axis
    src_at: Scalar = 0
    dst_at: Scalar = 0


Move = Rows | Turned


def emit_moves(k: KernelBuilder, y: GmTensor, moves: Sequence[Move], fill: float = 0.0) -> Scalar:
    """The body of a kernel that makes ``y`` by ``moves``; returns how many cores it wants. ``fill`` of integers of 8
    bytes and of bools must be 0."""
    size = ITEMSIZE[y.dtype]
    held = None
    if any(isinstance(m, Rows) and m.source is None for m in moves):
        held = k.ub("held", y.dtype, TILE_BYTES // size)
        _fill(k, held, fill)
    tile = None
    if any(isinstance(m, Rows) and m.source is not None for m in moves):
        tile = k.ub("tile", y.dtype, TILE_BYTES // size, 2)
    for m in moves:
        with k.reuse():
            if isinstance(m, Turned):
                _turned(k, y, m)
            else:
                buffer = tile if m.source is not None else held
                assert buffer is not None
                _rows(k, y, m, buffer)
    wanted: Scalar = 1
    for m in moves:
        wanted = smax(wanted, _wanted(m, size))
    return wanted


def _fill(k: KernelBuilder, held: Buffer, value: float) -> None:
    """The fill value all over a buffer."""
    size = ITEMSIZE[held.dtype]
    if held.dtype in ("i64", "u8"):
        assert value == 0, f"no fill of {held.dtype} with {value}"
        k.fill(held[0].cast("u32"), 0, held.elems * size // 4)
    else:
        k.fill(held[0], int(value) if held.dtype == "i32" else float(value), held.elems)


def _product(sizes: Sequence[Scalar]) -> Scalar:
    total: Scalar = 1
    for s in sizes:
        total = binary("*", total, s)
    return total


def _wanted(m: Move, size: int) -> Scalar:
    """Cores for 16 KiB each."""
    inner = (m.down.size, m.across.size) if isinstance(m, Turned) else (m.rows.size, m.cols)
    return ceildiv(_product([*(a.size for a in m.outer), *inner]), TILE_BYTES // 2 // size)


def _places(k: KernelBuilder, unit: Scalar, outer: Sequence[Axis]) -> tuple[Scalar, Scalar]:
    """Offsets on both sides of index number ``unit`` of the outer dimensions."""
    src: Scalar = 0
    dst: Scalar = 0
    for i, a in enumerate(reversed(outer)):
        last = i == len(outer) - 1
        at = k.let("at", unit if last else unit % a.size)
        if not last:
            unit = k.let("above", unit // a.size)
        src, dst = binary("+", src, binary("*", at, a.src)), binary("+", dst, binary("*", at, a.dst))
    return src, dst


def _rows(k: KernelBuilder, y: GmTensor, m: Rows, buffer: Buffer) -> None:
    size = ITEMSIZE[y.dtype]
    block, room = 32 // size, buffer.elems
    lone = m.rows.size == 1 and not m.outer
    run: Scalar = room
    if lone:
        run = k.let("run", align(balanced(ceildiv(m.cols, k.cores), room, 8 * 1024 // size), block))
    elif isinstance(m.cols, int):
        run = min(m.cols, room)
    else:
        run = k.let("run", smax(1, smin(m.cols, room)))
    count: Scalar = 1
    if m.rows.size != 1:
        pitch = align(run, block)
        share = ceildiv(_product([*(a.size for a in m.outer), m.rows.size]), k.cores)
        fit = smax(1, smin(BURSTS, room // pitch))
        count = k.let("rows_a_tile", smax(1, smin(m.rows.size, balanced(share, fit, 16))))
    runs, tiles = ceildiv(m.cols, run), ceildiv(m.rows.size, count)
    with k.loop("u", k.core, _product([*(a.size for a in m.outer), tiles, runs]), k.cores) as u:
        c = 0 if runs == 1 else k.let("col", (u % runs) * run)
        unit = u if runs == 1 else k.let("unit", u // runs)
        r = 0 if tiles == 1 else k.let("row", binary("*", unit % tiles, count))
        src, dst = _places(k, unit if tiles == 1 else k.let("outer", unit // tiles), m.outer)
        n = k.let("cols", smin(run, m.cols - c)) if runs != 1 else run
        rows = k.let("rows", smin(count, m.rows.size - r)) if tiles != 1 else count
        to = binary("+", binary("+", m.dst_at, dst), binary("+", binary("*", r, m.rows.dst), c))
        held: LocalRef = buffer[0]
        if m.source is not None:
            held = buffer[k.slot(2)]
            of = binary("+", binary("+", m.src_at, src), binary("+", binary("*", r, m.rows.src), c))
            again = m.rows.src == 0
            k.load(held, m.source[of], n, 1 if again else rows, None if again or rows == 1 else m.rows.src)
            if again:
                with k.loop("copy", 0, rows) as i:
                    k.store(y[binary("+", to, binary("*", i, m.rows.dst))], held, n)
        if m.source is None or m.rows.src != 0:
            k.store(y[to], held, n, rows, None if rows == 1 else m.rows.dst)


def _turned(k: KernelBuilder, y: GmTensor, m: Turned) -> None:
    size = ITEMSIZE[y.dtype]
    block, room = 32 // size, TURNED_BYTES // size
    deep = min(DOWN, -(-m.down.size // block) * block) if isinstance(m.down.size, int) else DOWN
    wide = min(2048, room // deep // block * block)
    if isinstance(m.across.size, int):
        wide = min(wide, -(-m.across.size // block) * block)
    fetched, turned = k.ub("fetched", y.dtype, deep * wide, 2), k.ub("turned", y.dtype, deep * wide, 2)
    table = k.ub("table", "i32", deep)
    k.v("ArithProgression", table[0], firstValue=0, diffValue=wide * size, count=deep)
    downs, acrosses = ceildiv(m.down.size, deep), ceildiv(m.across.size, wide)
    with k.loop("u", k.core, _product([*(a.size for a in m.outer), downs, acrosses]), k.cores) as u:
        ping = k.slot(2)
        j = k.let("j", (u % acrosses) * wide)
        unit = k.let("unit", u // acrosses)
        i = k.let("i", (unit % downs) * deep)
        src, dst = _places(k, k.let("outer", unit // downs), m.outer)
        n, d = k.let("n", smin(wide, m.across.size - j)), k.let("d", smin(deep, m.down.size - i))
        of = binary("+", binary("+", m.src_at, src), binary("+", binary("*", i, m.down.src), j))
        k.load(fetched[ping], m.source[of], n, d, m.down.src, ceildiv(wide, block) - ceildiv(n, block))
        with k.loop("column", 0, n) as c:
            k.v(
                "Gather",
                turned[ping][c * deep],
                fetched[ping],
                table[0].cast("u32"),
                base=c * size,
                count=d,
                srcBytes=((d - 1) * wide + n) * size,
            )
        to = binary("+", binary("+", m.dst_at, dst), binary("+", binary("*", j, m.across.dst), i))
        k.store(y[to], turned[ping], d, n, m.across.dst, ceildiv(deep, block) - ceildiv(d, block))

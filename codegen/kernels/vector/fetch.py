"""Rows by index: gather in all its forms reads rows that data names, scatter writes them.

A tensor is rows of ``inner`` elements; an index tuple names a row by its place along some dimensions. Scatter is
deterministic: every core owns a contiguous stretch of y's rows, copies x there, and then takes the updates for it, in
order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import ITEMSIZE, Barrier, Buffer, GmTensor, LocalRef
from moec.codegen.kernels.vector.assemble import balanced
from moec.codegen.scalar import Scalar, align, binary, both, ceildiv, choose, smax, smin

TILE_BYTES = 32 * 1024
"""Bytes of rows under way at once."""
TUPLES = 128
"""Most index tuples fetched at once."""


@dataclass(frozen=True)
class Named:
    """Rows named by index tuples: for each of ``outer`` and each of ``count``, tuple number ``outer * apart + count``
    (``apart``: 0 where all of outer share the tuples, else ``count``).

    Entry j of a tuple, in [-sizes[j], sizes[j]), counts ``steps[j]`` rows; ``base(o, m)`` is the row at zeros.
    """

    outer: Scalar
    count: Scalar
    apart: Scalar
    sizes: tuple[Scalar, ...]
    steps: tuple[Scalar, ...]
    base: Callable[[Scalar, Scalar], Scalar]
    inner: Scalar

    @property
    def depth(self) -> int:
        return len(self.sizes)


def _row(k: KernelBuilder, n: Named, ids: LocalRef, i: Scalar, o: Scalar, m: Scalar) -> Scalar:
    """The row that tuple ``i`` of a tile names."""
    at = n.base(o, m)
    for j, (size, step) in enumerate(zip(n.sizes, n.steps, strict=True)):
        index = k.read("index", ids[binary("+", binary("*", i, n.depth), j)])
        at = binary("+", at, binary("*", choose(index < 0, index + size, index), step))
    return k.let("named", at)


def emit_gather(k: KernelBuilder, x: GmTensor, indices: GmTensor, y: GmTensor, n: Named) -> Scalar:
    """y's rows are those of x that the tuples name. Returns how many cores are wanted."""
    size = ITEMSIZE[x.dtype]
    block, room = 32 // size, TILE_BYTES // size
    run = min(n.inner, room) if isinstance(n.inner, int) else k.let("run", smax(1, smin(n.inner, room)))
    pitch = align(run, block)
    most_held = min(room, TUPLES * -(-n.inner // block) * block) if isinstance(n.inner, int) else room
    held, ids = k.ub("held", x.dtype, most_held, 2), k.ub("ids", indices.dtype, TUPLES * n.depth, 2)
    share = ceildiv(binary("*", n.outer, n.count), k.cores)
    most = smax(1, smin(TUPLES, room // pitch))
    per = k.let("rows_a_tile", smax(1, smin(n.count, balanced(share, most, 8))))
    tiles, runs = ceildiv(n.count, per), ceildiv(n.inner, run)
    with k.loop("u", k.core, binary("*", binary("*", n.outer, tiles), runs), k.cores) as u:
        ping = k.slot(2)
        c: Scalar = 0 if runs == 1 else k.let("col", (u % runs) * run)
        unit: Scalar = u if runs == 1 else k.let("unit", u // runs)
        m = k.let("first", (unit % tiles) * per)
        o = k.let("outer", unit // tiles)
        rows = k.let("rows", smin(per, n.count - m))
        cols = run if runs == 1 else k.let("cols", smin(run, n.inner - c))
        k.load(ids[ping], indices[binary("*", binary("*", o, n.apart) + m, n.depth)], rows * n.depth)
        with k.loop("i", 0, rows) as i:
            at = _row(k, n, ids[ping], i, o, binary("+", m, i))
            k.load(held[ping][i * pitch], x[binary("*", at, n.inner) + c], cols)
        to = binary("*", binary("*", o, n.count) + m, n.inner) + c
        k.store(y[to], held[ping], cols, rows, n.inner)
    return smax(1, ceildiv(binary("*", binary("*", n.outer, n.count), n.inner), TILE_BYTES // 8 // size))


def emit_scatter(
    k: KernelBuilder, x: GmTensor, indices: GmTensor, updates: GmTensor, y: GmTensor, n: Named, rows: Scalar, by: str
) -> Scalar:
    """y = x [rows, inner], and row by row of ``updates`` put where the tuples name, or joined to what is there by the
    instruction ``by``; cores wanted.

    Numbers are joined in f32 or i32 and rounded after each update.
    """
    size = ITEMSIZE[x.dtype]
    room = TILE_BYTES // (2 if by else 1) // size
    held = k.ub("held", x.dtype, room, 2)
    ids = k.ub("ids", indices.dtype, TUPLES * n.depth, 2)
    longest = min(n.inner, room) if isinstance(n.inner, int) else room
    joined = _Joined(k, x.dtype, longest, by) if by else None
    run = min(n.inner, room) if isinstance(n.inner, int) else k.let("run", smax(1, smin(n.inner, room)))
    per = k.let("own", ceildiv(rows, k.cores))
    low = k.let("low", smin(rows, k.core * per))
    high = k.let("high", smin(rows, low + per))
    with k.loop("e", low * n.inner, high * n.inner, room) as e:
        ping = k.slot(2)
        count = k.let("count", smin(room, high * n.inner - e))
        k.load(held[ping], x[e], count)
        k.store(y[e], held[ping], count)
    with k.loop("o", 0, n.outer) as o, k.loop("m", 0, n.count, TUPLES) as m:
        turn = k.slot(2, "turn")
        here = k.let("here", smin(TUPLES, n.count - m))
        k.load(ids[turn], indices[binary("*", binary("*", o, n.apart) + m, n.depth)], here * n.depth)
        with k.loop("i", 0, here) as i:
            at = _row(k, n, ids[turn], i, o, binary("+", m, i))
            mine = both(at >= low, at < high)
            with k.if_(mine), k.loop("c", 0, n.inner, run) as c:
                ping = k.slot(2)
                cols = k.let("cols", smin(run, n.inner - c))
                k.load(held[ping], updates[binary("*", binary("*", o, n.count) + m + i, n.inner) + c], cols)
                to = y[binary("*", at, n.inner) + c]
                if joined is not None:
                    k.load(joined.now[0], to, cols)
                    joined.join(held[ping], cols)
                else:
                    k.emit(Barrier("MTE3"))  # rows of y are written over
                k.store(to, held[ping], cols)
    return smax(1, ceildiv(binary("*", rows, n.inner), TILE_BYTES // 2 // size))


class _Joined:
    """Adds what y holds to an update, or multiplies, or takes the larger or smaller."""

    def __init__(self, k: KernelBuilder, dtype: str, room: int, by: str):
        self.k, self.by = k, by
        self.now = k.ub("now", dtype, room)
        self.wide: tuple[Buffer, ...] = ()
        if dtype in ("f16", "bf16"):
            self.wide = (k.ub("now32", "f32", room), k.ub("update32", "f32", room))

    def join(self, update: LocalRef, cols: Scalar) -> None:
        k = self.k
        if not self.wide:
            k.v(self.by, update, self.now[0], update, count=cols)
            return
        now, more = (b[0] for b in self.wide)
        k.cast(now, self.now[0], cols)
        k.cast(more, update, cols)
        k.v(self.by, now, now, more, count=cols)
        k.cast(update, now, cols)

"""Triangles of matrices: each row is copied from or up to the diagonal, and zeros fill the rest."""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import ITEMSIZE, GmRef, GmTensor, LocalRef
from moec.codegen.scalar import Scalar, binary, ceildiv, smax, smin

TILE_BYTES = 32 * 1024
"""Bytes of a run of columns under way at once."""


def emit_triangle(
    k: KernelBuilder, x: GmTensor, y: GmTensor, matrices: Scalar, rows: Scalar, cols: Scalar, upper: bool, diagonal: int
) -> Scalar:
    """y [matrices, rows, cols] = x where col - row >= diagonal (``upper``) or <= diagonal, else 0; cores wanted."""
    size = ITEMSIZE[x.dtype]
    room = TILE_BYTES // size
    zeros, held = k.ub("zeros", x.dtype, room), k.ub("held", x.dtype, room, 2)
    wide = zeros[0] if size in (2, 4) else zeros[0].cast("u32")
    k.fill(wide, 0, room * size // ITEMSIZE[wide.dtype])
    with k.loop("u", k.core, binary("*", matrices, rows), k.cores) as u:
        row = k.let("row", u % rows)
        at = k.let("at", binary("*", u, cols))
        edge = row + diagonal if upper else row + diagonal + 1
        cut = k.let("cut", smin(cols, smax(0, edge)))  # the first column of the right part
        kept, blank = ((cut, cols), (0, cut)) if upper else ((0, cut), (cut, cols))
        with k.loop("c", kept[0], kept[1], room) as c:
            ping = k.slot(2)
            n = k.let("kept", smin(room, kept[1] - c))
            k.load(held[ping], x[at + c], n)
            k.store(y[at + c], held[ping], n)
        with k.loop("z", blank[0], blank[1], room) as z:
            _clear(k, y[at + z], zeros[0], smin(room, blank[1] - z))
    return smax(1, ceildiv(binary("*", binary("*", matrices, rows), cols), room // 4))


def _clear(k: KernelBuilder, to: GmRef, zeros: LocalRef, count: Scalar) -> None:
    n = k.let("blank", count)
    k.store(to, zeros, n)

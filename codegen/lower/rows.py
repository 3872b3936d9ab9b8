"""Steps that lowerings of other ops need between their kernels: dimensions turned, elements fetched by index."""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import ITEMSIZE
from moec.codegen.kernels.vector.fetch import Named, emit_gather
from moec.codegen.kernels.vector.moves import Axis, Move, Rows, Turned, emit_moves
from moec.codegen.lower.base import Lowering
from moec.codegen.lower.sizes import Sizes
from moec.codegen.scalar import binary
from moec.ir.graph import Node
from moec.ir.symbol import Dim


def swap_last(cx: Lowering, node: Node, source: str, target: str, dtype: str, dims: tuple[Dim, Dim, Dim]) -> None:
    """``target`` [a, c, b] is ``source`` [a, b, c] with the last two dimensions swapped."""
    a, b, c = dims
    k = KernelBuilder("turn", "aiv", cx.capacities)
    sizes = Sizes(k, cx)
    count = sizes.of(a * b * c, "elems")
    x, y = k.gm("x", dtype, (count,), "in"), k.gm("y", dtype, (count,), "out")
    outer = Axis(sizes.of(a), sizes.of(b * c), sizes.of(b * c))
    down, across = Axis(sizes.of(b), sizes.of(c), 1), Axis(sizes.of(c), 1, sizes.of(b))
    move: Move = Turned(x, (outer,), down, across) if ITEMSIZE[dtype] in (2, 4) else Rows(x, (outer, across), down, 1)
    blocks = emit_moves(k, y, [move])
    sizes.witness()
    cx.launch(node, k.finish(blocks), {"x": source, "y": target}, sizes.given)


def fetch_elements(
    cx: Lowering, node: Node, source: str, index: str, target: str, dtype: str, dims: tuple[Dim, Dim, Dim]
) -> None:
    """target[r, j] = source[r, index[r, j]] of [rows, n] and i32 [rows, m]; ``dims`` are rows, n, m."""
    rows, n, m = dims
    k = KernelBuilder("fetch_elements", "aiv", cx.capacities)
    sizes = Sizes(k, cx)
    x = k.gm("x", dtype, (sizes.of(rows * n, "elems"),), "in")
    indices = k.gm("indices", "i32", (sizes.of(rows * m, "elems"),), "in", "index")
    y = k.gm("y", dtype, (sizes.of(rows * m, "elems"),), "out")
    length, count = sizes.of(n), sizes.of(m)
    named = Named(sizes.of(rows), count, count, (length,), (1,), lambda o, m: binary("*", o, length), 1)
    blocks = emit_gather(k, x, indices, y, named)
    sizes.witness()
    cx.launch(node, k.finish(blocks), {"x": source, "indices": index, "y": target}, sizes.given)

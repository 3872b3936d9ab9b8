"""Lowering of trilu."""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernels.vector.triangle import emit_triangle
from moec.codegen.lower.base import Lowering, device_dtype, lowering
from moec.codegen.lower.sizes import Sizes, numel
from moec.ir.graph import Node


@lowering("trilu")
def trilu(cx: Lowering, node: Node) -> None:
    x = node.operand(0)
    *lead, rows, cols = x.type.dims
    dtype = device_dtype(x.type.dtype)
    k = KernelBuilder("trilu", "aiv", cx.capacities)
    sizes = Sizes(k, cx)
    total = sizes.of(numel(x.type.dims), "elems")
    source, made = k.gm("x", dtype, (total,), "in"), k.gm("y", dtype, (total,), "out")
    dims = (sizes.of(numel(lead)), sizes.of(rows), sizes.of(cols))
    blocks = emit_triangle(k, source, made, *dims, node.attrs["upper"], node.attrs["k"])
    sizes.witness()
    cx.launch(node, k.finish(blocks), {"x": cx.tensor(x), "y": cx.result(node)}, sizes.given)

"""Lowering of cumsum: rows are added up; along the last dimension the matrix is turned there and back."""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernels.vector.cumsum import Cumsum, emit_cumsum
from moec.codegen.kernels.vector.moves import Axis, Turned, emit_moves
from moec.codegen.lower.base import Lowering, device_dtype, lowering, where
from moec.codegen.lower.sizes import Sizes, numel
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node
from moec.ir.symbol import Dim

SUMMED = ("f32", "f16", "bf16", "i32")


@lowering("cumsum")
def cumsum(cx: Lowering, node: Node) -> None:
    x, axis = node.operand(0), node.attrs["axis"]
    dims, dtype = x.type.dims, device_dtype(x.type.dtype)
    if dtype not in SUMMED:
        what = f"cumsum of {x.type.dtype.name} has no kernel"
        raise NoKernel(Problem(what, where(node), f"{', '.join(SUMMED)} have one"))
    outer, n, inner = numel(dims[:axis]), dims[axis], numel(dims[axis + 1 :])
    if inner != 1:
        _sum(cx, node, cx.tensor(x), cx.result(node), dtype, (outer, n, inner))
        return
    there, back = (cx.scratch(f"cumsum_{name}", dtype, (n, outer)) for name in ("turned", "sums"))
    _turn(cx, node, cx.tensor(x), there, dtype, outer, n)
    _sum(cx, node, there, back, dtype, (1, n, outer))
    _turn(cx, node, back, cx.result(node), dtype, n, outer)


def _sum(cx: Lowering, node: Node, x: str, y: str, dtype: str, dims: tuple[Dim, Dim, Dim]) -> None:
    k = KernelBuilder("cumsum", "aiv", cx.capacities)
    sizes = Sizes(k, cx)
    tensors = [k.gm(name, dtype, (sizes.of(numel(dims), "elems"),), way) for name, way in (("x", "in"), ("y", "out"))]
    outer, n, inner = (sizes.of(d) for d in dims)
    job = Cumsum(outer, n, inner, node.attrs["exclusive"], node.attrs["reverse"])
    blocks = emit_cumsum(k, tensors[0], tensors[1], job)
    sizes.witness()
    cx.launch(node, k.finish(blocks), {"x": x, "y": y}, sizes.given)


def _turn(cx: Lowering, node: Node, x: str, y: str, dtype: str, rows: Dim, cols: Dim) -> None:
    """y [cols, rows] = x [rows, cols] transposed."""
    k = KernelBuilder("turn", "aiv", cx.capacities)
    sizes = Sizes(k, cx)
    source = k.gm("x", dtype, (sizes.of(rows * cols, "elems"),), "in")
    out = k.gm("y", dtype, (sizes.of(rows * cols, "elems"),), "out")
    r, c = sizes.of(rows), sizes.of(cols)
    blocks = emit_moves(k, out, [Turned(source, (), Axis(r, c, 1), Axis(c, 1, r))])
    sizes.witness()
    cx.launch(node, k.finish(blocks), {"x": x, "y": y}, sizes.given)

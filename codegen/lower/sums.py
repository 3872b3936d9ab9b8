"""Lowering of sums over rows: reductions over dimensions other than the last, and over the rows of each expert."""

from __future__ import annotations

from moec.codegen.kernels.vector.sums import BLOCK, CHUNK, Sums, segment_sum_kernel, sums_kernel
from moec.codegen.lower.base import Lowering, device_dtype, lowering, where
from moec.codegen.lower.vector import single
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node
from moec.ir.symbol import Dim, ceildiv

FLOATS = ("f32", "f16", "bf16")


def _number(dim: Dim) -> int | None:
    return dim if isinstance(dim, int) else None


def _product(dims: tuple[Dim, ...]) -> Dim:
    total: Dim = 1
    for d in dims:
        total = total * d
    return total


@lowering("reduce_sum")
def reduce_sum(cx: Lowering, node: Node) -> None:
    x = node.operand(0)
    rank, axes = x.type.rank, tuple(sorted(node.attrs["axes"]))
    if axes == (rank - 1,) or not axes:
        single(cx, node)
        return
    dtype = x.type.dtype.name
    if axes != tuple(range(axes[0], axes[-1] + 1)) or axes[-1] == rank - 1 or dtype not in FLOATS:
        what = f"reduce_sum of {x.type} over dimensions {list(axes)} has no kernel"
        raise NoKernel(Problem(what, where(node), "sums of f32, f16 and bf16 over dimensions side by side have one"))
    dims = x.type.dims
    lead, rows, cols = _product(dims[: axes[0]]), _product(dims[axes[0] : axes[-1] + 1]), _product(dims[axes[-1] + 1 :])
    out = device_dtype(node.result.type.dtype)
    hi = max(cx.bounds(d)[1] for d in (lead, rows, cols))
    busy = cx.size(lead) * -(-cx.size(cols) // CHUNK) >= cx.capacities.aiv
    source = cx.tensor(x)
    if not busy and cx.bounds(rows)[1] > 2 * BLOCK:
        blocks = ceildiv(rows, BLOCK)
        partial = cx.scratch("row_sums", "f32", (lead, blocks, cols))
        _launch(
            cx,
            node,
            (lead, rows, cols),
            Sums(_number(lead), _number(rows), _number(cols), dtype, "f32", BLOCK, hi),
            (source, partial),
        )
        source, rows, dtype = partial, blocks, "f32"
    sums = Sums(_number(lead), _number(rows), _number(cols), dtype, out, None, hi)
    _launch(cx, node, (lead, rows, cols), sums, (source, cx.result(node)))


def _launch(cx: Lowering, node: Node, sizes: tuple[Dim, Dim, Dim], sums: Sums, ends: tuple[str, str]) -> None:
    kernel = sums_kernel(f"sums_{sums.dtype}", cx.capacities, sums)
    given = dict(zip(("lead", "rows", "cols"), sizes, strict=True))
    cx.launch(node, kernel, {"x": ends[0], "y": ends[1]}, {n: d for n, d in given.items() if not isinstance(d, int)})


@lowering("segment_sum")
def segment_sum(cx: Lowering, node: Node) -> None:
    x, counts = node.operand(0), node.operand(1)
    (slots, cols), (experts,) = x.type.dims, counts.type.dims
    dtype, out = x.type.dtype.name, node.result.type.dtype.name
    if not (isinstance(cols, int) and isinstance(experts, int)) or not {dtype, out} <= set(FLOATS):
        what = f"segment_sum of {x.type} by {counts.type} has no kernel"
        raise NoKernel(Problem(what, where(node), "f32, f16 and bf16 with known width and experts have one"))
    kernel = segment_sum_kernel("segment_sum", cx.capacities, experts, cols, dtype, out, cx.bounds(slots)[1])
    operands = {"x": cx.tensor(x), "counts": cx.tensor(counts), "y": cx.result(node)}
    cx.launch(node, kernel, operands, {"S": slots})

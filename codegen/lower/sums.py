"""Lowering of sums over the rows of each expert."""

from __future__ import annotations

from moec.codegen.kernels.vector.sums import segment_sum_kernel
from moec.codegen.lower.base import Lowering, lowering, where
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node

FLOATS = ("f32", "f16", "bf16")


@lowering("segment_sum")
def segment_sum(cx: Lowering, node: Node) -> None:
    x, counts = node.operand(0), node.operand(1)
    (slots, cols), (experts,) = x.type.dims, counts.type.dims
    dtype, out = x.type.dtype.name, node.result.type.dtype.name
    if not isinstance(cols, int) or not {dtype, out} <= set(FLOATS):
        what = f"segment_sum of {x.type} by {counts.type} has no kernel"
        raise NoKernel(Problem(what, where(node), "f32, f16 and bf16 with known width have one"))
    known = experts if isinstance(experts, int) else None
    most, within = cx.bounds(slots)[1], cx.bounds(experts)
    kernel = segment_sum_kernel("segment_sum", cx.capacities, known, cols, dtype, out, most, within)
    operands = {"x": cx.tensor(x), "counts": cx.tensor(counts), "y": cx.result(node)}
    cx.launch(node, kernel, operands, {"S": slots} | ({} if known is not None else {"experts": experts}))

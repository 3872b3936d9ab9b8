"""Lowering of permute."""

from __future__ import annotations

from moec.codegen.kernels.vector.permute import Permute, permute_kernel
from moec.codegen.lower.base import Lowering, device_dtype, lowering, where
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node

MOVED = ("f32", "f16", "bf16", "i32")
"""Dtypes of rows that are sorted."""


@lowering("permute")
def permute(cx: Lowering, node: Node) -> None:
    x, experts, counts = (node.operand(i) for i in range(3))
    (tokens, hidden), (_, top_k), (total,) = x.type.dims, experts.type.dims, counts.type.dims
    dtype = x.type.dtype.name
    known = isinstance(hidden, int) and isinstance(top_k, int) and isinstance(total, int)
    if not known or dtype not in MOVED:
        what = f"permute of {x.type} by {experts.type} has no kernel"
        raise NoKernel(Problem(what, where(node), f"{', '.join(MOVED)} with known width, top-k and experts have one"))
    assert isinstance(hidden, int) and isinstance(top_k, int) and isinstance(total, int)
    p = Permute(hidden, top_k, total, device_dtype(x.type.dtype), cx.bounds(tokens)[1])
    kernel = permute_kernel("permute", cx.capacities, p)
    operands = {
        "x": cx.tensor(x),
        "experts": cx.tensor(experts),
        "counts": cx.tensor(counts),
        "work": cx.scratch("permute_counts", "i32", (cx.capacities.aiv, total)),
        "rows": cx.result(node, 0),
        "positions": cx.result(node, 1),
    }
    cx.launch(node, kernel, operands, {"tokens": tokens})

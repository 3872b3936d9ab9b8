"""Lowering of unpermute."""

from __future__ import annotations

from moec.codegen.kernels.vector.unpermute import Unpermute, unpermute_kernel
from moec.codegen.lower.base import Lowering, device_dtype, lowering, where
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node

FLOATS = ("f32", "f16", "bf16")


@lowering("unpermute")
def unpermute(cx: Lowering, node: Node) -> None:
    rows, positions = node.operand(0), node.operand(1)
    weights = node.operands[2] if len(node.operands) > 2 else None
    (slots, hidden), (tokens, top_k) = rows.type.dims, positions.type.dims
    dtypes = {rows.type.dtype.name} | (set() if weights is None else {weights.type.dtype.name})
    if not (isinstance(hidden, int) and isinstance(top_k, int)) or not dtypes <= set(FLOATS):
        what = f"unpermute of {rows.type} by {positions.type} has no kernel"
        raise NoKernel(Problem(what, where(node), "f32, f16 and bf16 with known width and top-k have one"))
    given = None if weights is None else device_dtype(weights.type.dtype)
    u = Unpermute(hidden, top_k, device_dtype(rows.type.dtype), given, cx.bounds(tokens)[1])
    kernel = unpermute_kernel("unpermute", cx.capacities, u)
    operands = {"rows": cx.tensor(rows), "positions": cx.tensor(positions), "y": cx.result(node)}
    if weights is not None:
        operands["weights"] = cx.tensor(weights)
    cx.launch(node, kernel, operands, {"tokens": tokens, "slots": slots})

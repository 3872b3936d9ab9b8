"""Lowering of the gradients of unpermute."""

from __future__ import annotations

from moec.codegen.kernels.vector.tile import MAX_REPEAT
from moec.codegen.kernels.vector.unpermute_grad import UnpermuteGrad, unpermute_grad_kernel
from moec.codegen.lower.base import Lowering, device_dtype, lowering, where
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node

FLOATS = ("f32", "f16", "bf16")


@lowering("unpermute_grad")
def unpermute_grad(cx: Lowering, node: Node) -> None:
    dy, rows, positions, weights = (*node.operands, None)[:4]
    assert dy is not None and positions is not None
    (tokens, hidden), (_, top_k) = dy.type.dims, positions.type.dims
    known = isinstance(hidden, int) and isinstance(top_k, int) and top_k <= MAX_REPEAT
    if not known or not {v.type.dtype.name for v in (dy, rows, weights) if v is not None} <= set(FLOATS):
        what = f"unpermute_grad of {dy.type} by {positions.type} has no kernel"
        raise NoKernel(Problem(what, where(node), f"f32, f16 and bf16 of known width, top {MAX_REPEAT} have one"))
    assert isinstance(hidden, int) and isinstance(top_k, int)
    rows_dtype, weights_dtype = (None if v is None else device_dtype(v.type.dtype) for v in (rows, weights))
    u = UnpermuteGrad(hidden, top_k, device_dtype(dy.type.dtype), rows_dtype, weights_dtype, cx.bounds(tokens)[1])
    kernel = unpermute_grad_kernel("unpermute_grad", cx.capacities, u)
    operands = {"dy": cx.tensor(dy), "positions": cx.tensor(positions), "drows": cx.result(node, 0)}
    if weights is not None:
        operands["weights"] = cx.tensor(weights)
    if rows is not None:
        operands |= {"rows": cx.tensor(rows), "dweights": cx.result(node, 1)}
    else:
        cx.alias(node.results[1], node.results[0])  # no columns: any buffer holds it
    cx.launch(node, kernel, operands, {"tokens": tokens, "slots": node.results[0].type.dims[0]})

"""Lowering of the gradient of routing."""

from __future__ import annotations

from moec.codegen.kernels.vector.gating_grad import GatingGrad, gating_grad_kernel
from moec.codegen.lower.base import Lowering, device_dtype, lowering, node_name, where
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node

FLOATS = ("f32", "f16", "bf16")


@lowering("gating_grad")
def gating_grad(cx: Lowering, node: Node) -> None:
    logits, experts, dweights = node.operand(0), node.operand(2), node.operand(3)
    tokens, lanes = logits.type.dims
    a = node.attrs
    dtypes = {logits.type.dtype.name, a["score_dtype"].name, dweights.type.dtype.name}
    if not isinstance(lanes, int) or not dtypes <= set(FLOATS):
        what = f"gating_grad of {logits.type} with {a['score_dtype']} scores by {dweights.type} has no kernel"
        raise NoKernel(Problem(what, where(node), "f32, f16 and bf16 with a known number of experts have one"))
    names = ("top_k", "score", "score_order", "renormalize", "renormalize_eps", "scale")
    g = GatingGrad(
        lanes,
        **{n: a[n] for n in names},
        score_dtype=device_dtype(a["score_dtype"]),
        dtype=device_dtype(logits.type.dtype),
        weights_dtype=device_dtype(dweights.type.dtype),
        most_tokens=cx.bounds(tokens)[1],
    )
    kernel = gating_grad_kernel("gating_grad", cx.capacities, g, node_name(node))
    operands = {
        "logits": cx.tensor(logits),
        "experts": cx.tensor(experts),
        "dweights": cx.tensor(dweights),
        "dlogits": cx.result(node),
    }
    cx.launch(node, kernel, operands, {"tokens": tokens})

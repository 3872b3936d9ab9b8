"""Lowering of gating."""

from __future__ import annotations

from moec.codegen.kernels.vector.gating import Gating, gating_kernel
from moec.codegen.lower.base import Lowering, device_dtype, lowering, node_name, where
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node

FLOATS = ("f32", "f16", "bf16")


@lowering("gating")
def gating(cx: Lowering, node: Node) -> None:
    logits = node.operand(0)
    bias = node.operands[1] if len(node.operands) > 1 else None
    tokens, experts = logits.type.dims
    a = node.attrs
    dtypes = [logits.type.dtype.name, a["score_dtype"].name, a["weights_dtype"].name] + (
        [] if bias is None else [bias.type.dtype.name]
    )
    if not isinstance(experts, int) or not set(dtypes) <= set(FLOATS):
        what = f"gating of {logits.type} with {a['score_dtype']} scores and {a['weights_dtype']} weights has no kernel"
        raise NoKernel(Problem(what, where(node), "f32, f16 and bf16 with a known number of experts have one"))
    names = (
        "top_k",
        "score",
        "score_order",
        "groups",
        "group_top_k",
        "group_score",
        "group_mask",
        "renormalize",
        "renormalize_eps",
        "scale",
    )
    g = Gating(
        experts,
        **{n: a[n] for n in names},
        score_dtype=device_dtype(a["score_dtype"]),
        weights_dtype=device_dtype(a["weights_dtype"]),
        dtype=device_dtype(logits.type.dtype),
        bias_dtype=None if bias is None else device_dtype(bias.type.dtype),
        most_tokens=cx.bounds(tokens)[1],
    )
    kernel = gating_kernel("gating", cx.capacities, g, node_name(node))
    operands = {
        "logits": cx.tensor(logits),
        "weights": cx.result(node, 0),
        "experts": cx.result(node, 1),
        "counts": cx.result(node, 2),
    }
    if bias is not None:
        operands["score_bias"] = cx.tensor(bias)
    cx.memset(cx.result(node, 2))
    cx.launch(node, kernel, operands, {"tokens": tokens})

"""onnxruntime's fused mixture-of-experts operators, spelt out as routing, grouped products and the weighted sum.

The operators' own router matmul stands before them in the graph; recovery joins the two.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.frontend.onnx.context import Op
from moec.frontend.onnx.errors import NoForm
from moec.frontend.onnx.nodes.broadcasting import reshaped
from moec.frontend.onnx.nodes.quantised import dequantised, weight
from moec.frontend.onnx.table import onnx_op
from moec.ir.graph import Value
from moec.ir.types import F32

MS = "com.microsoft"
_PLAIN = {"relu": "relu", "gelu": "gelu", "silu": "silu", "identity": "identity"}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _activation(op: Op, gated: bool) -> dict[str, Any]:
    """The properties of the activation; "silu" with a third weight multiplies its result into the second half."""
    kind = _text(op.attr("activation_type", "relu"))
    plain = {"alpha": 1.0, "limit": None, "up_offset": 0.0}
    if kind == "swiglu":
        fusion = int(op.attr("swiglu_fusion", 0))
        if fusion not in (1, 2) and not gated:
            raise ValueError(f"swiglu_fusion {fusion} without a third weight")
        limit = op.attrs.get("swiglu_limit")
        return {
            "activation": "silu",
            "glu": "interleaved" if fusion == 1 else "chunked",
            "alpha": float(op.attr("activation_alpha", 1.0)),
            "limit": None if limit is None or not np.isfinite(limit) else float(limit),
            "up_offset": float(op.attr("activation_beta", 0.0)),
        }
    if kind not in _PLAIN:
        raise NoForm(f"activation '{kind}' is not supported; {', '.join(_PLAIN)} and swiglu are")
    return {"activation": _PLAIN[kind], "glu": "chunked" if gated else "none", **plain}


def _block(
    op: Op, gate_up: Value, gate_up_bias: Value | None, down: Value, down_bias: Value | None, gated: bool
) -> Value:
    """The operator on weights that are [E, out, in]."""
    if op.attr("use_sparse_mixer", 0):
        raise NoForm("use_sparse_mixer is not supported")
    x, logits = op.value(0), op.value(1)
    hidden, experts = x.type.dims[-1], logits.type.dims[-1]
    tokens = logits.type.dims[0]
    rows = reshaped(op, x, (tokens, hidden))
    renormalize = bool(op.attr("normalize_routing_weights", 0))
    weights, chosen, counts = op.emit_all(
        "gating",
        reshaped(op, logits, (tokens, experts)),
        top_k=int(op.attr("k", 1)),
        score="softmax",
        score_order="before_topk",
        groups=1,
        group_top_k=1,
        group_score="none",
        group_mask="none",
        renormalize=renormalize,
        renormalize_eps=0.0,
        scale=1.0,
        score_dtype=F32,
        weights_dtype=x.type.dtype,
    )
    sorted_rows, positions = op.emit_all("permute", rows, chosen, counts)
    h = op.emit("grouped_matmul", sorted_rows, gate_up, counts, gate_up_bias)
    h = op.emit("swiglu", h, **_activation(op, gated))
    h = op.emit("grouped_matmul", h, down, counts, down_bias)
    return reshaped(op, op.emit("unpermute", h, positions, weights), x.type.dims)


@onnx_op("MoE", domain=MS, last=1)
def _moe(op: Op) -> Value:
    gate_up, bias = op.value(2), op.value(3) if op.has(3) else None
    gated = op.has(6)
    if gated:
        gate_up = op.emit("concat", gate_up, op.value(6), axis=1)
        if op.has(7) != (bias is not None):
            raise ValueError("one of the two input biases is missing")
        bias = op.emit("concat", bias, op.value(7), axis=1) if bias is not None else None
    return _block(op, gate_up, bias, op.value(4), op.value(5) if op.has(5) else None, gated)


def _dense(op: Op, packed: int, scales: int, zeros: int) -> Value:
    """A block-quantised [E, out, in * bits / 8] input as a weight."""
    bits = int(op.attr("expert_weight_bits", 4))
    if bits not in (4, 8):
        raise NoForm(f"{bits}-bit experts are not supported, 4 and 8 are")
    numbers, scale = op.numbers(packed, "the quantised experts"), op.numbers(scales, "the scales")
    block = int(op.attr("block_size", 0)) or numbers.shape[-1] * 8 // bits
    if scale.ndim == 2:
        scale = scale[..., None]
    zero = op.numbers(zeros, "the zero points") if op.has(zeros) else None
    dense = dequantised(numbers, scale, zero, bits, block)
    return weight(op, dense, op.node.inputs[packed], op.dtype(0))


@onnx_op("QMoE", domain=MS, last=1)
def _qmoe(op: Op) -> Value:
    if op.has(8):
        raise NoForm("a third quantised weight is not supported")
    biases = [op.value(i) if op.has(i) else None for i in (4, 7)]
    return _block(op, _dense(op, 2, 3, 11), biases[0], _dense(op, 5, 6, 12), biases[1], False)

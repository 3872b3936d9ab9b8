"""LayerNormalization and RMSNormalization."""

from __future__ import annotations

from moec.frontend.onnx.context import Op
from moec.frontend.onnx.errors import NoForm
from moec.frontend.onnx.table import onnx_op
from moec.ir.graph import Value
from moec.ir.symbol import exact_div


def _single_output(op: Op) -> None:
    if any(op.node.outputs[1:]):
        raise NoForm("the mean and inverse deviation outputs are not supported")


@onnx_op("LayerNormalization", first=17, last=17)
def _layer_norm(op: Op) -> Value:
    _single_output(op)
    x = op.value(0)
    bias = op.value(2) if op.has(2) else None
    eps = float(op.attr("epsilon", 1e-5))
    return op.emit("layer_norm", x, op.value(1), bias, eps=eps, axis=op.axis(x.type.rank, -1))


@onnx_op("RMSNormalization", first=23, last=23)
@onnx_op("SimplifiedLayerNormalization", first=1, last=1)
def _rms_norm(op: Op) -> Value:
    _single_output(op)
    x = op.value(0)
    if op.axis(x.type.rank, -1) != x.type.rank - 1:
        raise NoForm("normalisation over more than the last axis is not supported")
    return op.emit("rms_norm", x, op.value(1), eps=float(op.attr("epsilon", 1e-5)))


@onnx_op("SkipSimplifiedLayerNormalization", domain="com.microsoft", last=1)
def _skip_rms_norm(op: Op) -> list[Value | None]:
    """The norm of x + skip (+ bias), its mean and inverse deviation where they are named, and that sum."""
    total = op.emit("add", op.value(0), op.value(1))
    if op.has(3):
        total = op.emit("add", total, op.value(3))
    eps = float(op.attr("epsilon", 1e-5))
    y = op.emit("rms_norm", total, op.value(2), eps=eps)
    axes = (total.type.rank - 1,)
    named = [i < len(op.node.outputs) and bool(op.node.outputs[i]) for i in (1, 2)]
    mean = op.emit("reduce_mean", total, axes=axes, keepdims=True) if named[0] else None
    deviation = None
    if named[1]:
        square = op.emit("reduce_mean", op.emit("mul", total, total), axes=axes, keepdims=True)
        deviation = op.emit("rsqrt", op.emit("add", square, op.context.scalar(eps, total.type.dtype)))
    return [y, mean, deviation, total]


@onnx_op("GroupNormalization", first=21, last=21)
def _group_norm(op: Op) -> Value:
    """x [N, C, ...] normalised over each of num_groups groups of channels, then scaled and shifted by channel."""
    x, groups = op.value(0), int(op.attr("num_groups", 1))
    batch, channels, *rest = x.type.dims
    size = x.type.with_shape((channels, *rest)).numel()
    rows = op.emit("reshape", x, shape=(batch, groups, exact_div(size, groups)))
    rows = op.emit("layer_norm", rows, None, None, eps=float(op.attr("epsilon", 1e-5)), axis=2)
    y = op.emit("reshape", rows, shape=x.type.dims)
    spread = (channels, *(1,) * len(rest))
    scale, bias = (op.emit("reshape", op.value(i), shape=spread) for i in (1, 2))
    return op.emit("add", op.emit("mul", y, scale), bias)

"""Normalisations over the last dimensions. Means are taken in the compute dtype (f32 for 16-bit)."""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ir.graph import Node, Value
from moec.ir.symbol import Shape
from moec.ops.registry import Types, op
from moec.ops.shapes import check_axis, same_shape
from moec.ops.tape import Gradients, Tape

Array = np.ndarray


@op("rms_norm(x: [*B, D], weight?: [D], *, eps: float) -> [*B, D]")
class RMSNorm:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension (Zhang and Sennrich, arXiv 1910.07467)."""

    dtype = "x"
    cost = "vector"
    onnx = "RMSNormalization"
    traits = ("reduction",)

    @staticmethod
    def ref(x: Array, weight: Array | None = None, *, eps: float) -> Array:
        y = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + x.dtype.type(eps))
        return y if weight is None else y * weight

    @staticmethod
    def grad(t: Tape, node: Node, *dys: Value | None) -> Gradients:
        (dy,), x = dys, node.operand(0)
        weight = node.operands[1] if len(node.operands) > 1 else None
        assert dy is not None
        wide, last = t.wide(x), (x.type.rank - 1,)
        mean = t.reduce_mean(t.mul(wide, wide), axes=last, keepdims=True)
        r = t.rsqrt(t.add(mean, t.constant_of(node.attrs["eps"], mean.type.dtype)))
        return _scaled_grads(t, node, t.wide(dy), t.mul(wide, r), r, weight, None, last, centred=False)


@op("layer_norm(x: any, weight?: any, bias?: any, *, eps: float, axis: int) -> any")
class LayerNorm:
    """(x - mean) / sqrt(var + eps) * weight + bias over dimensions axis.. (Ba et al., arXiv 1607.06450)."""

    dtype = "x"
    cost = "vector"
    onnx = "LayerNormalization"
    traits = ("reduction",)

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        first = types[0]
        if first is not None and first.shape is not None:
            check_axis(attrs["axis"], len(first.shape))
        return same_shape(types, attrs)

    @staticmethod
    def ref(x: Array, weight: Array | None = None, bias: Array | None = None, *, eps: float, axis: int) -> Array:
        axes = tuple(range(axis, x.ndim))
        centred = x - np.mean(x, axis=axes, keepdims=True)
        y = centred / np.sqrt(np.mean(centred * centred, axis=axes, keepdims=True) + x.dtype.type(eps))
        y = y if weight is None else y * weight
        return y if bias is None else y + bias

    @staticmethod
    def grad(t: Tape, node: Node, *dys: Value | None) -> Gradients:
        (dy,), x = dys, node.operand(0)
        weight, bias = [*node.operands[1:], None, None][:2]
        assert dy is not None
        wide, axes = t.wide(x), tuple(range(node.attrs["axis"], x.type.rank))
        centred = t.sub(wide, t.reduce_mean(wide, axes=axes, keepdims=True))
        variance = t.reduce_mean(t.mul(centred, centred), axes=axes, keepdims=True)
        r = t.rsqrt(t.add(variance, t.constant_of(node.attrs["eps"], variance.type.dtype)))
        return _scaled_grads(t, node, t.wide(dy), t.mul(centred, r), r, weight, bias, axes, centred=True)


def _scaled_grads(
    t: Tape,
    node: Node,
    dy: Value,
    normed: Value,
    r: Value,
    weight: Value | None,
    bias: Value | None,
    axes: tuple[int, ...],
    *,
    centred: bool,
) -> Gradients:
    """Gradients of normed * weight + bias, where normed is x (less its mean) times r = 1 / sqrt(mean square + eps).

    g = dy * weight; dx = r * (g - normed * mean(g * normed)), less mean(g) inside where x was centred; dweight = dy *
    normed and dbias = dy, summed over the dimensions along which they were broadcast.
    """
    found: list[Value | None] = [None] * len(node.operands)
    product = t.mul(dy, normed)
    if t.wanted(0):
        scale = None if weight is None else t.wide(weight)
        g, scaled = (dy, product) if scale is None else (t.mul(dy, scale), t.mul(product, scale))
        inner = t.sub(g, t.mul(normed, t.reduce_mean(scaled, axes=axes, keepdims=True)))
        if centred:
            inner = t.sub(inner, t.reduce_mean(g, axes=axes, keepdims=True))
        found[0] = t.narrow(t.mul(r, inner), 0)
    if weight is not None and t.wanted(1):
        found[1] = t.narrow(t.summed(product, weight), 1)
    if bias is not None and t.wanted(2):
        found[2] = t.narrow(t.summed(dy, bias), 2)
    return found

"""Normalisations over the last dimensions. Means are taken in the compute dtype (f32 for 16-bit)."""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ir.symbol import Shape
from moec.ops.registry import Types, op
from moec.ops.shapes import check_axis, same_shape

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

"""Matrix products. 16-bit operands accumulate in f32; the result is rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ir.symbol import Shape
from moec.ir.types import DType
from moec.ops import matmul_grad as gradients
from moec.ops.registry import Types, op
from moec.ops.shapes import broadcast, common_dtype, known

Array = np.ndarray


def _swap(shape: Shape, transpose: bool) -> Shape:
    return (*shape[:-2], shape[-1], shape[-2]) if transpose else shape


@op("matmul(a: any, b: any, *, transpose_a: bool = False, transpose_b: bool = False, to: dtype? = None) -> any")
class MatMul:
    """a @ b over the last two dimensions, each transposed first if asked; leading dimensions broadcast. Rank at least
    2.

    The result has the operands' dtype, or ``to``: f32 gradients of 16-bit weights, unrounded.
    """

    cost = "cube"
    onnx = "MatMul"
    grad = staticmethod(gradients.matmul)

    @staticmethod
    def dtype(types: Types, attrs: dict[str, Any]) -> DType:
        own, to = common_dtype(types, attrs), attrs["to"]
        if to is not None and not (own.is_float and to.is_float):
            raise ValueError(f"a product of {own} is not written as {to}")
        return to if to is not None else own

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        a, b = (t.shape for t in known(types))
        if a is None or b is None:
            return [None]
        if len(a) < 2 or len(b) < 2:
            raise ValueError(f"matmul wants rank >= 2, got {known(types)[0]} and {known(types)[1]}")
        a, b = _swap(a, attrs["transpose_a"]), _swap(b, attrs["transpose_b"])
        if a[-1] != b[-2] and isinstance(a[-1], int) and isinstance(b[-2], int):
            raise ValueError(
                f"matmul of {known(types)[0]} and {known(types)[1]}: inner dimensions {a[-1]} and {b[-2]} differ"
            )
        return [(*broadcast(a[:-2], b[:-2]), a[-2], b[-1])] if len(a) > 2 or len(b) > 2 else [(a[-2], b[-1])]

    @staticmethod
    def ref(a: Array, b: Array, *, transpose_a: bool, transpose_b: bool, to: DType | None) -> Array:
        return np.matmul(np.swapaxes(a, -1, -2) if transpose_a else a, np.swapaxes(b, -1, -2) if transpose_b else b)

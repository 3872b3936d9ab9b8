"""Quantised products and tables: dynamic 8-bit quantisation, and onnxruntime's block-quantised weights."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from moec.frontend.onnx.context import Op
from moec.frontend.onnx.errors import NoForm
from moec.frontend.onnx.nodes.matmul import product
from moec.frontend.onnx.table import onnx_op
from moec.frontend.onnx.tensors import onnx_dtype
from moec.ir.data import ArrayData
from moec.ir.graph import Value
from moec.ir.symbol import Dim, ceildiv
from moec.ir.types import F32, I32, U8, DType

MS = "com.microsoft"


def unpack(packed: np.ndarray, bits: int) -> np.ndarray:
    """Unsigned numbers of ``bits`` (4 or 8) along the last dimension, the low half of a byte first."""
    if bits == 8:
        return packed
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)


def dequantised(packed: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, bits: int, block: int) -> np.ndarray:
    """(q - zero) * scale with one scale per ``block`` elements of the last dimension; zero is half the range if absent.

    packed [..., K * bits / 8] u8, scales [..., ceil(K / block)]; the result [..., K] has the scales' dtype.
    """
    numbers = unpack(packed, bits).astype(np.float32)
    count = scales.shape[-1]
    zero = np.full(scales.shape, 2.0 ** (bits - 1), np.float32)
    if zeros is not None:
        zero = unpack(zeros, bits)[..., :count].astype(np.float32)
    width = numbers.shape[-1]
    spread = [np.repeat(a.astype(np.float32), block, axis=-1)[..., :width] for a in (scales, zero)]
    return np.asarray((numbers - spread[1]) * spread[0], scales.dtype)


def weight(op: Op, array: np.ndarray, name: str, dtype: DType) -> Value:
    """The numbers as a weight node."""
    data = ArrayData(np.ascontiguousarray(array, dtype.carrier), dtype)
    return op.emit("weight", name=name, data=data, dtype=dtype, shape=data.shape)


@onnx_op("MatMulNBits", domain=MS, last=1)
def _matmul_nbits(op: Op) -> Value:
    bits, block, k, n = (int(op.attr(a, 0)) for a in ("bits", "block_size", "K", "N"))
    if bits not in (4, 8):
        raise NoForm(f"{bits}-bit weights are not supported, 4 and 8 are")
    if op.has(4):
        raise NoForm("the g_idx input is not supported")
    packed = op.numbers(1, "the quantised weight").reshape(n, -1)
    scales = op.numbers(2, "the scales").reshape(n, -1)
    zeros = op.numbers(3, "the zero points").reshape(n, -1) if op.has(3) else None
    dense = dequantised(packed, scales, zeros, bits, block)[:, :k]
    w = weight(op, dense, op.node.inputs[1], op.dtype(0))
    x = op.value(0)
    if op.attr("accuracy_level", 0) == 4:
        x = _through_int8(op, x, block)
    y = product(op, x, w, False, True)
    return op.emit("add", y, op.value(5)) if op.has(5) else y


def _through_int8(op: Op, x: Value, block: int) -> Value:
    """x rounded to 8 bits with one scale (largest magnitude / 127) per ``block`` elements of the last dimension.

    This is what accuracy_level 4 lets onnxruntime do to activations before it multiplies integers.
    """
    *lead, width = x.type.dims
    count = ceildiv(width, block)
    last = x.type.rank - 1
    padded = count * block - width
    if padded != 0:
        x = op.emit("pad", x, before=(0,) * last + (0,), after=(0,) * last + (padded,), value=0.0)
    blocks = op.emit("reshape", x, shape=(*lead, count, block))
    largest = op.emit("reduce_max", op.emit("abs", blocks), axes=(last + 1,), keepdims=True)
    scale = op.emit("div", largest, op.context.scalar(127.0, x.type.dtype))
    zero = op.context.scalar(0.0, x.type.dtype)
    safe = op.emit("select", op.emit("eq", scale, zero), op.context.scalar(1.0, x.type.dtype), scale)
    blocks = op.emit("mul", op.emit("round", op.emit("div", blocks, safe)), safe)
    whole = op.emit("reshape", blocks, shape=(*lead, count * block))
    return whole if padded == 0 else op.emit("slice", whole, axis=last, start=0, stop=width, step=1)


@onnx_op("GatherBlockQuantized", domain=MS, last=1)
def _gather_block(op: Op) -> Value:
    bits, block = int(op.attr("bits", 4)), int(op.attr("block_size", 128))
    packed, scales = op.numbers(0, "the quantised table"), op.numbers(2, "the scales")
    rank = packed.ndim
    if packed.dtype != np.uint8 or op.axis(rank, 1, "quantize_axis") != rank - 1 or op.axis(rank, 0, "gather_axis"):
        raise NoForm("only u8 tables that are quantised along the last axis and gathered along the first are supported")
    zeros = op.numbers(3, "the zero points") if op.has(3) else None
    dense = dequantised(packed, scales, zeros, bits, block)
    table = weight(op, dense, op.node.inputs[0], op.dtype(2))
    return op.emit("gather", table, op.value(1), axis=0)


@onnx_op("DynamicQuantizeLinear", first=11, last=11)
def _dynamic_quantize(op: Op) -> list[Value]:
    """u8 of x over its own range widened to hold 0: scale = range / 255, zero = round(-min / scale)."""
    x, context = op.value(0), op.context
    axes = tuple(range(x.type.rank))
    zero, top = context.scalar(0.0, F32), context.scalar(255.0, F32)
    low = op.emit("minimum", op.emit("reduce_min", x, axes=axes, keepdims=False), zero)
    high = op.emit("maximum", op.emit("reduce_max", x, axes=axes, keepdims=False), zero)
    scale = op.emit("div", op.emit("sub", high, low), top)
    exact = op.emit("div", op.emit("sub", zero, low), scale)
    point = op.emit("round", op.emit("minimum", op.emit("maximum", exact, zero), top))
    moved = op.emit("add", op.emit("round", op.emit("div", x, scale)), point)
    clipped = op.emit("minimum", op.emit("maximum", moved, zero), top)
    return [op.emit("cast", clipped, to=U8), scale, op.emit("cast", point, to=U8)]


@onnx_op("MatMulInteger", first=10, last=10)
def _matmul_integer(op: Op) -> Value:
    a, b = (op.emit("cast", op.value(i), to=I32) for i in (0, 1))
    if op.has(2):
        a = op.emit("sub", a, _aligned(op, 2, a, row=True))
    if op.has(3):
        b = op.emit("sub", b, _aligned(op, 3, b, row=False))
    return product(op, a, b, False, False)


def _aligned(op: Op, index: int, matrix: Value, row: bool) -> Value:
    """A zero point of rank 0, one a row of the left or one a column of the right operand, as i32 that broadcasts."""
    point = op.emit("cast", op.value(index), to=I32)
    if point.type.rank == 1 and row and point.type.dims[0] != 1:
        return op.emit("reshape", point, shape=(*point.type.dims, 1))
    return point


def _placed(op: Op, point: Value, axis: int, rank: int, block: int, width: Dim) -> Value:
    """A scale or zero point so that it broadcasts against a tensor of ``rank``.

    There is one for all, one a slice of ``axis``, or one a block of ``block`` elements along it.
    """
    if point.type.rank == 0 or (point.type.rank == 1 and point.type.dims[0] == 1):
        return op.emit("reshape", point, shape=())
    if point.type.rank == 1:
        return op.emit("reshape", point, shape=(point.type.dims[0], *(1,) * (rank - axis - 1)))
    if not block:
        raise NoForm("a scale of the tensor's own rank without block_size is not supported")
    lead, count, tail = point.type.dims[:axis], point.type.dims[axis], point.type.dims[axis + 1 :]
    spread = op.emit("reshape", point, shape=(*lead, count, 1, *tail))
    spread = op.emit("expand", spread, shape=(*lead, count, block, *tail))
    spread = op.emit("reshape", spread, shape=(*lead, count * block, *tail))
    return op.emit("slice", spread, axis=axis, start=0, stop=width, step=1)


def _axis_of(op: Op, rank: int) -> int:
    return op.axis(max(rank, 1), 1) if rank > 1 or "axis" in op.attrs else 0


@onnx_op("DequantizeLinear", first=10, last=28)
def _dequantize(op: Op) -> Value:
    """(x - zero) * scale in the scale's dtype (or output_dtype)."""
    x, scale = op.value(0), op.value(1)
    rank, block = x.type.rank, int(op.attr("block_size", 0))
    axis = _axis_of(op, rank)
    width = x.type.dims[axis] if rank else 1
    wide = scale.type.dtype if x.type.dtype.is_float else I32
    found = op.emit("cast", x, to=wide)
    if op.has(2):
        zero = _placed(op, op.emit("cast", op.value(2), to=wide), axis, rank, block, width)
        found = op.emit("sub", found, zero)
    found = op.emit("cast", found, to=scale.type.dtype)
    y = op.emit("mul", found, _placed(op, scale, axis, rank, block, width))
    to = op.attr("output_dtype", 0)
    return op.emit("cast", y, to=onnx_dtype(to)) if to else y


@onnx_op("QuantizeLinear", first=10, last=28)
def _quantize(op: Op) -> Value:
    """x / scale rounded to nearest even, plus zero, held within the range of the quantised dtype."""
    x, scale = op.value(0), op.value(1)
    rank, block = x.type.rank, int(op.attr("block_size", 0))
    axis = _axis_of(op, rank)
    width = x.type.dims[axis] if rank else 1
    to = op.dtype(2) if op.has(2) else onnx_dtype(op.attr("output_dtype", 0) or U8.onnx)
    precision = op.attr("precision", 0)
    if precision and onnx_dtype(precision) is not F32:
        raise NoForm(f"precision {onnx_dtype(precision)} is not supported")
    x = op.emit("cast", x, to=F32)
    scale = op.emit("cast", scale, to=F32)
    y = op.emit("div", x, _placed(op, scale, axis, rank, block, width))
    if to.is_int:
        y = op.emit("round", y)
    if op.has(2):
        zero = _placed(op, op.emit("cast", op.value(2), to=F32), axis, rank, block, width)
        y = op.emit("add", y, zero)
    low, high = _range(to)
    if to.is_int or op.attr("saturate", 1):
        y = op.emit("minimum", op.emit("maximum", y, op.context.scalar(low, F32)), op.context.scalar(high, F32))
    return op.emit("cast", y, to=to)


def _range(dtype: DType) -> tuple[float, float]:
    """The least and greatest number that the dtype holds."""
    if dtype.is_float:
        info = ml_dtypes.finfo(dtype.carrier)  # type: ignore[no-untyped-call, unused-ignore]
        return float(info.min), float(info.max)
    span = 2**dtype.bits
    return (0.0, span - 1.0) if dtype.kind == "uint" else (-span / 2, span / 2 - 1.0)

"""Gather, scatter, TopK, OneHot, NonZero, ArgMax."""

from __future__ import annotations

from moec.frontend.onnx.context import Op
from moec.frontend.onnx.nodes.broadcasting import fitted, reshaped
from moec.frontend.onnx.table import onnx_op
from moec.ir.graph import Value
from moec.ir.symbol import Dim
from moec.ir.types import I64


@onnx_op("Gather", last=13)
def _gather(op: Op) -> Value:
    x = op.value(0)
    return op.emit("gather", x, op.value(1), axis=op.axis(x.type.rank, 0))


@onnx_op("GatherElements", first=11, last=13)
def _gather_elements(op: Op) -> Value:
    x = op.value(0)
    return op.emit("gather_elements", x, op.value(1), axis=op.axis(x.type.rank, 0))


@onnx_op("GatherND", first=11, last=13)
def _gather_nd(op: Op) -> Value:
    return op.emit("gather_nd", op.value(0), op.value(1), batch_dims=op.attr("batch_dims", 0))


@onnx_op("ScatterElements", first=11, last=18)
@onnx_op("Scatter", first=9, last=11)
def _scatter_elements(op: Op) -> Value:
    x, indices, updates = (op.value(i) for i in range(3))
    axis, reduction = op.axis(x.type.rank, 0), op.attr("reduction", "none")
    return op.emit("scatter_elements", x, indices, updates, axis=axis, reduction=reduction)


@onnx_op("ScatterND", first=11, last=18)
def _scatter_nd(op: Op) -> Value:
    x, indices, updates = (op.value(i) for i in range(3))
    return op.emit("scatter_nd", x, indices, updates, reduction=op.attr("reduction", "none"))


@onnx_op("TopK", first=10, last=24)
def _topk(op: Op) -> list[Value]:
    x = op.value(0)
    k = op.dims(1, "k")[0]
    largest, ordered = bool(op.attr("largest", 1)), bool(op.attr("sorted", 1))
    return op.emit_all("topk", x, k=k, axis=op.axis(x.type.rank, -1), largest=largest, sorted=ordered)


@onnx_op("NonZero", first=9, last=13)
def _nonzero(op: Op) -> Value:
    x = op.value(0)
    return op.emit("nonzero", x, count=op.context.facts.fresh("nonzero", x.type.numel()))


@onnx_op("OneHot", first=9, last=28)
def _one_hot(op: Op) -> Value:
    indices = op.value(0)
    if not indices.type.dtype.is_int:
        indices = op.emit("cast", indices, to=I64)
    depth: Dim = op.dims(1, "the depth")[0]
    axis = op.axis(indices.type.rank + 1, -1)
    dtype = op.dtype(2)
    hot = op.emit("one_hot", indices, depth=depth, axis=axis, dtype=dtype)
    if op.tensor(2).data is not None or op.tensor(2).content is not None:
        off, on = op.numbers(2, "the values").ravel()
        if off == 0 and on == 1:
            return hot
    values = op.value(2)
    low, high = (reshaped(op, op.emit("slice", values, axis=0, start=i, stop=i + 1, step=1), ()) for i in (0, 1))
    zero = op.context.scalar(0, dtype)
    return op.emit("select", *fitted(op, [op.emit("ne", hot, zero), high, low]))


def _arg(op: Op, name: str) -> Value:
    x = op.value(0)
    keepdims, last = bool(op.attr("keepdims", 1)), bool(op.attr("select_last_index", 0))
    return op.emit(name, x, axis=op.axis(x.type.rank, 0), keepdims=keepdims, last=last)


@onnx_op("ArgMax", last=13)
def _argmax(op: Op) -> Value:
    return _arg(op, "argmax")


@onnx_op("ArgMin", last=13)
def _argmin(op: Op) -> Value:
    return _arg(op, "argmin")

"""Reductions, Softmax and CumSum."""

from __future__ import annotations

from moec.frontend.onnx.context import Op, Tensor, axes_of, normal_axis
from moec.frontend.onnx.nodes.broadcasting import reshaped
from moec.frontend.onnx.table import onnx_op
from moec.ir.graph import Value
from moec.ir.symbol import Dim

_REDUCE = {
    "ReduceSum": ("reduce_sum", 13),
    "ReduceMean": ("reduce_mean", 18),
    "ReduceMax": ("reduce_max", 20),
    "ReduceMin": ("reduce_min", 20),
    "ReduceProd": ("reduce_prod", 18),
}


def _reduced(op: Op, name: str, x: Value) -> Value:
    axes = axes_of(op, x.type.rank)
    keepdims = bool(op.attr("keepdims", 1))
    if not axes:
        axes = list(range(x.type.rank))
    return op.emit(name, x, axes=tuple(axes), keepdims=keepdims)


def _is_noop(op: Op) -> bool:
    given = op.ints(1, "axes") if op.has(1) else op.attr("axes", ())
    return bool(op.attr("noop_with_empty_axes", 0)) and not given


def _reduce(op: Op) -> Value | Tensor:
    return op.tensor(0) if _is_noop(op) else _reduced(op, _REDUCE[op.node.op_type][0], op.value(0))


for _name, (_, _last) in _REDUCE.items():
    onnx_op(_name, last=_last)(_reduce)


@onnx_op("ReduceL1", last=18)
def _l1(op: Op) -> Value:
    magnitudes = op.emit("abs", op.value(0))
    return magnitudes if _is_noop(op) else _reduced(op, "reduce_sum", magnitudes)


def _squares(op: Op) -> Value:
    squares = op.emit("mul", op.value(0), op.value(0))
    return squares if _is_noop(op) else _reduced(op, "reduce_sum", squares)


@onnx_op("ReduceSumSquare", last=18)
def _sum_square(op: Op) -> Value:
    return _squares(op)


@onnx_op("ReduceL2", last=18)
def _l2(op: Op) -> Value:
    return op.emit("sqrt", _squares(op))


@onnx_op("ReduceLogSum", last=28)
def _log_sum(op: Op) -> Value:
    x = op.value(0)
    return op.emit("log", x if _is_noop(op) else _reduced(op, "reduce_sum", x))


@onnx_op("ReduceLogSumExp", last=28)
def _log_sum_exp(op: Op) -> Value | Tensor:
    if _is_noop(op):
        return op.tensor(0)
    return op.emit("log", _reduced(op, "reduce_sum", op.emit("exp", op.value(0))))


def _softmax(op: Op, name: str) -> Value:
    x = op.value(0)
    if op.opset >= 13:
        return op.emit(name, x, axis=op.axis(x.type.rank, -1))
    axis = op.axis(x.type.rank, 1)
    if axis == x.type.rank - 1:
        return op.emit(name, x, axis=axis)
    rows: Dim = 1
    columns: Dim = 1
    for i, d in enumerate(x.type.dims):
        rows, columns = (rows * d, columns) if i < axis else (rows, columns * d)
    flat = op.emit(name, reshaped(op, x, (rows, columns)), axis=1)
    return reshaped(op, flat, x.type.dims)


@onnx_op("Softmax", last=13)
def _soft(op: Op) -> Value:
    return _softmax(op, "softmax")


@onnx_op("LogSoftmax", last=13)
def _log_soft(op: Op) -> Value:
    return _softmax(op, "log_softmax")


@onnx_op("CumSum", first=11, last=14)
def _cumsum(op: Op) -> Value:
    x = op.value(0)
    axis = normal_axis(op.ints(1, "the axis")[0], x.type.rank)
    return op.emit("cumsum", x, axis=axis, exclusive=bool(op.attr("exclusive", 0)), reverse=bool(op.attr("reverse", 0)))

"""Operators that make tensors out of nothing: Constant, ConstantOfShape, Range."""

from __future__ import annotations

import math

import numpy as np

from moec.frontend.onnx.context import Op, Tensor
from moec.frontend.onnx.errors import NoForm
from moec.frontend.onnx.nodes.broadcasting import reshaped
from moec.frontend.onnx.nodes.shape import expanded
from moec.frontend.onnx.shape_eval import LIMIT, content
from moec.frontend.onnx.table import onnx_op
from moec.ir.data import ArrayData, TensorData
from moec.ir.graph import Value
from moec.ir.symbol import ceildiv
from moec.ir.types import F32, I64, TensorType

MAX_RANGE = 1 << 26
"""Elements of a constant range of floats: it is laid out."""

_FORMS = {"value_float": F32, "value_floats": F32, "value_int": I64, "value_ints": I64}


@onnx_op("Constant", last=25)
def _constant(op: Op) -> Tensor:
    if len(op.attrs) != 1:
        raise ValueError(f"exactly one of its attributes must be given, got {', '.join(op.attrs) or 'none'}")
    ((form, value),) = op.attrs.items()
    if isinstance(value, TensorData):
        data = value
    elif form in _FORMS:
        data = ArrayData(np.array(value, _FORMS[form].carrier), _FORMS[form])
    else:
        raise NoForm(f"Constant with {form} is not supported")
    return Tensor(TensorType(data.dtype, data.shape), data=data, name=op.node.outputs[0])


@onnx_op("ConstantOfShape", first=9, last=25)
def _constant_of_shape(op: Op) -> Value | Tensor:
    shape = tuple(op.dims(0, "the shape"))
    given = op.attr("value", None)
    fill = given.numpy().ravel()[:1] if given is not None else np.zeros(1, np.float32)
    data = ArrayData(fill.reshape(()), given.dtype if given is not None else F32)
    sizes = [d for d in shape if isinstance(d, int)]
    if not data.dtype.is_float and len(sizes) == len(shape) and math.prod(sizes) <= LIMIT:
        filled = content(np.full(sizes, fill.tolist()[0], dtype=object), data.dtype)
        return Tensor(TensorType(data.dtype, shape), content=filled)
    return expanded(op, op.context.scalar(fill[0], data.dtype), shape)


@onnx_op("Range", first=11, last=27)
def _range(op: Op) -> Value:
    dtype = op.dtype(0)
    known = [op.tensor(i).content for i in range(3)]
    start, limit, delta = known
    if start is not None and limit is not None and delta is not None:
        first, last, step = (k.dims()[0] for k in (start, limit, delta))
        if isinstance(step, int) and step > 0 and op.context.facts.less_equal(first, last):
            y = op.emit("iota", size=ceildiv(last - first, step), dtype=dtype)
            if step != 1:
                y = op.emit("mul", y, op.context.scalar(step, dtype))
            return y if first == 0 else op.emit("add", y, op.context.of_content(content(first, dtype)))
    constants = [op.tensor(i).data for i in range(3)]
    if all(c is not None for c in constants):
        low, high, step = (c.numpy().ravel()[0] for c in constants if c is not None)
        if step != 0 and abs(float(high) - float(low)) > MAX_RANGE * abs(float(step)):
            raise ValueError(f"a range from {low} to {high} by {step} has more than {MAX_RANGE} elements")
        return op.context.array(np.arange(low, high, step).astype(dtype.carrier))
    ends = [reshaped(op, op.value(i), ()) for i in range(3)]
    return op.emit("range", *ends, count=op.context.facts.fresh("range"))

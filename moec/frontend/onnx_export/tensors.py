"""Tensor contents as TensorProto."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from moec.ir.data import TensorData


def tensor_proto(data: TensorData, name: str) -> onnx.TensorProto:
    """The tensor under ``name``, its numbers as raw little-endian bytes."""
    array = np.ascontiguousarray(data.numpy())
    if data.dtype.name == "string":
        return helper.make_tensor(name, data.dtype.onnx, data.shape, [str(s).encode() for s in array.ravel()])  # type: ignore[misc]
    if data.dtype.bits < 8:
        return numpy_helper.from_array(array.reshape(data.shape), name)
    proto = onnx.TensorProto(name=name, data_type=data.dtype.onnx, dims=data.shape)
    proto.raw_data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return proto

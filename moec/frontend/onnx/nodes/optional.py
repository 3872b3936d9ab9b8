"""Optional values: taken apart where it is known at import whether they are there, else decided when the model runs."""

from __future__ import annotations

import numpy as np

from moec.frontend.onnx.context import Op, Tensor
from moec.frontend.onnx.errors import NoForm
from moec.frontend.onnx.graph_import import GraphImporter
from moec.frontend.onnx.shape_eval import content
from moec.frontend.onnx.table import onnx_op
from moec.frontend.onnx.unknown import declared_type
from moec.ir.data import ArrayData
from moec.ir.graph import Value
from moec.ir.types import BOOL, DTYPES, U8, TensorType


def _kept(op: Op, type_: TensorType) -> Value:
    """The node as it came, with a result of this type."""
    packed = ArrayData(np.frombuffer(op.node.proto.SerializeToString(deterministic=True), np.uint8), U8)
    attrs = {"domain": "", "type": op.node.op_type, "version": op.opset, "proto": packed}
    given = [op.value(0)] if op.has(0) else []
    return op.context.state("opaque", given, attrs, [type_])[0]


@onnx_op("Optional", first=15, last=28)
def _optional(op: Op) -> Value:
    return _kept(op, TensorType(DTYPES["seq"], None))


def _made(tensor: Tensor) -> list[Value] | None:
    """What the Optional node that made it was given: one value, or none; None where no such node made it."""
    node = tensor.value.producer if tensor.value is not None else None
    if node is None or node.op != "opaque" or (node.attrs["domain"], node.attrs["type"]) != ("", "Optional"):
        return None
    return [v for v in node.operands if v is not None]


def _is_there(tensor: Tensor) -> bool | None:
    """Whether it is a value for certain (True) or none for certain (False)."""
    if tensor.type.dtype.name != "seq" or tensor.parts is not None:
        return True
    made = _made(tensor)
    return None if made is None else bool(made)


@onnx_op("OptionalHasElement", first=15, last=28)
def _has_element(op: Op) -> Tensor | Value:
    there = _is_there(op.tensor(0)) if op.has(0) else False
    if there is None:
        return _kept(op, TensorType(BOOL, ()))
    return Tensor(TensorType(BOOL, ()), content=content(there, BOOL))


@onnx_op("OptionalGetElement", first=15, last=28)
def _get_element(op: Op) -> Tensor | Value:
    tensor = op.tensor(0)
    there = _is_there(tensor)
    if there is False:
        raise ValueError("the optional value is empty")
    made = _made(tensor)
    if made:
        return Tensor(made[0].type, made[0])
    if there:
        return tensor
    held = _element_type(op)
    if held is None:
        raise NoForm("what an optional value of unknown type holds is known only when the model runs")
    return _kept(op, held)


def _element_type(op: Op) -> TensorType | None:
    """The type of what the optional input holds, as the file states it; None where it does not."""
    name = op.node.inputs[0]
    importer: GraphImporter | None = op.importer
    while importer is not None:
        for info in (*importer.source.input, *importer.source.value_info):
            if info.name == name:
                held = info.type.optional_type.elem_type if info.type.HasField("optional_type") else info.type
                return declared_type(held, op.context) if held.WhichOneof("value") else None
        importer = importer.parent
    return None

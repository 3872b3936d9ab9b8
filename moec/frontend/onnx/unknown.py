"""Nodes that moec has no form for: kept as opaque nodes, or refused where not even their types are known."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import checker, helper, shape_inference

from moec.diagnostics import Problem
from moec.frontend.onnx.order import NodeView, place
from moec.frontend.onnx.read import STANDARD, text
from moec.frontend.onnx.table import HANDLERS
from moec.frontend.onnx.tensors import onnx_dtype
from moec.ir.data import ArrayData
from moec.ir.graph import Value
from moec.ir.symbol import Dim
from moec.ir.types import DTYPES, U8, TensorType
from moec.ops.foreign import outer_names

if TYPE_CHECKING:
    from moec.frontend.onnx.context import Context, Tensor
    from moec.frontend.onnx.graph_import import GraphImporter


def unknown_operators(graph: onnx.GraphProto, opsets: dict[str, int], file: str) -> list[Problem]:
    """One problem for each operator that nobody knows and whose results' types the file does not say either.

    Count, first node, the operator set wanted.
    """
    stated = {text(v.name) for v in (*graph.value_info, *graph.output) if v.type.WhichOneof("value") is not None}
    seen: dict[tuple[str, str], list[NodeView]] = {}
    for i, proto in enumerate(graph.node):
        domain = "" if proto.domain in STANDARD else text(proto.domain)
        known = (domain, text(proto.op_type)) in HANDLERS or _schema(proto.op_type, domain) or domain not in opsets
        if not known and not all(name in stated for name in proto.output):
            seen.setdefault((domain, proto.op_type), []).append(NodeView(i, proto))
    problems = []
    for (domain, op_type), found in seen.items():
        name = f"{domain}.{op_type}" if domain else op_type
        what = f"operator {name} ({len(found)} nodes, the first is node {found[0].index}): not known (opset "
        what += f"{opsets[domain]} wanted), and the file does not say the types of its outputs"
        todo = "export with shape inference, so that it can be kept as it is, or express it by known operators"
        problems.append(Problem(what, place(file, found[0]), todo))
    return problems


@lru_cache(maxsize=4096)
def _schema(op_type: str, domain: str) -> bool:
    return bool(onnx.defs.has(op_type, domain))


def keep(importer: GraphImporter, view: NodeView, opset: int, reason: str) -> list[Value | None]:
    """An opaque node for ``view``; ValueError where not even the types of its outputs are known."""
    context = importer.context
    names = outer_names(view.proto)
    tensors = [importer.lookup(n) for n in names]
    missing = [n for n, t in zip(names, tensors, strict=True) if t is None]
    if missing:
        raise ValueError(f"it reads '{missing[0]}', which is not defined")
    given = {n: t for n, t in zip(names, tensors, strict=True) if t is not None}
    types = _output_types(importer, view, opset, given, reason)
    context.kept.add(view, reason)
    proto = ArrayData(np.frombuffer(view.proto.SerializeToString(deterministic=True), np.uint8), U8)
    attrs = {"domain": view.domain, "type": view.op_type, "version": opset, "proto": proto}
    made = context.state("opaque", [context.value_of(t) for t in given.values()], attrs, types)
    results = iter(made)
    return [next(results) if name else None for name in view.outputs]


def _output_types(
    importer: GraphImporter, view: NodeView, opset: int, given: dict[str, Tensor], reason: str
) -> list[TensorType]:
    """The types of the outputs that have names: what onnx infers from the inputs', else what the file says of them."""
    context = importer.context
    found: dict[str, onnx.TypeProto] = {v.name: v.type for v in (*importer.source.value_info, *importer.source.output)}
    try:
        schema = onnx.defs.get_schema(view.op_type, opset, view.domain)
        types = {n: _proto(t.type) for n, t in given.items()}
        data = {
            n: helper.make_tensor(n, t.type.dtype.onnx, t.data.shape, t.data.numpy().ravel())
            for n, t in given.items()
            if _small(t) and t.data is not None
        }
        opsets = [helper.make_opsetid(d, v) for d, v in context.opsets.items()]
        found |= shape_inference.infer_node_outputs(
            schema, view.proto, types, data, opset_imports=opsets, ir_version=10
        )
    except (onnx.defs.SchemaError, shape_inference.InferenceError, checker.ValidationError, ValueError, TypeError):
        pass
    named = [n for n in view.outputs if n]
    unknown = [n for n in named if n not in found or found[n].WhichOneof("value") is None]
    if unknown:
        name = f"{view.domain}.{view.op_type}" if view.domain else view.op_type
        raise ValueError(f"operator {name}: {reason}; nor does the file say the type of its output '{unknown[0]}'")
    return [declared_type(found[n], context) for n in named]


def _small(tensor: Tensor) -> bool:
    return tensor.data is not None and tensor.data.size <= 64 and not tensor.type.dtype.is_float


def _proto(type_: TensorType) -> onnx.TypeProto:
    if type_.dtype.name == "seq":
        return helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, None))
    dims = None if type_.shape is None else [d if isinstance(d, int) else None for d in type_.shape]
    return helper.make_tensor_type_proto(type_.dtype.onnx, dims)


def declared_type(proto: onnx.TypeProto, context: Context) -> TensorType:
    """The type that the file states; a size that it does not give is one that the run tells."""
    if proto.WhichOneof("value") != "tensor_type":
        return TensorType(DTYPES["seq"], None)
    tensor = proto.tensor_type
    element = onnx_dtype(tensor.elem_type)
    if not tensor.HasField("shape"):
        return TensorType(element, None)
    dims: list[Dim] = []
    for d in tensor.shape.dim:
        dims.append(int(d.dim_value) if d.HasField("dim_value") else context.facts.fresh("s"))
    return TensorType(element, tuple(dims))

"""Node attributes as Python values, checked against the operator's schema."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import onnx
from onnx import AttributeProto

from moec.diagnostics import suggest
from moec.frontend.onnx.order import NodeView
from moec.frontend.onnx.read import text
from moec.frontend.onnx.tensors import tensor_data

_TENSOR, _STRING, _STRINGS = AttributeProto.TENSOR, AttributeProto.STRING, AttributeProto.STRINGS
_LEFT = (AttributeProto.GRAPH, AttributeProto.GRAPHS, AttributeProto.TYPE_PROTO, AttributeProto.TYPE_PROTOS)
"""Subgraphs and types: handlers that want them take them from the node itself."""
_PLAIN = {
    AttributeProto.INT: "i",
    AttributeProto.FLOAT: "f",
    AttributeProto.INTS: "ints",
    AttributeProto.FLOATS: "floats",
}


def read_attributes(node: NodeView, folder: Path | None, opset: int) -> dict[str, Any]:
    """The node's attributes by name.

    Tensors as ``TensorData``. ValueError for one that cannot be read or that the operator does not have.
    """
    found: dict[str, Any] = {}
    for a in node.proto.attribute:
        if a.type in _LEFT:
            continue
        text(a.name)
        field = _PLAIN.get(a.type)
        if field is not None:
            value = getattr(a, field)
            found[a.name] = value if field in ("i", "f") else tuple(value)
        elif a.type == _STRING:
            found[a.name] = a.s.decode("utf-8", "replace")
        elif a.type == _STRINGS:
            found[a.name] = tuple(s.decode("utf-8", "replace") for s in a.strings)
        elif a.type == _TENSOR:
            found[a.name] = tensor_data(a.t, folder)
        else:
            kind = (
                AttributeProto.AttributeType.Name(a.type) if a.type in AttributeProto.AttributeType.values() else a.type
            )
            raise ValueError(f"attribute '{a.name}' of kind {kind} is not supported here")
    if found:
        known = _declared(node.op_type, node.domain, opset)
        if known is not None:
            _check(node, found, known)
    return found


def _check(node: NodeView, found: dict[str, Any], known: dict[str, int]) -> None:
    """ValueError for attributes that the operator does not have, or has of another kind."""
    unknown = [n for n in found if n not in known]
    if unknown:
        hints = "; ".join(f"'{n}' {suggest(n, known)}".strip() for n in unknown)
        raise ValueError(f"unknown attribute {hints}")
    for a in node.proto.attribute:
        if a.name in found and known[a.name] != a.type:
            kind, wanted = (AttributeProto.AttributeType.Name(k) for k in (a.type, known[a.name]))  # type: ignore[arg-type, unused-ignore]
            raise ValueError(f"attribute '{a.name}' is of kind {kind}, it must be {wanted}")


@lru_cache(maxsize=4096)
def _declared(op_type: str, domain: str, opset: int) -> dict[str, int] | None:
    """The attributes that the operator's schema has, with the numbers of their kinds; None without a schema."""
    version = schema_version(op_type, domain, opset)
    if version is None:
        return None
    attributes = onnx.defs.get_schema(op_type, version, domain).attributes
    return {name: AttributeProto.AttributeType.Value(str(a.type).rsplit(".")[-1]) for name, a in attributes.items()}


@lru_cache(maxsize=4096)
def schema_version(op_type: str, domain: str, opset: int) -> int | None:
    """The opset in which the operator last changed, not after ``opset``; None where onnx has no schema for it."""
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
    return int(schema.since_version)

"""Operators that moec does not know, written back as they came: the serialised node with new names around it."""

from __future__ import annotations

import onnx

from moec.frontend.onnx_export.names import make_unique, subgraphs
from moec.frontend.onnx_export.scope import Scope
from moec.ir.graph import Node
from moec.ops.foreign import outer_names

STANDARD = ("", "ai.onnx")


def write_kept(scope: Scope, node: Node, operands: list[str], opset: int) -> list[str]:
    """Append the node that ``node`` keeps; its results' names.

    ValueError where the standard operator set of ``opset`` has another operator under that name than the node's.
    """
    attrs = node.attrs
    proto = onnx.NodeProto.FromString(attrs["proto"].numpy().tobytes())
    _check_version(attrs["domain"], attrs["type"], attrs["version"], opset)
    make_unique(proto, scope.fresh, dict(zip(outer_names(proto), operands, strict=True)))
    results = []
    for i, name in enumerate(proto.output):
        if name:
            proto.output[i] = scope.fresh(name)
            results.append(proto.output[i])
    proto.name = scope.fresh(proto.name or attrs["type"].lower())
    for domain, version in _domains(proto, attrs["domain"], attrs["version"]).items():
        scope.domains.setdefault(domain, version)
    scope.append(proto)
    return results


def needed_opset(node: Node, opset: int) -> int:
    """The standard operator set that a kept node wants, at least ``opset``: a later one only where it was changed."""
    attrs = node.attrs
    if attrs["domain"] not in STANDARD or attrs["version"] <= opset or _same(attrs["type"], attrs["version"], opset):
        return opset
    return int(attrs["version"])


def _same(name: str, a: int, b: int) -> bool:
    """Whether the standard operator is the same in two operator sets."""
    try:
        return onnx.defs.get_schema(name, a).since_version == onnx.defs.get_schema(name, b).since_version
    except onnx.defs.SchemaError:
        return False


def _check_version(domain: str, name: str, version: int, opset: int) -> None:
    if domain in STANDARD and version < opset and not _same(name, version, opset):
        raise ValueError(
            f"{name} of opset {version} is another operator in opset {opset}, which the rest of the graph is written in"
        )


def _domains(node: onnx.NodeProto, domain: str, version: int) -> dict[str, int]:
    """The domains besides the standard one that a node and its subgraphs use, with versions."""
    found = {} if domain in STANDARD else {domain: version}
    for graph in subgraphs(node):
        for inner in graph.node:
            found |= _domains(inner, inner.domain, found.get(inner.domain, 1))
    return found

"""Collectives as operators of a domain of their own: no runtime knows them, but the graph stays whole and readable."""

from __future__ import annotations

from typing import Any

from moec.frontend.onnx_export.scope import Scope
from moec.ir.graph import Node
from moec.ir.group import Group

DOMAIN = "moec.collective"


def write_collective(scope: Scope, node: Node, operands: list[str]) -> list[str]:
    """Append the node with its attributes, a group as its text; sizes that data decides are left to its operands."""
    scope.domains.setdefault(DOMAIN, 1)
    name = "".join(part.title() for part in node.op.split("_"))
    attrs: dict[str, Any] = {}
    for key, value in node.attrs.items():
        if isinstance(value, Group):
            attrs[key] = str(value)
        elif isinstance(value, str | int):
            attrs[key] = value
    return scope.node(name, operands, len(node.results), domain=DOMAIN, **attrs)

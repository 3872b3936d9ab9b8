"""Building nodes by op name, with attributes completed and result types inferred from the declaration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moec.ir.graph import NOWHERE, Graph, Node, Origin, Value
from moec.ops.registry import opdef


def make_node(op: str, operands: list[Value | None], attrs: dict[str, Any], origin: Origin = NOWHERE) -> Node:
    """A node in no graph yet; ValueError says why operands or attributes do not fit the declaration."""
    definition = opdef(op)
    full = definition.complete(attrs)
    types = definition.infer([None if v is None else v.type for v in operands], full)
    return Node(op, operands, full, types, origin)


class Builder:
    """Puts nodes into ``graph`` before ``before`` (at the end where that is None), each with ``origin``.

    ``b.softmax(x, axis=-1)`` builds the op of that name and returns its result, or a tuple where it has several.
    """

    def __init__(self, graph: Graph, before: Node | None = None, origin: Origin = NOWHERE):
        self.graph, self.before, self.origin = graph, before, origin

    def node(self, op: str, *operands: Value | None, **attrs: Any) -> Node:
        """Build and insert; the node itself."""
        return self.graph.insert(make_node(op, list(operands), attrs, self.origin), self.before)

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if op.startswith("_"):
            raise AttributeError(op)

        def build(*operands: Value | None, **attrs: Any) -> Any:
            results = self.node(op, *operands, **attrs).results
            return results[0] if len(results) == 1 else tuple(results)

        return build

"""What is done to a module before it is differentiated."""

from __future__ import annotations

from typing import Any

from moec.ir.graph import Graph, Module, Node, Origin, Value
from moec.ir.symbol import Dim, Expr, substitute
from moec.ops.build import make_node


def inline_fused(module: Module) -> None:
    """Put the nodes of fused kernels in the place of the kernels: gradients are declared for those."""
    for graph in list(module.functions.values()):
        for node in graph:
            if node.op == "fused":
                _splice(graph, node, module.functions[node.attrs["fn"]])


def _splice(graph: Graph, at: Node, body: Graph) -> None:
    copies: dict[Value, Value | None] = dict(zip(body.inputs, at.operands, strict=True))
    sizes: dict[str, Dim] = {}
    for parameter, given in zip(body.inputs, at.operands, strict=True):
        for wanted, actual in zip(parameter.type.dims, given.type.dims if given is not None else (), strict=True):
            if isinstance(wanted, Expr) and str(wanted).isidentifier():
                sizes.setdefault(str(wanted), actual)
    for node in body:
        operands = [None if v is None else copies[v] for v in node.operands]
        attrs = {name: _sized(value, sizes) for name, value in node.attrs.items()}
        origin = Origin(at.origin.sources or node.origin.sources, node.origin.rewrites)
        made = graph.insert(make_node(node.op, operands, attrs, origin), at)
        copies.update(zip(node.results, made.results, strict=True))
    for old, result in zip(at.results, body.outputs, strict=True):
        new = copies[result]
        assert new is not None
        new.name = new.name or old.name
        old.replace_with(new)
    graph.erase(at)


def _sized(value: Any, sizes: dict[str, Dim]) -> Any:
    if isinstance(value, Expr):
        return substitute(value, sizes)
    return tuple(_sized(v, sizes) for v in value) if isinstance(value, tuple) else value

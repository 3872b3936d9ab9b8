"""Merging of nodes that compute the same thing."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from moec.autodiff.sides import late_nodes
from moec.ir.data import TensorData
from moec.ir.graph import Graph, Module, Node, Value, merged_origin
from moec.ops.registry import opdef
from moec.passes.base import Context, Pass, Result, register_pass
from moec.passes.effects import effectful_functions, has_effect


@register_pass
class CommonSubexpressions(Pass):
    """Merge nodes of equal op, operands (in either order where the op commutes) and attributes; one walk, by hash.

    Nodes with effects are left alone, and in a training graph what backward computes again is not merged with what
    forward computes: that would keep it all the while. Constants and weights are there anyway: constants merge by
    dtype, shape and content, whatever they are called; weights only if their names are equal too, since a run may be
    given other numbers by name.
    """

    name = "cse"

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        effects = effectful_functions(module)
        for graph in module.functions.values():
            merge(graph, effects, result)
        return result


def merge(graph: Graph, effects: frozenset[str], result: Result) -> None:
    """Merge equal nodes of one function."""
    numbers: dict[Value, int] = {}
    seen: dict[Hashable, Node] = {}
    late = late_nodes(graph)
    for v in graph.inputs:
        numbers[v] = len(numbers)
    for node in graph:
        first = node if has_effect(node, effects) else seen.setdefault(_key(node, numbers, node in late), node)
        if first is node:
            for v in node.results:
                numbers[v] = len(numbers)
            continue
        for old, new in zip(node.results, first.results, strict=True):
            old.replace_with(new)
            new.name = new.name or old.name
        first.origin = merged_origin([first, node], "cse")
        graph.erase(node)
        result.apply(f"equal {node.op}", first.origin, graph)


def _key(node: Node, numbers: dict[Value, int], late: bool) -> Hashable:
    operands = [-1 if v is None else numbers[v] for v in node.operands]
    if "commutative" in opdef(node.op).traits:
        operands.sort()
    attrs = tuple((k, attr_key(v)) for k, v in node.attrs.items())
    late = late and node.op not in ("constant", "weight")
    return node.op, tuple(operands), attrs, tuple(v.type for v in node.results), late


def attr_key(value: Any) -> Hashable:
    """A key that is equal for equal attributes only: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    if isinstance(value, (tuple, list)):
        return tuple(map(attr_key, value))
    if isinstance(value, TensorData):
        return value.dtype.name, value.shape, value.key
    if isinstance(value, float):
        return "float", repr(value)
    return type(value).__name__, value

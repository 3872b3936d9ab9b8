"""Structural equality of functions and modules: same nodes in the same order, names and provenance aside."""

from __future__ import annotations

from moec.ir.graph import Graph, Module, Node, Value


def graphs_equal(a: Graph, b: Graph) -> bool:
    """Whether two functions have equal inputs, nodes (op, operands, attributes, types) in order, and returns."""
    if len(a.inputs) != len(b.inputs) or len(a) != len(b) or a.output_names != b.output_names:
        return False
    same: dict[Value, Value] = dict(zip(a.inputs, b.inputs, strict=True))
    if any(x.type != y.type for x, y in same.items()):
        return False
    for m, n in zip(a, b, strict=True):
        if not _nodes_equal(m, n, same):
            return False
        same.update(zip(m.results, n.results, strict=True))
    return [same.get(v) for v in a.outputs] == b.outputs


def _nodes_equal(m: Node, n: Node, same: dict[Value, Value]) -> bool:
    if m.op != n.op or len(m.operands) != len(n.operands) or len(m.results) != len(n.results) or m.attrs != n.attrs:
        return False
    if any(type(m.attrs[k]) is not type(n.attrs[k]) for k in m.attrs if isinstance(m.attrs[k], (bool, int, float))):
        return False
    operands = [None if v is None else same.get(v) for v in m.operands]
    return operands == n.operands and [v.type for v in m.results] == [v.type for v in n.results]


def modules_equal(a: Module, b: Module) -> bool:
    """Whether two modules have equal symbols and equal functions of the same names in the same order."""
    if a.symbols != b.symbols or a.shards != b.shards or list(a.functions) != list(b.functions):
        return False
    return all(graphs_equal(a.functions[f], b.functions[f]) for f in a.functions)

"""Which nodes do something besides computing their results, and may therefore not be dropped, merged or fused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moec.ir.graph import Graph, Module, Node
from moec.ir.symbol import Expr, symbols_of
from moec.ops.registry import OPS

EFFECT_TRAITS = frozenset(("effect", "opaque"))


def called(node: Node) -> list[str]:
    """The functions that a node runs: the callee of a call, the bodies of a branch or loop."""
    definition = OPS.get(node.op)
    return [] if definition is None else definition.functions(node.attrs)


def effectful_functions(module: Module) -> frozenset[str]:
    """The functions in which, or in whose callees, some node has an effect."""
    found: set[str] = set()
    grew = True
    while grew:
        grew = False
        for name, graph in module.functions.items():
            if name not in found and any(has_effect(n, found) for n in graph):
                found.add(name)
                grew = True
    return frozenset(found)


def has_effect(node: Node, functions: frozenset[str] | set[str]) -> bool:
    """Whether the node has an effect itself or calls one of ``functions``, the effectful ones."""
    definition = OPS.get(node.op)
    return definition is None or bool(definition.traits & EFFECT_TRAITS) or any(f in functions for f in called(node))


def callees(graph: Graph) -> list[str]:
    """The functions that a function calls, each once, in order."""
    return list(dict.fromkeys(name for node in graph for name in called(node)))


def ordered_after(graph: Graph, functions: frozenset[str]) -> dict[Node, list[Node]]:
    """What each node must stay behind though it reads nothing of it: the node with an effect before one that has an
    effect, and what decides a size that the node's attributes or results name. ``functions`` are the effectful ones.
    """
    found: dict[Node, list[Node]] = {}
    given = {s for v in graph.inputs for d in v.type.shape or () for s in symbols_of(d)}
    decides: dict[str, Node] = {}
    last: Node | None = None
    for node in graph:
        names = [s for v in node.results for d in v.type.shape or () for s in symbols_of(d)]
        names += [s for value in node.attrs.values() for s in _symbols(value)]
        wanted = dict.fromkeys(decides[s] for s in names if s in decides)
        if has_effect(node, functions):
            if last is not None:
                wanted[last] = None
            last = node
        if wanted:
            found[node] = list(wanted)
        for name in names:
            if name not in given:
                decides.setdefault(name, node)
    return found


def _symbols(value: Any) -> Iterator[str]:
    if isinstance(value, Expr):
        yield from symbols_of(value)
    elif isinstance(value, tuple):
        for each in value:
            yield from _symbols(each)

"""Which nodes do something besides computing their results, and may therefore not be dropped, merged or fused."""

from __future__ import annotations

from moec.ir.graph import Graph, Module, Node
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

"""Which nodes of a joint graph are backward."""

from __future__ import annotations

from moec.autodiff.loss import PREFIX
from moec.ir.graph import Graph, Node, Value

SAVES = ("save", "swap_out")
"""Ops of forward whose results are there for backward."""

SEAM = (*SAVES, "seed")


def backward_nodes(graph: Graph) -> set[Node]:
    """The nodes of a joint graph's ``main`` that are reachable from what is saved, a ``seed``, or an incoming gradient.

    Saves are forward, seeds backward. Nodes without operands (constants, weights, number ranges) are on no side.
    """
    incoming = {v for v in graph.inputs if v.name.startswith(PREFIX) and v.name[len(PREFIX) :] in graph.output_names}
    behind: set[Value] = set(incoming)
    found: set[Node] = set()
    for node in graph:
        if node.op == "seed" or any(v in behind for v in node.operands):
            found.add(node)
            behind.update(node.results)
        elif node.op in SAVES:
            behind.update(node.results)
    return found


def late_nodes(graph: Graph) -> set[Node]:
    """The nodes that run in backward: the backward ones, and those that compute from inputs, weights and number ranges
    alone and are read by such only. Merging one with a node of forward would keep a value that no save accounts for.
    """
    found = backward_nodes(graph)
    if found:
        for node in reversed(graph):
            users = [user for v in node.results for user in v.uses]
            if users and node.op not in SAVES and all(user in found for user in users):
                found.add(node)
    return found

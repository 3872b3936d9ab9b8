"""A networkx view of a function, for analyses (reachability, cuts, critical paths, isomorphism)."""

from __future__ import annotations

import networkx as nx

from moec.ir.graph import Graph


def to_networkx(graph: Graph) -> nx.MultiDiGraph:
    """Nodes are the graph's ``Node`` objects and, for its inputs, ``Value`` objects; edges carry ``value`` and
    ``operand``.

    The return is a node too. Insertion order is execution order, so traversals are deterministic.
    """
    view: nx.MultiDiGraph = nx.MultiDiGraph(name=graph.name)
    view.add_nodes_from((v, {"op": "input"}) for v in graph.inputs)
    for node in [*graph, graph.ret]:
        view.add_node(node, op=node.op)
        for i, v in enumerate(node.operands):
            if v is not None:
                view.add_edge(v.producer if v.producer is not None else v, node, value=v, operand=i)
    return view

"""Gradients sent between experts' ranks with two of four elements: 9/16 of the bytes in 16 bits, and an error.

Not among the passes of ``moec compile``: name it where the error is acceptable. Of each exchanged gradient g the
receiver gets g' with |g - g'| <= |g| / sqrt(2) (Euclidean, of every row); nothing else changes, forward least of all.
"""

from __future__ import annotations

from moec.autodiff.sides import backward_nodes
from moec.ir.graph import Graph, Module, Node, merged_origin
from moec.ir.symbol import exact_div
from moec.ops.build import Builder
from moec.passes.base import Context, Pass, Result, register_pass


@register_pass
class CompressAllToAll(Pass):
    """Send gradients of rows between ranks with the two largest of every four elements (2:4 sparse).

    Only exchanges of the backward part of a training graph are changed. An approximation: what a rank gets differs from
    what was sent by at most 1/sqrt(2) of its norm. Off unless named.
    """

    name = "compress-a2a"

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        for graph in module.functions.values():
            backward = backward_nodes(graph)
            for node in graph:
                if node.op not in ("all_to_all", "all_to_all_v") or node not in backward or _compressed(node):
                    continue
                reason = _unfit(node)
                if reason:
                    result.miss(self.name, reason, [node], graph)
                    continue
                self._compress(graph, node, result)
        return result

    def _compress(self, graph: Graph, node: Node, result: Result) -> None:
        origin = merged_origin([node], self.name)
        b = Builder(graph, node, origin)
        lists = node.operands[1:]
        sent = [b.node(node.op, part, *lists, **node.attrs).result for part in b.sparse24(node.operand(0))]
        y = b.dense24(*sent)
        y.name = node.result.name
        node.result.replace_with(y)
        graph.erase(node)
        bits = node.operand(0).type.dtype.bits
        result.apply(f"gradient in {(2 * bits + 4) / (4 * bits):.1%} of its bytes", origin, graph)


def _compressed(node: Node) -> bool:
    producer = node.operand(0).producer
    return producer is not None and producer.op == "sparse24"


def _unfit(node: Node) -> str:
    """Why an exchange is not compressed; empty where it is."""
    x = node.operand(0).type
    if not x.dtype.is_float:
        return f"{x.dtype} is no gradient's dtype"
    if x.rank != 2 or (node.op == "all_to_all" and (node.attrs["split_axis"], node.attrs["concat_axis"]) != (0, 0)):
        return "what is exchanged are not rows"
    if exact_div(x.dims[1], 8) is None:
        return f"rows of {x.dims[1]} do not split into pairs of four elements"
    return ""

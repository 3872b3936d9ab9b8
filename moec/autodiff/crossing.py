"""What backward reads of forward: found once, at its root, and given a way across."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moec.autodiff.activity import LAYOUT
from moec.autodiff.sweep import NAME
from moec.ir.graph import Graph, Node, Origin, Value
from moec.ops.registry import OPS

Across = Callable[[Value], Value]
"""Gives backward what stands for a value of forward that must be kept, or for an input."""


class Crossing:
    """Redirects what the nodes ``made`` (backward, in order, in ``target``) read of forward.

    Sizes and number ranges are made again; so are views, broadcasts, and casts that do not narrow, of their operand;
    and what is only laid out of inputs, weights and constants. Constants and weights are read where they stand, or
    made again if backward is another function. Everything else goes ``across``, each value once. ``own`` are the
    values that backward is given besides.
    """

    def __init__(self, graph: Graph, target: Graph, made: Sequence[Node], own: Sequence[Value], across: Across):
        self.graph, self.target, self.made, self.across = graph, target, made, across
        self.inside = {v for n in made for v in n.results} | set(own)
        self.known: dict[Value, Value] = {}
        self.free: dict[Value, bool] = {}

    def run(self) -> None:
        """Redirect every operand of the backward nodes that forward defines."""
        for node in self.made:
            for i, v in enumerate(node.operands):
                if v is not None and v not in self.inside:
                    node.set_operand(i, self.value(v, node))

    def value(self, wanted: Value, before: Node) -> Value:
        """What backward reads in the place of ``wanted``; what is made again stands ahead of ``before``, its first
        reader.
        """
        stack = [wanted]
        while stack:
            v = stack[-1]
            node = v.producer
            if v in self.known:
                stack.pop()
            elif node is None or not self.repeatable(node):
                self.known[v] = self.across(v)
            elif node.op in ("constant", "weight") and self.target is self.graph:
                self.known[v] = v
            else:
                missing = [o for o in node.operands if o is not None and o not in self.known]
                if missing:
                    stack += missing
                else:
                    self.known[v] = self.again(node, before)
        return self.known[wanted]

    def again(self, node: Node, before: Node) -> Value:
        """A copy of a forward node in backward."""
        operands = [None if v is None else self.known[v] for v in node.operands]
        origin = Origin(node.origin.sources, (*node.origin.rewrites, NAME))
        copy = Node(node.op, operands, dict(node.attrs), [v.type for v in node.results], origin)
        self.target.insert(copy, before)
        copy.result.name = node.result.name
        return copy.result

    def repeatable(self, node: Node) -> bool:
        """Whether backward makes the node's result again rather than read it from forward."""
        traits = OPS[node.op].traits
        if "source" in traits or "view" in traits or node.op == "expand":
            return True
        if node.op == "cast" and node.operand(0).type.dtype.bits <= node.result.type.dtype.bits:
            return True
        return node.op in LAYOUT and self.given(node.result)

    def given(self, wanted: Value) -> bool:
        """Whether the value is an input, a weight or a constant, or laid out of such."""
        stack = [wanted]
        while stack:
            v = stack[-1]
            node = v.producer
            if v in self.free:
                stack.pop()
            elif node is None or "source" in OPS[node.op].traits:
                self.free[v] = True
            elif node.op not in (*LAYOUT, "cast"):
                self.free[v] = False
            else:
                missing = [o for o in node.operands if o is not None and o not in self.free]
                if missing:
                    stack += missing
                else:
                    self.free[v] = all(self.free[o] for o in node.operands if o is not None)
        return self.free[wanted]

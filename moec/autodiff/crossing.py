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
    and what is only laid out anew (transposed, sliced) of inputs, weights and values that are kept anyway. Constants
    and weights are read where they stand, or made again if backward is another function. Everything else goes
    ``across``, each value once; a seed reads no more of its loss than the type. ``own`` are the values that backward is
    given besides.
    """

    def __init__(self, graph: Graph, target: Graph, made: Sequence[Node], own: Sequence[Value], across: Across):
        self.graph, self.target, self.made, self.across = graph, target, made, across
        self.inside = {v for n in made for v in n.results} | set(own)
        self.known: dict[Value, Value] = {}
        self.found: dict[Value, bool] = {}
        self.kept: set[Value] = set()
        """The roots of what backward reads."""

    def run(self) -> None:
        """Redirect every operand of the backward nodes that forward defines."""
        made = [node for node in self.made if node.op != "seed"]
        reads = [v for node in made for v in node.operands if v is not None and v not in self.inside]
        self.kept = {self.root(v) for v in reads}
        for node in made:
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

    @staticmethod
    def is_view(node: Node) -> bool:
        """Whether the node makes no more of its one operand than there is: another shape, copies, a wider dtype."""
        if node.op == "cast":
            return node.operand(0).type.dtype.bits <= node.result.type.dtype.bits
        return "view" in OPS[node.op].traits or node.op == "expand"

    @staticmethod
    def laid_out(node: Node) -> bool:
        """Whether the node only lays its operands out anew."""
        return node.op in (*LAYOUT, "cast")

    def root(self, v: Value) -> Value:
        """What ``v`` is a view of."""
        while v.producer is not None and self.is_view(v.producer):
            v = v.producer.operand(0)
        return v

    def repeatable(self, node: Node) -> bool:
        """Whether backward makes the node's result again rather than read it from forward."""
        if "source" in OPS[node.op].traits or self.is_view(node):
            return True
        return self.laid_out(node) and all(self.there(o) for o in node.operands if o is not None)

    def there(self, wanted: Value) -> bool:
        """Whether backward has the value anyway, or can lay it out of what it has."""
        stack = [wanted]
        while stack:
            v = stack[-1]
            node = v.producer
            if v in self.found:
                stack.pop()
            elif v in self.kept or node is None or "source" in OPS[node.op].traits:
                self.found[v] = True
            elif not self.laid_out(node):
                self.found[v] = False
            else:
                missing = [o for o in node.operands if o is not None and o not in self.found]
                if missing:
                    stack += missing
                else:
                    self.found[v] = all(self.found[o] for o in node.operands if o is not None)
        return self.found[wanted]

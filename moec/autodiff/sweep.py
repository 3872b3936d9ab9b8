"""The reverse sweep over one function: from gradients of its results to gradients of its inputs and weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from moec.autodiff.activity import called, cuts
from moec.autodiff.parts import Part, deferred, in_order
from moec.ir.graph import Graph, Node, Origin, Value
from moec.ir.symbol import Shape
from moec.ir.types import DType, UnknownRank
from moec.ops.build import make_node
from moec.ops.registry import OPS
from moec.ops.tape import NoGradient, Tape

NAME = "autodiff"
"""What provenance calls the rewrite."""

CallGradients = Callable[["Sweep", Node, Sequence[Value | None]], Sequence[Value | None]]
"""Differentiates a ``call`` node and gives the gradients of its operands."""


class Sweep:
    """Differentiates the nodes of ``graph`` and appends what it builds to ``target``, which may be the same graph.

    ``varied`` gives the values to differentiate with the dtype of each one's gradient. Gradients that meet in a value
    are added in the order in which the sweep comes to its readers: the last reader's first; those of slices, put
    together where they cover it, come last.
    """

    def __init__(self, graph: Graph, target: Graph, varied: dict[Value, DType], calls: CallGradients):
        self.graph, self.varied, self.calls = graph, varied, calls
        self.tape = Recorder(target)
        self.gradients: dict[Value, Value] = {}
        self.parts: dict[Value, list[Part]] = {}
        """The gradients of slices of a value, as long as the sweep may still come to another."""
        self.weights: dict[str, Value] = {}
        """The gradients of the weights in the function, by name."""
        self.failures: list[tuple[Node, str]] = []

    def run(self, nodes: Sequence[Node], seeds: Iterable[tuple[Value, Value]]) -> None:
        """Sweep over the function's ``nodes`` from its results, each with the gradient in ``seeds``."""
        for value, gradient in seeds:
            if value in self.varied:
                self.add(value, gradient)
        for node in reversed(nodes):
            dys = [self.gradient(v) for v in node.results]
            if any(dy is not None for dy in dys):
                self.visit(node, dys)

    def gradient(self, value: Value) -> Value | None:
        """The gradient of a value all of whose readers the sweep has passed; None where there is none."""
        parts = self.parts.pop(value, [])
        if parts:
            node = parts[0].node
            self.tape.at(node, self.varied)
            axis = node.attrs["axis"]
            whole = in_order(parts, value.type.dims[axis], axis)
            if whole is not None and len(whole) > 1:
                self.add(value, self.tape.concat(*(self.tape.narrow(p.gradient, 0) for p in whole), axis=axis))
            for part in parts if whole is None or len(whole) == 1 else ():
                self.add(value, self.primitive(part.node, [part.gradient])[0])
        return self.gradients.get(value)

    def add(self, value: Value, gradient: Value | None) -> None:
        """Let ``gradient`` be a part of the gradient of ``value``."""
        if gradient is None:
            return
        gradient = self.tape.reshaped(gradient, _met(gradient, value))
        gradient = self.tape.cast_to(gradient, self.varied[value])
        before = self.gradients.get(value)
        self.gradients[value] = gradient if before is None else self.tape.add(before, gradient)

    def visit(self, node: Node, dys: Sequence[Value | None]) -> None:
        """Hand the gradients of a node's results on to its operands."""
        self.tape.at(node, self.varied)
        if node.op == "weight":
            self.add_weight(node.attrs["name"], dys[0])
            return
        if cuts(node) or (node.op != "call" and not any(v in self.varied for v in node.operands)):
            return
        if deferred(node) and dys[0] is not None:
            self.parts.setdefault(node.operand(0), []).append(Part(node, dys[0]))
            return
        try:
            found = self.calls(self, node, dys) if called(node) else self.primitive(node, dys)
        except (NoGradient, UnknownRank) as reason:
            self.failures.append((node, str(reason)))
            return
        for v, gradient in zip(node.operands, found, strict=True):
            if v is not None and v in self.varied:
                self.add(v, gradient)

    def add_weight(self, name: str, gradient: Value | None) -> None:
        """Let ``gradient`` be a part of the gradient of the weight of that name."""
        if gradient is not None:
            before = self.weights.get(name)
            self.weights[name] = gradient if before is None else self.tape.add(before, gradient)

    def primitive(self, node: Node, dys: Sequence[Value | None]) -> Sequence[Value | None]:
        """The gradients of the operands by the op's own declaration."""
        definition = OPS[node.op]
        if definition.training_form:
            node = self.exchange(node, definition.training_form)
            definition = OPS[node.op]
            dys = [*dys, *[None] * (len(node.results) - len(dys))]
        if definition.grad is None:
            raise NoGradient(definition.nondiff or "none is declared")
        found: Sequence[Value | None] = definition.grad(self.tape, node, *dys)
        return found

    def exchange(self, node: Node, form: str) -> Node:
        """Put the op that forward runs in training in the place of ``node``: the same operands and first results."""
        made = self.graph.insert(make_node(form, list(node.operands), dict(node.attrs), node.origin), node)
        for old, new in zip(node.results, made.results, strict=False):
            new.name = old.name
            old.replace_with(new)
        self.graph.erase(node)
        return made


def _met(gradient: Value, value: Value) -> Shape:
    """The shape of the value, as its gradient's: sizes that are spelt differently are equal when it runs, numbers must
    be.
    """
    have, want = gradient.type.dims, value.type.dims
    differ = len(have) != len(want) or any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(have, want, strict=False)
    )
    if differ:
        raise ValueError(f"the gradient of {value.type} is {gradient.type}")
    return want


class Recorder(Tape):
    """A tape that remembers what it built, in order."""

    def __init__(self, graph: Graph):
        super().__init__(graph)
        self.made: list[Node] = []

    def at(self, node: Node, varied: Mapping[Value, DType]) -> None:
        """Stand at ``node``, whose operands want a gradient where they are ``varied``."""
        self.origin = Origin(node.origin.sources, (*node.origin.rewrites, NAME))
        self.wants = [v is not None and v in varied for v in node.operands]
        self.dtypes = [None if v is None else varied.get(v) for v in node.operands]

    def node(self, op: str, *operands: Value | None, **attrs: object) -> Node:
        made = super().node(op, *operands, **attrs)
        self.made.append(made)
        return made

    def inserted(self, node: Node) -> Node:
        """Append a node that stands in no graph yet."""
        self.made.append(self.graph.insert(node, None))
        return node

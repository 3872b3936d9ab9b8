"""Which values a gradient is wanted for: those that vary with what is differentiated for."""

from __future__ import annotations

from collections.abc import Sequence

from moec.ir.graph import Graph, Module, Node, Value
from moec.ir.types import DType
from moec.ops.registry import OPS

LAYOUT = ("reshape", "transpose", "slice", "concat", "expand")
"""Ops that only lay elements out anew."""

Wanted = tuple[DType | None, ...]
"""By input of a function: the dtype in which its gradient is wanted, None where it is not."""


class Activity:
    """Follows variation through the functions of a module; one walk for each function and set of varied inputs.

    ``weights`` names the weights to differentiate for; ``widened`` is the dtype in which gradients of 16-bit weights
    are wanted, None for their own.
    """

    def __init__(self, module: Module, weights: frozenset[str], widened: DType | None):
        self.module, self.weights, self.widened = module, weights, widened
        self.results: dict[tuple[str, Wanted], list[bool]] = {}

    def varied(self, graph: Graph, inputs: Wanted) -> dict[Value, DType]:
        """Every value of the function that varies, with the dtype in which its gradient is kept."""
        found = {v: d for v, d in zip(graph.inputs, inputs, strict=True) if d is not None}
        for node in graph:
            if any(v is not None and v in found for v in node.operands) or not node.operands or called(node):
                for v, dtype in zip(node.results, self.node(node, found), strict=True):
                    if dtype is not None and v.type.dtype.is_float:
                        found[v] = dtype
        return found

    def node(self, node: Node, found: dict[Value, DType]) -> Sequence[DType | None]:
        """By result: the dtype of its gradient, None where it does not vary."""
        own: list[DType | None] = [v.type.dtype for v in node.results]
        if node.op == "weight":
            return [self.of_weight(own[0])] if node.attrs["name"] in self.weights else [None]
        callee = called(node)
        if callee:
            wanted = tuple(None if v is None else found.get(v) for v in node.operands)
            vary = self.of_function(self.module.functions[callee], wanted)
            return [d if given else None for d, given in zip(own, vary, strict=True)]
        if not node.operands or cuts(node):
            return [None] * len(own)
        if node.op in LAYOUT:
            wide = [found[v] for v in node.operands if v is not None and v in found]
            return [wide[0] if all(d is wide[0] for d in wide) else own[0]]
        return own

    def of_weight(self, dtype: DType | None) -> DType | None:
        """The dtype in which the gradient of a weight of ``dtype`` is wanted."""
        if dtype is not None and dtype.is_float and dtype.bits < 32 and self.widened is not None:
            return self.widened
        return dtype

    def of_function(self, graph: Graph, inputs: Wanted) -> list[bool]:
        """Which results of a function vary."""
        key = graph.name, inputs
        if key not in self.results:
            found = self.varied(graph, inputs)
            self.results[key] = [v in found for v in graph.outputs]
        return self.results[key]


def called(node: Node) -> str:
    """The function that a ``call`` runs; nothing for other nodes."""
    return str(node.attrs["fn"]) if node.op == "call" else ""


def cuts(node: Node) -> bool:
    """Whether no gradient goes through the node, because its results do not vary with its operands.

    A composite op's reason says instead why it cannot be differentiated as it is.
    """
    definition = OPS[node.op]
    return bool(definition.nondiff) and definition.cost != "composite"

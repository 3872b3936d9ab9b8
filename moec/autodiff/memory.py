"""How much forward keeps for backward: the saves of a training graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moec.ir.graph import Graph, Module
from moec.ir.symbol import Dim, evaluate
from moec.ir.types import TensorType
from moec.ops.registry import OPS


@dataclass(frozen=True)
class Saved:
    """A saved value: its name, type, and how often it is kept, more than once where a called function saves."""

    name: str
    type: TensorType
    times: int = 1

    def bytes(self, sizes: Mapping[str, int]) -> int | None:
        """Bytes of all copies at these sizes of symbols; None where a size is not among them."""
        total: Dim = self.type.numel() * self.type.dtype.bits * self.times
        try:
            return -(-evaluate(total, sizes) // 8)
        except KeyError:
            return None


def saved_values(module: Module) -> list[Saved]:
    """Every saved value of a module, in order; none where it is no training graph."""
    found: list[Saved] = []
    calls: dict[str, int] = {"main": 1}
    for graph in callers_first(module):
        times = calls.get(graph.name, 0)
        for node in graph:
            if node.op == "save":
                found.append(Saved(node.attrs["name"], node.result.type, times))
            for name in OPS[node.op].functions(node.attrs) if node.op in OPS else ():
                calls[name] = calls.get(name, 0) + times
    return found


def callers_first(module: Module) -> list[Graph]:
    """The functions that ``main`` reaches, each behind all that call it."""
    order: list[Graph] = []
    done: set[str] = set()
    stack: list[tuple[str, bool]] = [("main", False)]
    while stack:
        name, left = stack.pop()
        if left:
            order.append(module.functions[name])
        elif name not in done and name in module.functions:
            done.add(name)
            stack.append((name, True))
            stack += [(f, False) for n in module.functions[name] if n.op in OPS for f in OPS[n.op].functions(n.attrs)]
    return order[::-1]

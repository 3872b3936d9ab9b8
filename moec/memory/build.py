"""The planner's problem of a joint training graph: its main function, calls inlined, one step a node.

Tensors are storages: views, saves and edges share that of their operand. Weights, inputs and what follows from them by
views alone are there from the start; constants are small and left out. Index choices must be saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from moec.autodiff import backward_nodes
from moec.autodiff.sides import SAVES
from moec.ir.graph import Graph, Node, Value
from moec.ir.symbol import evaluate
from moec.memory.problem import Problem, Step, Tensor
from moec.ops.registry import opdef

SOURCES = ("weight", "constant", "dims", "iota", "group_rank")
"""Ops whose results are there, or are made anew for next to nothing."""

Price = Callable[[Node], float]
"""Microseconds of a node on the device."""

Workspace = Callable[[Node], int]
"""Bytes that a node's kernels need besides its operands and results, while they run."""

Kind = Callable[[Value], str]
"""What a forward value is; ``routing`` for a choice of experts."""

ROUTING = "a choice of experts, which a near-tie could flip if it were made again"


@dataclass(frozen=True)
class Built:
    """A problem, the graph that it is of, and which value and node each tensor and step stand for."""

    problem: Problem
    graph: Graph
    values: tuple[Value, ...]
    forward: tuple[Node, ...]
    backward: tuple[Node, ...]


@dataclass
class _Builder:
    graph: Graph
    price: Price
    workspace: Workspace
    kind: Kind
    sizes: Mapping[str, int]
    exchanges: frozenset[str]
    root: dict[Value, Value] = field(default_factory=dict)
    index: dict[Value, int] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)

    def storage(self, value: Value) -> Value:
        """The value whose storage ``value`` shares."""
        chain = []
        while value not in self.root:
            node = value.producer
            if node is None or not node.operands or opdef(node.op).cost != "view":
                self.root[value] = value
                break
            chain.append(value)
            value = node.operand(0)
        for v in chain:
            self.root[v] = self.root[value]
        return self.root[value]

    def tensor(self, value: Value, backward: bool) -> int:
        """The index of a value's storage."""
        value = self.storage(value)
        if value not in self.index:
            self.index[value] = len(self.tensors)
            kind = "gradient" if backward else self.kind(value)
            size = int(evaluate(value.type.numel() * value.type.dtype.bits, self.sizes)) // 8
            node = value.producer
            name = value.name or (node.op if node is not None else "input")
            must = ROUTING if kind == "routing" else ""
            self.tensors.append(Tensor(name, size, must, str(node.origin) if node is not None else "", kind))
            self.values.append(value)
        return self.index[value]

    def is_given(self, value: Value) -> bool:
        value = self.storage(value)
        return value.producer is None or value.producer.op in SOURCES

    def step(self, node: Node, backward: bool) -> Step:
        reads = dict.fromkeys(self.tensor(v, backward) for v in node.operands if v is not None and not self.is_given(v))
        writes = tuple(dict.fromkeys(self.tensor(v, backward) for v in node.results))
        traits = opdef(node.op).traits & {"effect", "collective", "call"}
        fixed = f"{node.op} may not run a second time" if traits and node.op not in self.exchanges else ""
        return Step(node.op, self.price(node), tuple(reads), writes, fixed, self.workspace(node), str(node.origin))


def build(
    graph: Graph,
    sizes: Mapping[str, int],
    price: Price,
    kind: Kind,
    *,
    workspace: Workspace,
    fixed_bytes: Mapping[str, int],
    in_flight: int = 1,
    pcie: float = 0.0,
    host_bytes: int = 0,
    exchanges: Iterable[str] = (),
) -> Built:
    """The problem of a joint graph at ``sizes``; ``exchanges`` are collectives that may run again, as they may where
    every rank follows the same plan. KeyError where a size is not among them.
    """
    builder = _Builder(graph, price, workspace, kind, sizes, frozenset(exchanges))
    ahead = _forward(graph)
    sides: tuple[list[Step], list[Step]] = [], []
    nodes: tuple[list[Node], list[Node]] = [], []
    for node in graph:
        if opdef(node.op).cost == "view" or node.op in SOURCES:
            continue
        side = node not in ahead
        sides[side].append(builder.step(node, side))
        nodes[side].append(node)
    problem = Problem(
        tuple(builder.tensors), tuple(sides[0]), tuple(sides[1]), dict(fixed_bytes), in_flight, pcie, host_bytes
    )
    return Built(problem, graph, tuple(builder.values), tuple(nodes[0]), tuple(nodes[1]))


def _forward(graph: Graph) -> set[Node]:
    """The nodes that forward needs: for what it saves, and for the outputs that are no gradients. What only backward
    needs of inputs and constants is backward's, wherever it stands.
    """
    behind = backward_nodes(graph)
    found: set[Node] = set()
    stack = [n for n in graph if n.op in SAVES or opdef(n.op).traits & {"effect"}]
    stack += [v.producer for v in graph.outputs if v.producer is not None]
    while stack:
        node = stack.pop()
        if node not in found and node not in behind:
            found.add(node)
            stack += [v.producer for v in node.operands if v is not None and v.producer is not None]
    return found

"""The layer IR: a module of functions, each an SSA graph of nodes over values.

Nodes stand in a doubly linked list in execution order; a value knows its producer and its users. Appending, inserting,
erasing and replacing are constant time (per operand or use), so building and editing a graph of 150,000 nodes is
linear.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from moec.ir.group import Shard
from moec.ir.symbol import Bounds
from moec.ir.types import TensorType


class Source(NamedTuple):
    """A place that a node came from: ``file``, its ``line`` or node index there, and a ``label`` (op and name)."""

    file: str
    line: int
    label: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f" {self.label}" if self.label else "")


class Origin(NamedTuple):
    """Provenance: the places that a node came from and, in order, the rewrites that made it."""

    sources: tuple[Source, ...] = ()
    rewrites: tuple[str, ...] = ()

    def __str__(self) -> str:
        shown = "; ".join(str(s) for s in self.sources[:3])
        if len(self.sources) > 3:
            shown += f"; and {len(self.sources) - 3} more"
        return shown + (f" by {', '.join(self.rewrites)}" if self.rewrites else "")


NOWHERE = Origin()


def merged_origin(nodes: Iterable[Node], rewrite: str) -> Origin:
    """The provenance of a node that ``rewrite`` made out of ``nodes``: every source once, in order, and the rewrite."""
    apart: dict[int, tuple[Source, ...]] = {}
    rewrites: dict[str, None] = {}
    for node in nodes:
        if node.origin.sources:
            apart[id(node.origin.sources)] = node.origin.sources
        rewrites.update(dict.fromkeys(node.origin.rewrites))
    rewrites[rewrite] = None
    found = list(apart.values())
    sources = found[0] if len(found) == 1 else tuple(dict.fromkeys(s for each in found for s in each))
    return Origin(sources, tuple(rewrites))


class Value:
    """A tensor that a node or a graph input defines. ``name`` is for display; identity is the object itself."""

    __slots__ = ("type", "producer", "index", "uses", "name")

    def __init__(self, type: TensorType, producer: Node | None, index: int, name: str = ""):
        self.type = type
        self.producer = producer
        """The node that defines it; None for a graph input."""
        self.index = index
        """Which result of the producer, or which input of the graph."""
        self.uses: dict[Node, int] = {}
        """Each node that reads it and in how many operand slots, in order of first use; the graph's return counts."""
        self.name = name

    def replace_with(self, other: Value) -> None:
        """Make every reader of this value (the return included) read ``other`` instead."""
        if other is self:
            return
        for node, count in list(self.uses.items()):
            at = -1
            for _ in range(count):
                at = node.operands.index(self, at + 1)
                node.set_operand(at, other)

    def __repr__(self) -> str:
        return f"<%{self.name or '?'}: {self.type}>"


class Node:
    """An operation: ``op`` names its declaration, ``operands`` may hold None for an absent optional one."""

    __slots__ = ("op", "operands", "attrs", "results", "origin", "graph", "prev", "next", "proof")

    def __init__(
        self,
        op: str,
        operands: Iterable[Value | None],
        attrs: dict[str, Any],
        types: Sequence[TensorType],
        origin: Origin = NOWHERE,
    ):
        self.op = op
        self.operands: list[Value | None] = list(operands)
        self.attrs = attrs
        self.results = [Value(t, self, i) for i, t in enumerate(types)]
        self.origin = origin
        self.graph: Graph | None = None
        self.prev: Node | None = None
        self.next: Node | None = None
        self.proof: Any = None
        """What the verifier last found right about this node, so that it need not be worked out again."""
        for v in self.operands:
            if v is not None:
                v.uses[self] = v.uses.get(self, 0) + 1

    @property
    def result(self) -> Value:
        """Its first result; for the common case of an op with one."""
        return self.results[0]

    def operand(self, index: int) -> Value:
        """Operand ``index``, which must be there; ValueError names the node otherwise."""
        value = self.operands[index] if index < len(self.operands) else None
        if value is None:
            raise ValueError(f"{self.op} ({self.origin}) has no operand {index}")
        return value

    def set_operand(self, index: int, value: Value | None) -> None:
        """Replace one operand and keep the def-use lists right."""
        old = self.operands[index]
        if old is not None:
            _drop_use(old, self)
        self.operands[index] = value
        if value is not None:
            value.uses[self] = value.uses.get(self, 0) + 1

    def __repr__(self) -> str:
        return f"<{self.op} {self.origin}>"


def _drop_use(value: Value, node: Node) -> None:
    count = value.uses[node]
    if count == 1:
        del value.uses[node]
    else:
        value.uses[node] = count - 1


class Graph:
    """A function: ``inputs``, nodes in execution order, and a return. Iterating yields the nodes; erasing while
    iterating is safe.
    """

    __slots__ = ("name", "inputs", "output_names", "ret", "_head", "_tail", "count")

    def __init__(self, name: str):
        self.name = name
        self.inputs: list[Value] = []
        self.output_names: list[str] = []
        self.ret = Node("return", (), {}, ())
        self.ret.graph = self
        self._head: Node | None = None
        self._tail: Node | None = None
        self.count = 0
        """Number of nodes, the return not counted."""

    @property
    def outputs(self) -> list[Value]:
        """The values returned, in order."""
        return [v for v in self.ret.operands if v is not None]

    @property
    def last(self) -> Node | None:
        """The last node; None where there is none."""
        return self._tail

    def add_input(self, name: str, type: TensorType) -> Value:
        value = Value(type, None, len(self.inputs), name)
        self.inputs.append(value)
        return value

    def set_outputs(self, values: Sequence[Value], names: Sequence[str]) -> None:
        """Return ``values`` under ``names``."""
        if len(values) != len(names):
            raise ValueError(f"{len(values)} outputs but {len(names)} names")
        for i in range(len(self.ret.operands)):
            self.ret.set_operand(i, None)
        self.ret.operands = [None] * len(values)
        for i, v in enumerate(values):
            self.ret.set_operand(i, v)
        self.output_names = list(names)

    def append(
        self,
        op: str,
        operands: Iterable[Value | None],
        attrs: dict[str, Any],
        types: Sequence[TensorType],
        origin: Origin = NOWHERE,
    ) -> Node:
        """Create a node at the end."""
        return self.insert(Node(op, operands, attrs, types, origin), None)

    def insert(self, node: Node, before: Node | None) -> Node:
        """Put a node that stands in no graph before ``before``; at the end where that is None or the return."""
        if node.graph is not None:
            raise ValueError(f"{node!r} already stands in a graph")
        if before is self.ret:
            before = None
        node.graph = self
        node.next = before
        node.prev = before.prev if before is not None else self._tail
        if node.prev is None:
            self._head = node
        else:
            node.prev.next = node
        if before is None:
            self._tail = node
        else:
            before.prev = node
        self.count += 1
        return node

    def erase(self, node: Node) -> None:
        """Take out a node whose results nobody reads; ValueError otherwise."""
        if any(v.uses for v in node.results):
            raise ValueError(f"{node!r} still has users")
        self._unlink(node)
        for v in node.operands:
            if v is not None and node in v.uses:
                del v.uses[node]

    def move(self, node: Node, before: Node | None) -> None:
        """Put a node of this graph elsewhere in the order; the caller answers for dominance."""
        if before is node:
            return
        self._unlink(node)
        self.insert(node, before)

    def _unlink(self, node: Node) -> None:
        if node.graph is not self:
            raise ValueError(f"{node!r} does not stand in graph {self.name}")
        if node.prev is None:
            self._head = node.next
        else:
            node.prev.next = node.next
        if node.next is None:
            self._tail = node.prev
        else:
            node.next.prev = node.prev
        node.graph = node.prev = None
        node.next = None
        self.count -= 1

    def __iter__(self) -> Iterator[Node]:
        node = self._head
        while node is not None:
            following = node.next
            yield node
            node = following if node.next is None else node.next

    def __reversed__(self) -> Iterator[Node]:
        node = self._tail
        while node is not None:
            before = node.prev
            yield node
            node = before if node.prev is None else node.prev

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<graph {self.name}: {self.count} nodes>"


class Module:
    """A program: functions by name (``main`` is where it starts) and the bounds of its symbols. Where groups of ranks
    run it, it is each rank's program, and ``shards`` says which inputs and weights are parts of a whole.
    """

    __slots__ = ("functions", "symbols", "shards")

    def __init__(self) -> None:
        self.functions: dict[str, Graph] = {}
        self.symbols: dict[str, Bounds] = {}
        self.shards: dict[str, tuple[Shard, ...]] = {}
        """By name of an input of ``main`` or of a weight."""

    @property
    def main(self) -> Graph:
        """The function that a run starts with; KeyError where the module has none."""
        return self.functions["main"]

    def add(self, graph: Graph) -> Graph:
        """Take in a function under its name; ValueError if that name is taken."""
        if graph.name in self.functions:
            raise ValueError(f"function '{graph.name}' exists already")
        self.functions[graph.name] = graph
        return graph

    def nodes(self) -> Iterator[Node]:
        """Every node of every function."""
        for graph in self.functions.values():
            yield from graph

    def __repr__(self) -> str:
        return f"<module of {', '.join(self.functions)}>"

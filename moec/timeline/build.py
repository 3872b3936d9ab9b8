"""The tasks of a module: what the host issues, does and waits for, in the order of the layer IR.

Calls are taken apart on the way. Views, weights, constants and sizes are no tasks; a host step is one. ``nonzero`` says
how large its result is only once it has run, so the host reads that number before it goes on. The collectives of each
group have a stream; asynchronous reads stand in ``copy``, activations that are parked in one for each way; all else,
blocking reads included, in ``compute``, since a framework's read is queued behind the work of its stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from moec.ir.graph import Graph, Module, Node, Value
from moec.ir.group import Group
from moec.ops.registry import OPS
from moec.timeline.model import Outputs, Task


class Prices(Protocol):
    """What things take, in microseconds."""

    def device(self, node: Node) -> float:
        """A node's time on the device: a kernel, a collective, a copy."""
        ...

    def issue(self, node: Node) -> float:
        """The host's time to issue a node's device work."""
        ...

    def step(self, node: Node) -> float:
        """The host's time for a host step."""
        ...

    def moved(self, node: Node) -> int:
        """Bytes that a collective or copy moves; 0 for others."""
        ...

    def link(self, node: Node) -> str:
        """What a collective has to itself while it runs."""
        ...


FREE = ("constant", "weight", "dims", "save", "bind_size", "device_size", "group_rank")
"""Ops that are no task of their own, besides views: known when compiled, or read by the kernel that uses them."""

PARKING = {"swap_out": "copy out", "swap_in": "copy back"}
"""Copies of activations to the host and back: each way has a stream and its half of the link."""


@dataclass
class _Builder:
    module: Module
    prices: Prices
    tasks: list[Task]
    apart: bool = False
    nodes: list[Node] = field(default_factory=list)
    at: Node | None = None

    def function(self, graph: Graph, made: dict[Value, tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Add the tasks of a function; ``made`` holds the device tasks behind each of its operands."""
        for node in graph:
            operands = [v for v in node.operands if v is not None]
            behind = _merged(made.get(v, ()) for v in operands)
            if graph is self.module.main:
                self.at = node
            if node.op == "call":
                callee = self.module.functions[node.attrs["fn"]]
                given = {p: made.get(v, ()) for p, v in zip(callee.inputs, operands, strict=True)}
                found = self.function(callee, given)
                made.update(zip(node.results, found, strict=True))
                continue
            own = self.node(node, behind)
            made.update((v, own) for v in node.results)
        return [made.get(v, ()) for v in graph.outputs]

    def node(self, node: Node, behind: tuple[int, ...]) -> tuple[int, ...]:
        """Add a node's tasks; the device tasks that its results come from."""
        if is_free(node):
            return behind
        where = _where(node)
        label = str(node.attrs["fn"]) if node.op in ("fused", "host") else node.op
        if node.op == "host":
            self.add(Task(label, "step", where, self.prices.step(node)))
            return ()
        if node.op == "read_wait":
            (start,) = behind
            self.add(Task(label, "wait", where, self.prices.issue(node), awaits=start))
            return ()
        if node.op == "to_host":
            self.device(node, "read", "compute", behind, blocks=True)
            return ()
        if node.op in ("read_start", "to_device"):
            kind = "read" if node.op == "read_start" else "copy"
            return (self.device(node, kind, "copy", behind, link="pcie"),)
        if node.op in PARKING:
            if self.apart:
                behind = tuple(i for i in behind if self.tasks[i].stream != PARKING["swap_out"])
            return (self.device(node, "swap", PARKING[node.op], behind, link=PARKING[node.op]),)
        if "collective" in OPS[node.op].traits:
            return (self.device(node, "collective", stream_of(node), behind, link=self.prices.link(node)),)
        own = self.device(node, "kernel", "compute", behind)
        if node.op == "nonzero":
            self.add(Task("nonzero's count", "read", where, 0.0, 0.0, "compute", after=(own,), blocks=True))
        return (own,)

    def device(
        self, node: Node, kind: str, stream: str, behind: tuple[int, ...], link: str = "", blocks: bool = False
    ) -> int:
        label = str(node.attrs["fn"]) if node.op == "fused" else node.op
        issue, took = self.prices.issue(node), self.prices.device(node)
        moved, group = self.prices.moved(node), node.attrs.get("group")
        name = group.name if isinstance(group, Group) else ""
        return self.add(
            Task(label, kind, _where(node), issue, took, stream, link, behind, blocks=blocks, bytes=moved, group=name)
        )

    def add(self, task: Task) -> int:
        assert self.at is not None
        self.tasks.append(task)
        self.nodes.append(self.at)
        return len(self.tasks) - 1


def is_free(node: Node) -> bool:
    """Whether a node is no task of its own: a view, rows of a tensor that lie together, or one of ``FREE``."""
    rows = node.op == "slice" and node.attrs["axis"] == 0 and node.attrs["step"] == 1
    return rows or node.op in FREE or "view" in OPS[node.op].traits


@dataclass(frozen=True)
class Program:
    """The tasks of ``main`` in the order in which the host comes to them, and the node of each; ``ends``: the tasks
    behind each output, in order.
    """

    tasks: tuple[Task, ...]
    nodes: tuple[Node, ...]
    ends: tuple[tuple[int, ...], ...]

    @property
    def outputs(self) -> Outputs:
        """What the next layer reads: the first output."""
        return {"": self.ends[0] if self.ends else ()}


def stream_of(node: Node) -> str:
    """The stream of a collective: one for each group of ranks."""
    group = node.attrs["group"]
    assert isinstance(group, Group)
    return f"communication {group.name}"


def tasks_of(module: Module, prices: Prices, apart: bool = False) -> Program:
    """The tasks of a module. ``apart``: its forward and backward are of different micro-batches, as several in flight
    have it, so that what comes back from the host went there long before.
    """
    builder = _Builder(module, prices, [], apart)
    ends = builder.function(module.main, {})
    return Program(tuple(builder.tasks), tuple(builder.nodes), tuple(ends))


def _merged(groups: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sorted({i for g in groups for i in g}))


def _where(node: Node) -> str:
    """File and line of the first place that a node came from."""
    return f"{node.origin.sources[0].file}:{node.origin.sources[0].line}" if node.origin.sources else ""

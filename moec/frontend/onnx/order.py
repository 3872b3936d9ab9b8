"""Who defines what: execution order of a graph's nodes, duplicate and undefined names, cycles."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

import onnx

from moec.diagnostics import Problem, Where
from moec.frontend.onnx.read import STANDARD, text


class NodeView:
    """A node with the fields that are read more than once taken out of the protobuf, where each reading costs."""

    __slots__ = ("index", "proto", "op_type", "domain", "inputs", "outputs")

    def __init__(self, index: int, proto: onnx.NodeProto):
        self.index, self.proto = index, proto
        self.op_type: str = text(proto.op_type)
        self.domain: str = "" if proto.domain in STANDARD else text(proto.domain)
        self.inputs: list[str] = list(map(text, proto.input))
        """Names of the tensors read; empty for an absent optional one."""
        self.outputs: list[str] = list(map(text, proto.output))


def label(node: onnx.NodeProto) -> str:
    """The node as users know it: its op and its name, or its first output where it has none."""
    name = node.name or (node.output[0] if node.output else "")
    domain = f"{node.domain}." if node.domain else ""
    return f"{domain}{node.op_type} {name}".rstrip()


def place(file: str, node: NodeView) -> Where:
    """The node's place for messages."""
    return Where(file, node=f"node {node.index} ({label(node.proto)})")


def execution_order(
    nodes: Sequence[NodeView], given: Iterable[str], file: str
) -> tuple[Sequence[NodeView], list[Problem]]:
    """The nodes, each after those it reads from, in file order where that is possible.

    ``given`` are the names defined outside: inputs and initializers. Problems: names defined twice, never defined, or
    defined in a circle.
    """
    producer: dict[str, int] = dict.fromkeys(given, -1)
    problems: list[Problem] = []
    sorted_already = True
    for node in nodes:
        if sorted_already:
            for name in node.inputs:
                if name and name not in producer:
                    sorted_already = False
        for name in node.outputs:
            if name:
                if name in producer:
                    problems.append(Problem(f"'{name}' is defined twice", place(file, node), "give it a new name"))
                producer[name] = node.index
    if sorted_already:
        return nodes, problems
    undefined: dict[str, NodeView] = {}
    for node in nodes:
        for name in node.inputs:
            if name and name not in producer:
                undefined.setdefault(name, node)
    for name, node in undefined.items():
        todo = "the file was cut short or edited: export it again"
        problems.append(Problem(f"'{name}' is no node's output, no input and no initializer", place(file, node), todo))
    order, circle = _sort(nodes, producer)
    if circle:
        shown = " -> ".join(f"{i} ({label(nodes[i].proto)})" for i in circle)
        problems.append(
            Problem(f"the graph has a cycle: {shown}", place(file, nodes[circle[0]]), "export the file again")
        )
    return [nodes[i] for i in order], problems


def _sort(nodes: Sequence[NodeView], producer: dict[str, int]) -> tuple[list[int], list[int]]:
    """A stable topological order and, where not all nodes have a place in it, one cycle."""
    waiting = [0] * len(nodes)
    readers: list[list[int]] = [[] for _ in nodes]
    for node in nodes:
        for name in node.inputs:
            source = producer.get(name, -1)
            if source >= 0:
                waiting[node.index] += 1
                readers[source].append(node.index)
    ready = [i for i, n in enumerate(waiting) if n == 0]
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for reader in readers[index]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    return order, _cycle(nodes, producer, waiting)


def _cycle(nodes: Sequence[NodeView], producer: dict[str, int], waiting: list[int]) -> list[int]:
    """One cycle among the nodes still waiting, in the direction of data, its first node repeated at the end."""
    stuck = next((i for i, n in enumerate(waiting) if n), None)
    path: list[int] = []
    seen: dict[int, int] = {}
    while stuck is not None and stuck not in seen:
        seen[stuck] = len(path)
        path.append(stuck)
        sources = (producer.get(name, -1) for name in nodes[stuck].inputs)
        stuck = next((s for s in sources if s >= 0 and waiting[s]), None)
    if stuck is None:
        return []
    circle = path[seen[stuck] :][::-1]
    return [*circle, circle[0]]

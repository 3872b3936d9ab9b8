"""Who defines what: execution order of a graph's nodes, duplicate and undefined names, cycles."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

import onnx

from moec.diagnostics import Problem, Where


def label(node: onnx.NodeProto) -> str:
    """The node as users know it: its op and its name, or its first output where it has none."""
    name = node.name or (node.output[0] if node.output else "")
    domain = f"{node.domain}." if node.domain else ""
    return f"{domain}{node.op_type} {name}".rstrip()


def place(file: str, index: int, node: onnx.NodeProto) -> Where:
    """The node's place for messages."""
    return Where(file, node=f"node {index} ({label(node)})")


def execution_order(
    nodes: Sequence[onnx.NodeProto], given: Iterable[str], file: str
) -> tuple[list[tuple[int, onnx.NodeProto]], list[Problem]]:
    """The nodes with their indices, each after those it reads from, in file order where that is possible.

    ``given`` are the names defined outside: inputs and initializers. Problems: names defined twice, never defined, or defined in a circle.
    """
    producer: dict[str, int] = dict.fromkeys(given, -1)
    problems: list[Problem] = []
    inputs: list[list[str]] = []
    sorted_already = True
    for index, node in enumerate(nodes):
        read = [name for name in node.input if name]
        inputs.append(read)
        if sorted_already:
            for name in read:
                if name not in producer:
                    sorted_already = False
                    break
        for name in node.output:
            if name:
                if name in producer:
                    problems.append(Problem(f"'{name}' is defined twice", place(file, index, node), "give it a new name"))
                producer[name] = index
    if sorted_already:
        return list(enumerate(nodes)), problems
    undefined: dict[str, int] = {}
    for index, read in enumerate(inputs):
        for name in read:
            if name not in producer:
                undefined.setdefault(name, index)
    for name, index in undefined.items():
        todo = "the file was cut short or edited: export it again"
        problems.append(
            Problem(f"'{name}' is no node's output, no input and no initializer", place(file, index, nodes[index]), todo)
        )
    order, circle = _sort(inputs, producer)
    if circle:
        shown = " -> ".join(f"{i} ({label(nodes[i])})" for i in circle)
        problems.append(
            Problem(f"the graph has a cycle: {shown}", place(file, circle[0], nodes[circle[0]]), "export the file again")
        )
    return [(i, nodes[i]) for i in order], problems


def _sort(inputs: list[list[str]], producer: dict[str, int]) -> tuple[list[int], list[int]]:
    """A stable topological order and, where not all nodes have a place in it, one cycle."""
    waiting = [0] * len(inputs)
    readers: list[list[int]] = [[] for _ in inputs]
    for index, read in enumerate(inputs):
        for name in read:
            source = producer.get(name, -1)
            if source >= 0:
                waiting[index] += 1
                readers[source].append(index)
    ready = [i for i, n in enumerate(waiting) if n == 0]
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for reader in readers[index]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    return order, _cycle(inputs, producer, waiting)


def _cycle(inputs: list[list[str]], producer: dict[str, int], waiting: list[int]) -> list[int]:
    stuck = next((i for i, n in enumerate(waiting) if n), None)
    path: list[int] = []
    seen: dict[int, int] = {}
    while stuck is not None and stuck not in seen:
        seen[stuck] = len(path)
        path.append(stuck)
        sources = (producer.get(name, -1) for name in inputs[stuck])
        stuck = next((s for s in sources if s >= 0 and waiting[s]), None)
    return [] if stuck is None else [*path[seen[stuck] :][::-1], path[seen[stuck] :][::-1][0]]

"""Reads of a graph: what each one brings to the host, who wants it there, and what each would need not to.

A value on the host has a *twin* on the device where one can be had: what a read read, and what a host step computes
from twins (its body is ordinary ops, so the device can run it as well).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moec.ir.graph import Graph, Module, Node, Value, merged_origin
from moec.ops.registry import OPS

BLOCKING = "to_host"


@dataclass(frozen=True)
class Reason:
    """A read, and why the host wants what it reads: one text for each use, with the source line."""

    read: Node
    uses: tuple[str, ...]


def reads_of(graph: Graph) -> list[Node]:
    """The blocking reads of a function, in order."""
    return [n for n in graph if n.op == BLOCKING]


def reasons(module: Module, graph: Graph) -> list[Reason]:
    """Each blocking read with its uses, followed through host steps."""
    return [Reason(r, tuple(dict.fromkeys(_uses(module, r.result)))) for r in reads_of(graph)]


def _uses(module: Module, value: Value) -> list[str]:
    found: list[str] = []
    for user in value.uses:
        if user.op == "bind_size":
            found.append(f"size {user.attrs['value']}: shapes and buffers{_at(user)}")
        elif user.op == "all_to_all_v":
            found.append(f"all_to_all_v takes its lists on the host{_at(user)}")
        elif user.op == "host":
            body = module.functions[user.attrs["fn"]]
            given = [p for p, v in zip(body.inputs, user.operands, strict=True) if v is value]
            tainted = tainted_by(body, given)
            for out, result in zip(body.outputs, user.results, strict=True):
                if out in tainted:
                    found += [f"{use}, after a host step" for use in _uses(module, result)]
        elif user.op == "to_device":
            found.append(f"computed on the host for the device{_at(user)}")
        elif user.op == "return":
            found.append("an output of the layer")
        else:
            found.append(f"{user.op} takes it on the host{_at(user)}")
    return found


def _at(node: Node) -> str:
    return f" (line {node.origin.sources[0].line})" if node.origin.sources else ""


def tainted_by(graph: Graph, values: Sequence[Value]) -> set[Value]:
    """The values of a function that depend on some of ``values``; these are in it."""
    found = set(values)
    for node in graph:
        if any(v in found for v in node.operands if v is not None):
            found.update(node.results)
    return found


class Twins:
    """Makes and keeps the device twins of host values of one function."""

    def __init__(self, module: Module, graph: Graph, rewrite: str):
        self.module, self.graph, self.rewrite = module, graph, rewrite
        self.known: dict[Value, Value] = {}
        self.bodies: dict[Node, dict[Value, Value]] = {}
        """For each host step, what its body's values became on the device so far."""

    def has(self, value: Value) -> bool:
        """Whether the device has, or can compute, what ``value`` is on the host."""
        node = value.producer
        if node is None:
            return False
        if node.op in (BLOCKING, "read_wait"):
            return True
        if node.op == "host":
            cone = self._cone(node, value.index)
            body = self.module.functions[node.attrs["fn"]]
            needed = [v for p, v in zip(body.inputs, node.operands, strict=True) if p in cone]
            return all(v is not None and (self.has(v) or _both(v)) for v in needed)
        return _both(value)

    def of(self, value: Value) -> Value:
        """The twin; its nodes stand where the host step stood."""
        if value in self.known:
            return self.known[value]
        node = value.producer
        assert node is not None
        if node.op == BLOCKING:
            found = node.operand(0)
        elif node.op == "read_wait":
            start = node.operand(0).producer
            assert start is not None
            found = start.operand(0)
        elif node.op == "host":
            found = self._computed(node, value.index)
        else:
            found = value
        self.known[value] = found
        return found

    def _cone(self, node: Node, index: int) -> set[Value]:
        """The values of a host step's body that a result needs."""
        body = self.module.functions[node.attrs["fn"]]
        stack, found = [body.outputs[index]], set[Value]()
        while stack:
            v = stack.pop()
            if v not in found:
                found.add(v)
                if v.producer is not None:
                    stack += [o for o in v.producer.operands if o is not None]
        return found

    def _computed(self, node: Node, index: int) -> Value:
        """The body's nodes that a result needs, on the device. Those of several results are made once."""
        body = self.module.functions[node.attrs["fn"]]
        cone = self._cone(node, index)
        made: dict[Value, Value] = self.bodies.setdefault(node, {})
        for p, v in zip(body.inputs, node.operands, strict=True):
            if p in cone and p not in made and v is not None:
                made[p] = self.of(v)
        for inner in body:
            if not any(r in cone for r in inner.results) or inner.results[0] in made:
                continue
            operands = [None if v is None else made[v] for v in inner.operands]
            types = [r.type for r in inner.results]
            origin = merged_origin([inner], self.rewrite)
            copy = self.graph.insert(Node(inner.op, operands, dict(inner.attrs), types, origin), node)
            for old, new in zip(inner.results, copy.results, strict=True):
                new.name = old.name
                made[old] = new
        return made[body.outputs[index]]


def _both(value: Value) -> bool:
    """Whether a value lies on host and device alike."""
    return value.producer is not None and value.producer.op in ("constant", "dims", "iota")


def sweep(module: Module, graph: Graph) -> None:
    """Take out reads, host steps and results of host steps that nobody reads any more."""
    for node in reversed(graph):
        if node.op == "host" and any(v.uses for v in node.results):
            _prune(module, graph, node)
        elif node.op in (BLOCKING, "read_wait", "read_start", "to_device", "host"):
            if not any(v.uses for v in node.results):
                graph.erase(node)
        elif OPS[node.op].traits.isdisjoint(("effect", "opaque", "call", "control")) and not any(
            v.uses for v in node.results
        ):
            graph.erase(node)
    used = {n.attrs["fn"] for g in module.functions.values() for n in g if n.op == "host"}
    mentioned = {f for g in module.functions.values() for n in g if n.op in OPS for f in OPS[n.op].functions(n.attrs)}
    for name in [n for n in module.functions if n not in used | mentioned and n != "main"]:
        del module.functions[name]


def _prune(module: Module, graph: Graph, node: Node) -> None:
    """Let a host step have only the results and operands that somebody reads."""
    body = module.functions[node.attrs["fn"]]
    kept = [i for i, v in enumerate(node.results) if v.uses]
    if len(kept) == len(node.results):
        return
    name = _unused(body.name, module)
    new = module.add(Graph(name))
    inner: dict[Value, Value] = {}
    needed = set[Value]()
    stack = [body.outputs[i] for i in kept]
    while stack:
        v = stack.pop()
        if v not in needed:
            needed.add(v)
            if v.producer is not None:
                stack += [o for o in v.producer.operands if o is not None]
    operands = []
    for p, given_to in zip(body.inputs, node.operands, strict=True):
        if p in needed:
            inner[p] = new.add_input(p.name, p.type)
            operands.append(given_to)
    for each in body:
        if any(r in needed for r in each.results):
            given = [None if v is None else inner[v] for v in each.operands]
            copy = new.append(each.op, given, dict(each.attrs), [r.type for r in each.results], each.origin)
            for old, made in zip(each.results, copy.results, strict=True):
                made.name = old.name
                inner[old] = made
    new.set_outputs([inner[body.outputs[i]] for i in kept], [body.output_names[i] for i in kept])
    types = [node.results[i].type for i in kept]
    step = graph.insert(Node("host", operands, {"fn": name}, types, node.origin), node)
    for i, made in zip(kept, step.results, strict=True):
        made.name = node.results[i].name
        node.results[i].replace_with(made)
    graph.erase(node)


def _unused(base: str, module: Module) -> str:
    stem, number = base.split(".")[0], 1
    while f"{stem}.{number}" in module.functions:
        number += 1
    return f"{stem}.{number}"

"""Maximal groups of row-wise vector nodes become one kernel each.

A group shares a row space (``moec.ops.rowspace`` says what a body may hold and how values lie in it) and becomes one
``fused`` node whose body is a function of the module. Casts stay as they are: the kernel rounds where the nodes did.
Norms and softmax over the last dimension are first spelt in elementwise ops and row reductions. Equal bodies are one
function. A value that is read outside is a result of the kernel; one-element constants go into the body, all else that
comes from outside is an input.

Groups are such that each can run as a whole before or after any other node. Every node has a stage, which never falls
along an edge and grows along every edge that leaves a group; a node joins, and thereby merges, only the groups of its
latest operands, whose stage it gets. A cycle through groups would have to leave one and come back to the same stage, so
there is none. From the end, a group all of whose outside readers lie in one other group then joins that. All of this is
linear in the graph.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from moec.ir.graph import Graph, Module, Node, Value, merged_origin
from moec.ir.symbol import Shape
from moec.ir.text import print_graph
from moec.ops.build import Builder
from moec.ops.places import host_functions
from moec.ops.rowspace import common_shape, form, may_fuse
from moec.passes.base import Context, Pass, Result, register_pass
from moec.passes.effects import called, effectful_functions, ordered_after
from moec.passes.rule_pass import run_rules
from moec.passes.rules_rows import ROW_RULES


@register_pass
class FuseVector(Pass):
    """Fuse elementwise ops, casts, broadcasts and row reductions over one row space into one kernel.

    A kernel reads at most ``max_inputs`` tensors, writes at most ``max_outputs`` and holds at most ``max_nodes`` nodes;
    a group of fewer than ``min_nodes`` stays as it is. What the host runs has no kernels.
    """

    name = "fuse-vector"
    max_inputs: int = 8
    max_outputs: int = 4
    max_nodes: int = 32
    min_nodes: int = 1

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        bodies = {name for n in module.nodes() if n.op == "fused" for name in called(n)}
        names = _BodyNames(module, bodies)
        apart = bodies | host_functions(module)
        effects = effectful_functions(module)
        for graph in [g for name, g in module.functions.items() if name not in apart]:
            run_rules(ROW_RULES, graph, context, result)
            behind = ordered_after(graph, effects)
            groups = _Grouping(graph, self, behind).groups()
            kept = [g for g in groups if len(g.nodes) >= self.min_nodes]
            if kept:
                _reorder(graph, kept, behind)
                for group in kept:
                    _outline(group, graph, module, names, result)
        return result


class Outliner:
    """Makes kernels of sets of nodes of one function that a caller chose, one at a time."""

    def __init__(self, graph: Graph, module: Module, limits: FuseVector, result: Result):
        self.graph, self.module, self.limits, self.result = graph, module, limits, result
        self.names = _BodyNames(module, {name for n in module.nodes() if n.op == "fused" for name in called(n)})
        self.behind = ordered_after(graph, effectful_functions(module))
        self.place: dict[Node, float] = {n: float(i) for i, n in enumerate(graph)}
        """Where each node stands: numbers that rise along the graph."""

    def sorted(self, nodes: Iterable[Node]) -> list[Node]:
        """Nodes in the order in which they stand, each once."""
        return sorted(dict.fromkeys(nodes), key=self.place.__getitem__)

    def outline(self, nodes: Sequence[Node], name: str) -> bool:
        """Replace ``nodes`` (in order) by one ``fused`` node under the rule ``name``; whether that can be.

        They must share a row space, keep within the limits, and be able to run as a whole: nothing outside may depend
        on some and be read by others.
        """
        if not nodes or not all(map(may_fuse, nodes)) or len(nodes) > self.limits.max_nodes:
            return False
        group = _group_from(list(nodes))
        shared = common_shape(group.shapes) is not None and all(form(s, group.full) is not None for s in group.shapes)
        few = len(group.inputs) <= self.limits.max_inputs and len(group.outputs()) <= self.limits.max_outputs
        later = self._dependents(group) if shared and few else None
        if later is None:
            return False
        anchor = group.nodes[-1].next
        start = self.place[group.nodes[-1]]
        gap = (self.place[anchor] if anchor is not None else start + 1) - start
        for i, node in enumerate(later, 1):
            self.graph.move(node, anchor)
            self.place[node] = start + gap * i / (len(later) + 1)
        for node in group.nodes[:-1]:
            self.graph.move(node, group.nodes[-1])
        _outline(group, self.graph, self.module, self.names, self.result, name)
        following = later[0] if later else anchor
        made = self.graph.last if following is None else following.prev
        assert made is not None
        self.place[made] = start
        return True

    def convex(self, nodes: Sequence[Node]) -> bool:
        """Whether nothing outside ``nodes`` (in order) depends on some of them and is read by others."""
        return self._dependents(_group_from(list(nodes))) is not None

    def _dependents(self, group: _Group) -> list[Node] | None:
        """The nodes between the group's that depend on it, in order; None where the group depends on one of them."""
        inside, found = set(group.nodes), []
        tainted = {group.nodes[0]}
        node = group.nodes[0].next
        while node is not None and node is not group.nodes[-1].next:
            read = [v.producer for v in node.operands if v is not None] + self.behind.get(node, [])
            if node in inside:
                if any(p in tainted and p not in inside for p in read):
                    return None
                tainted.add(node)
            elif any(p in tainted for p in read):
                tainted.add(node)
                found.append(node)
            node = node.next
        return found


@dataclass(eq=False)
class _Group:
    """Nodes that are to be one kernel. ``shapes``: the distinct shapes of their values; ``full``: what they broadcast
    to.
    """

    nodes: list[Node]
    full: Shape
    shapes: dict[Shape, None]
    inputs: dict[Value, None]
    merged: _Group | None = None

    def root(self) -> _Group:
        """The group that this one was merged into."""
        group = self
        while group.merged is not None:
            if group.merged.merged is not None:
                group.merged = group.merged.merged
            group = group.merged
        return group

    def outputs(self) -> list[Value]:
        """The values that are read outside, in order of definition."""
        inside = set(self.nodes)
        return [v for n in self.nodes for v in n.results if any(u not in inside for u in v.uses)]


class _Grouping:
    """Assigns the nodes of one function to groups."""

    def __init__(self, graph: Graph, limits: FuseVector, behind: dict[Node, list[Node]]):
        self.graph, self.limits, self.behind = graph, limits, behind
        self.order: dict[Node, int] = {}
        self.stage: dict[Node, int] = {}
        self.group: dict[Node, _Group] = {}

    def groups(self) -> list[_Group]:
        """The groups in order of their first node, each one's nodes in order, all within the limits."""
        for i, node in enumerate(self.graph):
            self.order[node] = i
            self.place(node)
        self.sink()
        found = [g.root() for g in self.group.values()]
        for g in dict.fromkeys(found):
            g.nodes.sort(key=self.order.__getitem__)
        return [part for g in dict.fromkeys(found) for part in self.within(g)]

    def within(self, group: _Group) -> list[_Group]:
        """The group, or its first and second halves where it writes or reads too much; halves of a convex group are
        convex.
        """
        if len(group.outputs()) <= self.limits.max_outputs and len(group.inputs) <= self.limits.max_inputs:
            return [group]
        if len(group.nodes) == 1:
            return [group]
        half = len(group.nodes) // 2
        return [p for nodes in (group.nodes[:half], group.nodes[half:]) for p in self.within(_group_from(nodes))]

    def place(self, node: Node) -> None:
        """Give the node a stage and, if it may be fused, a group."""
        producers = [v.producer for v in node.operands if v is not None and v.producer is not None]
        producers += self.behind.get(node, ())
        latest = max((self.stage[p] for p in producers), default=0)
        late = dict.fromkeys(g for p in producers if self.stage[p] == latest and (g := self.group_of(p)) is not None)
        new = _group_of(node) if may_fuse(node) else None
        together = self.union([*late, new]) if new is not None else None
        if together is None:
            self.stage[node] = latest + 1 if late else latest
        else:
            self.stage[node] = latest
            new = together
        if new is not None:
            self.group[node] = new

    def union(self, groups: list[_Group]) -> _Group | None:
        """Merge groups of one stage; None where they share no row space or exceed the limits."""
        full = common_shape([g.full for g in groups])
        if full is None or any(form(s, full) is None for g in groups for s in g.shapes):
            return None
        nodes = sum(len(g.nodes) for g in groups)
        if nodes > self.limits.max_nodes:
            return None
        made = set().union(*(g.nodes for g in groups))
        inputs = {v: None for g in groups for v in g.inputs if v.producer not in made}
        if len(inputs) > self.limits.max_inputs:
            return None
        largest = max(groups, key=lambda g: len(g.nodes))
        for g in groups:
            if g is not largest:
                largest.nodes += g.nodes
                largest.shapes.update(g.shapes)
                g.merged = largest
        largest.full, largest.inputs = full, inputs
        return largest

    def sink(self) -> None:
        """From the end: a group all of whose outside readers lie in one other group joins it."""
        for g in reversed(list(dict.fromkeys(x.root() for x in self.group.values()))):
            readers = dict.fromkeys(u for v in g.outputs() for u in v.uses if self.group_of(u) is not g)
            targets = dict.fromkeys(self.group_of(u) for u in readers)
            target = next(iter(targets)) if len(targets) == 1 else None
            if target is not None:
                self.union([target, g])

    def group_of(self, node: Node) -> _Group | None:
        found = self.group.get(node)
        return None if found is None else found.root()


def _group_of(node: Node) -> _Group | None:
    """A group of one node; None where its values share no row space."""
    group = _group_from([node])
    return group if all(form(s, group.full) is not None for s in group.shapes) else None


def _group_from(nodes: list[Node]) -> _Group:
    inside = set(nodes)
    values = [v for n in nodes for v in n.operands if v is not None]
    inputs = {v: None for v in values if v.producer not in inside and not _inline(v)}
    shapes = {v.type.dims: None for v in (*values, *(v for n in nodes for v in n.results))}
    return _Group(list(nodes), common_shape(shapes) or (), shapes, inputs)


def _inline(value: Value) -> bool:
    """Whether the value is a constant of one element, which goes into the body."""
    node = value.producer
    return node is not None and node.op == "constant" and node.attrs["value"].size == 1


Unit = _Group | Node


def _reorder(graph: Graph, groups: list[_Group], behind: dict[Node, list[Node]]) -> None:
    """Put the nodes of each group one after another, keeping to the order as far as operands, effects and sizes that
    data decides allow it.
    """
    unit_of: dict[Node, Unit] = {n: g for g in groups for n in g.nodes}
    nodes_of: dict[Unit, list[Node]] = {}
    for node in graph:
        nodes_of.setdefault(unit_of.get(node, node), []).append(node)
    number = {unit: i for i, unit in enumerate(nodes_of)}
    waits: dict[Unit, int] = dict.fromkeys(nodes_of, 0)
    after: dict[Unit, dict[Unit, None]] = {}
    for unit, nodes in nodes_of.items():
        producers = [v.producer for n in nodes for v in n.operands if v is not None and v.producer is not None]
        producers += [p for n in nodes for p in behind.get(n, ())]
        for before in dict.fromkeys(unit_of.get(p, p) for p in producers):
            if before is not unit:
                after.setdefault(before, {})[unit] = None
                waits[unit] += 1
    ready = [number[u] for u, count in waits.items() if not count]
    units = list(nodes_of)
    heapq.heapify(ready)
    while ready:
        unit = units[heapq.heappop(ready)]
        for node in nodes_of[unit]:
            graph.move(node, None)
        for later in after.get(unit, ()):
            waits[later] -= 1
            if not waits[later]:
                heapq.heappush(ready, number[later])


class _BodyNames:
    """The functions of fused bodies by their text, so that equal bodies are one function."""

    def __init__(self, module: Module, bodies: set[str]):
        self.module = module
        self.known = {self.text(g): name for name, g in module.functions.items() if name in bodies}

    @staticmethod
    def text(body: Graph) -> str:
        """The body's text, its name left out."""
        return print_graph(body).partition("(")[2]

    def function(self, body: Graph) -> str:
        """The name of the function with this body, which joins the module if it is new."""
        text = self.text(body)
        if text not in self.known:
            ops = list(dict.fromkeys(n.op for n in body if n.op != "constant"))
            stem = "vec_" + "_".join(op.removeprefix("reduce_") for op in ops[:3])
            body.name, count = stem, 1
            while body.name in self.module.functions:
                count += 1
                body.name = f"{stem}_{count}"
            self.module.add(body)
            self.known[text] = body.name
        return self.known[text]


def _outline(
    group: _Group, graph: Graph, module: Module, names: _BodyNames, result: Result, name: str = FuseVector.name
) -> None:
    """Replace the group by one ``fused`` node, by the rule ``name``."""
    group, outputs = _group_from(group.nodes), group.outputs()  # its inputs may by now be results of other kernels
    fn = names.function(_body(group, outputs))
    origin = merged_origin(group.nodes, name)
    made = Builder(graph, group.nodes[0], origin).call(module, fn, *group.inputs, op="fused")
    for old, new in zip(outputs, made, strict=True):
        new.name = old.name
        old.replace_with(new)
    for node in reversed(group.nodes):
        graph.erase(node)
    result.apply(name, origin, graph)


def _body(group: _Group, outputs: list[Value]) -> Graph:
    """The group as a function; its inputs are a0, a1, ... and its results y0, y1, ..."""
    body = Graph("fused")
    values = {v: body.add_input(f"a{i}", v.type) for i, v in enumerate(group.inputs)}
    for node in group.nodes:
        for v in node.operands:
            if v is not None and v not in values:
                constant = v.producer
                assert constant is not None
                values[v] = body.append("constant", [], dict(constant.attrs), [v.type], constant.origin).result
        operands = [None if v is None else values[v] for v in node.operands]
        types = [v.type for v in node.results]
        made = body.append(node.op, operands, dict(node.attrs), types, node.origin)
        values.update(zip(node.results, made.results, strict=True))
    body.set_outputs([values[v] for v in outputs], [f"y{i}" for i in range(len(outputs))])
    return body

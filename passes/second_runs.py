"""Second runs: what backward computes again of forward, behind the edges that hold it back until then."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moec.ir.graph import Node, Value, merged_origin
from moec.ops.build import Builder
from moec.ops.registry import opdef
from moec.passes.base import Result
from moec.passes.saved import Joint

SOURCES = ("weight", "constant", "dims", "iota")
"""Ops whose results are there whenever they are wanted."""


class SecondRuns:
    """The second runs of one graph: ``name`` is the pass that wants them. ``kept`` are the saved values with their
    saves; a value that is not among them, and that a second run reads, is itself computed again where ``again`` says
    so, and saved from now on where not.
    """

    def __init__(self, joint: Joint, name: str, again: Callable[[Value], bool], result: Result):
        self.joint, self.graph, self.name, self.again, self.result = joint, joint.graph, name, again, result
        self.kept = {s.operand(0): s for s in joint.saves}
        self._made: dict[Value, Value] = {}
        self._fences: dict[tuple[Value, Node], Value] = {}

    def replace(self, saves: Sequence[Node]) -> None:
        """Keep the values of ``saves`` no longer: each is computed again right before its first reader."""
        points = {s: self.joint.first_reader(s.result) for s in saves}
        for save in saves:
            del self.kept[save.operand(0)]
        for save in sorted(saves, key=lambda s: -1 if (p := points[s]) is None else self.joint.position[p]):
            point = points[save]
            if point is not None:
                save.result.replace_with(self._provide(save.operand(0), point))
            self.result.apply(self.name, merged_origin([save], self.name), self.graph)
            self.graph.erase(save)

    def save(self, value: Value) -> Node:
        """A new save of ``value``, right behind what makes it."""
        node = value.producer
        assert node is not None
        name = value.name or node.op
        taken = {s.attrs["name"] for s in self.kept.values()}
        unique = next(n for n in (name, *(f"{name}.{i}" for i in range(2, len(taken) + 3))) if n not in taken)
        made = Builder(self.graph, node.next, merged_origin([node], self.name)).node("save", value, name=unique)
        self.kept[value] = made
        return made

    def is_there(self, v: Value) -> bool:
        """Whether a value is given, or a view of what is."""
        while v.producer is not None and opdef(v.producer.op).cost == "view" and v.producer.operands:
            v = v.producer.operand(0)
        return v.producer is None or v.producer.op in SOURCES

    def _provide(self, value: Value, point: Node) -> Value:
        """``value`` as backward has it at ``point``: saved, given, or computed again there."""
        if value in self._made:
            return self._made[value]
        if value in self.kept:
            return self._held(self.kept[value].result, point)
        if self.is_there(value):
            return value
        node = value.producer
        assert node is not None
        if not self.again(value):
            return self._held(self.save(value).result, point)
        lists = opdef(node.op).host_operands if "collective" in opdef(node.op).traits else ()
        pairs = opdef(node.op).pairs(node.operands)
        operands = [
            None if v is None else self._list(v) if o.name in lists else self._provide(v, point) for o, v in pairs
        ]
        if all(v is None or self.is_there(v) for v in operands):
            operands = [None if v is None else self._held(v, point) for v in operands]
        origin = merged_origin([node], self.name)
        copy = Node(node.op, operands, dict(node.attrs), [r.type for r in node.results], origin)
        self.graph.insert(copy, point)
        for old, new in zip(node.results, copy.results, strict=True):
            self._made.setdefault(old, new)
        return self._made[value]

    def _list(self, value: Value) -> Value:
        """A list of rows that a collective takes on the host, where no edge holds it back: as it was the first time."""
        if self.is_there(value):
            return value
        return (self.kept[value] if value in self.kept else self.save(value)).result

    def _held(self, value: Value, point: Node) -> Value:
        """``value`` held back until backward has come to ``point``."""
        if value.producer is not None and value.producer.op in SOURCES:
            return value
        key = value, point
        if key not in self._fences:
            origin = merged_origin([point], self.name)
            self._fences[key] = Builder(self.graph, point, origin).after(value, self.joint.trigger(point))
        return self._fences[key]

"""Computing chosen activations a second time, in backward, instead of keeping them."""

from __future__ import annotations

from moec.ir.graph import Graph, Module, Node, Value, merged_origin
from moec.ir.symbol import evaluate
from moec.ops.build import Builder
from moec.ops.registry import opdef
from moec.passes.base import Context, Pass, Result, register_pass
from moec.passes.saved import KINDS, MOVES, Joint, kind_of, select
from moec.sizes import complete_sizes

ROUTING = "a choice of experts is never made again: a near-tie could fall the other way"


@register_pass
class Recompute(Pass):
    """Compute saved values again right before backward reads them, and keep them no longer.

    ``what`` joins with "+" kinds of saves (act, norm, mla_up, permute), names of saves, or all. What the second run
    reads is itself saved already, computed again too, or saved instead; where that would keep no fewer bytes, nothing
    is done. Choices of experts, counts and permutations are refused. Of a training graph; calls are to be inlined.
    """

    name = "recompute"
    what: str = ""

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        joint = Joint(module.main)
        wanted = [w.strip() for w in self.what.split("+") if w.strip()]
        allowed = [n for n in select(joint, wanted) if not _refuse(n, result, module.main)]
        sizes = complete_sizes(module, dict(context.tune))
        _Again(joint, allowed, frozenset(KINDS.keys() & set(wanted)), sizes, result).run()
        return result


def _refuse(save: Node, result: Result, graph: Graph) -> bool:
    kind = kind_of(save.operand(0))
    producer = save.operand(0).producer
    reason = ""
    if kind == "routing":
        reason = ROUTING
    elif producer is None:
        reason = "it is given, not computed"
    elif opdef(producer.op).traits & {"effect", "collective", "call"}:
        reason = f"{producer.op} may not run a second time"
    if reason:
        result.miss("recompute", f"{save.attrs['name']}: {reason}", [save], graph)
    return bool(reason)


class _Again:
    """The second runs of one graph."""

    def __init__(self, joint: Joint, chosen: list[Node], kinds: frozenset[str], sizes: dict[str, int], result: Result):
        self.joint, self.graph, self.sizes, self.result = joint, joint.graph, sizes, result
        self.kinds = kinds
        self.kept = {s.operand(0): s for s in joint.saves}
        self.position = joint.position
        points = {s: joint.first_reader(s.result) for s in chosen}
        self.points = {s: p for s, p in points.items() if p is not None}
        self.dropped: set[Value] = set()
        self.made: dict[Value, Value] = {}
        self.fences: dict[tuple[Value, Node], Value] = {}

    def run(self) -> None:
        worth = self.worthwhile(list(self.points))
        self.dropped = {s.operand(0) for s in worth}
        for save in worth:
            del self.kept[save.operand(0)]
        for save in sorted(worth, key=lambda s: self.position[self.points[s]]):
            self.replace(save)

    def bytes(self, value: Value) -> int:
        return int(evaluate(value.type.numel() * value.type.dtype.bits, self.sizes)) // 8

    def worthwhile(self, saves: list[Node]) -> list[Node]:
        """Those of ``saves`` for which fewer bytes are newly kept than dropped; the others are told as misses. In order
        of forward: what stays is there for those behind it.
        """
        dropped: set[Value] = set()
        worth = []
        for save in saves:
            new: dict[Value, None] = {}
            self.wanted(save.operand(0), dropped | {save.operand(0)}, new, set())
            gained, paid = self.bytes(save.operand(0)), sum(map(self.bytes, new))
            if paid < gained:
                worth.append(save)
                dropped.add(save.operand(0))
                continue
            names = ", ".join(f"{v.name or v.producer.op if v.producer else v.name}" for v in new)
            reason = (
                f"{save.attrs['name']}: it takes {gained:,} bytes, and to compute it again {names} of {paid:,} bytes"
            )
            self.result.miss("recompute", reason + " would be kept", [save], self.graph)
        return worth

    def wanted(self, value: Value, dropped: set[Value], new: dict[Value, None], seen: set[Value]) -> None:
        """Collect what would have to be saved besides, so that ``value`` can be computed again."""
        if value in seen:
            return
        seen.add(value)
        assert value.producer is not None
        for v in value.producer.operands:
            if v is None or self.is_there(v) or (v in self.kept and v not in dropped):
                continue
            if v in dropped or self.is_cheap(v):
                self.wanted(v, dropped, new, seen)
            else:
                new[v] = None

    def is_cheap(self, value: Value) -> bool:
        """Whether a value is computed again, too, rather than saved, where the second run of another reads it."""
        node = value.producer
        if node is None or opdef(node.op).traits & {"effect", "collective", "call", "index"}:
            return False
        if node.op in MOVES or opdef(node.op).cost == "view" or "elementwise" in opdef(node.op).traits:
            return True
        return kind_of(value) in self.kinds

    def is_there(self, v: Value) -> bool:
        return v.producer is None or v.producer.op in ("weight", "constant", "dims", "iota") or _of_given(v)

    def replace(self, save: Node) -> None:
        point = self.points[save]
        again = self.provide(save.operand(0), point)
        origin = merged_origin([save], "recompute")
        save.result.replace_with(again)
        self.graph.erase(save)
        self.result.apply("recompute", origin, self.graph)

    def provide(self, value: Value, point: Node) -> Value:
        """``value`` as backward has it at ``point``: saved, given, or computed again there."""
        if value in self.made:
            return self.made[value]
        if value in self.kept:
            return self.held(self.kept[value].result, point)
        if self.is_there(value):
            return value
        node = value.producer
        assert node is not None
        if not (self.is_cheap(value) or value in self.dropped):
            return self.held(self.save(value).result, point)
        operands = [None if v is None else self.provide(v, point) for v in node.operands]
        if all(v is None or self.is_there(v) for v in operands):
            operands = [None if v is None else self.held(v, point) for v in operands]
        copy = Node(
            node.op, operands, dict(node.attrs), [r.type for r in node.results], merged_origin([node], "recompute")
        )
        self.graph.insert(copy, point)
        for old, new in zip(node.results, copy.results, strict=True):
            self.made.setdefault(old, new)
        return self.made[value]

    def held(self, value: Value, point: Node) -> Value:
        """``value`` held back until backward has come to ``point``."""
        if value.producer is not None and value.producer.op in ("weight", "constant", "dims", "iota"):
            return value
        key = value, point
        if key not in self.fences:
            origin = merged_origin([point], "recompute")
            self.fences[key] = Builder(self.graph, point, origin).after(value, self.joint.trigger(point))
        return self.fences[key]

    def save(self, value: Value) -> Node:
        """A new save of ``value``, right behind what makes it."""
        node = value.producer
        assert node is not None
        name = value.name or node.op
        taken = {s.attrs["name"] for s in self.kept.values()}
        unique = next(n for n in (name, *(f"{name}.{i}" for i in range(2, len(taken) + 3))) if n not in taken)
        made = Builder(self.graph, node.next, merged_origin([node], "recompute")).node("save", value, name=unique)
        self.kept[value] = made
        return made


def _of_given(v: Value) -> bool:
    """Whether a value is a view of an input or weight."""
    while v.producer is not None and opdef(v.producer.op).cost == "view" and v.producer.operands:
        v = v.producer.operand(0)
    return v.producer is None or v.producer.op in ("weight", "constant")

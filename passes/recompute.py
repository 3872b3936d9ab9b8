"""Computing chosen activations a second time, in backward, instead of keeping them."""

from __future__ import annotations

from dataclasses import dataclass

from moec.ir.graph import Graph, Module, Node, Value
from moec.ir.symbol import evaluate
from moec.ops.registry import opdef
from moec.passes.base import Context, Pass, Result, register_pass
from moec.passes.saved import EXCHANGES, KINDS, MOVES, Joint, kind_of, select
from moec.passes.second_runs import SecondRuns
from moec.sizes import complete_sizes
from moec.timeline.balance import balanced_sizes

ROUTING = "a choice of experts is never made again: a near-tie could fall the other way"


@register_pass
class Recompute(Pass):
    """Compute saved values again right before backward reads them, and keep them no longer.

    ``what`` joins with "+" kinds of saves (act, norm, mla_up, permute, dispatch, gathered), names of saves, or all.
    What the second run reads is itself saved already, computed again too, or saved instead; where that would keep no
    fewer bytes, nothing is done. Choices of experts, counts and permutations are refused. Collectives run again only
    for dispatch (the exchange that brings rows to their experts, with the lists of the first time) and gathered. Of a
    training graph; calls are to be inlined.
    """

    name = "recompute"
    what: str = ""

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        joint = Joint(module.main)
        wanted = [w.strip() for w in self.what.split("+") if w.strip()]
        kinds = frozenset(KINDS.keys() & set(wanted))
        if "dispatch" in kinds:
            kinds |= {"permute"}
        allowed = [n for n in select(joint, wanted) if not _refuse(n, kinds, result, module.main)]
        sizes = balanced_sizes(module, complete_sizes(module, dict(context.tune)))
        dropped: set[Value] = set()
        runs = SecondRuns(joint, self.name, lambda v: v in dropped or is_cheap(v, kinds), result)
        runs.replace(_Balance(runs, kinds, sizes, dropped).worthwhile(allowed))
        return result


def _refuse(save: Node, kinds: frozenset[str], result: Result, graph: Graph) -> bool:
    kind = kind_of(save.operand(0))
    producer = save.operand(0).producer
    reason = ""
    if kind == "routing":
        reason = ROUTING
    elif producer is None:
        reason = "it is given, not computed"
    elif opdef(producer.op).traits & {"effect", "collective", "call"} and not _exchanged_again(producer, kind, kinds):
        reason = f"{producer.op} may not run a second time"
        reason += f" unless '{kind}' is named" if producer.op in EXCHANGES.get(kind, ()) else ""
    if reason:
        result.miss("recompute", f"{save.attrs['name']}: {reason}", [save], graph)
    return bool(reason)


def _exchanged_again(node: Node, kind: str, kinds: frozenset[str]) -> bool:
    """Whether a collective that makes a value of ``kind`` may run again where a user named ``kinds``."""
    return kind in kinds and node.op in EXCHANGES.get(kind, ())


def is_cheap(value: Value, kinds: frozenset[str]) -> bool:
    """Whether a value is computed again, too, rather than saved, where the second run of another reads it."""
    node = value.producer
    if node is not None and _exchanged_again(node, kind_of(value), kinds):
        return True
    if node is None or opdef(node.op).traits & {"effect", "collective", "call", "index"}:
        return False
    if node.op in MOVES or opdef(node.op).cost == "view" or "elementwise" in opdef(node.op).traits:
        return True
    return kind_of(value) in kinds


@dataclass
class _Balance:
    """What is gained and what is paid for by not keeping a value."""

    runs: SecondRuns
    kinds: frozenset[str]
    sizes: dict[str, int]
    dropped: set[Value]

    def worthwhile(self, saves: list[Node]) -> list[Node]:
        """Those of ``saves`` for which fewer bytes are newly kept than dropped, added to ``dropped``; the others are
        told as misses. In order of forward: what stays is there for those behind it.
        """
        worth = []
        for save in saves:
            value = save.operand(0)
            new: dict[Value, None] = {}
            self.wanted(value, {*self.dropped, value}, new, set())
            gained, paid = self.bytes(value), sum(map(self.bytes, new))
            if paid < gained:
                worth.append(save)
                self.dropped.add(value)
                continue
            names = ", ".join(f"{v.name or v.producer.op if v.producer else v.name}" for v in new)
            what = f"{save.attrs['name']}: it takes {gained:,} bytes, and to compute it again {names} of {paid:,} bytes"
            self.runs.result.miss("recompute", what + " would be kept", [save], self.runs.graph)
        return worth

    def wanted(self, value: Value, dropped: set[Value], new: dict[Value, None], seen: set[Value]) -> None:
        """Collect what would have to be saved besides, so that ``value`` can be computed again."""
        if value in seen:
            return
        seen.add(value)
        assert value.producer is not None
        for v in value.producer.operands:
            if v is None or self.runs.is_there(v) or (v in self.runs.kept and v not in dropped):
                continue
            if v in dropped or is_cheap(v, self.kinds):
                self.wanted(v, dropped, new, seen)
            else:
                new[v] = None

    def bytes(self, value: Value) -> int:
        return int(evaluate(value.type.numel() * value.type.dtype.bits, self.sizes)) // 8

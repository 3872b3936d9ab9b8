"""What a target says a piece of a graph takes, and rule passes that rewrite only where that gets faster.

Nodes are priced one by one through ``Target.estimate``; views, constants and weights cost nothing. Row-wise nodes that
follow one another are one kernel, since ``fuse-vector`` makes one of them: one launch, and of each node's work the
share of its bytes that enter or leave the kernel. Nothing is priced where there is no target, where a size is not
known, or where the target cannot say how long an op takes; such a rewrite is applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from moec.diagnostics import Refusal
from moec.ir.graph import Module, Node, Value
from moec.ir.symbol import Dim, Expr, evaluate, symbols_of
from moec.ir.types import TensorType
from moec.ops.registry import opdef
from moec.ops.rowspace import may_fuse
from moec.passes.base import Context, Result
from moec.passes.rule_pass import RulePass, run_rules, witness_prover
from moec.rewrite.engine import Prover
from moec.rewrite.match import Match
from moec.rewrite.prove import module_of
from moec.rewrite.term import NoMatch, Term
from moec.target import KernelTime

FREE = ("constant", "weight", "save")
"""Ops that move and compute nothing, besides views."""

COPIES = ("concat", "expand", "pad")
"""Copies that a rewrite of all their readers takes away."""

SPELT_ROW_WISE = ("rms_norm", "layer_norm", "softmax", "log_softmax")
"""Ops that are spelt row-wise before they are fused."""


def price(nodes: Sequence[Node], context: Context) -> float | None:
    """Microseconds that ``nodes`` take on the context's target one after the other, launches included.

    None where there is no target or it cannot say.
    """
    if context.target is None:
        return None
    total = 0.0
    for kernel in _kernels([n for n in nodes if not _free(n)]):
        us = _kernel_price(kernel, context)
        if us is None:
            return None
        total += us
    return total


def shares(nodes: Sequence[Node], context: Context) -> dict[Node, float]:
    """Microseconds of each of ``nodes`` that is part of a row-wise kernel of several: of its own work the share that
    reads and writes outside, and an equal part of the launch. Others, and what the target cannot time, have none.
    """
    found: dict[Node, float] = {}
    for kernel in _kernels([n for n in nodes if not _free(n)]):
        times = [_estimate(n, context) for n in kernel] if len(kernel) > 1 else []
        known = [t for t in times if t is not None]
        if not known or len(known) < len(kernel):
            continue
        launch, inside = max(t.launch_us for t in known) / len(kernel), set(kernel)
        for node, t in zip(kernel, known, strict=True):
            found[node] = launch + max(t.us - t.launch_us, 0.0) * _share(node, inside, context)
    return found


def dying(nodes: Sequence[Node], replaced: Sequence[Value]) -> list[Node]:
    """The ``nodes`` (operands first) that nobody needs once the ``replaced`` values have no readers."""
    gone = set(replaced)
    dead: set[Node] = set()
    for node in reversed(nodes):
        if all(v in gone or all(u in dead for u in v.uses) for v in node.results):
            dead.add(node)
    return [n for n in nodes if n in dead]


def slower(before: Sequence[Node], after: Sequence[Node], context: Context, credit: float = 0.0) -> str:
    """Why ``after`` must not take the place of ``before``, with both prices; the empty string where it may.

    ``credit``: microseconds that go away besides.
    """
    old, new = price(before, context), price(after, context)
    if old is None or new is None or new <= old + credit:
        return ""
    old += credit
    digits = 1 if f"{new:.1f}" != f"{old:.1f}" else 3
    return f"on {context.target.name} it would take {new:.{digits}f} us, and takes {old:.{digits}f} us as it is"


class PriceProver:
    """A prover for the engine that refuses matches whose after side takes longer, then asks ``then``.

    What the match replaces counts as far as it goes away: a copy that others read too (``COPIES``) counts by its share
    of readers, since those are rewritten the same way. A concatenation that only slices of its parts will read is not
    made, and neither are the slices. Nothing is counted for what is made of the operands ``laid_out`` alone, weights
    that are laid out at compile time.
    """

    def __init__(self, context: Context, then: Prover | None = None, laid_out: Sequence[str] = ()):
        self.context, self.then, self.laid_out = context, then, laid_out
        self.known: dict[Any, str] = {}

    def __call__(self, match: Match) -> str:
        if self.context.target is not None:
            gone = dying(match.nodes, match.outputs)
            kept = [n for n in match.nodes if n not in gone and n.op in COPIES]
            cuts = [cut_readers(v, t) for v, t in zip(match.outputs, match.instance.after, strict=True)]
            key = (
                match.rule.name,
                tuple((n, v.type) for n, v in match.operands.items()),
                tuple(sorted((k, str(v)) for k, v in match.attrs.items())),
                tuple((n in gone, sum(len(v.uses) for v in n.results) if n in kept else 0) for n in match.nodes),
                tuple(map(len, cuts)),
            )
            if key not in self.known:
                self.known[key] = self._slower(match, gone, kept, cuts)
            if reason := self.known[key]:
                raise NoMatch(reason)
        return self.then(match) if self.then is not None else ""

    def _slower(self, match: Match, gone: list[Node], kept: list[Node], cuts: list[list[Node]]) -> str:
        after = module_of(match.instance.after, {name: v.type for name, v in match.operands.items()}).main
        unmade = {v.producer for v, found in zip(after.outputs, cuts, strict=True) if found}
        fixed = {v for v in after.inputs if v.name in self.laid_out}
        unmade |= {n for n in after if n.operands and fixed.issuperset(n.operands)}
        before = [*gone, *(n for found in cuts for n in found)]
        credit = sum((price([n], self.context) or 0.0) / len(n.result.uses) for n in kept)
        return slower(before, [n for n in after if n not in unmade], self.context, credit)


def cut_readers(value: Value, term: Term) -> list[Node]:
    """The readers of ``value`` where all of them cut out parts of the concatenation that ``term`` makes of it."""
    apply = term.apply
    if apply is None or apply.op != "concat":
        return []
    axis = apply.attrs["axis"]
    at: Dim = 0
    parts: list[tuple[Dim, Dim]] = []
    for part in apply.operands:
        assert part is not None
        parts.append((at, at + part.shape[axis]))
        at = parts[-1][1]
    found = list(value.uses)
    ok = all(n.op == "slice" and n.attrs["axis"] == axis and n.attrs["step"] == 1 for n in found)
    return found if ok and all((n.attrs["start"], n.attrs["stop"]) in parts for n in found) else []


@dataclass(frozen=True)
class PricedRulePass(RulePass):
    """Base of passes whose rules are applied only where the target says that this is no slower."""

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        self.run_priced(module, context, result)
        return result

    def run_priced(self, module: Module, context: Context, result: Result) -> None:
        """Apply the rules to every function."""
        prover = PriceProver(context, witness_prover(context))
        for graph in module.functions.values():
            run_rules(self.rules(), graph, context, result, prover)


def _free(node: Node) -> bool:
    return node.op in FREE or "view" in opdef(node.op).traits


def _row_wise(node: Node) -> bool:
    return node.op in SPELT_ROW_WISE or may_fuse(node)


def _kernels(nodes: Sequence[Node]) -> Iterator[list[Node]]:
    """The nodes by kernel, in order of the first: row-wise ones together with those that they read."""
    kernel: dict[Node, list[Node]] = {}
    for node in nodes:
        mine = [node]
        if _row_wise(node):
            for v in node.operands:
                other = kernel.get(v.producer) if v is not None and v.producer is not None else None
                if other is not None and other is not mine and _row_wise(other[0]):
                    other += mine
                    for n in mine:
                        kernel[n] = other
                    mine = other
        kernel[node] = mine
    seen: set[int] = set()
    for found in kernel.values():
        if id(found) not in seen:
            seen.add(id(found))
            yield found


def _kernel_price(kernel: Sequence[Node], context: Context) -> float | None:
    times = [_estimate(n, context) for n in kernel]
    if any(t is None for t in times):
        return None
    inside = set(kernel)
    launch, work = 0.0, 0.0
    for node, t in zip(kernel, times, strict=True):
        assert t is not None
        launch = max(launch, t.launch_us)
        work += max(t.us - t.launch_us, 0.0) * (_share(node, inside, context) if len(kernel) > 1 else 1.0)
    return launch + work


def _share(node: Node, inside: set[Node], context: Context) -> float:
    """The share of a node's bytes that enter or leave the kernel."""
    crossing, total = 0, 0
    for v in dict.fromkeys(v for v in node.operands if v is not None):
        size = _bytes(v.type, context)
        total += size
        crossing += 0 if v.producer in inside else size
    for v in node.results:
        size = _bytes(v.type, context)
        total += size
        crossing += size if not v.uses or any(u not in inside for u in v.uses) else 0
    return crossing / total if total else 1.0


def _bytes(type_: TensorType, context: Context) -> int:
    return int(evaluate(type_.numel(), context.tune)) * type_.dtype.bits // 8


def _estimate(node: Node, context: Context) -> KernelTime | None:
    """The time of one node; None where a size is not known or the target cannot say."""
    asked = _question(node, context)
    if asked is None:
        return None
    fixed, attrs = asked
    op, attrs = _asked_as(node.op, fixed, attrs)
    key = (op, *fixed, *((k, str(v)) for k, v in attrs.items()))
    known = _known_of(context.target)
    if key not in known:
        try:
            known[key] = context.target.estimate(op, fixed, attrs, {})
        except Refusal:
            known[key] = None
    return known[key]


def workspace(node: Node, context: Context) -> int:
    """Bytes that the kernels of a node need besides its operands and results; 0 where the target cannot say."""
    asked = _question(node, context) if context.target is not None and not _free(node) else None
    if asked is None:
        return 0
    try:
        return int(context.target.workspace(node.op, *asked, {}))
    except Refusal:
        return 0


def _question(node: Node, context: Context) -> tuple[list[TensorType | None], dict[str, Any]] | None:
    """A node's operands and attributes with numbers for sizes; None where one is not known."""
    types = [None if v is None else v.type for v in node.operands]
    every = [t for t in (*types, *(v.type for v in node.results)) if t is not None]
    if any(t.shape is None for t in every):
        return None
    sizes = [d for t in every for d in t.dims] + [d for v in node.attrs.values() for d in _dims(v)]
    if any(s not in context.tune for d in sizes for s in symbols_of(d)):
        return None
    fixed = [None if t is None else _fixed(t, context) for t in types]
    return fixed, {k: _fixed_attr(v, context) for k, v in node.attrs.items()}


_KNOWN: WeakKeyDictionary[Any, dict[Any, KernelTime | None]] = WeakKeyDictionary()
"""What each target has said already."""


def _known_of(target: Any) -> dict[Any, KernelTime | None]:
    try:
        return _KNOWN.setdefault(target, {})
    except TypeError:  # a target that compares by value is asked again each time
        return {}


def _asked_as(op: str, types: Sequence[TensorType | None], attrs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The op and attributes that the target is asked for: an expansion is asked for as the tile that it is, which
    targets answer by its bytes, where a kernel that repeats rows may take seconds to simulate.
    """
    first = types[0] if types else None
    if op != "expand" or first is None or first.rank != len(attrs["shape"]):
        return op, attrs
    pairs = zip(attrs["shape"], first.dims, strict=True)
    return "tile", {"repeats": tuple(wide // own if own else 1 for wide, own in pairs)}


def _fixed(type_: TensorType, context: Context) -> TensorType:
    return type_.with_shape(tuple(evaluate(d, context.tune) for d in type_.dims))


def _dims(value: Any) -> list[Dim]:
    if isinstance(value, tuple):
        return [d for v in value for d in _dims(v)]
    return [value] if isinstance(value, Expr) else []


def _fixed_attr(value: Any, context: Context) -> Any:
    if isinstance(value, tuple):
        return tuple(_fixed_attr(v, context) for v in value)
    return evaluate(value, context.tune) if isinstance(value, Expr) else value

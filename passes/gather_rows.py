"""Rows that are sorted by expert, or gathered, only for a grouped product: the product gathers them itself.

The kernel copies each row of a tile into L1 from where an index says, so that sorted rows are neither written nor read
again; but a tile's rows take a copy each, once for every column of tiles, where rows that lie together take one copy.
That pays where the cube or the weights, and not the copies into L1, decide how long the product takes. All that reads
the rows is changed together, or the rows stay.

In a training graph the rows are kept for the gradient of the weights, [T*K, H], unless that gathers them too: x, which
is mostly kept anyway, and 4 bytes a row are kept then. The bytes that this saves are named where it is not done.
"""

from __future__ import annotations

from collections.abc import Sequence

from moec.ir.graph import Graph, Module, Node, Value
from moec.ir.symbol import evaluate, symbols_of
from moec.ir.types import I32
from moec.ops.build import Builder
from moec.passes.base import Context, Result, register_pass
from moec.passes.cse import attr_key
from moec.passes.gather_rows_rules import DW_RULES, PRODUCT_RULES
from moec.passes.permute_fusion_facts import nonnegative
from moec.passes.price import price
from moec.passes.rule_pass import RulePass, run_rules, witness_prover
from moec.rewrite.engine import Prover
from moec.rewrite.match import Match
from moec.rewrite.rule import Rule
from moec.rewrite.term import NoMatch

MIB = 1 << 20
PLACES = {"grouped_matmul": (0, 4), "grouped_matmul_dw": (1, 3)}
"""Which operand the rows are, and which their indices."""


@register_pass
class GatherRows(RulePass):
    """Let grouped products gather the rows that ``permute`` or ``gather`` would lay out for them, where the target says
    that this is faster; without a target nothing is done.

    ``always`` does it wherever it can be done, whatever it takes: in a training graph x and the rows' numbers are then
    kept for the gradient of the weights instead of the sorted rows, K times as many.
    """

    name = "gather-rows"
    always: bool = False

    @classmethod
    def rules(cls) -> list[Rule]:
        return [*PRODUCT_RULES, *DW_RULES]

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        for graph in module.functions.values():
            prover = _Faster(context, self.always, witness_prover(context))
            if run_rules(self.rules(), graph, context, result, prover):
                _merge(graph)
        return result


class _Faster:
    """Refuses matches unless everything that reads the rows can gather them and that is faster, then asks ``then``."""

    def __init__(self, context: Context, always: bool, then: Prover | None):
        self.context, self.always, self.then = context, always, then
        self.known: dict[Node, str] = {}

    def __call__(self, match: Match) -> str:
        laid = next(n for n in match.nodes if n.op in ("permute", "gather") and n is not match.root)
        if laid not in self.known:
            self.known[laid] = self._refusal(laid)
        if reason := self.known[laid]:
            raise NoMatch(reason)
        return self.then(match) if self.then is not None else ""

    def _refusal(self, laid: Node) -> str:
        """Why the rows that ``laid`` makes are to be laid out; empty where they are not."""
        if laid.op == "gather" and not nonnegative(laid.operand(1)):
            return "indices may be negative, which count from the end"
        products, saves, others = _readers(laid.results[0], backward=laid.op == "permute")
        if others:
            names = dict.fromkeys("an output" if n.op == "return" else n.op for n in others)
            return f"the rows are also read by {', '.join(names)}"
        if self.always:
            return ""
        old = price([laid, *products], self.context)
        new = price(list(_gathering(laid, products)), self.context)
        if old is None or new is None:
            return "no target says that gathering in the product is faster"
        if new < old:
            return ""
        kept = self._saved(saves)
        return f"on {self.context.target.name} it would take {new:.1f} us, and takes {old:.1f} us as it is{kept}"

    def _saved(self, saves: Sequence[Node]) -> str:
        """What is kept for backward that need not be."""
        types = [n.result.type for n in saves]
        if not types or any(s not in self.context.tune for t in types for s in symbols_of(t.numel())):
            return ""
        total = sum(evaluate(t.numel(), self.context.tune) * t.dtype.bits // 8 for t in types)
        return f"; it keeps {total / MIB:.1f} MiB of rows for backward (always=true does not)"


def _readers(rows: Value, backward: bool) -> tuple[list[Node], list[Node], list[Node]]:
    """Products that read the rows as they are, or after a save where ``backward``; those saves; and other readers."""
    products: list[Node] = []
    saves: list[Node] = []
    others: list[Node] = []
    for node in rows.uses:
        if node.op == "save" and backward and node.result.uses:
            saves.append(node)
            for user in node.result.uses:
                (products if _takes(user, "grouped_matmul_dw", node.result) else others).append(user)
        else:
            (products if _takes(node, "grouped_matmul", rows) else others).append(node)
    return products, saves, others


def _takes(node: Node, op: str, value: Value) -> bool:
    """Whether ``node`` is an ``op`` that takes ``value`` as its rows, as they lie, and as nothing else."""
    if node.op != op:
        return False
    rows, source = PLACES[op]
    gathers = len(node.operands) > source and node.operands[source] is not None
    return not gathers and [i for i, v in enumerate(node.operands) if v is value] == [rows]


def _gathering(laid: Node, products: Sequence[Node]) -> Graph:
    """The products as they would gather the rows, and what they need for it."""
    graph = Module().add(Graph("main"))
    b = Builder(graph)
    known: dict[Value, Value] = {}

    def given(v: Value | None) -> Value | None:
        return None if v is None else known.setdefault(v, graph.add_input(f"x{len(known)}", v.type))

    x, choice = laid.operand(0), given(laid.operand(1))
    assert choice is not None
    if laid.op == "permute":
        tokens, k = choice.type.dims
        numbers = b.reshape(b.iota(size=tokens, dtype=I32), shape=(tokens, 1))
        source = b.reshape(b.permute(numbers, choice, given(laid.operand(2)))[0], shape=(tokens * k,))
    else:
        source = choice if choice.type.dtype is I32 else b.cast(choice, to=I32)
    for node in products:
        rows, last = PLACES[node.op]
        operands = [given(x if i == rows else v) for i, v in enumerate(node.operands[:last])]
        b.node(node.op, *operands, *[None] * (last - len(operands)), source, **node.attrs)
    return graph


def _merge(graph: Graph) -> None:
    """Let what the rules wrote down several times be one node, and values be saved once."""
    seen: dict[object, Node] = {}
    for node in list(graph):
        if node.op not in ("iota", "reshape", "permute", "save"):
            continue
        attrs = () if node.op == "save" else tuple((k, attr_key(v)) for k, v in node.attrs.items())
        first = seen.setdefault((node.op, tuple(node.operands), attrs), node)
        if first is node and node.op == "save" and _made(node):
            if (producer := node.operand(0).producer) is not None:
                graph.move(node, producer.next)
        elif first is not node and (node.op == "save" or _made(node)):
            for old, new in zip(node.results, first.results, strict=True):
                old.replace_with(new)
            graph.erase(node)
    for node in reversed(graph):
        if node.op in ("permute", "gather", "save", "iota", "reshape") and not any(v.uses for v in node.results):
            graph.erase(node)


def _made(node: Node) -> bool:
    return any(r.startswith("gather-") for r in node.origin.rewrites)

"""The saves of a training graph: what each is of, who reads it, and what may be chosen of them by a user."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from moec.autodiff import backward_nodes
from moec.diagnostics import Problem, Usage, suggest
from moec.ir.graph import Graph, Node, Value
from moec.ops.registry import opdef

KINDS = {
    "act": "activations of experts and feed-forward layers, and what is elementwise",
    "norm": "norms",
    "mla_up": "what latents are projected up to: queries, keys and values of latent attention",
    "permute": "rows sorted by expert",
    "dispatch": "rows that came to this rank's experts from other ranks; they are exchanged again",
    "gathered": "what ranks gathered of one another along the sequence; it is gathered again",
}
"""What `--recompute` and `--swap` name, besides single saves by their names, and `all`."""

EXCHANGES = {"dispatch": ("all_to_all_v", "all_to_all"), "gathered": ("all_gather",)}
"""Collectives that second runs of a kind may hold. A joint graph has no branch on ranks, and every rank is rewritten
the same way, so all of a group come to the second run in the same order as to the first. It costs bandwidth: only where
a user names the kind, never for `all`.
"""

MOVES = ("reshape", "transpose", "slice", "concat", "expand", "pad", "cast", "rope", "after")
"""Ops that bring elements elsewhere, or turn or round them: looked through to tell what a value is."""

_ROUTING = ("gating", "topk", "argsort", "histogram", "argmax", "nonzero", "cumsum")
_PROJECTIONS = ("matmul", "grouped_matmul")


@dataclass(frozen=True)
class Joint:
    """One function of a training graph with the order of its nodes."""

    graph: Graph

    @cached_property
    def saves(self) -> list[Node]:
        """Its saves, in order."""
        return [n for n in self.graph if n.op == "save"]

    @cached_property
    def backward(self) -> set[Node]:
        """Its backward nodes."""
        return backward_nodes(self.graph)

    @cached_property
    def position(self) -> dict[Node, int]:
        """The place of each node in the order of execution."""
        return {n: i for i, n in enumerate(self.graph)}

    def first_reader(self, value: Value) -> Node | None:
        """The first node that reads ``value``, looking through views, which do no work; None where none does."""
        readers: list[Node] = []
        stack = [value]
        while stack:
            for user in stack.pop().uses:
                if user is self.graph.ret:
                    continue
                if opdef(user.op).cost == "view":
                    stack += user.results
                readers.append(user)
        return min(readers, key=self.position.__getitem__, default=None)

    def trigger(self, reader: Node) -> Value | None:
        """A gradient that ``reader`` takes besides: what tells that backward has come to it. None: it takes none."""
        for v in reader.operands:
            if v is not None and v.producer in self.backward and v.producer.op not in ("save", "swap_in"):
                return v
        return None


def kind_of(value: Value) -> str:
    """What a forward value is, by what made it: a key of ``KINDS``, ``routing`` (a choice of experts, never made
    again), or the name of its op.
    """
    made = value
    while made.producer is not None and made.producer.op in MOVES and made.producer.operands[0] is not None:
        made = made.producer.operand(0)
    node = made.producer
    if node is None:
        return "input"
    if node.op in _ROUTING or made.type.dtype.is_int or made.type.dtype.kind == "bool":
        return "routing"
    if node.op == "permute":
        return "permute" if made is node.results[0] else "routing"
    if node.op in ("rms_norm", "layer_norm"):
        return "norm"
    if node.op == "swiglu" or "elementwise" in opdef(node.op).traits:
        return "act"
    if node.op == "matmul" and _from_latent(node):
        return "mla_up"
    if node.op == "all_gather":
        return "gathered"
    if node.op == "gather" or node.op in EXCHANGES["dispatch"]:
        return _rows_kind(node)
    return node.op


def _rows_kind(node: Node) -> str:
    """What moved rows are: where they were sorted by expert before, ``dispatch`` if they went from rank to rank since,
    else ``permute``; otherwise the op's name.
    """
    exchanged, op = False, node.op
    while node.op == "gather" or node.op in MOVES or node.op in EXCHANGES["dispatch"]:
        exchanged = exchanged or node.op in EXCHANGES["dispatch"]
        first = node.operands[0]
        if first is None or first.producer is None or (node.op == "gather" and node.attrs["axis"] != 0):
            return op
        if first.producer.op == "permute" and first is first.producer.results[0]:
            return "dispatch" if exchanged else "permute"
        node = first.producer
    return op


def _from_latent(node: Node) -> bool:
    """Whether a product widens a normed latent, of one rank or gathered of several, by a weight."""
    rows, weight = node.operand(0), node.operand(1)
    if weight.producer is None or rows.type.shape is None or node.result.type.shape is None:
        return False
    narrow, wide = rows.type.dims[-1], node.result.type.dims[-1]
    while rows.producer is not None and rows.producer.op in (*MOVES, "all_gather"):
        rows = rows.producer.operand(0)
    return kind_of(rows) == "norm" and isinstance(narrow, int) and isinstance(wide, int) and narrow < wide


def select(joint: Joint, wanted: Sequence[str]) -> list[Node]:
    """The saves that ``wanted`` names, by kind, by name, or all; Usage lists every name that there is not."""
    names = {n.attrs["name"] for n in joint.saves}
    unknown = [w for w in wanted if w not in KINDS and w not in names and w != "all"]
    if unknown:
        known = f"kinds: {', '.join(KINDS)}, all; saves: {', '.join(sorted(names)) or 'none'}"
        raise Usage(
            [Problem(f"no save or kind of saves '{w}'", todo=suggest(w, [*KINDS, *names]) or known) for w in unknown]
        )
    return [n for n in joint.saves if _is_wanted(n, wanted)]


def _is_wanted(save: Node, wanted: Iterable[str]) -> bool:
    kind = kind_of(save.operand(0))
    return save.attrs["name"] in wanted or (kind != "routing" and (kind in wanted or "all" in wanted))

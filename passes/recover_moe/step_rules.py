"""The steps of a block: an operator that an exporter fused comes as gating, permute, grouped products, unpermute."""

from __future__ import annotations

from moec.ir.graph import Node
from moec.passes.recover_moe.axes import feature
from moec.passes.recover_moe.contents import Abstract, Combined, Expert, Rank, Route, Row, Space, Tree
from moec.passes.recover_moe.interpret import Interpreter, Known, rule
from moec.passes.recover_moe.row_rules import stacked


@rule("permute")
def _permute(i: Interpreter, n: Node, k: Known) -> list[Abstract | None] | None:
    """Each token's row once for each of its experts, sorted by expert; or what each slot has, sorted likewise."""
    x, experts = k[0], k[1]
    if not isinstance(experts.content, Expert) or not isinstance(x.content, Row | Route):
        return None
    of_tokens = x.axes[0] == i.tokens and experts.axes == (i.tokens, i.choices)
    of_slots = x.axes[0] == i.slots and experts.axes == (i.slots, ())
    if not (of_tokens or of_slots) or (isinstance(x.content, Route) and x.content.per_token):
        return None
    space = _sorted(i, n)
    rows = Abstract((i.rows(space, i.slot_count), *x.axes[1:]), x.content)
    return [rows, Abstract(experts.axes, Rank(space))]


def _sorted(i: Interpreter, n: Node) -> Space:
    """The slots sorted by expert: the same space for all permutations by the same choice."""
    known = [s for s in i.spaces.values() if s.kind == "sorted" and s.node.op == "permute"]
    return known[0] if known else i.space("sorted", n)


def sorted_rows(meaning: Abstract) -> Space | None:
    """The space of rows sorted by expert that a tensor of rows ranges over."""
    axis = meaning.axes[0]
    if not isinstance(meaning.content, Row) or len(axis) != 1 or axis[0].kind != "rows":
        return None
    space = axis[0].key
    return space if isinstance(space, Space) and space.kind == "sorted" else None


@rule("grouped_matmul")
def _grouped_matmul(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    """Sorted rows times the weights of their own experts."""
    weight = i.statics.ref(n.operand(1))
    bias = i.statics.ref(n.operand(3)) if len(k) > 3 else None
    if not n.attrs["transpose_weight"] or sorted_rows(k[0]) is None or weight is None or (len(k) > 3 and bias is None):
        return None
    tree = Tree("matmul", (k[0].content.tree, stacked(weight)))
    tree = tree if bias is None else Tree("add", (tree, stacked(bias)))
    return Abstract((k[0].axes[0], feature(n.result.type.dims[1])), Row(tree))


@rule("unpermute")
def _unpermute(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    """Per token the sum of its experts' rows, weighted here or before."""
    space = sorted_rows(k[0])
    if space is None or not isinstance(k[1].content, Rank) or k[1].content.space is not space:
        return None
    tree = k[0].content.tree
    if len(k) > 2:
        if not isinstance(k[2].content, Route) or k[2].content.per_token:
            return None
        tree = Tree("mul", (tree, Tree("route", (), k[2].content.value)))
    return Abstract((i.tokens, k[0].axes[1]), Combined({"all": tree}))

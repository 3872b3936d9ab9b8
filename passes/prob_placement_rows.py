"""Routing weights before the down-projection where rows are moved between it and the weighted sum.

With experts spread over ranks, the rows that a rank sums come back from an exchange, in the order in which they were
sent: unpermute(all_to_all_v(gather(grouped_matmul(h, down), back), ...), positions, weights). The weights then go the
way of the rows backwards, as the rows' only other column: sorted as the rows were (T*K floats against T*K rows of the
width of the residual stream), exchanged with the lists swapped, and gathered by the inverse of ``back``. Each of these
is a bijection of rows, whatever the lists count, so each weight comes to the row that it scales; that the rows came to
the experts by the same lists is not needed. Each weight is the same bits on another rank, so all that is rounded
elsewhere is the product, in f32 and once.
"""

from __future__ import annotations

from dataclasses import dataclass

from moec.ir.graph import Graph, Module, Node, Value, merged_origin
from moec.ir.types import F32
from moec.ops.build import Builder
from moec.ops.registry import opdef
from moec.passes.base import Context, Result
from moec.passes.permute_fusion_facts import permutation
from moec.passes.price import price
from moec.rewrite.term import NoMatch
from moec.timeline.balance import balanced_sizes

NAME = "prob-placement-moved"
MOVES = ("gather", "all_to_all_v", "all_to_all", "after")
"""Ops that may bring rows elsewhere, each as a whole; an edge leaves them where they are."""


@dataclass(frozen=True)
class Path:
    """The way of rows from the product ``product`` to the sum ``unpermute``: ``moves``, the last one first."""

    unpermute: Node
    moves: tuple[Node, ...]
    product: Node


def path_of(unpermute: Node) -> Path | None:
    """The way of the rows of a weighted sum; None where it has no weights, or other rows than a grouped product's.

    NoMatch with what stands in between, where that is no move of whole rows.
    """
    if unpermute.op != "unpermute" or len(unpermute.operands) < 3 or unpermute.operands[2] is None:
        return None
    moves: list[Node] = []
    between = ""
    node = unpermute.operand(0).producer
    while node is not None and node.op != "grouped_matmul":
        if node.op in MOVES:
            moves.append(node)
        elif "elementwise" in opdef(node.op).traits:
            between = between or node.op
        else:
            return None
        node = next((v.producer for v in node.operands if v is not None and v.producer is not None), None)
    if node is None:
        return None
    if between:
        raise NoMatch(f"{between} stands between the down-projection and the weighted sum")
    if len(node.operands) > 3 and node.operands[3] is not None:
        raise NoMatch("the down-projection has a bias, which the weights scale too")
    return Path(unpermute, tuple(moves), node)


def place(module: Module, graph: Graph, unpermute: Node, context: Context, result: Result) -> None:
    """Put the weights of a sum of moved rows before the product; nothing where no rows are moved.

    NoMatch with the reason where they may not go there.
    """
    path = path_of(unpermute)
    if path is None or not path.moves or not context.gate.open:
        return
    _check(path)
    product, sort = path.product, unpermute.operand(1).producer
    assert sort is not None
    needed = [v for v in (unpermute.operand(2), *sort.operands[1:]) if v is not None]
    needed += [v for move in path.moves for v in move.operands[1:] if v is not None and move.op != "after"]
    late = _late(graph, needed, product)
    origin = merged_origin([unpermute, product], NAME)
    first = product.prev
    b = Builder(graph, product, origin)
    column = (unpermute.operand(2).type.numel(), 1)
    slots = [b.reshape(v, shape=column) for v in (unpermute.operand(2), sort.operand(1))]
    weights = b.node("permute", *slots, sort.operand(2)).results[0]
    for move in path.moves:
        weights = _back(b, move, weights)
    rows = product.operand(0)
    wide = b.mul(*(v if v.type.dtype is F32 else b.cast(v, to=F32) for v in (rows, weights)))
    weighted = wide if rows.type.dtype is F32 else b.cast(wide, to=rows.type.dtype)
    made = _between(first, product, graph)
    try:
        _not_dearer(path, made, module, context)
    except NoMatch:
        for node in reversed(made):
            graph.erase(node)
        raise
    for node in late:
        graph.move(node, made[0])
    product.set_operand(0, weighted)
    unpermute.set_operand(2, None)
    for node in (product, unpermute):
        node.origin = origin
    context.gate.count()
    result.apply(NAME, origin, graph)


def _check(path: Path) -> None:
    """NoMatch where the weights may not or need not go before the product."""
    product, unpermute = path.product, path.unpermute
    for node, reader in zip((product, *reversed(path.moves)), (*reversed(path.moves), unpermute), strict=True):
        others = [u.op for u in node.result.uses if u is not reader]
        if others:
            raise NoMatch(f"the outputs are also read by {', '.join(dict.fromkeys(others))}")
    wide, inner = product.result.type.dims[1], product.operand(0).type.dims[1]
    if wide == inner or (isinstance(wide, int) and isinstance(inner, int) and wide < inner):
        raise NoMatch(f"the outputs [S, {wide}] are no wider than the activations [S, {inner}]")
    sort = unpermute.operand(1).producer
    if sort is None or sort.op != "permute" or unpermute.operand(1) is not sort.results[1]:
        raise NoMatch("the rows are not summed as they were sorted")
    if unpermute.operand(0).type.dims[0] != sort.results[0].type.dims[0]:
        summed, made = (v.type.dims[0] for v in (unpermute.operand(0), sort.results[0]))
        raise NoMatch(f"{summed} rows are summed, and {made} were sorted")
    for move in path.moves:
        if move.op == "all_to_all" and (move.attrs["split_axis"], move.attrs["concat_axis"]) != (0, 0):
            raise NoMatch("all_to_all exchanges parts of rows")
        if move.op == "gather" and not _permutes(move):
            raise NoMatch("rows are gathered by an index that is not known to be a permutation of them")


def _permutes(gather: Node) -> bool:
    rows, index = gather.operand(0), gather.operand(1)
    whole = gather.attrs["axis"] == 0 and index.type.rank == 1 and index.type.dims[0] == rows.type.dims[0]
    return whole and permutation(index)


def _late(graph: Graph, needed: list[Value], product: Node) -> list[Node]:
    """The nodes from ``product`` on that ``needed`` are made by, in order; NoMatch where one cannot be done earlier."""
    place = {n: i for i, n in enumerate(graph)}
    found: set[Node] = set()
    stack = [v.producer for v in needed]
    while stack:
        node = stack.pop()
        if node is None or node in found or place[node] < place[product]:
            continue
        if node is product or opdef(node.op).traits & {"effect", "opaque", "call"}:
            raise NoMatch(f"{node.op}, which the way of the weights follows from, comes behind the down-projection")
        found.add(node)
        stack += [v.producer for v in node.operands if v is not None]
    return sorted(found, key=place.__getitem__)


def _back(b: Builder, move: Node, weights: Value) -> Value:
    """``weights`` of the rows that ``move`` gives: those of the rows that it takes."""
    made = weights
    if move.op == "gather":
        made = b.gather(weights, _inverse(b, move.operand(1)), axis=0)
    elif move.op == "all_to_all":
        made = b.all_to_all(weights, group=move.attrs["group"], split_axis=0, concat_axis=0)
    elif move.op == "all_to_all_v":
        rows = move.operand(0).type.dims[0]
        made = b.all_to_all_v(weights, move.operand(2), move.operand(1), group=move.attrs["group"], rows=rows)
    return made


def _inverse(b: Builder, index: Value) -> Value:
    """The inverse of a permutation: where it was itself made as one, that which it inverts."""
    node = index.producer
    if node is not None and node.op == "argsort" and not node.attrs["descending"] and permutation(node.operand(0)):
        return node.operand(0)
    if node is not None and node.op == "scatter_elements":
        put = node.operand(2).producer
        if put is not None and put.op == "iota":
            return node.operand(1)
    made: Value = b.argsort(index, axis=0, descending=False)
    return made


def _between(first: Node | None, last: Node, graph: Graph) -> list[Node]:
    """The nodes behind ``first`` (from the start where that is None) and before ``last``."""
    found = []
    node = last.prev
    while node is not None and node is not first:
        found.append(node)
        node = node.prev
    return found[::-1]


def _not_dearer(path: Path, made: list[Node], module: Module, context: Context) -> None:
    """NoMatch where ``made`` adds more time than computing and moving the outputs again in backward would."""
    if context.target is None:
        return
    at = Context(context.target, balanced_sizes(module, context.tune))
    new, again = price(made, at), price([path.product, *path.moves], at)
    if new is not None and again is not None and new > again:
        raise NoMatch(
            f"on {context.target.name} it would add {new:.1f} us, and the outputs, which could be computed and moved "
            f"again in backward, take {again:.1f} us"
        )

"""The parts of an all-to-all dispatcher, found in a graph and proved to be one.

What is looked for, all of it the reader of the line before it and nothing else::

    weights, experts, counts = gating(...)
    rows, positions = permute(x, experts, counts)
    all_to_all_v(rows, send, receive)         -> the rows that other ranks chose this rank's experts for
    gather(.., order)                         -> sorted by this rank's experts
    row-wise steps and grouped products       -> the experts, by ``groups``, the rows of each
    gather(.., back)
    all_to_all_v(.., receive, send)           -> home
    unpermute(.., positions, weights)

The index computations between ``counts`` and ``send``, ``receive``, ``order``, ``back`` and ``groups`` are not matched
but run, on ranks with random counts: they must give the lists, a permutation that sorts rows by expert, its inverse,
and the number of rows of each expert.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from moec.diagnostics import Refusal
from moec.eval.ranks import run_ranks
from moec.ir.graph import Graph, Module, Node, Value
from moec.ir.group import Group
from moec.ir.symbol import Dim, evaluate, exact_div
from moec.ir.types import I32, TensorType
from moec.ops.calls import names_in
from moec.ops.registry import OPS
from moec.rewrite.term import NoMatch

ROW_WISE = ("grouped_matmul", "swiglu", "cast", "fused")
"""Ops between the exchanges that treat rows apart, besides elementwise ones."""

MOST_RANKS = 64
"""Ranks of an expert-parallel group that the index computations are still run on."""


@dataclass(frozen=True)
class Dispatcher:
    """The nodes and values of one; see the module's docstring. ``experts_nodes`` lie between the gathers, in order."""

    gating: Node
    permute: Node
    out: Node
    sort: Node
    experts_nodes: tuple[Node, ...]
    unsort: Node
    home: Node
    unpermute: Node
    groups: Value

    @property
    def group(self) -> Group:
        found = self.out.attrs["group"]
        assert isinstance(found, Group)
        return found

    @property
    def local(self) -> Dim:
        """Experts of a rank."""
        found = exact_div(self.gating.results[2].type.dims[0], self.group.size)
        if found is None:
            raise NoMatch(f"{self.gating.results[2].type.dims[0]} experts do not split over {self.group}")
        return found


def find(module: Module, graph: Graph, out: Node) -> Dispatcher:
    """The dispatcher whose first exchange is ``out``; NoMatch with the reason where there is none."""
    rows = _through_whole_slices(out.operand(0))
    permute = rows.producer
    if permute is None or permute.op != "permute" or rows.index != 0:
        raise NoMatch("the rows that it sends are not what permute made")
    gating = permute.operand(1).producer
    if gating is None or gating.op != "gating" or permute.operand(2) is not gating.results[2]:
        raise NoMatch("the experts that rows are sorted by do not come from gating")
    sort = _only_reader(out.result, "the rows that arrive", "gather")
    inside, last, groups = _experts(sort)
    unsort = _only_reader(last, "the experts' rows", "gather")
    home = _only_reader(unsort.result, "the rows in their old order", "all_to_all_v")
    swapped = home.operands[1] is out.operands[2] and home.operands[2] is out.operands[1]
    if not swapped or home.attrs["group"] != out.attrs["group"]:
        raise NoMatch("the way back does not swap the lists of the way out")
    unpermute = _only_reader(home.result, "the rows that come home", "unpermute")
    if unpermute.operand(1) is not permute.results[1] or len(unpermute.operands) < 3 or unpermute.operands[2] is None:
        raise NoMatch("rows are not summed by the positions and weights of this permute")
    found = Dispatcher(gating, permute, out, sort, inside, unsort, home, unpermute, groups)
    _prove(module, graph, found)
    return found


def _through_whole_slices(value: Value) -> Value:
    while value.producer is not None and value.producer.op == "slice":
        node = value.producer
        if node.operand(0).type != value.type or node.attrs["start"] != 0 or node.attrs["step"] != 1:
            break
        value = node.operand(0)
    return value


def _only_reader(value: Value, what: str, op: str) -> Node:
    readers = list(value.uses)
    if len(readers) != 1 or readers[0].op != op:
        names = ", ".join(r.op for r in readers) or "nobody"
        raise NoMatch(f"{what} go to {names}, expected {op} alone")
    if op == "gather" and (readers[0].attrs["axis"] != 0 or readers[0].operand(0) is not value):
        raise NoMatch(f"{what} are not gathered by row")
    return readers[0]


def _experts(sort: Node) -> tuple[tuple[Node, ...], Value, Value]:
    """What lies between the gathers, its last value, and the rows of each group."""
    inside: list[Node] = []
    values: dict[Value, None] = {sort.result: None}
    groups: dict[Value, None] = {}
    node = sort.next
    last: Value | None = None
    while node is not None:
        if any(v in values for v in node.operands if v is not None):
            if node.op == "gather":
                last = node.operand(0)
                break
            if node.op not in ROW_WISE and "elementwise" not in OPS[node.op].traits:
                raise NoMatch(f"{node.op} between the exchanges is not known to treat rows apart")
            if node.op == "grouped_matmul":
                groups[node.operand(2)] = None
            inside.append(node)
            values.update(dict.fromkeys(node.results))
        node = node.next
    if last is None or last not in values:
        raise NoMatch("what the experts give is not put back into the order of arrival")
    if len(groups) != 1:
        raise NoMatch(f"the experts' products are grouped by {len(groups)} lists of counts, expected one")
    return tuple(inside), last, next(iter(groups))


def _prove(module: Module, graph: Graph, found: Dispatcher) -> None:
    """Run the index computations on ranks with random counts; NoMatch where they do not say what is expected."""
    size, local = found.group.size, found.local
    if not isinstance(size, int) or not isinstance(local, int) or size > MOST_RANKS:
        raise NoMatch(f"the index computations of {found.group} cannot be run: up to {MOST_RANKS} ranks")
    index = _index_module(module, graph, found)
    rng = np.random.default_rng(0)
    ranks = size * evaluate(found.group.stride, {})
    for most in (3, 1, 5):
        counts = rng.integers(0, most, (ranks, size * local)).astype(np.int32)
        given = {f"rank{r}.counts": c for r, c in enumerate(counts)}
        try:
            results = run_ranks(index, given, {})
        except Refusal as error:
            raise NoMatch(f"its index computations cannot be run: {error.problems[0].what}") from error
        for rank, result in enumerate(results):
            members = found.group.members(rank)
            place = found.group.place(rank)
            mine = np.stack([counts[m].reshape(size, local)[place] for m in members])
            _check_rank(result, counts[rank].reshape(size, local), mine)


def _check_rank(result: dict[str, np.ndarray], counts: np.ndarray, mine: np.ndarray) -> None:
    """``counts`` [P, L] of this rank's rows; ``mine`` [P, L]: from each rank, for each of its experts."""
    if not np.array_equal(result["send"], counts.sum(1)) or not np.array_equal(result["receive"], mine.sum(1)):
        raise NoMatch("the lists of the exchange are not how many rows go to and come from each rank")
    if not np.array_equal(result["groups"], mine.sum(0)):
        raise NoMatch("the groups' counts are not how many rows came for each expert")
    expert = np.repeat(np.tile(np.arange(mine.shape[1]), mine.shape[0]), mine.ravel())
    order, back = result["order"], result["back"]
    if order.shape != expert.shape or not np.array_equal(np.sort(order), np.arange(expert.size)):
        raise NoMatch("the order of the rows is no permutation")
    if np.any(np.diff(expert[order]) < 0) or not np.array_equal(order[back], np.arange(expert.size)):
        raise NoMatch("rows are not sorted by expert and put back")


def _index_module(module: Module, graph: Graph, found: Dispatcher) -> Module:
    """What the index computations say of ``counts``, as a module of their own."""
    wanted = {
        "send": found.out.operand(1),
        "receive": found.out.operand(2),
        "order": found.sort.operand(1),
        "back": found.unsort.operand(1),
        "groups": found.groups,
    }
    counts = found.gating.results[2]
    cone = _cone(module, graph, list(wanted.values()), counts)
    index = Module()
    index.symbols = dict(module.symbols)
    main = index.add(Graph("main"))
    made = {counts: main.add_input("counts", TensorType(I32, counts.type.dims))}
    for node in cone:
        for v in node.operands:
            if v is not None and v not in made:
                raise NoMatch("the index computations read more than the router's counts")
        operands = [None if v is None else made[v] for v in node.operands]
        copy = main.append(node.op, operands, dict(node.attrs), [v.type for v in node.results], node.origin)
        made.update(zip(node.results, copy.results, strict=True))
        for fn in OPS[node.op].functions(node.attrs):
            index.functions.setdefault(fn, module.functions[fn])
    main.set_outputs([made[v] for v in wanted.values()], list(wanted))
    return index


def _cone(module: Module, graph: Graph, values: Sequence[Value], stop: Value) -> list[Node]:
    """The nodes that ``values`` need, in order, down to ``stop``; and those that decide sizes that these name."""
    decider = {str(n.attrs[OPS[n.op].binds]): n for n in graph if OPS[n.op].binds}
    wanted: set[Node] = set()
    stack = [v.producer for v in values if v is not stop]
    while stack:
        node = stack.pop()
        if node is None or node in wanted or node.op in ("gating", "permute", "matmul"):
            continue
        wanted.add(node)
        stack += [v.producer for v in node.operands if v is not None and v is not stop]
        stack += [decider[s] for s in names_in(node, module) if s in decider]
    return [n for n in graph if n in wanted]

"""Rotations by the same tables as one: of a part beside what is kept, of heads that stand in one tensor.

``rope`` rotates the first elements of each head and passes the rest through, so a rotated part need not be cut out and
put back. Queries and keys that one projection made lie side by side along the heads: they are rotated where they lie,
and cut apart behind that; backward, the gradients of both are put together first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from moec.ir.graph import Graph, Module, Node, Value, merged_origin
from moec.ir.symbol import Dim, exact_div
from moec.ops.build import Builder
from moec.passes.base import Context, Result, register_pass
from moec.passes.price import PricedRulePass, slower
from moec.passes.region import erase_dead
from moec.rewrite.rule import Rule, miss, near, rule
from moec.rewrite.term import T, Term, require

NAME = "rope-of-slices"
TABLES = "cos: [5, 2]; sin: [5, 2]"


def _part(x: str, tables: str, cut: str) -> str:
    return f"{x}; {tables}; {cut}; start = 0; rotary = 4"


@rule(
    "rope-of-part",
    exactness="exact",
    why="rope rotates the first elements and passes the others through",
    cases=[
        _part("x: [3, 5, 7]", TABLES, 'axis = 2; cut = 4; kept = 4; end = 7; layout = "half"'),
        _part("x: [5, 6]", TABLES, 'axis = 1; cut = 4; kept = 4; end = 6; layout = "interleaved"'),
    ],
    near=[
        near(
            "dimension 0 of 3",
            _part(
                "x: [7, 5, 4]",
                "cos: [4, 5, 2]; sin: [4, 5, 2]",
                'axis = 0; cut = 4; kept = 4; end = 7; layout = "half"',
            ),
        ),
        near("[0:4] and [3:7]", _part("x: [3, 5, 7]", TABLES, 'axis = 2; cut = 4; kept = 3; end = 7; layout = "half"')),
    ],
    escape="refuse",
)
def rope_of_part(
    x: Term, cos: Term, sin: Term, *, axis: int, start: Dim, cut: Dim, kept: Dim, end: Dim, rotary: int, layout: str
) -> Iterator[Any]:
    first = T.slice(x, axis=axis, start=start, stop=cut, step=1)
    rest = T.slice(x, axis=axis, start=kept, stop=end, step=1)
    turned = T.rope(first, cos, sin, rotary_dim=rotary, layout=layout)
    yield T.concat(turned, rest, axis=axis)
    require(axis == x.rank - 1, f"the parts lie along dimension {axis} of {x.rank}", x)
    parts = f"the parts are [{start}:{cut}] and [{kept}:{end}] of {x.shape[axis]}"
    require(start == 0 and cut == kept and end == x.shape[axis], parts, x)
    yield T.rope(x, cos, sin, rotary_dim=rotary, layout=layout)
    yield miss("the kept part stands first", T.concat(rest, turned, axis=axis))


def _heads(first: str) -> str:
    return f'{first}; cos: [5, 2]; sin: [5, 2]; axis = 1; rotary = 4; layout = "half"'


@rule(
    "rope-of-heads",
    exactness="exact",
    why="each head is rotated by itself, by the same tables",
    cases=[_heads("x: [2, 3, 5, 4]; y: [2, 1, 5, 4]")],
    near=[
        near("along 2", _heads("x: [2, 3, 5, 4]; y: [2, 3, 5, 4]").replace("axis = 1", "axis = 2")),
        near(
            "its own tables",
            'x: [2, 3, 1, 4]; y: [2, 3, 1, 4]; cos: [3, 1, 2]; sin: [3, 1, 2]; axis = 1; rotary = 4; layout = "half"',
        ),
    ],
    escape="refuse",
)
def rope_of_heads(x: Term, y: Term, cos: Term, sin: Term, *, axis: int, rotary: int, layout: str) -> Iterator[Any]:
    turned = [T.rope(part, cos, sin, rotary_dim=rotary, layout=layout) for part in (x, y)]
    yield T.concat(*turned, axis=axis)
    require(x.rank == 4 and axis == 1, f"they are put together along {axis} of {x.rank}, not as heads", x)
    require(
        _one_for_all(cos, axis, x.rank) and _one_for_all(sin, axis, x.rank),
        f"each head has its own tables: {cos.type}",
        cos,
    )
    yield T.rope(T.concat(x, y, axis=axis), cos, sin, rotary_dim=rotary, layout=layout)
    yield miss(
        "they are rotated by other tables",
        T.concat(turned[0], T.rope(y, sin, cos, rotary_dim=rotary, layout=layout), axis=axis),
    )


def _one_for_all(table: Term, axis: int, rank: int) -> bool:
    """Whether a table has one entry for all places along ``axis`` of a tensor of ``rank``."""
    at = axis - (rank - table.rank)
    return at < 0 or table.shape[at] == 1


ROPE_RULES = [rope_of_part, rope_of_heads]
"""Rules on rotations, in the order in which they are tried."""


@register_pass
class FuseRope(PricedRulePass):
    """Rotate queries and keys of one projection where they lie, and parts of heads without cutting them out.

    Two slices of heads, side by side in one tensor and rotated by the same tables, become slices of one rotation; two
    rotations put together, as in the gradient of that, one rotation.
    """

    name = "fuse-rope"

    @classmethod
    def rules(cls) -> list[Rule]:
        return ROPE_RULES

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        for graph in module.functions.values():
            for first, second in _pairs(graph):
                _rotate_together(first, second, graph, context, result)
        self.run_priced(module, context, result)
        return result


@dataclass(frozen=True)
class _Cut:
    """The heads ``start`` to ``stop`` of ``source`` that a rotation reads: cut along ``axis`` of [B, N, S, D], or
    (``width`` D) out of the columns of a projection [B, S, N*D] and laid out as heads.
    """

    rope: Node
    source: Value
    axis: int
    start: Dim
    stop: Dim
    width: int | None
    nodes: tuple[Node, ...]
    """What lies between the source and the rotation."""

    @property
    def key(self) -> tuple[Any, ...]:
        """What is equal for rotations that may be done together."""
        layout = tuple(tuple(n.attrs["perm"]) for n in self.nodes if n.op == "transpose")
        return self.source, self.axis, self.width, layout, *self.rope.operands[1:], tuple(self.rope.attrs.items())


def _cut(rope: Node) -> _Cut | None:
    """What a rotation reads, where it alone reads it and its tables are the same for all heads."""
    x = rope.operand(0)
    if x.type.shape is None or x.type.rank != 4 or any(_varies(rope.operand(i), 1) for i in (1, 2)):
        return None
    chain = _sole_chain(x)
    ops = [n.op for n in chain]
    if ops[:1] == ["slice"] and chain[0].attrs["axis"] == 1 and chain[0].attrs["step"] == 1:
        cut = chain[0]
        return _Cut(rope, cut.operand(0), 1, cut.attrs["start"], cut.attrs["stop"], None, (cut,))
    if ops[:3] != ["transpose", "reshape", "slice"] or chain[0].attrs["perm"] != (0, 2, 1, 3):
        return None
    turn, view, cut = chain[:3]
    width, whole = view.result.type.dims[3], cut.operand(0)
    if cut.attrs["axis"] != 2 or cut.attrs["step"] != 1 or whole.type.rank != 3 or not isinstance(width, int):
        return None
    start, stop = (exact_div(cut.attrs[end], width) for end in ("start", "stop"))
    if start is None or stop is None or view.result.type.dims[:2] != whole.type.dims[:2]:
        return None
    return _Cut(rope, whole, 2, start, stop, width, (turn, view, cut))


def _sole_chain(value: Value) -> list[Node]:
    """Up to three nodes that made ``value``, each read by the next alone; the last first."""
    chain: list[Node] = []
    while value.producer is not None and len(value.uses) == 1 and len(chain) < 3 and value.producer.operands:
        chain.append(value.producer)
        value = value.producer.operand(0)
    return chain


def _varies(table: Value, axis: int) -> bool:
    """Whether a table differs along ``axis`` of a tensor of rank 4."""
    at = axis - (4 - table.type.rank)
    return at >= 0 and table.type.dims[at] != 1


def _pairs(graph: Graph) -> list[tuple[_Cut, _Cut]]:
    """Rotations by the same tables of heads that stand side by side in one tensor, in that order."""
    groups: dict[tuple[Any, ...], list[_Cut]] = {}
    for node in graph:
        if node.op == "rope" and (cut := _cut(node)) is not None:
            groups.setdefault(cut.key, []).append(cut)
    pairs = []
    for found in groups.values():
        pairs += [(a, b) for a in found for b in found if a is not b and a.stop == b.start]
    return pairs


def _rotate_together(a: _Cut, b: _Cut, graph: Graph, context: Context, result: Result) -> None:
    """Put slices of one rotation in the place of two rotations of slices."""
    old = [*reversed(a.nodes), *reversed(b.nodes), a.rope, b.rope]
    if any(n.graph is not graph for n in old):
        return
    origin = merged_origin(old, NAME)
    before = _earlier(a.rope, b.rope)
    last = before.prev
    build = Builder(graph, before, origin)
    scale = 1 if a.width is None else a.width
    x = build.slice(a.source, axis=a.axis, start=a.start * scale, stop=b.stop * scale, step=1)
    if a.width is not None:
        x = build.reshape(x, shape=(*x.type.dims[:2], b.stop - a.start, a.width))
        x = build.transpose(x, perm=(0, 2, 1, 3))
    turned = build.rope(x, *a.rope.operands[1:], **a.rope.attrs)
    middle, end = a.stop - a.start, b.stop - a.start
    parts = [build.slice(turned, axis=1, start=i, stop=j, step=1) for i, j in ((0, middle), (middle, end))]
    made = _between(last, before)
    if reason := slower(old, made, context):
        for node in reversed(made):
            graph.erase(node)
        result.miss(NAME, reason, [a.rope, b.rope], graph)
        return
    for node, part in zip((a.rope, b.rope), parts, strict=True):
        part.name = node.result.name
        node.result.replace_with(part)
        erase_dead(graph, node)
    result.apply(NAME, origin, graph)


def _between(last: Node | None, before: Node) -> list[Node]:
    """The nodes from behind ``last`` to ``before``, in order."""
    found: list[Node] = []
    node = before.prev
    while node is not last and node is not None:
        found.append(node)
        node = node.prev
    return found[::-1]


def _earlier(a: Node, b: Node) -> Node:
    """Whichever of two nodes of one graph stands first."""
    node: Node | None = a
    while node is not None:
        if node is b:
            return a
        node = node.next
    return b

"""Masks: constants, positions, and what moves them about or looks them up."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from moec.ir.graph import Node
from moec.ir.symbol import Dim
from moec.passes.recover_attention.conditions import (
    Affine,
    Meaning,
    both,
    chosen,
    condition,
    is_condition,
    moved,
    triangle,
    with_affine,
)
from moec.passes.recover_attention.meanings import affine, rule
from moec.passes.recover_attention.numbers import contents, scalar
from moec.passes.recover_attention.tables import table

READ_LIMIT = 1 << 22
"""Constant masks of more elements than this are not looked into."""


@rule("constant", "weight")
def _contents(node: Node, known: list[Meaning]) -> Meaning | None:
    number = scalar(node.result)
    if number is not None:
        return bool(number) if node.result.type.dtype.kind == "bool" else number
    data = contents(node.result)
    return None if data is None or data.size > READ_LIMIT else table(data.numpy())


@rule("iota")
def _iota(node: Node, known: list[Meaning]) -> Meaning:
    return Affine(0, ((0, 1),)) if node.attrs["size"] != 1 else Affine(0)


@rule("dims")
def _dims(node: Node, known: list[Meaning]) -> Meaning | None:
    sizes = node.attrs["values"]
    return Affine(sizes[0]) if len(sizes) == 1 else None


@rule("range")
def _range(node: Node, known: list[Meaning]) -> Meaning | None:
    start, _, step = map(affine, known)
    if start is None or step is None or start.steps or step.steps or not isinstance(step.const, int):
        return None
    return Affine(start.const, ((0, step.const),) if step.const else ())


@rule("reshape")
def _reshape(node: Node, known: list[Meaning]) -> Meaning | None:
    old, new = (
        [i for i, d in enumerate(dims) if d != 1] for dims in (node.operand(0).type.dims, node.result.type.dims)
    )
    if [node.operand(0).type.dims[i] for i in old] != [node.result.type.dims[i] for i in new]:
        return known[0] if isinstance(known[0], bool | float) else None
    return moved(known[0], dict(zip(old, new, strict=True)).get)


@rule("transpose")
def _transpose(node: Node, known: list[Meaning]) -> Meaning | None:
    return moved(known[0], node.attrs["perm"].index)


@rule("expand")
def _expand(node: Node, known: list[Meaning]) -> Meaning | None:
    lead = node.result.type.rank - node.operand(0).type.rank
    return moved(known[0], lambda a: a + lead)


@rule("slice")
def _slice(node: Node, known: list[Meaning]) -> Meaning | None:
    axis, start, step = (node.attrs[k] for k in ("axis", "start", "step"))

    def cut(m: Affine) -> Affine:
        at = dict(m.steps).get(axis, 0)
        return Affine(m.const + start * at, tuple((a, s * step if a == axis else s) for a, s in m.steps))

    return with_affine(known[0], cut)


def _looked_up(m: Meaning, at: Mapping[int, Affine], to: Callable[[int], int]) -> Meaning | None:
    """The meaning at other places: along the axes ``at``, those; the other axes go to where ``to`` says."""
    if any(not isinstance(a.const, int) or a.const < 0 or any(s < 0 for _, s in a.steps) for a in at.values()):
        return None  # an index below 0 counts from the end

    def moved_to(m: Affine) -> Affine:
        total = Affine(m.const)
        for axis, s in m.steps:
            total = total.plus(at[axis].scaled(s) if axis in at else Affine(0, ((to(axis), s),)))
        return total

    return with_affine(m, moved_to)


@rule("gather_nd")
def _gather_nd(node: Node, known: list[Meaning]) -> Meaning | None:
    columns = [affine(c) for c in known[1:]]
    depth, rank = node.operand(1).type.dims[-1], node.operand(1).type.rank
    if node.attrs["batch_dims"] or depth != len(columns):
        return None
    at = {i: c for i, c in enumerate(columns) if c is not None}
    return _looked_up(known[0], at, lambda a: a - len(at) + rank - 1) if len(at) == len(columns) else None


@rule("gather")
def _gather(node: Node, known: list[Meaning]) -> Meaning | None:
    axis, index, rank = node.attrs["axis"], affine(known[1]), node.operand(1).type.rank
    if index is None:
        return None
    placed = Affine(index.const, tuple((a + axis, s) for a, s in index.steps))
    return _looked_up(known[0], {axis: placed}, lambda a: a if a < axis else a - 1 + rank)


@rule("concat")
def _concat(node: Node, known: list[Meaning]) -> Meaning | None:
    """Parts that go on counting where the one before ends."""
    axis = node.attrs["axis"]
    parts = [affine(m) for m in known]
    sizes = [o.type.dims[axis] for o in node.operands if o is not None]
    step = next((dict(p.steps).get(axis, 0) for p, d in zip(parts, sizes, strict=True) if p and d != 1), 0)
    start: Affine | None = None
    offset: Dim = 0
    for part, size in zip(parts, sizes, strict=True):
        if part is None or (size != 1 and dict(part.steps).get(axis, 0) != step):
            return None
        others = tuple((a, s) for a, s in part.steps if a != axis)
        here = Affine(part.const - offset * step, others)
        if start is not None and here != start:
            return None
        start, offset = here, offset + size
    return None if start is None else start.plus(Affine(0, ((axis, step),) if step else ()))


@rule("cumsum")
def _cumsum(node: Node, known: list[Meaning]) -> Meaning | None:
    each = affine(known[0])
    if each is None or each.steps or not isinstance(each.const, int) or node.attrs["reverse"]:
        return None
    first = 0 if node.attrs["exclusive"] else each.const
    return Affine(first, ((node.attrs["axis"], each.const),) if each.const else ())


@rule("trilu")
def _trilu(node: Node, known: list[Meaning]) -> Meaning | None:
    inside = triangle(node.attrs["upper"], node.attrs["k"], node.result.type.rank)
    if is_condition(known[0]):
        return both(condition(known[0]), inside)
    return chosen(inside, known[0], 0.0)

"""Gradients of ops that move elements: they move back, and what was written twice is summed."""

from __future__ import annotations

from moec.ir.graph import Node, Value
from moec.ir.symbol import Dim, Shape
from moec.ops.tape import Gradients, Tape


def _dy(dys: tuple[Value | None, ...]) -> Value:
    dy = dys[0]
    assert dy is not None
    return dy


def reshape(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """dy under x's shape."""
    return [t.narrow(t.reshaped(_dy(dys), node.operand(0).type.dims), 0)]


def transpose(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """dy transposed back."""
    perm = node.attrs["perm"]
    return [t.narrow(t.transpose(_dy(dys), perm=tuple(sorted(range(len(perm)), key=lambda i: perm[i]))), 0)]


def concat(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """Each operand's part of dy."""
    axis, start = node.attrs["axis"], 0
    found: list[Value | None] = []
    at: Dim = start
    for i in range(len(node.operands)):
        stop = at + node.operand(i).type.dims[axis]
        part = t.slice(_dy(dys), axis=axis, start=at, stop=stop, step=1) if t.wanted(i) else None
        found.append(None if part is None else t.narrow(part, i))
        at = stop
    return found


def _along(rank: int, axis: int, dim: Dim) -> Shape:
    return tuple(dim if i == axis else 0 for i in range(rank))


def slice(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """dy among zeros. With a step, each element of dy first gets step - 1 zeros behind it."""
    axis, start, stop, step = (node.attrs[n] for n in ("axis", "start", "stop", "step"))
    dims, dy = node.operand(0).type.dims, _dy(dys)
    rank, size, count = len(dims), dims[axis], dy.type.dims[axis]
    if step > 1:
        apart = t.reshape(dy, shape=(*dims[:axis], count, 1, *dims[axis + 1 :]))
        apart = t.pad(apart, before=(0,) * (rank + 1), after=_along(rank + 1, axis + 1, step - 1), value=0.0)
        dy = t.reshape(apart, shape=(*dims[:axis], count * step, *dims[axis + 1 :]))
    if start != 0 or stop != size:
        dy = t.pad(dy, before=_along(rank, axis, start), after=_along(rank, axis, size - stop), value=0.0)
    if step > 1:
        dy = t.slice(dy, axis=axis, start=0, stop=size, step=1)
    return [t.narrow(dy, 0)]


def pad(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """dy without the border."""
    dy = _dy(dys)
    for axis, (size, before) in enumerate(zip(node.operand(0).type.dims, node.attrs["before"], strict=True)):
        if dy.type.dims[axis] != size:
            dy = t.slice(dy, axis=axis, start=before, stop=before + size, step=1)
    return [t.narrow(dy, 0)]


def expand(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """dy summed over the dimensions along which x was broadcast."""
    return [t.narrow(t.summed(t.wide(_dy(dys)), node.operand(0)), 0)]


def tile(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """dy summed over the copies."""
    split: list[Dim] = []
    for repeat, size in zip(node.attrs["repeats"], node.operand(0).type.dims, strict=True):
        split += [repeat, size]
    apart = t.reshaped(t.wide(_dy(dys)), tuple(split))
    return [t.narrow(t.reduce_sum(apart, axes=tuple(range(0, len(split), 2)), keepdims=False), 0)]


def trilu(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """The same triangle of dy."""
    return [t.narrow(t.trilu(_dy(dys), **node.attrs), 0)]

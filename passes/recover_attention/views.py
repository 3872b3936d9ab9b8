"""What the axes of an operand are, followed backwards through reshapes, transposes and broadcasts.

An axis is a tuple of pieces, outermost first. A piece is a range of digits of one role's index: ``size`` steps of
``stride``. So heads that a broadcast made out of key heads show as a missing piece of small stride.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moec.ir.graph import Node, Value
from moec.ir.symbol import Dim, exact_div
from moec.ops.build import Builder
from moec.passes.recover_attention.numbers import scalar

BATCH, ROW, KEY, FEATURE = "batch", "row", "key", "feature"
STEPS = 32
"""Longest chain of views that is followed."""


@dataclass(frozen=True)
class Piece:
    """Part of the index of ``role``: the digits of weight ``stride`` that count to ``size``."""

    role: str
    stride: Dim
    size: Dim


Axis = tuple[Piece, ...]
Axes = tuple[Axis, ...]


def whole(role: str, size: Dim, stride: Dim = 1) -> Axis:
    """An axis that is (part of) one role; nothing where its size is 1."""
    return () if size == 1 else (Piece(role, stride, size),)


def _merged(pieces: Sequence[Piece]) -> Axis:
    result: list[Piece] = []
    for p in pieces:
        last = result[-1] if result else None
        if last is not None and last.role == p.role and last.stride == p.stride * p.size:
            result[-1] = Piece(p.role, p.stride, last.size * p.size)
        else:
            result.append(p)
    return tuple(result)


def regrouped(axes: Axes, dims: Sequence[Dim]) -> Axes | None:
    """The axes over sizes ``dims`` of the same elements in the same order; None where they cannot be told apart."""
    pieces = [p for axis in axes for p in axis]
    result: list[Axis] = []
    for d in reversed(dims):
        axis: list[Piece] = []
        size: Dim = 1
        while size != d:
            if not pieces:
                return None
            p = pieces.pop()
            if exact_div(d, size * p.size) is not None:
                axis.insert(0, p)
                size = size * p.size
                continue
            inner = exact_div(d, size)
            outer = None if inner is None else exact_div(p.size, inner)
            if inner is None or outer is None:
                return None
            axis.insert(0, Piece(p.role, p.stride, inner))
            pieces.append(Piece(p.role, p.stride * inner, outer))
            size = d
        result.insert(0, _merged(axis))
    return None if pieces else tuple(result)


def _before(node: Node, axes: Axes) -> Axes | None:
    """The axes of a view's operand, from those of its result."""
    source = node.operand(0).type
    if source.shape is None:
        return None
    if node.op == "transpose":
        found: list[Axis] = [()] * len(axes)
        for i, p in enumerate(node.attrs["perm"]):
            found[p] = axes[i]
        return tuple(found)
    if node.op == "reshape":
        return regrouped(axes, source.shape)
    if node.op == "expand":
        kept = axes[len(axes) - len(source.shape) :]
        wide = node.result.type.dims[len(axes) - len(source.shape) :]
        return tuple(a if d == w else () for a, d, w in zip(kept, source.shape, wide, strict=True))
    inner: list[Axis] = []
    for axis, d, r in zip(axes, source.shape, node.attrs["repeats"], strict=True):
        parts = (axis,) if r == 1 else regrouped((axis,), (r, d))
        if parts is None:
            return None
        inner.append(parts[-1])
    return tuple(inner)


@dataclass(frozen=True)
class Spot:
    """A value on the way: its axes, and the number that the operand is it times."""

    value: Value
    axes: Axes
    factor: float


def trail(value: Value, axes: Axes) -> list[Spot]:
    """``value`` and what it is a view or a constant multiple of, nearest first."""
    spots = [Spot(value, axes, 1.0)]
    for _ in range(STEPS):
        spot = spots[-1]
        node = spot.value.producer
        if node is None:
            break
        if node.op in ("reshape", "transpose", "expand", "tile"):
            axes_before = _before(node, spot.axes)
            if axes_before is None:
                break
            spots.append(Spot(node.operand(0), axes_before, spot.factor))
        elif (scaled := scaling(node)) is not None and scaled[0].type.dims == spot.value.type.dims:
            spots.append(Spot(scaled[0], spot.axes, spot.factor * scaled[1]))
        else:
            break
    return spots


def scaling(node: Node) -> tuple[Value, float] | None:
    """``(x, c)`` where the node is x times the number c."""
    if node.op == "neg":
        return node.operand(0), -1.0
    if node.op not in ("mul", "div") or not node.result.type.dtype.is_float:
        return None
    a, b = node.operand(0), node.operand(1)
    if (c := scalar(b)) is not None:
        return (a, c) if node.op == "mul" else ((a, 1.0 / c) if c else None)
    if node.op == "mul" and (c := scalar(a)) is not None:
        return b, c
    return None


def covered(axes: Axes, role: str, size: Dim) -> Dim | None:
    """The stride from which on upwards the role's index is all there; 1 for all of it, None where a part between is
    missing.
    """
    pieces = [p for axis in axes for p in axis if p.role == role]
    top = size
    while pieces:
        found = next((p for p in pieces if p.stride * p.size == top), None)
        if found is None:
            return None
        pieces.remove(found)
        top = found.stride
    return top


def arranged(b: Builder, value: Value, axes: Axes, order: Sequence[tuple[str, Dim, Dim]]) -> Value:
    """``value`` with one axis for each ``(role, stride, size)``, in that order."""
    pieces: list[Piece] = []
    for p in (p for axis in axes for p in axis):
        pieces += _split(p, [s for role, s, _ in order if role == p.role])
    wanted = [
        [i for i, p in enumerate(pieces) if p.role == role and _within(p, stride, size)] for role, stride, size in order
    ]
    perm = tuple(i for group in wanted for i in group)
    sizes = tuple(p.size for p in pieces)
    if perm != tuple(range(len(perm))):
        value = _reshaped(b, value, sizes)
        value = b.transpose(value, perm=perm)
    return _reshaped(b, value, tuple(size for _, _, size in order))


def _reshaped(b: Builder, value: Value, shape: tuple[Dim, ...]) -> Value:
    made: Value = value if value.type.dims == shape else b.reshape(value, shape=shape)
    return made


def _split(p: Piece, strides: Sequence[Dim]) -> list[Piece]:
    """The piece cut at those of ``strides`` that lie within it, outermost first."""
    for s in strides:
        inner = exact_div(s, p.stride)
        outer = None if inner is None else exact_div(p.size, inner)
        if inner is not None and outer is not None and inner != 1 and outer != 1:
            return [*_split(Piece(p.role, s, outer), strides), *_split(Piece(p.role, p.stride, inner), strides)]
    return [p]


def _within(p: Piece, stride: Dim, size: Dim) -> bool:
    """Whether the piece's digits are among those of ``size`` from ``stride`` on."""
    below = exact_div(p.stride, stride)
    return below is not None and exact_div(stride * size, p.stride * p.size) is not None

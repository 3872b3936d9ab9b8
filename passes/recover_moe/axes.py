"""What the axes of a tensor range over, followed through reshapes, transposes and broadcasts.

An axis is a tuple of atoms, outermost first: ``(token, slot)`` is an axis of T*K rows in token-major order, ``()``
one of size 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moec.ir.symbol import Dim


class Atom:
    """One thing that an axis ranges over. ``key`` tells atoms of a kind apart; the size is not part of the identity."""

    __slots__ = ("kind", "key", "dim")

    def __init__(self, kind: str, key: Any, dim: Dim):
        self.kind, self.key, self.dim = kind, key, dim

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and self.kind == other.kind and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.kind)

    def __repr__(self) -> str:
        return f"{self.kind}:{self.dim}"


Axis = tuple[Atom, ...]
Axes = tuple[Axis, ...]


def feature(dim: Dim) -> Axis:
    """An axis of features; two of one size are the same."""
    return () if dim == 1 else (Atom("feature", str(dim), dim),)


def repeated(dim: Dim) -> Axis:
    """An axis along which nothing changes: what a broadcast made."""
    return () if dim == 1 else (Atom("repeat", str(dim), dim),)


def regrouped(axes: Axes, old: Sequence[Dim], new: Sequence[Dim]) -> Axes | None:
    """The axes after a reshape from sizes ``old`` to ``new``; None where an atom would be cut.

    A reshape that only states another size for rows whose number data decides keeps its axes.
    """
    if len(old) == len(new) and sum(a != b for a, b in zip(old, new, strict=True)) == 1:
        return axes
    atoms = [a for axis in axes for a in axis]
    result: list[Axis] = []
    at = 0
    for d in new:
        size: Dim = 1
        group: list[Atom] = []
        while size != d:
            if at == len(atoms):
                return None
            size = size * atoms[at].dim
            group.append(atoms[at])
            at += 1
        result.append(tuple(group))
    rest = atoms[at:]
    if any(a.dim != 1 for a in rest):
        return None
    if rest and result:
        result[-1] = (*result[-1], *rest)
    return tuple(result)


def _same(a: Atom, b: Atom) -> Atom | None:
    if a == b:
        return a
    if a.dim == b.dim and "repeat" in (a.kind, b.kind):
        return b if a.kind == "repeat" else a
    return None


def joined_axis(a: Axis, b: Axis) -> Axis | None:
    """The axis of two operands that are read together; a repeated atom takes on the other's meaning."""
    if not a or not b:
        return a or b
    if len(a) != len(b):
        return None
    atoms = [_same(x, y) for x, y in zip(a, b, strict=True)]
    return None if None in atoms else tuple(x for x in atoms if x is not None)


def broadcast_axes(operands: Sequence[Axes]) -> Axes | None:
    """The axes of an elementwise result; None where operands range over different things."""
    rank = max(map(len, operands))
    result: list[Axis] = [()] * rank
    for axes in operands:
        for i, axis in enumerate(axes, rank - len(axes)):
            merged = joined_axis(result[i], axis)
            if merged is None:
                return None
            result[i] = merged
    return tuple(result)

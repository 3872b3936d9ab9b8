"""Lanes read as a rotation of pairs: which layout, how wide, by which tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moec.passes.recover_rope.lanes import Element, Lane, Term
from moec.passes.recover_rope.tables import Table, table_of

LAYOUTS = ("half", "interleaved", "interleaved_to_half")


class NoRotation(Exception):
    """The lanes are no rotation, for the reason given."""


@dataclass(frozen=True)
class Rotation:
    """Elements ``start`` to ``start + width`` of the tensor rotated."""

    start: int
    width: int
    layout: str
    cos: Table
    sin: Table


def is_sum(lane: Lane) -> bool:
    """Whether the lane is a sum of two products with tables."""
    return len(lane) == 2 and all(t.by is not None for t in lane)


def is_kept(lane: Lane) -> bool:
    """Whether the lane is an element of the tensor as it is."""
    return len(lane) == 1 and lane[0].sign == 1 and lane[0].by is None


def looks_rotated(lanes: Sequence[Lane]) -> bool:
    """Whether every pair of elements makes exactly two of the lanes."""
    pairs: dict[tuple[int, ...], int] = {}
    for lane in lanes:
        if not is_sum(lane) or lane[0].source == lane[1].source:
            return False
        key = tuple(sorted(t.source for t in lane))
        pairs[key] = pairs.get(key, 0) + 1
    return len(lanes) > 2 and set(pairs.values()) == {2}


def rotation(lanes: Sequence[Lane], axes: int) -> Rotation:
    """The rotation that the lanes are; ``axes`` is how many of the tables' last axes are counted along. Raises
    NoRotation.
    """
    start, width = min(t.source for lane in lanes for t in lane), len(lanes)
    if width % 2:
        raise NoRotation(f"an odd number of elements, {width}, is rotated")
    for layout in LAYOUTS:
        found = _pairs(lanes, start, layout)
        if found is not None:
            cos, sin = _tables(found, axes)
            return Rotation(start, width, layout, cos, sin)
    shown = [tuple(t.source - start for t in lane) for lane in lanes[:2]]
    raise NoRotation(
        f"{width} elements are combined as pairs {shown[0]}, {shown[1]}, ...: neither halves nor neighbours, or in "
        "another order"
    )


Pair = tuple[Term, Term, Term, Term]
"""The terms first * cos, second * -sin of the first result and second * cos, first * sin of the second."""


def _pairs(lanes: Sequence[Lane], start: int, layout: str) -> list[Pair] | None:
    half = len(lanes) // 2
    found: list[Pair] = []
    for i in range(half):
        p, q = (start + i, start + half + i) if layout == "half" else (start + 2 * i, start + 2 * i + 1)
        a, b = (lanes[2 * i], lanes[2 * i + 1]) if layout == "interleaved" else (lanes[i], lanes[half + i])
        by_a, by_b = ({t.source: t for t in lane} for lane in (a, b))
        if set(by_a) != {p, q} or set(by_b) != {p, q}:
            return None
        found.append((by_a[p], by_a[q], by_b[q], by_b[p]))
    return found


def _tables(pairs: Sequence[Pair], axes: int) -> tuple[Table, Table]:
    def elements(at: int) -> list[Element]:
        return [t.by for pair in pairs if (t := pair[at]).by is not None]

    cos = table_of(elements(0), elements(2), axes, [pair[at].sign for at in (0, 2) for pair in pairs])
    sin = table_of(elements(1), elements(3), axes, [-p[1].sign for p in pairs] + [p[3].sign for p in pairs])
    if cos is None or cos.negative:
        raise NoRotation("the elements' own factors are not a table of cosines in the order of the pairs, all positive")
    if sin is None:
        raise NoRotation("the factors of the other elements are not a table of sines in order, negative for the first")
    return cos, sin

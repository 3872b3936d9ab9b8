"""Tables of cosines and sines: elements followed back to where they stand, and put together as ``rope`` reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from moec.ir.graph import Value
from moec.ir.symbol import Dim
from moec.ops.build import Builder
from moec.passes.recover_attention.numbers import contents
from moec.passes.recover_rope.lanes import Element, trailing_size

STEPS = 16
"""Longest chain of layout changes of a table that is followed."""


_LAYOUT = frozenset(("neg", "slice", "concat", "reshape", "expand", "gather"))


class Signed(NamedTuple):
    """Plus or minus an element of a table; ``axes`` is how many of its last axes are counted along."""

    sign: int
    table: Value
    at: int
    axes: int


def traced(element: Element, axes: int) -> Signed:
    """Where the element stands before slices, concatenations, repetitions and changes of sign along the last axes."""
    value, index, sign = element.table, element.at, 1
    for _ in range(STEPS):
        step = _before(value, index, axes)
        if step is None:
            break
        value, index, axes, flip = step
        sign *= flip
    return Signed(sign, value, index, axes)


def _before(value: Value, index: int, axes: int) -> tuple[Value, int, int, int] | None:
    node = value.producer
    if node is None or value.type.shape is None or node.op not in _LAYOUT:
        return None
    source = node.operand(0)
    if node.op == "neg":
        return source, index, axes, -1
    lead = value.type.rank - axes
    sizes = [d for d in value.type.dims[lead:] if isinstance(d, int)]
    if source.type.shape is None or len(sizes) != axes:
        return None
    at = list(map(int, np.unravel_index(index, sizes)))
    if node.op in ("reshape", "expand"):
        inner = source.type.rank - lead
        width = trailing_size(source, inner) if inner > 0 else None
        if width is None or source.type.dims[:lead] != value.type.dims[:lead]:
            return None
        if node.op == "expand":
            if inner != axes:
                return None
            at = [0 if d == 1 else i for d, i in zip(source.type.dims[lead:], at, strict=True)]
            return source, _flat(at, source.type.dims[lead:]), axes, 1
        return source, index, inner, 1
    axis = node.attrs["axis"] - lead
    if axis < 0:
        return None
    if node.op == "slice":
        if not isinstance(node.attrs["start"], int):
            return None
        at[axis] = node.attrs["start"] + at[axis] * node.attrs["step"]
    elif node.op == "gather":
        data = contents(node.operand(1))
        if data is None or data.size != 1:
            return None
        at[axis : axis + len(data.shape)] = [int(data.numpy().reshape(())) % int(source.type.dims[node.attrs["axis"]])]
    else:
        for i in range(len(node.operands)):
            source = node.operand(i)
            size = source.type.dims[node.attrs["axis"]]
            if not isinstance(size, int):
                return None
            if at[axis] < size:
                break
            at[axis] -= size
    if trailing_size(source, len(at)) is None:
        return None
    return source, _flat(at, source.type.dims[lead:]), len(at), 1


def _flat(at: Sequence[int], sizes: Sequence[Dim]) -> int:
    index = 0
    for i, d in zip(at, sizes, strict=True):
        assert isinstance(d, int)
        index = index * d + i
    return index


@dataclass(frozen=True)
class Run:
    """Elements of a table from ``start`` in steps of ``step``."""

    table: Value
    axes: int
    start: int
    step: int
    count: int

    def build(self, b: Builder, value: Value) -> Value:
        """The elements as a tensor's last axis, out of what stands for ``table``."""
        width = trailing_size(self.table, self.axes)
        if self.axes > 1:
            value = b.reshape(value, shape=(*value.type.dims[: -self.axes], width))
        if (self.start, self.step, self.count) == (0, 1, width):
            return value
        stop = self.start + self.step * (self.count - 1) + 1
        made: Value = b.slice(value, axis=value.type.rank - 1, start=self.start, stop=stop, step=self.step)
        return made


def _run(elements: Sequence[Signed]) -> Run | None:
    first = elements[0]
    step = elements[1].at - first.at if len(elements) > 1 else 1
    if step < 1 or any((e.table, e.axes) != (first.table, first.axes) for e in elements):
        return None
    if any(e.at != first.at + i * step for i, e in enumerate(elements)):
        return None
    return Run(first.table, first.axes, first.at, step, len(elements))


@dataclass(frozen=True)
class Table:
    """A table as ``rope`` reads it: its runs side by side, negated or not."""

    runs: tuple[Run, ...]
    negative: bool

    def build(self, b: Builder, values: dict[Value, Value]) -> Value:
        """The table out of what stands for its sources."""
        parts = [r.build(b, values[r.table]) for r in self.runs]
        made: Value = parts[0] if len(parts) == 1 else b.concat(*parts, axis=parts[0].type.rank - 1)
        if self.negative:
            made = b.neg(made)
        return made


def table_of(first: Sequence[Element], second: Sequence[Element], axes: int, signs: Sequence[int]) -> Table | None:
    """The table whose elements for the first and second of each pair are these, with ``signs`` before them; None where
    that is not in order or the signs differ.
    """
    here = [Signed(1, e.table, e.at, axes) for e in (*first, *second)]
    back = [traced(e, axes) for e in (*first, *second)]
    total = {s * e.sign for s, e in zip(signs, back, strict=True)}
    half = len(first)
    if len(total) != 1:
        return None
    negative = total == {-1}
    places = [e._replace(sign=1) for e in back]
    if places[:half] == places[half:]:
        runs = _run(here[:half]) if here[:half] == here[half:] and not negative else _run(places[:half])
        if runs is not None:
            return Table((runs,), negative)
    for elements in (here, back):
        if elements is here and len(set(signs)) > 1:
            continue
        whole = _run(elements)
        parts = [whole] if whole is not None else [_run(elements[:half]), _run(elements[half:])]
        found = tuple(r for r in parts if r is not None)
        if len(found) == len(parts) and len({r.table.type.rank - r.axes for r in found}) == 1:
            return Table(found, set(signs) == {-1} if elements is here else negative)
    return None

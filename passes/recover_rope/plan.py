"""What takes the place of a tensor that is a rotation, whole or between elements that are kept."""

from __future__ import annotations

from dataclasses import dataclass

from moec.ir.graph import Value
from moec.ir.symbol import Dim
from moec.ops.build import Builder
from moec.passes.recover_rope.lanes import Base, Follower, Lane
from moec.passes.recover_rope.rotation import NoRotation, Rotation, is_kept, is_sum, rotation

PARTS = 3
"""More parts, rotated or kept, than this make no rotation."""


@dataclass(frozen=True)
class Kept:
    """Elements of the tensor that stay as they are."""

    start: int
    width: int


@dataclass(frozen=True)
class Plan:
    """Parts side by side along the last axis; ``shape`` is what results, ``lead`` its axes before the lanes."""

    base: Base
    parts: tuple[Kept | Rotation, ...]
    shape: tuple[Dim, ...]
    lead: tuple[Dim, ...]
    cuts: dict[tuple[int, int], Value]
    """Tensors that are ranges (start, width) of the elements, by range."""

    @property
    def inputs(self) -> list[Value]:
        """The values it reads."""
        tables = [r.table for p in self.parts if isinstance(p, Rotation) for t in (p.cos, p.sin) for r in t.runs]
        return list(dict.fromkeys([self.base.value, *tables]))

    def build(self, b: Builder, inputs: dict[Value, Value]) -> Value:
        """The tensor, out of what stands for ``inputs``."""
        made = self._whole(b, inputs)
        if made is None:
            parts = [self._part(b, p, inputs) for p in self.parts]
            made = parts[0] if len(parts) == 1 else b.concat(*parts, axis=parts[0].type.rank - 1)
        if made.type.dims != self.shape:
            made = b.reshape(made, shape=self.shape)
        return made

    def _whole(self, b: Builder, inputs: dict[Value, Value]) -> Value | None:
        """One node for all, where the first elements are rotated and the rest kept."""
        first, *rest = self.parts
        if not isinstance(first, Rotation) or first.start != 0:
            return None
        width = self.base.width
        if rest != ([Kept(first.width, width - first.width)] if width > first.width else []):
            return None
        return _rope(b, self._cut(b, 0, width, inputs), first, inputs)

    def _part(self, b: Builder, part: Kept | Rotation, inputs: dict[Value, Value]) -> Value:
        value = self._cut(b, part.start, part.width, inputs)
        return _rope(b, value, part, inputs) if isinstance(part, Rotation) else value

    def _cut(self, b: Builder, start: int, width: int, inputs: dict[Value, Value]) -> Value:
        """A range of the tensor's elements as its last axis."""
        known = self.cuts.get((start, width))
        value = inputs[self.base.value]
        if known is not None and value is self.base.value:
            value = known
        else:
            if self.base.trail > 1:
                value = b.reshape(value, shape=(*self.base.lead, self.base.width))
            if width != self.base.width:
                value = b.slice(value, axis=value.type.rank - 1, start=start, stop=start + width, step=1)
        shape = (*self.lead, width)
        if value.type.dims != shape:
            value = b.expand(value, shape=shape)
        return value


def _rope(b: Builder, x: Value, r: Rotation, inputs: dict[Value, Value]) -> Value:
    cos, sin = r.cos.build(b, inputs), r.sin.build(b, inputs)
    made: Value = b.rope(x, cos, sin, rotary_dim=r.width, layout=r.layout)
    return made


def planned(follower: Follower, value: Value) -> Plan | None:
    """What ``value`` can be replaced by; None where it is no rotation. Raises NoRotation where it nearly is."""
    lanes = follower.lanes[value]
    flat: list[Lane] = list(lanes.ravel())
    runs: list[list[Lane]] = []
    for lane in flat:
        if not (is_sum(lane) or is_kept(lane)):
            return None
        last = runs[-1][-1] if runs else None
        if last is not None and _joins(last, lane):
            runs[-1].append(lane)
        else:
            runs.append([lane])
    if len(runs) > PARTS or not any(is_sum(r[0]) for r in runs):
        return None
    parts: list[Kept | Rotation] = []
    for run in runs:
        parts.append(rotation(run, lanes.ndim) if is_sum(run[0]) else Kept(run[0][0].source, len(run)))
    if sum(isinstance(p, Rotation) for p in parts) > 1:
        raise NoRotation("two rotations stand side by side")
    lead = value.type.dims[: follower.rank]
    return Plan(follower.base, tuple(parts), value.type.dims, lead, _cuts(follower, value))


def _joins(last: Lane, lane: Lane) -> bool:
    """Whether a lane goes on with what the last one was."""
    if is_sum(lane):
        return is_sum(last)
    return is_kept(last) and lane[0].source == last[0].source + 1


def _cuts(follower: Follower, before: Value) -> dict[tuple[int, int], Value]:
    """Ranges of elements that the graph has as tensors, before ``before``."""
    found: dict[tuple[int, int], Value] = {}
    assert before.producer is not None
    limit = follower.order[before.producer]
    for value, lanes in follower.lanes.items():
        node = value.producer
        late = node is not None and follower.order.get(node, 0) >= limit
        if late or lanes.ndim != 1 or not all(map(is_kept, lanes)):
            continue
        start = lanes[0][0].source
        if all(lane[0].source == start + i for i, lane in enumerate(lanes)):
            found.setdefault((start, lanes.size), value)
    return found

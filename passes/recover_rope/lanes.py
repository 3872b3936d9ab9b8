"""What each element along the last axes of a tensor is made of, followed forward from one tensor.

A lane is a sum of terms; a term is plus or minus an element of the tensor, alone or times an element of a table.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from moec.ir.graph import Node, Value
from moec.ir.symbol import Dim
from moec.passes.recover_attention.numbers import contents, scalar

WIDTH = 1024
"""Tensors with more elements than this along their last axes are not followed."""

NODES = 256
"""Nodes followed from one tensor at most."""


class Element(NamedTuple):
    """An element of a table: counted along its last axes, flattened."""

    table: Value
    at: int


class Term(NamedTuple):
    """``sign`` times element ``source`` of the tensor, times ``by`` where there is one."""

    sign: int
    source: int
    by: Element | None = None


Lane = tuple[Term, ...]
Lanes = np.ndarray
"""An object array of lanes over the last axes."""


class Base(NamedTuple):
    """The tensor that is followed, and how many of its axes are lanes."""

    value: Value
    trail: int

    @property
    def lead(self) -> tuple[Dim, ...]:
        return self.value.type.dims[: -self.trail]

    @property
    def width(self) -> int:
        size = trailing_size(self.value, self.trail)
        assert size is not None
        return size


def trailing_size(value: Value, axes: int) -> int | None:
    """The number of elements along the last ``axes`` axes; None where it is not a number."""
    total = 1
    for d in value.type.dims[len(value.type.dims) - axes :]:
        if not isinstance(d, int):
            return None
        total *= d
    return total


def object_array(items: list[Lane], shape: tuple[int, ...]) -> Lanes:
    """An array of tuples: numpy would make an axis of them."""
    array = np.empty(len(items), object)
    array[:] = items
    return array.reshape(shape)


Rule = Callable[["Follower", Node], Lanes | None]
RULES: dict[str, Rule] = {}


def _rule(*ops: str) -> Callable[[Rule], Rule]:
    def register(fn: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, fn))
        return fn

    return register


class Follower:
    """Lanes of all values that are made of ``base`` and tables."""

    def __init__(self, base: Base, order: Mapping[Node, int]):
        self.base, self.order = base, order
        shape = tuple(d for d in base.value.type.dims[-base.trail :] if isinstance(d, int))
        self.rank = base.value.type.rank - base.trail
        """The number of axes before the lanes."""
        self.lanes: dict[Value, Lanes] = {}
        self._queue: list[tuple[int, Node]] = []
        self._queued: set[Node] = set()
        self._add(base.value, object_array([(Term(1, i),) for i in range(base.width)], shape))

    def _add(self, value: Value, lanes: Lanes) -> None:
        self.lanes[value] = lanes
        for user in value.uses:
            if user not in self._queued and user in self.order and user.op in RULES:
                self._queued.add(user)
                heapq.heappush(self._queue, (self.order[user], user))

    def run(self) -> None:
        """Follow until nothing more can be said."""
        while self._queue and len(self._queued) <= NODES:
            _, node = heapq.heappop(self._queue)
            if node.graph is None or node.result.type.shape is None or node.result in self.lanes:
                continue
            found = RULES[node.op](self, node)
            if found is not None and found.size <= WIDTH:
                self._add(node.result, found)

    def of(self, node: Node, index: int = 0) -> Lanes | None:
        """The lanes of an operand."""
        return self.lanes.get(node.operand(index))


@_rule("slice")
def _slice(f: Follower, node: Node) -> Lanes | None:
    lanes, a = f.of(node), node.attrs
    axis, bounds = a["axis"] - f.rank, (a["start"], a["stop"], a["step"])
    if lanes is None or axis < 0 or not all(isinstance(d, int) for d in bounds):
        return None
    return np.take(lanes, range(*bounds), axis=axis)


@_rule("gather")
def _gather(f: Follower, node: Node) -> Lanes | None:
    lanes, axis = f.of(node), node.attrs["axis"] - f.rank
    data = contents(node.operand(1))
    if lanes is None or axis < 0 or data is None or data.size > WIDTH:
        return None
    index = data.numpy()
    if index.size and (index.min() < -lanes.shape[axis] or index.max() >= lanes.shape[axis]):
        return None
    taken = np.take(lanes, index.ravel(), axis=axis)
    return taken.reshape((*lanes.shape[:axis], *index.shape, *lanes.shape[axis + 1 :]))


def _trail(f: Follower, node: Node) -> tuple[int, ...] | None:
    """The result's sizes along the lanes, where all before stays as it is."""
    before, after = node.operand(0).type.dims, node.result.type.dims
    if len(after) <= f.rank or before[: f.rank] != after[: f.rank]:
        return None
    sizes = tuple(d for d in after[f.rank :] if isinstance(d, int))
    return sizes if len(sizes) == len(after) - f.rank else None


@_rule("reshape")
def _reshape(f: Follower, node: Node) -> Lanes | None:
    lanes, sizes = f.of(node), _trail(f, node)
    return None if lanes is None or sizes is None else lanes.reshape(sizes)


@_rule("transpose")
def _transpose(f: Follower, node: Node) -> Lanes | None:
    lanes, perm = f.of(node), node.attrs["perm"]
    if lanes is None or perm[: f.rank] != tuple(range(f.rank)):
        return None
    return lanes.transpose([p - f.rank for p in perm[f.rank :]])


@_rule("concat")
def _concat(f: Follower, node: Node) -> Lanes | None:
    axis = node.attrs["axis"] - f.rank
    parts = [f.of(node, i) for i in range(len(node.operands))]
    if axis < 0 or any(p is None for p in parts):
        return None
    return np.concatenate([p for p in parts if p is not None], axis=axis)


def _each(lanes: Lanes, fn: Callable[[Lane], Lane]) -> Lanes:
    return object_array([fn(lane) for lane in lanes.ravel()], lanes.shape)


@_rule("neg")
def _neg(f: Follower, node: Node) -> Lanes | None:
    lanes = f.of(node)
    return None if lanes is None else _each(lanes, negated)


def negated(lane: Lane) -> Lane:
    """Minus the lane."""
    return tuple(t._replace(sign=-t.sign) for t in lane)


@_rule("add", "sub")
def _add(f: Follower, node: Node) -> Lanes | None:
    a, b = f.of(node), f.of(node, 1)
    if a is None or b is None or a.shape != b.shape:
        return None
    pairs = list(zip(a.ravel(), b.ravel(), strict=True))
    if any(len(x) != 1 or len(y) != 1 or x[0].by is None or y[0].by is None for x, y in pairs):
        return None
    return object_array([(*x, *(y if node.op == "add" else negated(y))) for x, y in pairs], a.shape)


@_rule("mul")
def _mul(f: Follower, node: Node) -> Lanes | None:
    """An element times one of a table, which is whatever does not come from the tensor."""
    a, b = f.of(node), f.of(node, 1)
    if (a is None) == (b is None):
        return None
    lanes, table = (a, node.operand(1)) if a is not None else (b, node.operand(0))
    if lanes is None or table.type.shape is None or table.type.rank < lanes.ndim or scalar(table) is not None:
        return None
    if any(len(lane) != 1 or lane[0].by is not None for lane in lanes.ravel()):
        return None
    sizes = table.type.dims[table.type.rank - lanes.ndim :]
    whole = tuple(d for d in sizes if isinstance(d, int))
    if any(w not in (1, n) for w, n in zip(whole, lanes.shape, strict=False)) or len(whole) != lanes.ndim:
        return None
    index = np.broadcast_to(np.arange(int(np.prod(whole))).reshape(whole), lanes.shape).ravel()
    pairs = zip(lanes.ravel(), index, strict=True)
    return object_array([(lane[0]._replace(by=Element(table, int(i))),) for lane, i in pairs], lanes.shape)

"""Query, key and value as [batch, heads, positions, features], found among what the two products read."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from moec.ir.graph import Node, Value
from moec.ir.symbol import Dim, exact_div
from moec.ops.build import Builder
from moec.passes.recover_attention.scores import NearMiss
from moec.passes.recover_attention.views import (
    BATCH,
    FEATURE,
    KEY,
    ROW,
    Axes,
    Axis,
    Spot,
    arranged,
    covered,
    trail,
    whole,
)

Part = tuple[str, Dim, Dim]
"""Role, stride and size of an axis."""


@dataclass(frozen=True)
class Operand:
    """One operand: a value and how it becomes [batch, heads, positions, features]."""

    spot: Spot
    order: tuple[Part, ...]
    shape: tuple[Dim, ...]

    def build(self, b: Builder, value: Value) -> Value:
        """The operand out of what stands for ``spot.value``."""
        made = arranged(b, value, self.spot.axes, self.order)
        if made.type.dims != self.shape:
            made = b.expand(made, shape=self.shape)
        return made


@dataclass(frozen=True)
class Operands:
    """All three, the scale that was taken out of query and key, and of the value."""

    q: Operand
    k: Operand
    v: Operand
    batch: Dim
    heads: Dim


def total(dims: Sequence[Dim]) -> Dim:
    """The product of sizes."""
    size: Dim = 1
    for d in dims:
        size = size * d
    return size


def find_operands(product: Node, weighted: Node, shapes: Sequence[tuple[Dim, ...]]) -> Operands:
    """The operands of the product of queries and keys and of that with the values; ``shapes`` are those that scores
    and results have on the way. Raises NearMiss.
    """
    scores, result = product.result.type.dims, weighted.result.type.dims
    lead = total(scores[:-2])
    if total(result[:-2]) != lead:
        raise NearMiss(f"the products run over {scores[:-2]} and {result[:-2]}", product, weighted)
    rows, keys = scores[-2:]
    q = _trail(product, 0, ROW, rows, product.attrs["transpose_a"])
    k = _trail(product, 1, KEY, keys, not product.attrs["transpose_b"])
    v = _trail(weighted, 1, KEY, keys, weighted.attrs["transpose_b"])
    batch, heads = _split(lead, [scores, *shapes, result], [q, v, k])
    feature = _feature(q[0].axes)
    queries = _best(q, (batch, heads), ROW, rows, feature)
    if queries is None or queries.shape[1] != heads:
        raise NearMiss("queries are shared between heads", product)
    found = [_best(t, (batch, heads), KEY, keys, _feature(t[0].axes)) for t in (k, v)]
    key, value = found
    if key is None or value is None:
        raise NearMiss("keys or values are shared between batches", product if key is None else weighted)
    if key.shape[1] != value.shape[1]:
        key, value = (_best(t, (batch, heads), KEY, keys, _feature(t[0].axes), shared=False) for t in (k, v))
    assert key is not None and value is not None
    _check_permutation(q, k, v, product)
    return Operands(queries, key, value, batch, heads)


def given_operands(attention: Node) -> Operands:
    """Those of an ``attention`` node, keys and values before they are repeated over heads."""
    q, k, v = (attention.operand(i) for i in range(3))
    batch, heads, rows, feature = q.type.dims
    found = []
    for value in (k, v):
        _, own, keys, width = value.type.dims
        group = exact_div(heads, own) or 1
        lead = (whole(BATCH, batch, heads), whole(BATCH, own, group))
        spots = [s for s in trail(value, (*lead, whole(KEY, keys), whole(FEATURE, width))) if s.factor == 1.0]
        found.append(
            [_best(spots, (batch, heads), KEY, keys, width), _best(spots[:1], (batch, heads), KEY, keys, width)]
        )
    (k_best, k_own), (v_best, v_own) = found
    if k_best is None or v_best is None or k_best.shape[1] != v_best.shape[1]:
        k_best, v_best = k_own, v_own
    own_axes = (whole(BATCH, batch, heads), whole(BATCH, heads), whole(ROW, rows), whole(FEATURE, feature))
    queries = _best([Spot(q, own_axes, 1.0)], (batch, heads), ROW, rows, feature)
    assert queries is not None and k_best is not None and v_best is not None
    return Operands(queries, k_best, v_best, batch, heads)


def _trail(node: Node, index: int, role: str, size: Dim, features_first: bool) -> list[Spot]:
    """The trail of an operand whose last two axes are positions and features, or the other way round."""
    value = node.operand(index)
    dims, lead = value.type.dims, node.result.type.dims[:-2]
    axes: list[Axis] = []
    stride: Dim = 1
    for i, d in enumerate(reversed(lead)):
        at = len(dims) - 3 - i
        if at >= 0:
            own = dims[at]
            if own not in (1, d):
                raise NearMiss(f"a batch of {own} against {d}", node)
            axes.insert(0, () if own == 1 else whole(BATCH, d, stride))
        stride = stride * d
    positions, features = dims[-2:] if not features_first else (dims[-1], dims[-2])
    last = [whole(role, positions), whole(FEATURE, features)]
    return trail(value, (*axes, *(last[::-1] if features_first else last)))


def _feature(axes: Axes) -> Dim:
    return next((p.size for axis in axes for p in axis if p.role == FEATURE), 1)


def _split(lead: Dim, shapes: Sequence[Sequence[Dim]], trails: Sequence[Sequence[Spot]]) -> tuple[Dim, Dim]:
    """Batch and heads, whose product is ``lead``: as any shape on the way tells them apart."""
    for dims in shapes:
        if len(dims) >= 4:
            return dims[0], total(dims[1:-2])
    for spots in trails:
        for spot in spots:
            strides = [p.stride for axis in spot.axes for p in axis if p.role == BATCH and p.stride != 1]
            sizes = [exact_div(lead, s) for s in strides]
            if strides and len(spot.axes) >= 4 and sizes[0] is not None:
                return sizes[0], strides[0]
    return 1, lead


def _best(
    spots: Sequence[Spot], lead: tuple[Dim, Dim], role: str, size: Dim, feature: Dim, shared: bool = True
) -> Operand | None:
    """The spot with the fewest heads, then all factors taken out, then the right layout, then the nearest."""
    batch, heads = lead
    choices: list[tuple[int, Operand]] = []
    for spot in spots:
        group = covered(spot.axes, BATCH, batch * heads)
        own = exact_div(heads, group) if group is not None else None
        positions = next((p.size for axis in spots[0].axes for p in axis if p.role == role), 1)
        full = covered(spot.axes, role, positions) == 1 and covered(spot.axes, FEATURE, feature) == 1
        if own is None or group is None or not full or (not shared and group != 1):
            continue
        order = ((BATCH, heads, batch), (BATCH, group, own), (role, 1, positions), (FEATURE, 1, feature))
        wanted = tuple(whole(r, n, s) for r, s, n in order)
        rank = 0 if spot.axes == wanted else 1
        choices.append((rank, Operand(spot, order, (batch, own, size, feature))))
    if not choices:
        return None
    fewest = [c for c in choices if _fewer(c[1].shape[1], [o.shape[1] for _, o in choices])]
    most = max(_scalings(spots, o.spot) for _, o in fewest)
    return min((c for c in fewest if _scalings(spots, c[1].spot) == most), key=lambda c: c[0])[1]


def _fewer(own: Dim, others: Sequence[Dim]) -> bool:
    """Whether every other number of heads is a multiple of this one."""
    return all(exact_div(n, own) is not None for n in others)


def _scalings(spots: Sequence[Spot], until: Spot) -> int:
    """How many times the factor changed before this spot."""
    factors = [s.factor for s in spots[: spots.index(until) + 1]]
    return sum(a != b for a, b in itertools.pairwise(factors))


def _check_permutation(q: Sequence[Spot], k: Sequence[Spot], v: Sequence[Spot], product: Node) -> None:
    """Raise NearMiss where heads and positions of the keys change places and those of queries and values do not.

    Such a product is defined only where both have one size, and is then no attention.
    """
    if _crossed(k[-1]) and not _crossed(q[-1]) and not _crossed(v[-1]):
        node = product.operand(1).producer
        how = f" by {list(node.attrs['perm'])}" if node is not None and node.op == "transpose" else ""
        raise NearMiss(f"keys are permuted{how}: more than the last two dimensions", node, product)


def _crossed(source: Spot) -> bool:
    """Whether positions stand before heads in a tensor that has an axis for each."""
    roles = [tuple(p.role for p in axis) for axis in source.axes if axis]
    alone = [r[0] for r in roles if r in ((BATCH,), (KEY,), (ROW,))]
    return len(alone) > 1 and alone[-1] == BATCH and alone[-2] != BATCH

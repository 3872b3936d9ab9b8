"""Collectives: what the ranks of a group exchange. Each rank runs the same op on tensors of its own.

P is the group's size. The reference takes for each operand the list of what the P members have, in the group's order,
and gives a list of what each of them gets; sums run in that order, 16-bit floats in f32, rounded once. Collectives have
an effect: every member must come to them, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from moec.ir.group import Group
from moec.ir.symbol import Dim, Shape, exact_div
from moec.ops import comm_grad as gradients
from moec.ops.registry import Types, op
from moec.ops.shapes import check_axis, known, replaced

Array = np.ndarray
COLLECTIVE = ("collective", "effect")

_REDUCE: dict[str, Callable[[Array, Array], Array]] = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def _check_reduction(attrs: dict[str, Any]) -> None:
    if attrs["reduction"] not in _REDUCE:
        raise ValueError(f"reduction '{attrs['reduction']}' is none of {', '.join(_REDUCE)}")


def _reduced(xs: list[Array], reduction: str) -> Array:
    _same_shape(xs)
    total = xs[0]
    for x in xs[1:]:
        total = _REDUCE[reduction](total, x)
    return total


def _same_shape(xs: list[Array]) -> None:
    """ValueError where the ranks' tensors differ in shape."""
    for place, x in enumerate(xs):
        if x.shape != xs[0].shape:
            raise ValueError(f"member 0 has shape {list(xs[0].shape)}, member {place} has {list(x.shape)}")


def _split(shape: Shape, axis: int, group: Group) -> Dim:
    """The size of one of P equal parts along ``axis``; ValueError where there are no such."""
    part = exact_div(shape[check_axis(axis, len(shape))], group.size)
    if part is None:
        raise ValueError(f"a dimension of {shape[axis]} does not split into {group.size} equal parts ({group.name})")
    return part


@op("all_reduce(x: any, *, group: group, reduction: str) -> any")
class AllReduce:
    """Every rank gets x_0 + x_1 + ... + x_(P-1), or their maximum or minimum (reduction: sum, max, min)."""

    dtype = "x"
    cost = "comm"
    traits = COLLECTIVE
    grad = staticmethod(gradients.all_reduce)

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        _check_reduction(attrs)
        return [known(types)[0].shape]

    @staticmethod
    def ref(xs: list[Array], *, group: Group, reduction: str) -> list[Array]:
        return [_reduced(xs, reduction)] * len(xs)


@op("all_gather(x: any, *, group: group, axis: int) -> any")
class AllGather:
    """Every rank gets the ranks' x one after the other along axis: a dimension of D becomes P * D."""

    dtype = "x"
    cost = "comm"
    traits = COLLECTIVE
    grad = staticmethod(gradients.all_gather)

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        shape, axis = known(types)[0].shape, attrs["axis"]
        if shape is None:
            return [None]
        return [replaced(shape, check_axis(axis, len(shape)), shape[axis] * attrs["group"].size)]

    @staticmethod
    def ref(xs: list[Array], *, group: Group, axis: int) -> list[Array]:
        _same_shape(xs)
        return [np.concatenate(xs, axis)] * len(xs)


@op("reduce_scatter(x: any, *, group: group, axis: int, reduction: str) -> any")
class ReduceScatter:
    """Rank i gets part i of P equal ones, along axis, of the ranks' sum (or maximum, minimum): D becomes D / P."""

    dtype = "x"
    cost = "comm"
    traits = COLLECTIVE
    grad = staticmethod(gradients.reduce_scatter)

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        _check_reduction(attrs)
        shape, axis = known(types)[0].shape, attrs["axis"]
        return [None if shape is None else replaced(shape, axis, _split(shape, axis, attrs["group"]))]

    @staticmethod
    def ref(xs: list[Array], *, group: Group, axis: int, reduction: str) -> list[Array]:
        return np.split(_reduced(xs, reduction), len(xs), axis)


@op("all_to_all(x: any, *, group: group, split_axis: int, concat_axis: int) -> any")
class AllToAll:
    """Each rank cuts x into P equal parts along split_axis and sends part j to rank j; rank i puts the parts it gets
    one after the other along concat_axis, in the order of the ranks that they came from.
    """

    dtype = "x"
    cost = "comm"
    traits = COLLECTIVE
    grad = staticmethod(gradients.all_to_all)

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        shape, split, concat = known(types)[0].shape, attrs["split_axis"], attrs["concat_axis"]
        if shape is None:
            return [None]
        cut = replaced(shape, split, _split(shape, split, attrs["group"]))
        return [replaced(cut, concat, cut[check_axis(concat, len(cut), "concat_axis")] * attrs["group"].size)]

    @staticmethod
    def ref(xs: list[Array], *, group: Group, split_axis: int, concat_axis: int) -> list[Array]:
        _same_shape(xs)
        parts = [np.split(x, len(xs), split_axis) for x in xs]
        return [np.concatenate([p[i] for p in parts], concat_axis) for i in range(len(xs))]


@op("all_to_all_v(x: any, send: [P], receive: [P], *, group: group, rows: dim) -> any")
class AllToAllV:
    """Each rank sends the first send[0] rows of x to rank 0, the next send[1] to rank 1, ...; rank i puts receive[j]
    rows of rank j one after the other. ``rows``, the sum of receive, is known when it runs.

    send and receive (i32 or i64) may lie on the host, as most interfaces want them. receive[j] on rank i must be
    send[i] on rank j.
    """

    dtype = "x"
    cost = "comm"
    traits = COLLECTIVE
    grad = staticmethod(gradients.all_to_all_v)
    host_operands = ("send", "receive")

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        x, send, receive = known(types)
        for name, counts in (("send", send), ("receive", receive)):
            if not counts.dtype.is_int:
                raise ValueError(f"'{name}' counts rows, so it is no {counts.dtype}")
            if counts.dims[0] != attrs["group"].size:
                raise ValueError(f"'{name}' has {counts.dims[0]} counts for the {attrs['group'].size} members")
        if x.shape is None:
            return [None]
        if not x.shape:
            raise ValueError("a scalar has no rows")
        return [(attrs["rows"], *x.shape[1:])]

    @staticmethod
    def ref(xs: list[Array], send: list[Array], receive: list[Array], *, group: Group, rows: int | None) -> list[Array]:
        for i, counts in enumerate(send):
            if counts.size and (counts.min() < 0 or counts.sum() != xs[i].shape[0]):
                raise ValueError(f"member {i} sends {counts.tolist()} of {xs[i].shape[0]} rows")
        for i, wanted in enumerate(receive):
            for j, count in enumerate(wanted):
                if send[j][i] != count:
                    raise ValueError(f"member {i} expects {count} rows of member {j}, which sends {send[j][i]}")
        starts = [np.cumsum(counts) - counts for counts in send]
        return [
            np.concatenate([x[s[i] : s[i] + c[i]] for x, s, c in zip(xs, starts, send, strict=True)])
            for i in range(len(xs))
        ]


@op("group_rank(*, group: group) -> any")
class GroupRank:
    """Which member of its group this rank is: i64[], 0 to P-1."""

    dtype = "!i64"
    cost = "scalar"
    traits = ("ranked",)
    nondiff = "a number of a rank"

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        return [()]

    @staticmethod
    def ref(*, group: Group, rank: int = 0) -> Array:
        return np.array(group.place(rank), np.int64)

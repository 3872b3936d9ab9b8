"""Lowering of collectives: one call of the communication library on flat buffers, and transposes around it where parts
lie along another dimension than the first. A group of one exchanges nothing.
"""

from __future__ import annotations

from math import prod

from moec.codegen.host_cpp import DATA_TYPES, REDUCED
from moec.codegen.lower.base import Lowering, lowering, node_name, where
from moec.codegen.steps import Collective
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node, Value
from moec.ir.group import Group
from moec.ir.symbol import Dim, exact_div
from moec.ops.build import Builder


def _checked(node: Node, value: Value) -> None:
    """NoKernel where HCCL does not take the dtype."""
    name = "u8" if value.type.dtype.name == "bool" else value.type.dtype.name
    known = REDUCED if "reduction" in node.attrs else tuple(DATA_TYPES)
    if name not in known:
        what = f"HCCL has no {node.op} of {value.type.dtype}"
        raise NoKernel(Problem(what, where(node), f"cast it first to one of {', '.join(known)}"))


def _emit(cx: Lowering, node: Node, count: Dim, send: str = "", receive: str = "") -> None:
    group: Group = node.attrs["group"]
    cx.group(group)
    by = node.attrs.get("reduction", "")
    source, target = cx.tensor(node.operand(0)), cx.result(node)
    cx.add(Collective(node.op, group.name, source, target, count, by, send, receive, (node_name(node),)))


def _alone(cx: Lowering, node: Node) -> bool:
    """Whether the group has one member, whose result is its operand. NoKernel where HCCL does not take the dtype."""
    _checked(node, node.operand(0))
    if node.attrs["group"].size == 1:
        cx.alias(node.result, node.operand(0))
        return True
    return False


def _elements(value: Value) -> Dim:
    return prod(value.type.dims, start=1)


def _axis(node: Node) -> int:
    """Along which dimension parts lie: the first where all before are 1, since they stand one after the other then."""
    dims = node.operand(0).type.dims
    axis: int = node.attrs["axis"] % len(dims)
    return 0 if all(d == 1 for d in dims[:axis]) else axis


@lowering("all_reduce")
def all_reduce(cx: Lowering, node: Node) -> None:
    if not _alone(cx, node):
        _emit(cx, node, _elements(node.operand(0)))


@lowering("all_gather")
def all_gather(cx: Lowering, node: Node) -> None:
    x, group = node.operand(0), node.attrs["group"]
    if _alone(cx, node):
        return
    axis = _axis(node)
    if axis == 0:
        _emit(cx, node, _elements(x))
        return

    def through(b: Builder, value: Value) -> Value:
        whole = b.all_gather(b.reshape(value, shape=(1, *x.type.dims)), group=group, axis=0)
        return _to_axis(b, whole, axis, node)

    cx.through(node, through)


@lowering("reduce_scatter")
def reduce_scatter(cx: Lowering, node: Node) -> None:
    group = node.attrs["group"]
    if _alone(cx, node):
        return
    axis = _axis(node)
    if axis == 0:
        _emit(cx, node, _elements(node.result))
        return

    def through(b: Builder, value: Value) -> Value:
        parts = _from_axis(b, value, axis, group.size, node)
        summed = b.reduce_scatter(parts, group=group, axis=0, reduction=node.attrs["reduction"])
        made: Value = b.reshape(summed, shape=node.result.type.dims)
        return made

    cx.through(node, through)


@lowering("all_to_all")
def all_to_all(cx: Lowering, node: Node) -> None:
    x, group = node.operand(0), node.attrs["group"]
    if _alone(cx, node):
        return
    rank = len(x.type.dims)
    split, concat = node.attrs["split_axis"] % rank, node.attrs["concat_axis"] % rank
    if split == concat == 0:
        count = exact_div(_elements(x), group.size)
        assert count is not None
        _emit(cx, node, count)
        return

    def through(b: Builder, value: Value) -> Value:
        parts = _from_axis(b, value, split, group.size, node)
        came = b.all_to_all(parts, group=group, split_axis=0, concat_axis=0)
        return _to_axis(b, came, concat, node)

    cx.through(node, through)


@lowering("all_to_all_v")
def all_to_all_v(cx: Lowering, node: Node) -> None:
    x = node.operand(0)
    if _alone(cx, node):
        return
    send, receive = (cx.on_host(node, node.operand(i)) for i in (1, 2))
    _emit(cx, node, prod(x.type.dims[1:], start=1), send, receive)


@lowering("group_rank")
def group_rank(cx: Lowering, node: Node) -> None:
    cx.group(node.attrs["group"])
    cx.place(node, node.attrs["group"].name)


def _from_axis(b: Builder, value: Value, axis: int, parts: Dim, node: Node) -> Value:
    """[.., D, ..] as [P, .., D / P, ..]: its P parts one after the other."""
    dims = value.type.dims
    part = exact_div(dims[axis], parts)
    if part is None:
        raise NoKernel(Problem(f"{node.op} of a dimension of {dims[axis]} in {parts} parts", where(node)))
    cut = b.reshape(value, shape=(*dims[:axis], parts, part, *dims[axis + 1 :]))
    order = (axis, *(d for d in range(len(dims) + 1) if d != axis))
    made: Value = b.transpose(cut, perm=order)
    return made


def _to_axis(b: Builder, parts: Value, axis: int, node: Node) -> Value:
    """[P, .., D, ..] as [.., P * D, ..], the type of the node's result."""
    rank = len(parts.type.dims)
    order = (*range(1, axis + 1), 0, *range(axis + 1, rank))
    made: Value = b.reshape(b.transpose(parts, perm=order), shape=node.result.type.dims)
    return made

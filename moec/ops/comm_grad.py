"""Adjoints of collectives, for the sum over all ranks of what each differentiates.

Where every rank has a copy of one loss, each copy counts, so the incoming gradients of a value that all ranks hold are
shares that add up to its gradient (one over the number of ranks each, say).
"""

from __future__ import annotations

from moec.ir.graph import Node, Value
from moec.ops.tape import Gradients, NoGradient, Tape


def _dy(dys: tuple[Value | None, ...]) -> Value:
    dy = dys[0]
    assert dy is not None
    return dy


def _need_sum(node: Node) -> None:
    if node.attrs["reduction"] != "sum":
        raise NoGradient(f"of a {node.attrs['reduction']} over ranks")


def all_reduce(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """The ranks' dy summed."""
    _need_sum(node)
    return [t.narrow(t.all_reduce(_dy(dys), group=node.attrs["group"], reduction="sum"), 0)]


def all_gather(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """This rank's part of the ranks' dy summed."""
    return [t.narrow(t.reduce_scatter(_dy(dys), **node.attrs, reduction="sum"), 0)]


def reduce_scatter(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """The ranks' dy one after the other."""
    _need_sum(node)
    return [t.narrow(t.all_gather(_dy(dys), group=node.attrs["group"], axis=node.attrs["axis"]), 0)]


def all_to_all(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """The parts of dy back where they came from."""
    split, concat = node.attrs["split_axis"], node.attrs["concat_axis"]
    back = t.all_to_all(_dy(dys), group=node.attrs["group"], split_axis=concat, concat_axis=split)
    return [t.narrow(back, 0)]


def all_to_all_v(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """The rows of dy back where they came from."""
    x, send, receive = (node.operand(i) for i in range(3))
    back = t.all_to_all_v(_dy(dys), receive, send, group=node.attrs["group"], rows=x.type.dims[0])
    return [t.narrow(back, 0), None, None]

"""Gradients of slices that together cover a tensor: put together rather than padded and added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from moec.ir.graph import Node, Value
from moec.ir.symbol import Dim


class Part(NamedTuple):
    """A ``slice`` node that took a part of a tensor, and the gradient of its result."""

    node: Node
    gradient: Value


def deferred(node: Node) -> bool:
    """Whether the gradient of a node waits for those of its neighbours: a slice without gaps."""
    return node.op == "slice" and node.attrs["step"] == 1


def in_order(parts: Sequence[Part], size: Dim, axis: int) -> list[Part] | None:
    """The parts in order where they cover a dimension of ``size`` along ``axis`` without gap or overlap, else None."""
    by_start: dict[Dim, Part] = {}
    for part in parts:
        start = part.node.attrs["start"]
        if part.node.attrs["axis"] != axis or start in by_start:
            return None
        by_start[start] = part
    found: list[Part] = []
    at: Dim = 0
    while at != size and at in by_start:
        found.append(by_start.pop(at))
        at = found[-1].node.attrs["stop"]
    return found if at == size and not by_start else None

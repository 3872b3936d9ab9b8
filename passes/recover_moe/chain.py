"""Walking back along a router's chain of nodes."""

from __future__ import annotations

from moec.ir.graph import Node, Value
from moec.ir.types import DType
from moec.passes.recover_moe.contents import Zero
from moec.passes.recover_moe.static import Statics


class NoRouter(Exception):
    """What a top-k chooses from is no router's scores, or not one that ``moe`` can express; the nodes to blame come
    second."""

    def __init__(self, reason: str, node: Node | None = None):
        super().__init__(reason)
        self.node = node


def producer(value: Value, *ops: str) -> Node | None:
    """The node that makes ``value`` if it is one of ``ops``."""
    node = value.producer
    return node if node is not None and node.op in ops else None


def uncast(value: Value) -> tuple[Value, DType]:
    """The value before casts between floats, and the narrowest dtype that it passed through."""
    narrow = value.type.dtype
    while (node := producer(value, "cast")) is not None and node.operand(0).type.dtype.is_float:
        value = node.operand(0)
        narrow = min(narrow, value.type.dtype, key=lambda d: d.bits)
    return value, narrow


def constant_number(value: Value, statics: Statics) -> float | None:
    """The number that a value is everywhere; None where it is none."""
    meaning = statics.abstract(value)
    if meaning is not None and isinstance(meaning.content, Zero):
        return 0.0
    number = getattr(meaning.content, "value", None) if meaning is not None else None
    return float(number) if isinstance(number, int | float) else None

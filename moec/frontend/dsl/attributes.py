"""Values of attributes, checked and brought to the kind that the op declares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moec.frontend.dsl.values import Item, kind_of
from moec.ir.graph import Value
from moec.ir.group import Group
from moec.ops.registry import OpDef
from moec.ops.signature import Attr

KIND_TEXT = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "str": "a string",
    "dtype": "a dtype",
    "dim": "a dimension",
    "dims": "a list of dimensions",
    "ints": "a list of integers",
    "floats": "a list of numbers",
    "strs": "a list of strings",
    "tensor": "a tensor known at compile time",
    "group": "a group (group NAME = SIZE)",
}
"""How each kind of attribute is called in messages."""


def converted(attr: Attr, item: Item) -> Any:
    """``item`` as a value of the attribute's kind; an integer serves as a float. ValueError says what is wanted."""
    if isinstance(item, Group) and attr.kind != "group":
        item = item.size
    if attr.kind == "float" and isinstance(item, int) and not isinstance(item, bool):
        item = float(item)
    if attr.kind == "floats" and isinstance(item, tuple):
        item = tuple(float(i) if isinstance(i, int) and not isinstance(i, bool) else i for i in item)
    if not attr.accepts(item):
        wanted = KIND_TEXT[attr.kind] + (" or none" if attr.optional else "")
        raise ValueError(f"is {wanted}, not {kind_of(item)}")
    return item


def attribute(op: OpDef, attr: Attr, item: Item, operands: Sequence[Item]) -> Any:
    """The value of one attribute of an op; a negative axis counts from the end of operand x. ValueError says what is
    wrong.
    """
    value = converted(attr, item)
    if attr.name == "axis" and attr.kind == "int":
        return _axis(op, value, operands)
    if attr.name == "axes" and attr.kind == "ints":
        return tuple(sorted(_axis(op, v, operands) for v in value))
    return value


def _axis(op: OpDef, axis: int, operands: Sequence[Item]) -> int:
    first = operands[0] if operands else None
    if not isinstance(first, Value) or first.type.shape is None or op.signature.operands[0].name not in ("x", "xs"):
        if axis < 0:
            raise ValueError("is counted from the front here: give a number from 0 on")
        return axis
    rank = first.type.rank
    if not -rank <= axis < max(rank, 1):
        raise ValueError(f"is {axis}, but '{op.signature.operands[0].name}' has rank {rank}")
    return axis % rank if rank else axis

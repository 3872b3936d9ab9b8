"""What an expression can stand for, and arithmetic on the parts known at compile time.

An item is a tensor (``Value``), a dimension (``int`` or ``Expr``), another number, a string, bool, dtype or ``none``, a
list of items, a record of attributes, a group of ranks, several results at once, or ``UNKNOWN`` where an error was
already reported and must not be reported again.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moec.ir.graph import Value
from moec.ir.group import Group
from moec.ir.symbol import Bounds, Dim, Expr, bounds, ceildiv, dmax, dmin, exact_div, floordiv, mod
from moec.ir.types import DType

MAX_DIM_TEXT = 400
"""Characters of a printed dimension; an expression beyond it is no size that anyone means, and would grow without
bound.
"""

MAX_DIM = 2**63
"""Sizes stay below it, as byte offsets are 64-bit."""


class Unknown:
    """The item of an expression in which an error was reported."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = Unknown()


@dataclass(frozen=True)
class Results:
    """The results of a call that has several, by name where the op names them."""

    fn: str
    values: tuple[Value, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Record:
    """Attributes by name."""

    fields: Mapping[str, Any]


Item = Any
"""Value | int | Expr | float | str | bool | DType | None | tuple | Record | Group | Results | Unknown."""


def counted(count: int, noun: str) -> str:
    """``1 operand``, ``2 operands``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def is_dim(item: Item) -> bool:
    """Whether the item is a dimension (a bool is not)."""
    return isinstance(item, (int, Expr)) and not isinstance(item, bool)


def is_number(item: Item) -> bool:
    """Whether the item is a dimension or a float."""
    return is_dim(item) or isinstance(item, float)


def kind_of(item: Item) -> str:
    """What an item is, for messages."""
    if isinstance(item, Results):
        return f"the {len(item.values)} results of {item.fn}"
    if isinstance(item, Expr):
        return f"the dimension {item}"
    if isinstance(item, tuple) and item:
        return "a list of " + " and ".join(dict.fromkeys(map(kind_of, item)))
    for type_, text in _KINDS:
        if isinstance(item, type_):
            return text
    return "none"


_KINDS: Sequence[tuple[type, str]] = (
    (Value, "a tensor"),
    (bool, "a bool"),
    (int, "an integer"),
    (float, "a float"),
    (str, "a string"),
    (DType, "a dtype"),
    (tuple, "a list"),
    (Record, "a record"),
    (Group, "a group"),
    (Unknown, "unknown"),
)


def checked_dim(dim: Dim) -> Dim:
    """``dim`` itself; ValueError where it is beyond what moec handles."""
    if isinstance(dim, int):
        if abs(dim) >= MAX_DIM:
            raise ValueError("the result does not fit 64 bits")
    elif len(str(dim)) > MAX_DIM_TEXT:
        raise ValueError(f"this dimension is longer than {MAX_DIM_TEXT} characters")
    return dim


def arithmetic(op: str, a: Item, b: Item, symbols: Mapping[str, Bounds]) -> Item:
    """``a op b`` of two numbers known at compile time; ValueError says why there is no result."""
    try:
        if is_dim(a) and is_dim(b):
            return _on_dims(op, a, b, symbols)
        if isinstance(a, Expr) or isinstance(b, Expr):
            symbol = a if isinstance(a, Expr) else b
            raise ValueError(f"{symbol} has no value at compile time, so it cannot meet a float")
        if is_number(a) and is_number(b) and op in _FLOATS:
            result = _FLOATS[op](a, b)
            if isinstance(result, complex) or result != result:
                raise ValueError(f"{a} {op} {b} is no real number")
            return result
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    except OverflowError:
        raise ValueError("the result is too large") from None
    raise ValueError(f"'{op}' of {kind_of(a)} and {kind_of(b)} means nothing")


_FLOATS: Mapping[str, Callable[[float, float], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
}


def _on_dims(op: str, a: Dim, b: Dim, symbols: Mapping[str, Bounds]) -> Item:
    if op in ("//", "%"):
        return checked_dim(divided(floordiv if op == "//" else mod, a, b, symbols))
    if op == "/":
        quotient = exact_div(a, b)
        if quotient is None:
            raise ValueError(f"{b} does not divide {a}")
        return quotient
    if op == "**":
        return _power(a, b)
    if op in _RING:
        return checked_dim(_RING[op](a, b))
    raise ValueError(f"'{op}' wants tensors; both sides are numbers known at compile time")


_RING: Mapping[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def _power(a: Dim, b: Dim) -> Item:
    if not isinstance(a, int) or not isinstance(b, int):
        raise ValueError("a power needs numbers on both sides")
    if b < 0:
        return float(a) ** b
    if b > 64:
        raise ValueError("this exponent is too large")
    return checked_dim(a**b)


def divided(divide: Callable[[Dim, Dim], Dim], a: Dim, b: Dim, symbols: Mapping[str, Bounds]) -> Dim:
    """``divide(a, b)``; ValueError unless b is positive whatever the symbols are."""
    low = bounds(b, symbols)[0]
    if low < 1 and isinstance(b, int):
        raise ValueError("division by zero" if b == 0 else f"the divisor {b} must be positive")
    if low < 1:
        raise ValueError(f"the divisor {b} can be {low}; it must be positive")
    return divide(a, b)


def call_builtin(name: str, a: Item, b: Item, symbols: Mapping[str, Bounds]) -> Dim:
    """``ceildiv``, ``min`` or ``max`` of two dimensions; ValueError where they are none."""
    if not is_dim(a) or not is_dim(b):
        raise ValueError(f"{name} takes two dimensions, not {kind_of(a)} and {kind_of(b)}")
    if name == "ceildiv":
        return checked_dim(divided(ceildiv, a, b, symbols))
    return checked_dim(dmin(a, b) if name == "min" else dmax(a, b))


BUILTINS = ("ceildiv", "min", "max", "tensor", "size")
"""Functions that are no ops: three of dimensions, ``tensor(numbers, dtype)``, and ``size(x, at_most = dimension)``."""

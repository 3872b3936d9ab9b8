"""Scalar expressions of the kernel IR: what the scalar unit computes (loop bounds, offsets, event ids).

A scalar is a Python ``int`` or ``float``, or a small immutable tree: variables, run-time arguments, the core's own
index and count, arithmetic, comparisons. The emitter prints them as C++, the simulator and the static checks evaluate
them. ``==`` compares trees; a run-time comparison is written ``eq(a, b)``. Integers are 64-bit and divisions are of
non-negative numbers, so C++ ``/`` and Python ``//`` agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

Number = int | float


class Expr:
    """Base of the non-literal scalars; carries the arithmetic operators."""

    __slots__ = ()

    def __add__(self, other: Scalar) -> Scalar:
        return binary("+", self, other)

    def __radd__(self, other: Scalar) -> Scalar:
        return binary("+", other, self)

    def __sub__(self, other: Scalar) -> Scalar:
        return binary("-", self, other)

    def __rsub__(self, other: Scalar) -> Scalar:
        return binary("-", other, self)

    def __mul__(self, other: Scalar) -> Scalar:
        return binary("*", self, other)

    def __rmul__(self, other: Scalar) -> Scalar:
        return binary("*", other, self)

    def __floordiv__(self, other: Scalar) -> Scalar:
        return binary("//", self, other)

    def __rfloordiv__(self, other: Scalar) -> Scalar:
        return binary("//", other, self)

    def __truediv__(self, other: Scalar) -> Scalar:
        return binary("/", self, other)

    def __rtruediv__(self, other: Scalar) -> Scalar:
        return binary("/", other, self)

    def __mod__(self, other: Scalar) -> Scalar:
        return binary("%", self, other)

    def __rmod__(self, other: Scalar) -> Scalar:
        return binary("%", other, self)

    def __lt__(self, other: Scalar) -> Scalar:
        return binary("<", self, other)

    def __le__(self, other: Scalar) -> Scalar:
        return binary("<=", self, other)

    def __gt__(self, other: Scalar) -> Scalar:
        return binary(">", self, other)

    def __ge__(self, other: Scalar) -> Scalar:
        return binary(">=", self, other)

    def __bool__(self) -> bool:
        raise TypeError("a run-time scalar has no truth value while the kernel is built; use KernelBuilder.if_")


Scalar = int | float | Expr


@dataclass(frozen=True, slots=True)
class Var(Expr):
    """A variable declared by Let, For or LoadScalar. ``dtype`` is i64 or f32."""

    name: str
    dtype: str = "i64"


@dataclass(frozen=True, slots=True)
class Arg(Expr):
    """A run-time i64 argument of the kernel, passed in its tiling words."""

    name: str


@dataclass(frozen=True, slots=True)
class Core(Expr):
    """What the core knows of itself: ``idx`` (GetBlockIdx), ``num`` (GetBlockNum: cores running the kernel, of a mixed
    one the cube cores), ``sub`` (GetSubBlockIdx), ``aic`` and ``aiv`` (1 on a core of that kind)."""

    which: str


@dataclass(frozen=True, slots=True)
class Bin(Expr):
    """``a op b``; ``op`` is one of OPS. Comparisons give 0 or 1."""

    op: str
    a: Scalar
    b: Scalar


@dataclass(frozen=True, slots=True)
class Choose(Expr):
    """``a`` when ``cond`` is not 0, else ``b``."""

    cond: Scalar
    a: Scalar
    b: Scalar


_FOLD: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "/": lambda a, b: a / b,
    "%": lambda a, b: a % b,
    "min": min,
    "max": max,
    "cdiv": lambda a, b: -(-a // b),
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b),
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "and": lambda a, b: int(bool(a) and bool(b)),
    "or": lambda a, b: int(bool(a) or bool(b)),
}
OPS = tuple(_FOLD)


def binary(op: str, a: Scalar, b: Scalar) -> Scalar:
    """``a op b`` with literals folded and the neutral elements of + - * / dropped."""
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        return _FOLD[op](a, b)
    if op == "+":
        if isinstance(a, int) and a == 0:
            return b
        if isinstance(b, int) and b == 0:
            return a
        if isinstance(b, int) and isinstance(a, Bin) and a.op == "+" and isinstance(a.b, int):
            return binary("+", a.a, a.b + b)
    elif op == "-" and isinstance(b, int) and b == 0:
        return a
    elif op == "*":
        if isinstance(a, int) and a in (0, 1):
            return b if a else 0
        if isinstance(b, int) and b in (0, 1):
            return a if b else 0
    elif op in ("//", "cdiv") and isinstance(b, int) and b == 1:
        return a
    elif op in ("and", "or"):
        for x, y in ((a, b), (b, a)):
            if not isinstance(x, Expr):
                return y if bool(x) == (op == "and") else int(op == "or")
    elif op == "%" and isinstance(b, int) and b == 1:
        return 0
    return Bin(op, a, b)


def smin(a: Scalar, b: Scalar) -> Scalar:
    return binary("min", a, b)


def smax(a: Scalar, b: Scalar) -> Scalar:
    return binary("max", a, b)


def ceildiv(a: Scalar, b: Scalar) -> Scalar:
    return binary("cdiv", a, b)


def align(a: Scalar, to: int) -> Scalar:
    """The smallest multiple of ``to`` that is not below ``a``."""
    return binary("*", ceildiv(a, to), to)


def eq(a: Scalar, b: Scalar) -> Scalar:
    return binary("==", a, b)


def ne(a: Scalar, b: Scalar) -> Scalar:
    return binary("!=", a, b)


def both(a: Scalar, b: Scalar) -> Scalar:
    return binary("and", a, b)


def either(a: Scalar, b: Scalar) -> Scalar:
    return binary("or", a, b)


def choose(cond: Scalar, a: Scalar, b: Scalar) -> Scalar:
    """``a`` if ``cond`` else ``b``, folded when ``cond`` is a literal."""
    if not isinstance(cond, Expr):
        return a if cond else b
    return Choose(cond, a, b)


def dtype_of(s: Scalar) -> str:
    """i64 or f32: what C++ type holds the value."""
    if isinstance(s, float):
        return "f32"
    if isinstance(s, Var):
        return s.dtype
    if isinstance(s, Choose):
        return dtype_of(s.a)
    if isinstance(s, Bin):
        if s.op in ("<", "<=", ">", ">=", "==", "!=", "and", "or"):
            return "i64"
        return "f32" if "f32" in (dtype_of(s.a), dtype_of(s.b)) else "i64"
    return "i64"


def known_factor(s: Scalar) -> int:
    """A number that divides ``s`` whatever its variables are (0 only for the literal 0)."""
    if isinstance(s, int):
        return abs(s)
    if isinstance(s, Choose):
        return gcd(known_factor(s.a), known_factor(s.b))
    if isinstance(s, Bin):
        if s.op == "*":
            return known_factor(s.a) * known_factor(s.b)
        if s.op in ("+", "-", "min", "max", "%"):
            return gcd(known_factor(s.a), known_factor(s.b))
    return 1


@dataclass(frozen=True, slots=True)
class Env:
    """What a scalar is evaluated in: variables, arguments and the core."""

    vars: Mapping[str, Number]
    args: Mapping[str, int]
    core: Mapping[str, int]


def evaluate(s: Scalar, env: Env) -> Number:
    """The number ``s`` has in ``env``; KeyError names an unbound variable or argument."""
    if isinstance(s, Bin):
        if s.op == "and":
            return int(bool(evaluate(s.a, env)) and bool(evaluate(s.b, env)))
        if s.op == "or":
            return int(bool(evaluate(s.a, env)) or bool(evaluate(s.b, env)))
        return _FOLD[s.op](evaluate(s.a, env), evaluate(s.b, env))
    if isinstance(s, Var):
        return env.vars[s.name]
    if isinstance(s, Arg):
        return env.args[s.name]
    if isinstance(s, Core):
        return env.core[s.which]
    if isinstance(s, Choose):
        return evaluate(s.a if evaluate(s.cond, env) else s.b, env)
    assert not isinstance(s, Expr)
    return s


def names_in(s: Scalar) -> frozenset[str]:
    """Variables read by ``s`` (not arguments)."""
    if isinstance(s, Var):
        return frozenset((s.name,))
    if isinstance(s, Bin):
        return names_in(s.a) | names_in(s.b)
    if isinstance(s, Choose):
        return names_in(s.cond) | names_in(s.a) | names_in(s.b)
    return frozenset()

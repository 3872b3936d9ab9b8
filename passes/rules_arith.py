"""Rules on arithmetic, logic, casts, selection and broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from moec.ir.types import BOOL, DType
from moec.rewrite.rule import Rule, miss, near, rule
from moec.rewrite.term import T, Term, require, splat

NUMBERS = ("f32", "bf16", "i64")
_MANTISSA = {"f64": (53, 11), "f32": (24, 8), "bf16": (8, 8), "f16": (11, 5)}
"""Significant bits (the hidden one counted) and exponent bits."""


def widens(narrow: DType, wide: DType) -> bool:
    """Whether every value of ``narrow`` is a value of ``wide``, so that a cast there and back loses nothing."""
    if narrow is wide or narrow.kind == "bool":
        return narrow is wide or wide.is_int or wide.name in _MANTISSA
    if narrow.is_float:
        a, b = _MANTISSA.get(narrow.name), _MANTISSA.get(wide.name)
        return a is not None and b is not None and a[0] <= b[0] and a[1] <= b[1]
    if not narrow.is_int:
        return False
    digits = narrow.bits - (narrow.kind == "int")
    if wide.is_float:
        return wide.name in ("f32", "f64") and digits <= _MANTISSA[wide.name][0]
    loses_sign = narrow.kind == "int" and wide.kind == "uint"
    return wide.is_int and digits <= wide.bits - (wide.kind == "int") and not loses_sign


@rule(
    "cast-identity",
    exactness="exact",
    why="it is already of that dtype",
    dtypes=("f32", "bf16", "i64", "bool"),
    cases=['x: [3]; to = "swept"'],
    near=[near("from f32 to bf16", "x: f32[3]; to = !bf16")],
)
def cast_identity(x: Term, *, to: DType) -> Iterator[Any]:
    yield T.cast(x, to=to)
    require(x.dtype is to, f"the cast goes from {x.dtype} to {to}", x)
    yield x


@rule(
    "cast-cast",
    exactness="exact",
    why="the first cast keeps every value, so the second alone gives the same",
    cases=[
        "x: bf16[64]; mid = !f32; to = !bf16",
        "x: f16[64]; mid = !f32; to = !f64",
        "x: i32[64]; mid = !i64; to = !f32",
        "x: bool[8]; mid = !i64; to = !f32",
        "x: bool[8]; mid = !f32; to = !bool",
        "x: u8[64]; mid = !i32; to = !u8",
    ],
    near=[
        near("i32 does not hold every f32", "x: f32[64]; mid = !i32; to = !f32"),
        near("bf16 does not hold every f32", "x: f32[64]; mid = !bf16; to = !f32"),
        near("f16 does not hold every bf16", "x: bf16[64]; mid = !f16; to = !bf16"),
        near("f32 does not hold every i64", "x: i64[64]; mid = !f32; to = !i64"),
        near("i8 does not hold every u8", "x: u8[64]; mid = !i8; to = !u8"),
        near("bool does not hold every i32", "x: i32[64]; mid = !bool; to = !i32"),
        near("u64 does not hold every i32", "x: i32[64]; mid = !u64; to = !f32"),
    ],
)
def cast_cast(x: Term, *, mid: DType, to: DType) -> Iterator[Any]:
    yield T.cast(T.cast(x, to=mid), to=to)
    require(widens(x.dtype, mid), f"{mid} does not hold every {x.dtype}", x)
    yield x if x.dtype is to else T.cast(x, to=to)


def _neutral(name: str, build: Callable[[Term, Term], Term], number: float, why: str, exactness: str = "exact") -> Rule:
    """x op number is x; ``number`` bit for bit in floats, and by value in integers where it is not -0."""
    whole = not (number == 0 and np.signbit(number))
    integers = [f"x: i64[4]; c = {int(number)}"] if whole else []

    @rule(
        name,
        exactness=exactness,
        why=why,
        dtypes=NUMBERS if whole else ("f32", "bf16"),
        cases=[f"x: f32[16]; c = {number!r}", f"x: bf16[3, 5]; c = {number!r}", *integers],
        near=[near(f"the constant is {n!r}", f"x: f32[3]; c = {n!r}") for n in (2.0, -number)],
    )
    def neutral(x: Term, *, c: float) -> Iterator[Any]:
        yield build(x, splat(c, x))
        same = c == number and (np.signbit(c) == np.signbit(number) if isinstance(c, float) else whole)
        require(same, f"the constant is {c}, not {number}", x)
        yield x

    return neutral


NEUTRAL = [
    _neutral("mul-one", lambda x, c: x * c, 1.0, "1 is neutral"),
    _neutral("div-one", lambda x, c: x / c, 1.0, "1 is neutral"),
    _neutral("sub-zero", lambda x, c: x - c, 0.0, "+0 subtracted is neutral, for -0 too"),
    _neutral("add-minus-zero", lambda x, c: x + c, -0.0, "-0 added is neutral, for -0 and +0 alike"),
    _neutral("add-zero", lambda x, c: x + c, 0.0, "0 is neutral but for -0 + 0 = 0", "reassociated"),
    _neutral("pow-one", T.pow, 1.0, "the first power is the number itself"),
]


@rule("neg-neg", exactness="exact", why="negation flips the sign and nothing else", dtypes=NUMBERS, cases=["x: [16]"])
def neg_neg(x: Term) -> Iterator[Any]:
    yield T.neg(T.neg(x))
    yield x
    yield miss("a value in between", T.neg(T.abs(T.neg(x))))


@rule("not-not", exactness="exact", why="negation is an involution", dtypes=("bool",), cases=["x: [8]"])
def not_not(x: Term) -> Iterator[Any]:
    yield T.not_(T.not_(x))
    yield x


@rule(
    "add-neg",
    exactness="exact",
    why="x + (-y) is x - y in IEEE arithmetic and in two's complement",
    dtypes=NUMBERS,
    cases=["x: [4, 8]; y: [4, 8]", "x: [4, 8]; y: [8]"],
    escape="refuse",
)
def add_neg(x: Term, y: Term) -> Iterator[Any]:
    yield x + -y
    yield x - y


@rule(
    "pow-two",
    exactness="reassociated",
    why="the square is a product; libraries round the power differently",
    dtypes=NUMBERS,
    cases=["x: f32[16]; c = 2.0", "x: bf16[16]; c = 2.0", "x: i64[4]; c = 2"],
    near=[near("the exponent is 3.0", "x: f32[3]; c = 3.0"), near("the exponent is 0.5", "x: f32[3]; c = 0.5")],
)
def pow_two(x: Term, *, c: float) -> Iterator[Any]:
    yield T.pow(x, splat(c, x))
    require(c == 2, f"the exponent is {c}", x)
    yield x * x


@rule(
    "reciprocal-sqrt",
    exactness="reassociated",
    why="one rounding in place of two in 16 bit; the same in f32",
    cases=["x: [16] in 0.01..9"],
    escape="refuse",
)
def reciprocal_sqrt(x: Term) -> Iterator[Any]:
    yield T.reciprocal(T.sqrt(x))
    yield T.rsqrt(x)
    yield miss("the square root of the reciprocal rounds elsewhere", T.sqrt(T.reciprocal(x)))


@rule(
    "divide-by-sqrt",
    exactness="reassociated",
    why="a product with the reciprocal square root rounds once more than the quotient",
    cases=["y: [4, 16]; x: [4, 1] in 0.01..9", "y: [16]; x: [16] in 0.01..9"],
    escape="refuse",
)
def divide_by_sqrt(y: Term, x: Term) -> Iterator[Any]:
    yield y / T.sqrt(x)
    yield y * T.rsqrt(x)
    yield miss("the square root is divided", T.sqrt(x) / y)


@rule("one-over", exactness="exact", why="that is its definition", cases=["x: [16]"])
def one_over(x: Term) -> Iterator[Any]:
    yield 1.0 / x
    yield T.reciprocal(x)
    yield miss("not one", 2.0 / x)


def _select(name: str, always: bool) -> Rule:
    @rule(
        name,
        exactness="exact",
        why="the condition is the same everywhere",
        dtypes=NUMBERS,
        cases=[f"a: [3]; b: [3]; c = {str(always).lower()}"],
        near=[near("the condition is", f"a: [3]; b: [3]; c = {str(not always).lower()}")],
    )
    def select_constant(a: Term, b: Term, *, c: bool) -> Iterator[Any]:
        yield T.select(splat(c, BOOL), a, b)
        require(c is always, f"the condition is {c}", a)
        yield a if always else b

    return select_constant


@rule(
    "select-same", exactness="exact", why="both branches are one value", dtypes=NUMBERS, cases=["cond: bool[3]; a: [3]"]
)
def select_same(cond: Term, a: Term) -> Iterator[Any]:
    yield T.select(cond, a, a)
    yield a
    yield miss("different branches", T.select(cond, a, -a))


def _idempotent(op: str, dtypes: tuple[str, ...]) -> Rule:
    @rule(f"{op}-same", exactness="exact", why="the op is idempotent", dtypes=dtypes, cases=["x: [16]"])
    def idempotent(x: Term) -> Iterator[Any]:
        yield getattr(T, f"{op}_")(x, x)
        yield x

    return idempotent


def _absorbed(op: str, number: bool) -> Rule:
    @rule(
        f"{op}-{str(number).lower()}",
        exactness="exact",
        why=f"{str(number).lower()} is neutral",
        dtypes=("bool",),
        cases=[f"x: [8]; c = {str(number).lower()}"],
        near=[near("the constant is", f"x: [8]; c = {str(not number).lower()}")],
    )
    def absorbed(x: Term, *, c: bool) -> Iterator[Any]:
        yield getattr(T, f"{op}_")(x, splat(c, x))
        require(c is number, f"the constant is {c}", x)
        yield x

    return absorbed


IDEMPOTENT = [_idempotent(op, NUMBERS) for op in ("minimum", "maximum")]
IDEMPOTENT += [_idempotent(op, ("bool",)) for op in ("and", "or")]


def _drop_expand(op: str, side: int, dtypes: tuple[str, ...], **attrs: Any) -> Rule:
    """op(expand(x), y) is op(x, y) where y alone gives the result its shape; ``side`` is the expanded operand."""

    def ordered(first: Term, second: Term) -> Term:
        pair = (first, second) if side == 0 else (second, first)
        found: Term = getattr(T, f"{op}_")(*pair, **attrs)
        return found

    @rule(
        f"{op}-of-expand" if side == 0 else f"{op}-by-expand",
        exactness="exact",
        why="the op broadcasts as the expand does",
        dtypes=dtypes,
        cases=[f"x: {small} in 1..9; y: [4, 3] in 1..9; shape = [4, 3]" for small in ("[4, 1]", "[3]")],
        near=[near("not", "x: [3] in 1..9; y: [3] in 1..9; shape = [4, 3]")],
    )
    def drop_expand(x: Term, y: Term, *, shape: tuple[int, ...]) -> Iterator[Any]:
        yield ordered(T.expand(x, shape=shape), y)
        yield ordered(x, y)

    return drop_expand


_COMMUTE = ("add", "mul", "minimum", "maximum", "eq", "ne")
_ORDERED = ("sub", "div", "lt", "le", "gt", "ge")
DROP_EXPAND = [_drop_expand(op, 0, NUMBERS) for op in (*_COMMUTE, *_ORDERED)]
DROP_EXPAND += [_drop_expand(op, 1, NUMBERS) for op in _ORDERED]
DROP_EXPAND += [_drop_expand(op, 0, ("bool",)) for op in ("and", "or", "xor")]
DROP_EXPAND += [_drop_expand("pow", side, ("f32", "bf16")) for side in (0, 1)]

ARITH_RULES = [
    cast_identity,
    cast_cast,
    *NEUTRAL,
    neg_neg,
    not_not,
    add_neg,
    pow_two,
    one_over,
    reciprocal_sqrt,
    divide_by_sqrt,
    _select("select-true", True),
    _select("select-false", False),
    select_same,
    *IDEMPOTENT,
    _absorbed("and", True),
    _absorbed("or", False),
    *DROP_EXPAND,
]

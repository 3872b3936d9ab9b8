"""Integer arithmetic that the vector unit has no instruction for, in 32 bits: quotients, remainders, signs.

A quotient is estimated in f32 and corrected: after a second estimate, of the remainder, it is off by one at most. That
holds for all of 32 bits but -2^31.
"""

from __future__ import annotations

from moec.codegen.kernels.vector.values import Val, Values


def magnitude(v: Values, x: Val) -> Val:
    """|x|"""
    return v.max(x, v.scalar("Muls", x, -1))


def sign(v: Values, x: Val) -> Val:
    """-1, 0 or 1"""
    return v.scalar("Maxs", v.scalar("Mins", x, 1), -1)


def _negative(v: Values, x: Val) -> Val:
    """-1 where x is below 0, else 0."""
    return v.scalar("Maxs", v.scalar("Mins", x, 0), -1)


def _reach(v: Values, x: Val, y: Val) -> Val:
    """1 where x >= y, else 0."""
    return v.scalar("Maxs", v.scalar("Mins", v.scalar("Adds", v.sub(x, y), 1), 1), 0)


def _estimate(v: Values, a: Val, b: Val) -> Val:
    """a / b towards zero, nearly; b is f32."""
    return v.cast(v.div(v.cast(a, "f32", "RINT"), b), "i32", "TRUNC")


def _magnitudes(v: Values, a: Val, b: Val) -> tuple[Val, Val]:
    """Quotient and remainder of |a| and |b|."""
    top, bottom = magnitude(v, a), magnitude(v, b)
    wide = v.cast(bottom, "f32", "RINT")
    quotient = _estimate(v, top, wide)
    rest = v.sub(top, v.mul(quotient, bottom))
    more = _estimate(v, rest, wide)
    quotient, rest = v.add(quotient, more), v.sub(rest, v.mul(more, bottom))
    for off in (_negative(v, rest), _reach(v, rest, bottom)):
        quotient, rest = v.add(quotient, off), v.sub(rest, v.mul(off, bottom))
    return quotient, rest


def divide(v: Values, a: Val, b: Val) -> Val:
    """a / b towards zero."""
    quotient, _ = _magnitudes(v, a, b)
    return v.mul(quotient, v.mul(sign(v, a), sign(v, b)))


def modulo(v: Values, a: Val, b: Val, truncated: bool) -> Val:
    """What is left of a / b: it has b's sign, or if ``truncated`` a's."""
    _, rest = _magnitudes(v, a, b)
    rest = v.mul(rest, sign(v, a))
    if truncated:
        return rest
    opposed = _negative(v, v.mul(sign(v, rest), sign(v, b)))
    return v.sub(rest, v.mul(opposed, b))

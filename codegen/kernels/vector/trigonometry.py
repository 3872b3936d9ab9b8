"""Sine and cosine: the argument is brought to half a turn around 0, where a polynomial serves.

pi is taken away in three parts (those of Cephes' sinf, Moshier, times 4), of which the first two times a whole number
of half turns are exact in f32 up to about 10^4 radians. Absolute error there: 1.3e-7 (CPU model, correctly rounded
steps); it grows in proportion beyond. Infinite arguments give NaN.
"""

from __future__ import annotations

import math

from moec.codegen.kernels.vector.functions import polynomial
from moec.codegen.kernels.vector.values import Val, Values

PI = (3.140625, 9.67502593994140625e-4, 1.509957990978376432e-7)
# (sin(r) / r - 1) / r^2 over r^2 on |r| <= pi / 2, fitted to 2.4e-11 relative (least squares on Chebyshev points,
# iterated towards equal errors).
SIN_P = (
    -0.1666666716337204,
    0.008333330973982811,
    -0.0001984086848096922,
    2.752538421191275e-06,
    -2.3888908629032812e-08,
)


def sin(v: Values, x: Val) -> Val:
    """sin(x) = (-1)^k sin(x - k pi), k = x / pi rounded."""
    turns = v.cast(v.scalar("Muls", x, 1.0 / math.pi), "f32", "RINT")
    return v.mul(_sine(v, _reduced(v, x, turns)), _alternating(v, turns, 1.0))


def cos(v: Values, x: Val) -> Val:
    """cos(x) = -(-1)^k sin(x - (k + 1/2) pi), k = x / pi - 1/2 rounded."""
    turns = v.cast(v.scalar("Adds", v.scalar("Muls", x, 1.0 / math.pi), -0.5), "f32", "RINT")
    return v.mul(_sine(v, _reduced(v, x, v.scalar("Adds", turns, 0.5))), _alternating(v, turns, -1.0))


def _reduced(v: Values, x: Val, turns: Val) -> Val:
    """x - turns pi."""
    for part in PI:
        x = v.add(x, v.scalar("Muls", turns, -part))
    return x


def _sine(v: Values, r: Val) -> Val:
    """sin(r) = r + r^3 P(r^2)."""
    square = v.mul(r, r)
    return v.add(r, v.mul(v.mul(r, square), polynomial(v, square, SIN_P)))


def _alternating(v: Values, turns: Val, at_even: float) -> Val:
    """``at_even`` for even numbers, its negative for odd ones."""
    half = v.scalar("Muls", turns, 0.5)
    odd = v.sub(half, v.cast(half, "f32", "FLOOR"))  # 0 or 1/2
    return v.scalar("Adds", v.scalar("Muls", odd, -4.0 * at_even), at_even)

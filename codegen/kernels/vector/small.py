"""Integers of 8 and 16 bits: read into 32 bits, and written back modulo their size."""

from __future__ import annotations

from moec.codegen.kernels.vector import integers
from moec.codegen.kernels.vector.values import Scaled, Val, Values

RANGE = {"u8": (0, 256), "i8": (-128, 256), "i16": (-32768, 65536)}
"""The least number of a dtype, and how many it has."""


def widened(v: Values, x: Val) -> Val:
    """``x``, of u8, i8 or i16, as i32."""
    if x.form == "one":
        return v.fill(Scaled(x), Val(0, "col", "i32"), "i32")
    if x.dtype == "i16":
        return v.cast(v.cast(x, "f32"), "i32", "RINT")
    return v.cast(v.cast(x, "f16"), "i32", "RINT")


def narrowed(v: Values, x: Val, dtype: str) -> Val:
    """``x``, i32, in ``dtype``, which takes it modulo its size as C does."""
    low, count = RANGE[dtype]
    held = v.fill(count, x, "i32")
    from_low = integers.modulo(v, v.scalar("Adds", x, -low), held, False)
    wide = v.cast(v.scalar("Adds", from_low, low), "f32", "RINT")
    if dtype == "i16":
        return v.cast(wide, dtype, "RINT")
    return v.cast(v.cast(wide, "f16"), dtype, "RINT")

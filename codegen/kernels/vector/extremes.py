"""Where the largest or smallest element of each row stands, as steps of a vector program.

Elements equal to the row's extreme keep their place, others get one beyond all; the least place is the first of them,
the greatest the last. Integers are compared by their high 16 bits and then, where those are the extreme, by the low
ones, each of which f32 holds exactly. NaN counts as the extreme.
"""

from __future__ import annotations

from moec.codegen.kernels.vector.values import Val, Values

BEYOND = 2.0**30
"""Greater than any place."""
MOST = 2**24
"""Columns whose places f32 holds exactly."""
LOW_BITS = 16


def extreme_place(v: Values, x: Val, places: Val, largest: bool, last: bool) -> Val:
    """A col of f32: the place (of ``places``, a row of f32) of the extreme of each row of x, f32 or i32."""
    kind = "Max" if largest else "Min"
    if x.dtype == "i32":
        high = v.scalar("ShiftRight", x, LOW_BITS)
        low = v.sub(x, v.scalar("ShiftLeft", high, LOW_BITS))
        wide = v.cast(high, "f32", "RINT")
        among = v.compare("EQ", wide, v.row_reduce(kind, wide))
        x = v.select(among, v.cast(low, "f32", "RINT"), -BEYOND if largest else BEYOND)
    else:
        x = v.select(v.compare("EQ", x, x), x, float("inf") if largest else float("-inf"))
    here = v.compare("EQ", x, v.row_reduce(kind, x))
    return v.row_reduce("Max" if last else "Min", v.select(here, v.spread(places), -BEYOND if last else BEYOND))

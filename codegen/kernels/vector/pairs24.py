"""Two of four elements: which two of each group are the largest, and groups put together again.

Eight elements, two groups, share a byte of places. Elements come as planes, one for each place in eight: everything is
elementwise then.
"""

from __future__ import annotations

from collections.abc import Sequence

from moec.codegen.kernels.vector.values import Val, Values


def keep_two(v: Values, x: Sequence[Val]) -> tuple[Val, Val, Val]:
    """Of four planes (f32) the two elements of largest magnitude, of equals the earlier, in order of their places; and
    the first's place plus four times the second's."""
    size = [v.unary("Abs", e) for e in x]
    one = v.fill(1.0, x[0])
    beaten: list[Val] = [v.fill(0.0, x[0]) for _ in x]
    for j in range(4):
        for i in range(j):
            first = v.select(v.compare("GE", size[i], size[j]), one, 0.0)
            beaten[j] = v.add(beaten[j], first)
            beaten[i] = v.add(beaten[i], v.sub(one, first))
    kept = [v.compare("LE", b, 1.0) for b in beaten]
    low = v.select(kept[0], x[0], v.select(kept[1], x[1], x[2]))
    high = v.select(kept[3], x[3], v.select(kept[2], x[2], x[1]))
    number = [v.fill(float(i), x[0]) for i in range(4)]
    first = v.select(kept[0], number[0], v.select(kept[1], number[1], number[2]))
    second = v.select(kept[3], number[3], v.select(kept[2], number[2], number[1]))
    return low, high, v.add(first, v.scalar("Muls", second, 4.0))


def split(v: Values, x: Val, by: float) -> tuple[Val, Val]:
    """Quotient and remainder of small whole numbers held in f32; ``by`` is a power of two."""
    quotient = v.cast(v.scalar("Muls", x, 1 / by), "f32", "FLOOR")
    return quotient, v.sub(x, v.scalar("Muls", quotient, by))


def spread_two(v: Values, low: Val, high: Val, code: Val) -> list[Val]:
    """The four planes of groups that ``keep_two`` took apart, zeros in the other places."""
    second, first = split(v, code, 4.0)
    out = []
    for place in range(4):
        other = v.select(v.compare("EQ", second, float(place)), high, 0.0)
        out.append(v.select(v.compare("EQ", first, float(place)), low, other))
    return out

"""Rows of integers reduced, and products of rows: what the vector unit has no instruction for within a row.

Runs of a row are combined element by element into one run, its halves with each other until eight elements are left,
and those by the scalar unit. Integers are 32 bits wide meanwhile; sums that are larger wrap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import GmTensor
from moec.codegen.scalar import Scalar, binary, ceildiv, smax, smin

RUN = 2048
"""Most elements combined at once."""
LANES = 8
"""Elements of 32 bits in a block of 32 bytes: what is left to the scalar unit."""
ROWS = 64
"""Rows of a tile."""


@dataclass(frozen=True)
class Fold:
    """A way to combine: the vector instruction, the scalar operation, and what changes nothing (of floats, i32)."""

    instruction: str
    combine: Callable[[Scalar, Scalar], Scalar]
    neutral: tuple[float, int]

    def nothing(self, dtype: str) -> float | int:
        """The neutral element."""
        return self.neutral[dtype == "i32"]


FOLDS = {
    "sum": Fold("Add", lambda a, b: binary("+", a, b), (0.0, 0)),
    "prod": Fold("Mul", lambda a, b: binary("*", a, b), (1.0, 1)),
    "max": Fold("Max", smax, (float("-inf"), -(2**31))),
    "min": Fold("Min", smin, (float("inf"), 2**31 - 1)),
}


def work_dtype(dtype: str) -> str:
    """What numbers of ``dtype`` are combined in."""
    return "i32" if dtype in ("i32", "i64") else "f32"


def emit_folds(k: KernelBuilder, fold: Fold, x: GmTensor, y: GmTensor, rows: Scalar, n: Scalar) -> Scalar:
    """y[r] = the ``n`` elements of row r of x combined. Returns how many cores are wanted."""
    work = work_dtype(x.dtype)
    wide = RUN if not isinstance(n, int) else min(RUN, max(LANES, 1 << max(0, n - 1).bit_length()))
    raw = k.ub("raw", x.dtype, wide, 2)
    total = k.ub("total", work, wide)
    now = None if x.dtype == work else k.ub("now", work, wide)
    made, out = k.ub("made", work, ROWS), None if y.dtype == work else k.ub("out", y.dtype, ROWS)
    size = k.let("tile_rows", smax(1, smin(ROWS, ceildiv(rows, k.cores))))
    with k.loop("t", k.core, ceildiv(rows, size), k.cores) as t:
        first = k.let("first", t * size)
        here = k.let("here", smin(size, rows - first))
        with k.loop("r", 0, here) as r:
            k.fill(total[0], fold.nothing(work), wide)
            with k.loop("c", 0, n, wide) as c:
                ping = k.slot(2)
                count = k.let("count", smin(wide, n - c))
                k.load(raw[ping], x[binary("*", first + r, n) + c], count)
                part = raw[ping]
                if now is not None:
                    part = now[0]
                    k.cast(part, raw[ping], count, "NONE" if x.dtype == "i64" else "")
                k.v(fold.instruction, total[0], total[0], part, count=count)
            half = wide // 2
            while half >= LANES:
                k.v(fold.instruction, total[0], total[0], total[0][half], count=half)
                half //= 2
            whole: Scalar = k.read("lane0", total[0])
            for lane in range(1, LANES):
                whole = k.let(f"with{lane}", fold.combine(whole, k.read(f"lane{lane}", total[0][lane])))
            k.write(made[0][r], whole)
        if out is None:
            k.store(y[first], made[0], here)
        else:
            k.cast(out[0], made[0], here)
            k.store(y[first], out[0], here)
    return smax(1, rows)


def check_sizes(n: Scalar) -> list[int]:
    """Lengths of a row to check a kernel at."""
    return [n] if isinstance(n, int) else [0, 1, RUN + 1, 5 * RUN]

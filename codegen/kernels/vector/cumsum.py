"""Running sums along a dimension: x is [outer, n, inner], and rows of inner are added up one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import GmTensor
from moec.codegen.scalar import Scalar, align, binary, ceildiv, smax, smin

RUN = 2048
"""Most columns that one core adds up at once."""
SPREAD = 64
"""Columns below which more cores are no gain."""


@dataclass(frozen=True)
class Cumsum:
    """``exclusive``: without the element itself; ``reverse``: from the end."""

    outer: Scalar
    n: Scalar
    inner: Scalar
    exclusive: bool
    reverse: bool


def emit_cumsum(k: KernelBuilder, x: GmTensor, y: GmTensor, c: Cumsum) -> Scalar:
    """y = running sums, made in f32 or i32 in order and rounded once each. Returns how many cores are wanted."""
    work = "i32" if x.dtype == "i32" else "f32"
    narrow = x.dtype != work
    row, out = k.ub("row", x.dtype, RUN, 2), k.ub("out", y.dtype, RUN, 2)
    total = k.ub("total", work, RUN)
    wide = k.ub("wide", work, RUN) if narrow else row
    spread = align(smax(1, ceildiv(c.inner, smax(1, k.cores // smax(1, c.outer)))), SPREAD)
    run = k.let("run", smin(RUN, spread))
    runs = ceildiv(c.inner, run)
    with k.loop("u", k.core, binary("*", c.outer, runs), k.cores) as u:
        at = k.let("col", (u % runs) * run)
        first = k.let("first", binary("+", binary("*", u // runs, binary("*", c.n, c.inner)), at))
        cols = k.let("cols", smin(run, c.inner - at))
        k.fill(total[0], 0 if work == "i32" else 0.0, cols)
        with k.loop("i", 0, c.n) as i:
            ping = k.slot(2)
            place: Scalar = binary("-", binary("-", c.n, 1), i) if c.reverse else i
            where = k.let("where", binary("+", first, binary("*", place, c.inner)))
            k.load(row[ping], x[where], cols)
            now = row[ping]
            if narrow:
                now = wide[0]
                k.cast(now, row[ping], cols)
            for step in ("out", "add") if c.exclusive else ("add", "out"):
                if step == "add":
                    k.v("Add", total[0], total[0], now, count=cols)
                elif narrow:
                    k.cast(out[ping], total[0], cols)
                else:
                    k.v("Muls", out[ping], total[0], scalar=1 if work == "i32" else 1.0, count=cols)
            k.store(y[where], out[ping], cols)
    return smax(1, binary("*", c.outer, ceildiv(c.inner, SPREAD)))

"""Products of rows that stand sorted by expert with the weights of their experts.

The rows lie one behind the other, or are gathered: each is copied into L1 from where an index on the device says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import GmTensor, Kernel
from moec.codegen.kernels.cube import OutputTile, memories
from moec.codegen.kernels.cube_block import blocks, emit_block, pass_by
from moec.codegen.scalar import Scalar, Var
from moec.codegen.tile import CubeTile

GATHERED, SOURCE = "gathered", "source"
"""Roles of a tensor whose rows are gathered, and of their indices."""


def gathered_rows(k: KernelBuilder, dtype: str, s: Scalar, width: int, hi: int) -> tuple[GmTensor, GmTensor]:
    """The parameters of gathered rows: ``rows`` [R, width] (argument R, at most ``hi``) and ``source`` [S] i32."""
    r = k.arg("R", 0, hi)
    return k.gm("rows", dtype, (r, width), "in", GATHERED), k.gm("source", "i32", (s,), "in", SOURCE)


def grouped_witness(k: KernelBuilder, cores: int, counts: list[int], gathered_hi: int | None) -> None:
    """Checks with ``counts``; gathered rows neither in order nor each once."""
    rows = sum(counts)
    if gathered_hi is None:
        k.witness(cores, {"counts": counts}, S=rows)
        return
    of = min(rows // 2 + 1, gathered_hi)
    k.witness(cores, {"counts": counts, "source": [(i * 5 + 3) % of for i in range(rows)]}, S=rows, R=of)


@dataclass(frozen=True, slots=True)
class Grouped:
    """What a grouped matmul computes: ``experts`` weights of [n, k] (``by_k``: [k, n]), at most ``rows_hi`` rows,
    gathered out of at most ``gathered_hi`` (None: they lie sorted)."""

    experts: int
    n: int
    k: int
    dtype: str
    out: str
    rows_hi: int = 2**31 - 1
    by_k: bool = False
    gathered_hi: int | None = None


def grouped_matmul_kernel(
    name: str, caps: Capacities, tile: CubeTile, g: Grouped, source: Sequence[str] = ()
) -> Kernel:
    """rows [S, K], sorted by expert, by the weights w [E, N, K] (or [E, K, N]) of their experts, into out [S, N];
    counts stay on the device. Gathered: rows [R, K] and source [S] i32.

    Every core walks the experts and takes each core-count-th tile, counting on from one expert to the next.
    """
    k = KernelBuilder(name, "aic", caps, source)
    s = k.arg("S", 0, g.rows_hi)
    index: GmTensor | None = None
    if g.gathered_hi is None:
        a = k.gm("rows", g.dtype, (s, g.k), "in")
    else:
        a, index = gathered_rows(k, g.dtype, s, g.k, g.gathered_hi)
    b = k.gm("w", g.dtype, (g.experts, *((g.k, g.n) if g.by_k else (g.n, g.k))), "in", "weight")
    counts = k.gm("counts", "i32", (g.experts,), "in", "counts")
    c = k.gm("out", g.out, (s, g.n), "out")
    mem = memories(k, tile, g.dtype)
    pass_by(k, tile, a, b)
    row, done = k.let("firstRow", 0), k.let("done", 0)
    with k.loop("e", 0, g.experts) as e:
        count = k.read("count", counts[e])
        of = blocks(k, tile, count, g.n)
        with k.loop("t", (k.core + k.cores - done) % k.cores, of.each, k.cores) as t:

            def output(m0: Scalar, n0: Scalar, mm: Var, nn: Var, e: Scalar = e) -> OutputTile:
                at = k.let("at", row + m0)
                first_b = e * (g.k * g.n) + (n0 if g.by_k else n0 * g.k)
                first_a, names = (a[at * g.k], None) if index is None else (a[0], index[at])
                return OutputTile(first_a, b[first_b], c[at * g.n + n0], mm, nn, g.k, g.n, g.by_k, source=names)

            emit_block(k, mem, tile, of, t, output)
        k.assign(row, row + count)
        k.assign(done, (done + of.each) % k.cores)
    for cores in (1, 2):
        for first, last in ((0, 0), (1, 0), (2, 1), (0, tile.m + 1), (3 * tile.m + 17, 2), (5 * tile.m, 4 * tile.m)):
            data = [first, *([0] * (g.experts - 2)), last] if g.experts > 1 else [first]
            grouped_witness(k, cores, data, g.gathered_hi)
    return k.finish(caps.aic)

"""Gradients of grouped weights: dW[e] = dy_e^T rows_e over the rows of each expert, accumulated in f32 in one go.

Both operands lie by K (K being rows), so both are transposed on the way to L0. The products leave the experts without
rows alone: a vector kernel writes their zeros, which costs nothing where there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import ITEMSIZE, GmTensor, Kernel
from moec.codegen.kernels.cube import OutputTile, memories
from moec.codegen.kernels.cube_block import blocks, emit_block, pass_by
from moec.codegen.kernels.grouped import gathered_rows, grouped_witness
from moec.codegen.scalar import Scalar, Var, ceildiv, eq, smin
from moec.codegen.tile import CubeTile

ZEROS = 32 * 1024
"""Bytes of zeros that are written at a time."""


@dataclass(frozen=True, slots=True)
class GroupedDW:
    """``experts`` gradients of [n, k] in ``out``, from at most ``rows_hi`` rows of ``dtype``; those of the input are
    gathered out of at most ``gathered_hi`` (None: they lie sorted)."""

    experts: int
    n: int
    k: int
    dtype: str
    out: str
    rows_hi: int = 2**31 - 1
    gathered_hi: int | None = None


def grouped_dw_kernel(name: str, caps: Capacities, tile: CubeTile, g: GroupedDW, source: Sequence[str] = ()) -> Kernel:
    """dy [S, N] and rows [S, K], sorted by expert, into out [E, N, K]; nothing is written for empty experts. Gathered:
    rows [R, K] and source [S] i32.

    Every core walks the experts and takes each core-count-th tile, counting on from one expert to the next.
    """
    k = KernelBuilder(name, "aic", caps, source)
    s = k.arg("S", 0, g.rows_hi)
    a = k.gm("dy", g.dtype, (s, g.n), "in")
    index: GmTensor | None = None
    if g.gathered_hi is None:
        b = k.gm("rows", g.dtype, (s, g.k), "in")
    else:
        b, index = gathered_rows(k, g.dtype, s, g.k, g.gathered_hi)
    counts = k.gm("counts", "i32", (g.experts,), "in", "counts")
    c = k.gm("out", g.out, (g.experts, g.n, g.k), "inout")
    mem = memories(k, tile, g.dtype)
    row, done = k.let("firstRow", 0), k.let("done", 0)
    pass_by(k, tile, a, b)
    of = blocks(k, tile, g.n, g.k)
    with k.loop("e", 0, g.experts) as e:
        count = k.read("count", counts[e])
        with k.if_(count > 0):
            with k.loop("t", (k.core + k.cores - done) % k.cores, of.each, k.cores) as t:

                def output(m0: Scalar, n0: Scalar, mm: Var, nn: Var, e: Scalar = e, count: Var = count) -> OutputTile:
                    first_b, names = (b[row * g.k + n0], None) if index is None else (b[n0], index[row])
                    at = a[row * g.n + m0], first_b, c[(e * g.n + m0) * g.k + n0]
                    return OutputTile(*at, mm, nn, count, g.k, True, g.n, names)

                emit_block(k, mem, tile, of, t, output)
            k.assign(row, row + count)
            k.assign(done, (done + of.each) % k.cores)
    for cores in (1, 2):
        checked = [[1] * g.experts]
        for first, last in ((0, 0), (1, 0), (0, 2), (tile.k0 + 1, 1), (2 * tile.k1 + 17, 3 * tile.k1)):
            checked.append([first, *([0] * (g.experts - 2)), last] if g.experts > 1 else [first])
        for data in checked:
            grouped_witness(k, cores, data, g.gathered_hi)
    return k.finish(caps.aic)


def empty_zero_kernel(name: str, caps: Capacities, experts: int, each: int, dtype: str) -> Kernel:
    """Exact zeros into out [E, each] for the experts whose counts [E] are 0; the others are left alone."""
    k = KernelBuilder(name, "aiv", caps)
    counts = k.gm("counts", "i32", (experts,), "in", "counts")
    out = k.gm("out", dtype, (experts, each), "inout")
    most = min(ZEROS // ITEMSIZE[dtype], -(-each // 16) * 16)
    zeros = k.ub("zeros", dtype, most)
    k.fill(zeros[0], 0, most)
    with k.loop("e", 0, experts) as e:
        count = k.read("count", counts[e])
        with k.if_(eq(count, 0)), k.loop("t", k.core, ceildiv(each, most), k.cores) as t:
            k.store(out[e * each + t * most], zeros[0], smin(most, each - t * most))
    for cores in (1, 2):
        for last in (0, 3):
            k.witness(cores, {"counts": [0] * (experts - 1) + [last]})
    return k.finish(caps.aiv)

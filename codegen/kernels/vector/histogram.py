"""How often each number occurs: scalar units count, in the unified buffer.

Each core counts for bins of its own, a tile of them at a time, and goes through all numbers for each. For counts of
many numbers, which routing has as part of its own kernel, this is slow; it is deterministic and takes any numbers.
"""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import GmTensor
from moec.codegen.scalar import Scalar, both, ceildiv, smin

IDS = 2048
"""Numbers fetched at once."""
BINS = 16384
"""Bins of a tile."""


def emit_histogram(k: KernelBuilder, x: GmTensor, y: GmTensor, count: Scalar, bins: Scalar) -> Scalar:
    """y[b] = how many of the ``count`` numbers x (i32, i64) are b; those outside [0, bins) are left out. Returns how
    many cores have work.
    """
    tile = -(-bins // 8) * 8 if isinstance(bins, int) and bins <= BINS else BINS
    counts = k.ub("counts", "i32", tile)
    ids = k.ub("ids", x.dtype, IDS, 2)
    with k.loop("first", k.core * tile, bins, k.cores * tile) as first:
        mine = k.let("mine", smin(tile, bins - first))
        k.fill(counts[0], 0, tile)
        with k.loop("t", 0, count, IDS) as t:
            ping = k.slot(2)
            n = k.let("n", smin(IDS, count - t))
            k.load(ids[ping], x[t], n)
            with k.loop("i", 0, n) as i:
                number = k.let("bin", k.read("number", ids[ping][i]) - first)
                with k.if_(both(number >= 0, number < mine)):
                    k.write(counts[0][number], k.read("so_far", counts[0][number]) + 1)
        k.store(y[first], counts[0], mine)
    return ceildiv(bins, tile)

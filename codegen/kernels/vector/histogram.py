"""How often each number occurs: the scalar unit of one core counts, in the unified buffer.

For counts of many numbers, which routing has as part of its own kernel, this is slow; it is deterministic and takes any
numbers.
"""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import GmTensor
from moec.codegen.scalar import Scalar, both, smin

IDS = 2048
"""Numbers fetched at once."""


def emit_histogram(k: KernelBuilder, x: GmTensor, y: GmTensor, count: Scalar, bins: int) -> None:
    """y[b] = how many of the ``count`` numbers x (i32, i64) are b; those outside [0, bins) are left out."""
    padded = -(-bins // 8) * 8
    counts = k.ub("counts", "i32", padded)
    ids = k.ub("ids", x.dtype, IDS, 2)
    k.fill(counts[0], 0, padded)
    with k.loop("t", 0, count, IDS) as t:
        ping = k.slot(2)
        n = k.let("n", smin(IDS, count - t))
        k.load(ids[ping], x[t], n)
        with k.loop("i", 0, n) as i:
            number = k.read("number", ids[ping][i])
            with k.if_(both(number >= 0, number < bins)):
                k.write(counts[0][number], k.read("so_far", counts[0][number]) + 1)
    k.store(y[0], counts[0], bins)

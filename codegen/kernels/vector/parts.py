"""Products that were computed in parts of K, summed: y[i] = x[0][i] + x[1][i] + ..., in f32 in this order.

The order is what keeps results the same from run to run: cores that added to one place as they end would not. Summing
is a kernel of its own, not the end of a mixed one whose cores all wait for each other. By the model its launch, 4.7 us
on 48 cores, is most of the 5.3 to 8 us that it takes for 16 to 256 rows (the product before it takes 13 to 50 us); how
much of a launch a mixed kernel of both kinds of cores would save is not known, as no launch of one is measured.
"""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import Kernel
from moec.codegen.kernels.vector.assemble import balanced
from moec.codegen.scalar import Scalar, ceildiv, smax, smin

CHUNK = 4096
"""Most elements of a task: 16 KiB of each part, a copy near peak bandwidth."""
LEAST = 256
"""Elements that a task is made of."""
UNIT = 256
"""Parts of K are multiples of this: 512 bytes of 16-bit rows, lest their pieces cross lines of device memory."""


def part_length(k: Scalar, splits: int) -> Scalar:
    """How much of ``k`` each part has; the last ones may have less, or nothing."""
    return smax(1, ceildiv(ceildiv(k, UNIT), splits)) * UNIT


def parts_kernel(
    name: str, caps: Capacities, splits: int, elements: int | None, depth: int | None, out: str, hi: int = 2**31 - 1
) -> Kernel:
    """x [splits, n] f32 to y [n] of ``out``; parts of K = ``depth`` that have nothing were not written. Arguments n and
    K where they are None."""
    k = KernelBuilder(name, "aiv", caps)
    n: Scalar = k.arg("n", 0, hi) if elements is None else elements
    whole: Scalar = k.arg("K", 0, hi) if depth is None else depth
    x, y = k.gm("x", "f32", (splits, n), "in"), k.gm("y", out, (n,), "out")
    parts = k.ub("parts", "f32", CHUNK, 3)
    made = k.ub("made", out, CHUNK, 2)
    total = made if out == "f32" else k.ub("total", "f32", CHUNK)
    used = k.let("used", ceildiv(whole, part_length(whole, splits)))
    size = k.let("size", balanced(ceildiv(n, k.cores), CHUNK, LEAST))
    with k.loop("t", k.core, ceildiv(n, size), k.cores) as t:
        ping = k.slot(2, "ping")
        at = k.let("at", t * size)
        count = k.let("count", smin(size, n - at))
        into = total[ping if total is made else 0]
        k.fill(into, 0.0, count)
        with k.loop("p", 0, used) as p:
            ring = k.slot(3, "ring")
            k.load(parts[ring], x[p * n + at], count)
            k.v("Add", into, into, parts[ring], count=count)
        if total is not made:
            k.cast(made[ping], into, count)
        k.store(y[at], made[ping], count)
    for cores, length in ((1, 0), (1, 1), (2, 5 * CHUNK), (1, 7 * LEAST + 3), (2, 900)):
        given = {"n": min(length, hi), "K": min(splits * UNIT + 1, hi)}
        k.witness(cores, None, **{name: given[name] for name in k.arguments()})
    return k.finish(smax(1, ceildiv(n, LEAST)))

"""Which elements are not zero: their places, in order.

Blocks are counted first; one core turns the counts into where each block's places begin; then every block keeps, of the
numbers of its elements, those whose bit of a comparison is set. Nothing depends on which core takes a block.
"""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import GmTensor, LocalRef
from moec.codegen.kernels.vector.tile import LANES
from moec.codegen.scalar import Scalar, align, binary, ceildiv, smax, smin

BLOCK = 4096
"""Elements of a block."""
COUNTS = 64
"""Counts that are summed from one fetch."""


class _Marker:
    """Finds what is not zero in a block of x."""

    def __init__(self, k: KernelBuilder, x: GmTensor):
        self.k, self.x = k, x
        self.raw, self.numbers = k.ub("raw", x.dtype, BLOCK, 2), k.ub("numbers", "f32", BLOCK)
        self.bits = k.ub("bits", "u32", BLOCK // 32)
        self.half = k.ub("narrow", "f16", BLOCK) if x.dtype == "u8" else None
        self.whole = k.ub("whole", "i32", BLOCK) if x.dtype in ("i32", "i64") else None

    def mark(self, first: Scalar, count: Scalar) -> None:
        """``bits``: which of elements ``first`` and on are not zero; none beyond ``count``."""
        k, numbers = self.k, self.numbers[0]
        raw = self.raw[k.slot(2)]
        k.load(raw, self.x[first], count)
        k.fill(numbers, 0.0, align(count, LANES))
        if self.whole is not None:
            if self.x.dtype == "i64":
                k.cast(self.whole[0], raw, count, "NONE")
                raw = self.whole[0]
            k.v("Mins", self.whole[0], raw, scalar=1, count=count)
            k.v("Maxs", self.whole[0], self.whole[0], scalar=-1, count=count)
            k.cast(numbers, self.whole[0], count, "RINT")
        elif self.x.dtype == "f32":
            k.v("Muls", numbers, raw, scalar=1.0, count=count)
        else:
            if self.half is not None:
                k.cast(self.half[0], raw, count)
                raw = self.half[0]
            k.cast(numbers, raw, count)
        self._compare(numbers, align(count, LANES))

    def _compare(self, numbers: LocalRef, count: Scalar) -> None:
        self.k.v("CompareScalar", self.bits[0].cast("u8"), numbers, scalar=0.0, mode="CMPMODE::NE", count=count)


def emit_counts(k: KernelBuilder, x: GmTensor, counts: GmTensor, n: Scalar) -> Scalar:
    """counts [blocks] i32: how many elements of each block of x [n] are not zero. Returns how many cores are wanted."""
    marker = _Marker(k, x)
    ones, found = k.ub("ones", "f32", BLOCK), k.ub("found", "f32", 8)
    work, out = k.ub("work", "f32", 2 * BLOCK // LANES), k.ub("out", "i32", 8)
    k.fill(ones[0], 1.0, BLOCK)
    with k.loop("b", k.core, ceildiv(n, BLOCK), k.cores) as b:
        count = k.let("count", smin(BLOCK, n - b * BLOCK))
        marker.mark(b * BLOCK, count)
        k.v("SelectScalar", marker.numbers[0], marker.bits[0].cast("u8"), ones[0], scalar=0.0, count=count)
        k.v("ReduceSum", found[0], marker.numbers[0], work[0], count=count)
        k.cast(out[0], found[0], 1, "RINT")
        k.store(counts[b], out[0], 1)
    return smax(1, ceildiv(n, BLOCK))


def emit_starts(k: KernelBuilder, counts: GmTensor, starts: GmTensor, total: GmTensor, n: Scalar) -> None:
    """starts [blocks] i32: what lies in earlier blocks; total [1] i64: in all."""
    blocks = ceildiv(n, BLOCK)
    held, sums = k.ub("held", "i32", COUNTS, 2), k.ub("sums", "i32", COUNTS, 2)
    whole = k.ub("whole", "i64", 4)
    so_far = k.counter("so_far")
    with k.loop("t", 0, blocks, COUNTS) as t:
        ping = k.slot(2)
        here = k.let("here", smin(COUNTS, blocks - t))
        k.load(held[ping], counts[t], here)
        with k.loop("i", 0, here) as i:
            k.write(sums[ping][i], so_far)
            k.assign(so_far, so_far + k.read("found", held[ping][i]))
        k.store(starts[t], sums[ping], here)
    k.write(whole[0], so_far)
    k.store(total[0], whole[0], 1)


def emit_places(
    k: KernelBuilder, x: GmTensor, counts: GmTensor, starts: GmTensor, places: GmTensor, n: Scalar
) -> Scalar:
    """places i32: the numbers of the elements of x [n] that are not zero. Returns how many cores are wanted."""
    marker = _Marker(k, x)
    numbers, kept = k.ub("element", "i32", BLOCK), k.ub("kept", "i32", BLOCK)
    with k.loop("b", k.core, ceildiv(n, BLOCK), k.cores) as b:
        count = k.let("count", smin(BLOCK, n - b * BLOCK))
        wanted, at = k.read("wanted", counts[b]), k.read("at", starts[b])
        marker.mark(b * BLOCK, count)
        k.v("ArithProgression", numbers[0], firstValue=b * BLOCK, diffValue=1, count=count)
        k.v("GatherMask.bits", kept[0], numbers[0], marker.bits[0], mask=count)
        with k.if_(wanted > 0):
            k.store(places[at], kept[0], wanted)
    return smax(1, ceildiv(n, BLOCK))


def blocks_of(n: Scalar) -> Scalar:
    """Blocks of ``n`` elements."""
    return binary("cdiv", n, BLOCK)

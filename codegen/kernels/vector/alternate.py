"""Every other element of a run: halves that lie interleaved, and the values or the numbers of sorted records."""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import LocalRef
from moec.codegen.scalar import Scalar, binary

FIRST, SECOND = 1, 2
"""GatherMask's patterns for the elements at even and at odd places."""


def alternate(k: KernelBuilder, dst: LocalRef, src: LocalRef, pattern: int, count: Scalar) -> None:
    """``count`` elements of ``src``: those of each pair that ``pattern`` says."""
    k.v(
        "GatherMask",
        dst,
        src,
        pattern=pattern,
        reduceMode=True,
        mask=binary("*", count, 2),
        src0BlockStride=1,
        repeatTimes=1,
        src0RepeatStride=0,
        src1RepeatStride=0,
    )

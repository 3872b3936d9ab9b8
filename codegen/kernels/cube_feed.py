"""How operands reach the cube: device memory to L1 with a change of layout, L1 to L0A and L0B fractal by fractal.

An operand lies [rows, K] or *by k*, [K, rows]; the latter is transposed in squares of 16 on the way to L0.
"""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import ITEMSIZE, GmRef, LocalRef
from moec.codegen.scalar import Scalar, align, ceildiv, eq, smin

PITCH = 65535
"""Largest row pitch, in elements, that one layout-changing copy can take."""


def load_nz(
    k: KernelBuilder, dst: LocalRef, src: GmRef, rows: Scalar, cols: Scalar, pitch: Scalar, pad: Scalar
) -> None:
    """A row-major piece of device memory into L1: columns of C0 elements, ``pad`` rows apart."""
    if isinstance(pitch, int) and pitch <= PITCH:
        _nd2nz(k, dst, src, rows, cols, pitch, pad)
        return
    with k.loop("row", 0, rows) as row:  # one row at a time: the pitch does not fit the instruction
        _nd2nz(k, dst[row * (32 // ITEMSIZE[dst.dtype])], src[row * pitch], 1, cols, cols, pad)


def _nd2nz(k: KernelBuilder, dst: LocalRef, src: GmRef, rows: Scalar, cols: Scalar, pitch: Scalar, pad: Scalar) -> None:
    k.op(
        "Nd2Nz",
        dst,
        src,
        ndNum=1,
        nValue=rows,
        dValue=cols,
        srcNdMatrixStride=0,
        srcDValue=pitch,
        dstNzC0Stride=pad,
        dstNzNStride=1,
        dstNzMatrixStride=0,
    )


def load_rows(
    k: KernelBuilder,
    dst: LocalRef,
    src: GmRef,
    source: GmRef,
    rows: Scalar,
    cols: Scalar,
    pitch: Scalar,
    pad: Scalar,
) -> None:
    """As ``load_nz``, of rows that ``source`` names: a copy each, from where its index says."""
    with k.loop("row", 0, rows) as row:
        at = k.read("from", source[row])
        _nd2nz(k, dst[row * (32 // ITEMSIZE[dst.dtype])], src[at * pitch], 1, cols, cols, pad)


def load_by_k(k: KernelBuilder, l1: LocalRef, src: GmRef, n: Scalar, pitch: Scalar, width: Scalar, n16: Scalar) -> None:
    """An operand [K, N] into L1. 16-bit: columns of all K rows. f32: bands of 16 K rows, so that squares of 16 lie
    together."""
    if ITEMSIZE[l1.dtype] == 2:
        load_nz(k, l1, src, width, n, pitch, align(width, 16))
        return
    with k.loop("band", 0, ceildiv(width, 16)) as band:
        load_nz(k, l1[band * (16 * n16)], src[band * 16 * pitch], smin(16, width - band * 16), n, pitch, 16)


def load_rows_by_k(
    k: KernelBuilder,
    l1: LocalRef,
    src: GmRef,
    source: GmRef,
    n: Scalar,
    pitch: Scalar,
    width: Scalar,
    n16: Scalar,
) -> None:
    """As ``load_by_k``, of rows that ``source`` names."""
    if ITEMSIZE[l1.dtype] == 2:
        load_rows(k, l1, src, source, width, n, pitch, align(width, 16))
        return
    with k.loop("band", 0, ceildiv(width, 16)) as band:
        count = smin(16, width - band * 16)
        load_rows(k, l1[band * (16 * n16)], src, source[band * 16], count, n, pitch, 16)


def fractals(
    k: KernelBuilder,
    dst: LocalRef,
    src: LocalRef,
    count: Scalar,
    step: Scalar = 1,
    gap: Scalar = 0,
    transpose: bool = False,
) -> None:
    """``count`` fractals from L1, ``step`` apart there, ``gap`` fractals between them in L0."""
    k.op("LoadData", dst, src, startIndex=0, repeatTimes=count, srcStride=step, dstGap=gap, ifTranspose=transpose)


def feed_a(
    k: KernelBuilder,
    a0: LocalRef,
    a1: LocalRef,
    first: Scalar,
    m: Scalar,
    m16: Scalar,
    columns: Scalar,
    c0: int,
    one_band: bool,
) -> None:
    """L1 to L0A from column ``first``: fractals of a column go one row band apart; a single row goes as it lies, and so
    do the columns of ``one_band``, which is all that the tile has."""
    with k.if_(eq(m, 1)):
        fractals(k, a0, a1[first * c0], ceildiv(columns, 16))
    if one_band:
        with k.else_():
            fractals(k, a0, a1[first * (16 * c0)], columns)
        return
    with k.else_(), k.loop("column", 0, columns) as column:
        fractals(k, a0[column * (16 * c0)], a1[(first + column) * (m16 * c0)], m16 // 16, gap=columns - 1)


def feed_a_by_k(
    k: KernelBuilder, a0: LocalRef, a1: LocalRef, first: Scalar, depth: Scalar, width: Scalar, m16: Scalar, c0: int
) -> None:
    """L1 to L0A from K band ``first``, transposing 16 x 16 squares, row band by row band.

    An f32 square makes two columns of K. Where the last one lies beyond ``depth``, it goes behind the row bands: an odd
    number of columns leaves room for one a band there.
    """
    bands = m16 // 16
    if c0 == 16:
        columns = k.let("squares", ceildiv(depth, 16))
        with k.loop("mBand", 0, bands) as band:
            source = a1[(band * ceildiv(width, 16) + first) * 256]
            fractals(k, a0[band * columns * 256], source, columns, transpose=True)
        return

    def squares(to: Scalar, band: Scalar, at: Scalar, count: Scalar, gap: Scalar) -> None:
        k.op(
            "LoadDataWithTranspose",
            a0[to * 128],
            a1[(first + at) * (16 * m16) + band * 256],
            startIndex=0,
            repeatTimes=count,
            srcStride=bands,
            dstGap=1,
            dstFracGap=gap,
        )

    columns = k.let("columns", ceildiv(depth, 8))
    pairs = columns // 2
    with k.loop("mBand", 0, bands) as band:
        with k.if_(pairs > 0):
            squares(band * columns, band, 0, pairs, 0)
        with k.if_(columns % 2 > 0):
            squares(band * columns + columns - 1, band, pairs, 1, (bands - band - 1) * columns + band)


def feed_b_by_k(
    k: KernelBuilder, b0: LocalRef, b1: LocalRef, first: Scalar, depth: Scalar, width: Scalar, n16: Scalar, c0: int
) -> None:
    """L1 to L0B from K band ``first``, transposing 16 x 16 squares."""
    with k.loop("kBand", 0, ceildiv(depth, 16)) as band:
        if c0 == 16:
            rows = ceildiv(width, 16)
            fractals(k, b0[band * (16 * n16)], b1[(first + band) * 256], n16 // 16, rows, transpose=True)
        else:
            k.op(
                "LoadDataWithTranspose",
                b0[band * (16 * n16)],
                b1[(first + band) * (16 * n16)],
                startIndex=0,
                repeatTimes=n16 // 16,
                srcStride=1,
                dstGap=0,
                dstFracGap=n16 // 16 - 1,
            )

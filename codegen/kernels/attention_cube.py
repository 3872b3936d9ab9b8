"""Matrix products of attention on the cube core: operands stay in L1 for several products, and may be read transposed.

A matrix lies in L1 as columns of 32 bytes, ``pad`` rows apart. L0A wants bands of 16 rows of the first operand, L0B
bands of 16 columns of the second; what lies the other way round is transposed between L1 and L0, in squares of 16 x 16.
For that the f32 path keeps bands of 16 rows apart in L1 ("bands"), as its columns are 8 elements wide.
"""

from __future__ import annotations

from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import ITEMSIZE, Buffer, GmRef, LocalRef
from moec.codegen.scalar import Scalar, both, ceildiv, choose, eq, smax, smin

QUANT = {"f32": "QuantMode_t::NoQuant", "f16": "QuantMode_t::F322F16", "bf16": "QuantMode_t::F322BF16"}


def c0_of(dtype: str) -> int:
    """Elements of a column in L1."""
    return 32 // ITEMSIZE[dtype]


def pad_to(n: int, to: int) -> int:
    return -(-n // to) * to


@dataclass(frozen=True, slots=True)
class Matrix:
    """``rows`` x ``cols`` in L1 from ``at`` on, padded to ``pad`` rows; ``bands`` of 16 rows lie ``wide`` columns
    apart (f32 only)."""

    at: LocalRef
    rows: Scalar
    cols: Scalar
    pad: Scalar
    bands: bool = False
    wide: int = 0

    @property
    def c0(self) -> int:
        return c0_of(self.at.dtype)


def load(k: KernelBuilder, to: Matrix, src: GmRef, pitch: int, at: Scalar = 0) -> None:
    """Rows ``pitch`` elements apart in device memory into ``to``; the last column is filled with zeros.

    ``at``: elements from the start of ``to`` on. A single row is laid down twice, as the cube takes one row alone in
    another layout.
    """
    if to.bands:
        with k.loop("band", 0, ceildiv(to.rows, 16)) as band:
            rows = smin(16, to.rows - band * 16)
            _nd2nz(k, to.at[band * (16 * to.wide) + at], src[band * (16 * pitch)], rows, to.cols, pitch, 16, 1)
        return
    _nd2nz(k, to.at[at], src, to.rows, to.cols, pitch, to.pad, choose(eq(to.rows, 1), 2, 1))


def _nd2nz(
    k: KernelBuilder, dst: LocalRef, src: GmRef, rows: Scalar, cols: Scalar, pitch: int, pad: Scalar, copies: Scalar
) -> None:
    k.op(
        "Nd2Nz",
        dst,
        src,
        ndNum=copies,
        nValue=rows,
        dValue=cols,
        srcNdMatrixStride=0,
        srcDValue=pitch,
        dstNzC0Stride=pad,
        dstNzNStride=1,
        dstNzMatrixStride=c0_of(dst.dtype),
    )


@dataclass(frozen=True, slots=True)
class L0:
    """The buffers that feed the cube, two of each, ``depth`` of the inner dimension at a time."""

    a: Buffer
    b: Buffer
    depth: int


def multiply(
    k: KernelBuilder,
    l0: L0,
    out: LocalRef,
    a: Matrix,
    b: Matrix,
    inner: Scalar,
    a_by_k: bool = False,
    b_by_k: bool = False,
    fresh: Scalar = 1,
) -> None:
    """out [m, n] (+)= a b over ``inner``: a is [m, k], or [k, m] if ``a_by_k``; b is [n, k], or [k, n] if ``b_by_k``.

    ``fresh``: starts from zero. Of one row two are computed; the second is never written out.
    """
    m = smax(2, a.cols if a_by_k else a.rows)
    n = b.cols if b_by_k else b.rows

    def chunk(number: Scalar, depth: Scalar, fresh: Scalar, single: bool) -> None:
        a0, b0 = l0.a[number % 2], l0.b[number % 2]
        at = whole if single else number * l0.depth
        if a_by_k:
            _feed_a_by_k(k, a0, a, at, depth, single)
        else:
            _feed_a(k, a0, a, at, depth)
        (_feed_b_by_k if b_by_k else _feed_b)(k, b0, b, at, depth)
        k.op("Mmad", out, a0, b0, m=m, n=n, k=depth, unitFlag=0, cmatrixInitVal=fresh)

    split = a_by_k and a.c0 == 8
    rest = k.let("rest", choose(inner % 16 <= 8, inner % 16, 0)) if split else 0
    whole = inner - rest
    with k.loop("k0", 0, ceildiv(whole, l0.depth)) as k0:
        depth = k.let("depth", smin(l0.depth, whole - k0 * l0.depth))
        chunk(k0, depth, both(fresh, eq(k0, 0)), False)
    if split:  # squares of f32 are 16 deep: up to 8 more go alone, with their other halves out of the way
        with k.if_(rest > 0):
            chunk(ceildiv(whole, l0.depth), rest, both(fresh, eq(whole, 0)), True)


def _fractals(
    k: KernelBuilder, dst: LocalRef, src: LocalRef, count: Scalar, step: Scalar, gap: Scalar, transpose: bool
) -> None:
    k.op("LoadData", dst, src, startIndex=0, repeatTimes=count, srcStride=step, dstGap=gap, ifTranspose=transpose)


def _squares(k: KernelBuilder, dst: LocalRef, src: LocalRef, count: Scalar, gap: Scalar, inner: Scalar) -> None:
    """Transposes squares of f32: ``gap`` fractals between squares and ``inner`` between the two of one."""
    k.op(
        "LoadDataWithTranspose",
        dst,
        src,
        startIndex=0,
        repeatTimes=count,
        srcStride=1,
        dstGap=gap,
        dstFracGap=inner,
    )


def _feed_a(k: KernelBuilder, a0: LocalRef, a: Matrix, at: Scalar, depth: Scalar) -> None:
    """Columns of [m, k] from ``at`` on, row band by row band."""
    c0 = a.c0
    columns = k.let("columns", ceildiv(depth, c0))
    with k.loop("column", 0, columns) as column:
        source = a.at[(at // c0 + column if at != 0 else column) * (a.pad * c0)]
        _fractals(k, a0[column * (16 * c0)], source, a.pad // 16, 1, columns - 1, False)


def _feed_a_by_k(k: KernelBuilder, a0: LocalRef, a: Matrix, at: Scalar, depth: Scalar, single: bool) -> None:
    """Rows of [k, m] from ``at`` on, transposed: row bands of k follow one another in each band of m.

    ``single``: at most 8 rows of f32, one fractal a band; the other halves of the squares go behind all of these.
    """
    bands = k.let("bandsOfK", ceildiv(depth, 16))
    if a.c0 == 16:
        with k.loop("mBand", 0, ceildiv(a.cols, 16)) as m_band:
            source = a.at[m_band * (a.pad * 16) + at * 16]
            _fractals(k, a0[m_band * (bands * 256)], source, bands, 1, 0, True)
        return
    m_bands = ceildiv(a.cols, 16)
    if single:
        _squares(k, a0, a.at[at // 16 * (16 * a.wide)], m_bands, 0, m_bands - 1)
        return
    with k.loop("kBand", 0, bands) as k_band:
        source = a.at[(at // 16 + k_band) * (16 * a.wide)]
        _squares(k, a0[k_band * 256], source, m_bands, bands * 2 - 1, 0)


def _feed_b(k: KernelBuilder, b0: LocalRef, b: Matrix, at: Scalar, depth: Scalar) -> None:
    """Columns of [n, k] from ``at`` on: they lie as L0B wants them."""
    _fractals(k, b0, b.at[at * b.pad], ceildiv(depth, b.c0) * (b.pad // 16), 1, 0, False)


def _feed_b_by_k(k: KernelBuilder, b0: LocalRef, b: Matrix, at: Scalar, depth: Scalar) -> None:
    """Rows of [k, n] from ``at`` on, transposed."""
    n_bands = ceildiv(b.cols, 16)
    with k.loop("kBand", 0, ceildiv(depth, 16)) as band:
        if b.c0 == 16:
            to = b0[band * (n_bands * 256)]
            _fractals(k, to, b.at[(at // 16 + band) * 256], n_bands, b.pad // 16, 0, True)
        else:
            to = b0[band * (n_bands * 256)]
            _squares(k, to, b.at[(at // 16 + band) * (16 * b.wide)], n_bands, 0, n_bands - 1)


def write_out(k: KernelBuilder, dst: GmRef, src: LocalRef, rows: Scalar, cols: Scalar, pad: Scalar, pitch: int) -> None:
    """A result from L0C, where its columns are ``pad`` rows apart, to rows ``pitch`` elements apart."""
    k.op(
        "Fixpipe",
        dst,
        src,
        nSize=cols,
        mSize=rows,
        srcStride=pad,
        dstStride=pitch,
        quantPre=QUANT[dst.dtype],
        unitFlag=0,
    )

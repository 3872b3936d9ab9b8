"""Matrix products on the cube: out[m, n] = sum over k of a[m, k] * b[n, k] (or b[k, n]), accumulated in f32.

Device memory is row-major. L1 holds NZ columns of 32 bytes (C0 elements) by 16-row fractals, L0A fractals row band by row
band, L0B and L0C column by column; the f32 path has C0 = 8, the 16-bit paths 16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import ITEMSIZE, Buffer, GmRef, Kernel, LocalRef
from moec.codegen.scalar import Scalar, Var, align, both, ceildiv, choose, eq, smin
from moec.codegen.tiling import CubeTile

QUANT = {"f32": "QuantMode_t::NoQuant", "f16": "QuantMode_t::F322F16", "bf16": "QuantMode_t::F322BF16"}
PITCH = 65535
"""Largest row pitch, in elements, that one layout-changing copy can take."""


@dataclass(slots=True)
class _Memories:
    """The double buffers of a product and where each stands in its turn."""

    a1: Buffer
    b1: Buffer
    a0: Buffer
    b0: Buffer
    c0: Buffer


def _memories(k: KernelBuilder, t: CubeTile, dtype: str) -> _Memories:
    return _Memories(
        k.buffer("L1", "a1", dtype, t.m * t.k1, 2),
        k.buffer("L1", "b1", dtype, t.n * t.k1, 2),
        k.buffer("L0A", "a0", dtype, t.m * t.k0, 2),
        k.buffer("L0B", "b0", dtype, t.n * t.k0, 2),
        k.buffer("L0C", "c0", "f32", t.m * t.n, t.c_slots),
    )


def _load_nz(k: KernelBuilder, dst: LocalRef, src: GmRef, rows: Scalar, cols: Scalar, pitch: Scalar, pad: Scalar) -> None:
    """A row-major piece of device memory into L1: columns of C0 elements, ``pad`` rows apart."""
    common = {"ndNum": 1, "srcNdMatrixStride": 0, "dValue": cols, "dstNzC0Stride": pad, "dstNzNStride": 1}
    common["dstNzMatrixStride"] = 0
    if isinstance(pitch, int) and pitch <= PITCH:
        k.op("Nd2Nz", dst, src, nValue=rows, srcDValue=pitch, **common)
        return
    with k.loop("row", 0, rows) as row:  # one row at a time: its pitch does not fit the instruction
        c0 = 32 // ITEMSIZE[dst.dtype]
        k.op("Nd2Nz", dst[row * c0], src[row * pitch], nValue=1, srcDValue=cols, **common)


@dataclass(slots=True)
class _Tile:
    """One output tile: its operands' first elements in device memory, its extent, and the row pitches."""

    a: GmRef
    b: GmRef
    out: GmRef
    m: Var
    n: Var
    k: Scalar
    n_pitch: Scalar


def _product(k: KernelBuilder, mem: _Memories, t: CubeTile, x: _Tile) -> None:
    """Loads, multiplies and writes one output tile."""
    c0 = 32 // ITEMSIZE[mem.a1.dtype]
    out = mem.c0[k.slot(t.c_slots, "pingC") if t.c_slots > 1 else 0]
    m16, n16 = k.let("m16", align(x.m, 16)), k.let("n16", align(x.n, 16))
    # A single row lies contiguous in L0A (the cube's vector-matrix mode), so its columns follow one another in L1.
    a_rows = k.let("aRows", choose(eq(x.m, 1), 1, m16))
    with k.loop("k1", 0, ceildiv(x.k, t.k1)) as k1:
        a1, b1 = mem.a1[k.slot(2, "ping1")], mem.b1[0]
        b1 = mem.b1[a1.slot]
        width = k.let("width", smin(t.k1, x.k - k1 * t.k1))
        _load_nz(k, a1, x.a[k1 * t.k1], x.m, width, x.k, a_rows)
        _load_nz(k, b1, x.b[k1 * t.k1], x.n, width, x.k, n16)
        with k.loop("k0", 0, ceildiv(width, t.k0)) as k0:
            a0 = mem.a0[k.slot(2, "ping0")]
            b0 = mem.b0[a0.slot]
            depth = k.let("depth", smin(t.k0, width - k0 * t.k0))
            columns = k.let("columns", ceildiv(depth, c0))
            _load_a(k, a0, a1, k0 * (t.k0 // c0), x.m, m16, columns, c0)
            k.op(
                "LoadData", b0, b1[k0 * t.k0 * n16], startIndex=0, repeatTimes=columns * (n16 // 16), srcStride=1,
                dstGap=0, ifTranspose=False,
            )  # fmt: skip
            k.op(
                "Mmad", out, a0, b0, m=x.m, n=x.n, k=depth, unitFlag=0, cmatrixInitVal=both(eq(k1, 0), eq(k0, 0)),
            )  # fmt: skip
    k.op(
        "Fixpipe", x.out, out, nSize=x.n, mSize=x.m, srcStride=m16, dstStride=x.n_pitch, quantPre=QUANT[x.out.dtype],
        unitFlag=0,
    )  # fmt: skip


def _load_a(k: KernelBuilder, a0: LocalRef, a1: LocalRef, first: Scalar, m: Scalar, m16: Scalar, columns: Scalar,
            c0: int) -> None:  # fmt: skip
    """L1 to L0A from column ``first``: fractals of a column go one row band apart; a single row goes as it lies."""
    fractal = 16 * c0
    with k.if_(eq(m, 1)):
        k.op(
            "LoadData", a0, a1[first * c0], startIndex=0, repeatTimes=ceildiv(columns, 16), srcStride=1, dstGap=0,
            ifTranspose=False,
        )  # fmt: skip
    with k.else_(), k.loop("column", 0, columns) as column:
        k.op(
            "LoadData", a0[column * fractal], a1[(first + column) * (m16 * c0)], startIndex=0, repeatTimes=m16 // 16,
            srcStride=1, dstGap=columns - 1, ifTranspose=False,
        )  # fmt: skip


def matmul_kernel(
    name: str, caps: Capacities, tile: CubeTile, m: Scalar, n: int, k_size: int, dtype: str, out: str, m_hi: int,
    source: Sequence[str] = (),
) -> Kernel:  # fmt: skip
    """a [M, K] by b [N, K] into out [M, N]. ``m`` is a number, or None-like text for a run-time argument."""
    k = KernelBuilder(name, "aic", caps, source)
    rows: Scalar = k.arg("M", 0, m_hi) if not isinstance(m, int) else m
    a = k.gm("a", dtype, (rows, k_size), "in")
    b = k.gm("b", dtype, (n, k_size), "in", "weight")
    c = k.gm("c", out, (rows, n), "out")
    mem = _memories(k, tile, dtype)
    m_tiles, n_tiles = k.let("mTiles", ceildiv(rows, tile.m)), ceildiv(n, tile.n)
    with k.loop("t", k.core, m_tiles * n_tiles, k.cores) as t:
        m0, n0 = k.let("m0", t % m_tiles * tile.m), k.let("n0", t // m_tiles * tile.n)
        mm, nn = k.let("m", smin(tile.m, rows - m0)), k.let("n", smin(tile.n, n - n0))
        _product(k, mem, tile, _Tile(a[m0 * k_size], b[n0 * k_size], c[m0 * n + n0], mm, nn, k_size, n))
    for cores in (1, 2):
        for size in (0, 1, 2, tile.m + 1, 3 * tile.m + 17, 6 * tile.m) if not isinstance(m, int) else (m,):
            if size <= m_hi:
                k.witness(cores, **({} if isinstance(m, int) else {"M": size}))
    return k.finish(ceildiv(rows, tile.m) * n_tiles)


def grouped_matmul_kernel(
    name: str, caps: Capacities, tile: CubeTile, experts: int, n: int, k_size: int, dtype: str, out: str, rows_hi: int,
    source: Sequence[str] = (),
) -> Kernel:  # fmt: skip
    """rows [S, K], sorted by expert, by the weights [E, N, K] of their experts, into [S, N]; counts [E] stay on the device.

    Every core walks the experts and takes each core-count-th tile, counting on from one expert to the next.
    """
    k = KernelBuilder(name, "aic", caps, source)
    s = k.arg("S", 0, rows_hi)
    a = k.gm("rows", dtype, (s, k_size), "in")
    b = k.gm("w", dtype, (experts, n, k_size), "in", "weight")
    counts = k.gm("counts", "i32", (experts,), "in", "counts")
    c = k.gm("out", out, (s, n), "out")
    mem = _memories(k, tile, dtype)
    row, done = k.let("firstRow", 0), k.let("done", 0)
    n_tiles = ceildiv(n, tile.n)
    with k.loop("e", 0, experts) as e:
        count = k.read("count", counts[e])
        m_tiles = k.let("mTiles", ceildiv(count, tile.m))
        tiles = k.let("tiles", m_tiles * n_tiles)
        with k.loop("t", (k.core + k.cores - done) % k.cores, tiles, k.cores) as t:
            m0, n0 = k.let("m0", t % m_tiles * tile.m), k.let("n0", t // m_tiles * tile.n)
            mm, nn = k.let("m", smin(tile.m, count - m0)), k.let("n", smin(tile.n, n - n0))
            at = row + m0
            x = _Tile(a[at * k_size], b[(e * n + n0) * k_size], c[at * n + n0], mm, nn, k_size, n)
            _product(k, mem, tile, x)
        k.assign(row, row + count)
        k.assign(done, (done + tiles) % k.cores)
    for cores in (1, 2):
        for first, second in ((0, 0), (1, 0), (2, 1), (0, tile.m + 1), (3 * tile.m + 17, 2), (5 * tile.m, 4 * tile.m)):
            data = [first, *([0] * (experts - 2)), second][:experts] if experts > 1 else [first]
            k.witness(cores, {"counts": data}, S=sum(data))
    return k.finish(caps.aic)

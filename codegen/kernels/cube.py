"""Matrix products on the cube: out[m, n] = sum over k of a[m, k] * b[n, k] (or b[k, n]), accumulated in f32.

Device memory is row-major. L1 holds columns of 32 bytes (C0 elements), 16 rows to a fractal; L0A holds fractals row
band by row band, L0B and L0C column by column. The f32 path has C0 = 8, the 16-bit paths 16.
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
    """The buffers of a product."""

    a1: Buffer
    b1: Buffer
    a0: Buffer
    b0: Buffer
    c0: Buffer


def _memories(k: KernelBuilder, t: CubeTile, dtype: str) -> _Memories:
    return _Memories(
        k.buffer("L1", "a1", dtype, t.m * t.k1, t.l1_slots),
        k.buffer("L1", "b1", dtype, t.n * t.depth_b, t.l1_slots),
        k.buffer("L0A", "a0", dtype, t.m * t.k0, 2),
        k.buffer("L0B", "b0", dtype, t.n * t.k0, 2),
        k.buffer("L0C", "c0", "f32", t.m * t.n, t.c_slots),
    )


def _load_nz(
    k: KernelBuilder, dst: LocalRef, src: GmRef, rows: Scalar, cols: Scalar, pitch: Scalar, pad: Scalar
) -> None:
    """A row-major piece of device memory into L1: columns of C0 elements, ``pad`` rows apart."""

    def copy(to: LocalRef, of: GmRef, count: Scalar, step: Scalar) -> None:
        k.op(
            "Nd2Nz",
            to,
            of,
            ndNum=1,
            nValue=count,
            dValue=cols,
            srcNdMatrixStride=0,
            srcDValue=step,
            dstNzC0Stride=pad,
            dstNzNStride=1,
            dstNzMatrixStride=0,
        )

    if isinstance(pitch, int) and pitch <= PITCH:
        copy(dst, src, rows, pitch)
        return
    with k.loop("row", 0, rows) as row:  # one row at a time: the pitch does not fit the instruction
        copy(dst[row * (32 // ITEMSIZE[dst.dtype])], src[row * pitch], 1, cols)


@dataclass(slots=True)
class _Tile:
    """One output tile: its operands' first elements in device memory, its extent, the depth, and the row pitch of out.

    ``b`` is [N, K], or [K, N] if ``b_by_k``.
    """

    a: GmRef
    b: GmRef
    out: GmRef
    m: Var
    n: Var
    k: Scalar
    n_size: Scalar
    b_by_k: bool


def _product(k: KernelBuilder, mem: _Memories, t: CubeTile, x: _Tile) -> None:
    """Loads, multiplies and writes one output tile.

    L1 takes ``k1`` of K of the first operand at a time and ``depth_b`` of the second; where these differ, the loop over
    the larger one holds one over the smaller.
    """
    out = mem.c0[k.slot(t.c_slots, "pingC") if t.c_slots > 1 else 0]
    m16, n16 = k.let("m16", align(x.m, 16)), k.let("n16", align(x.n, 16))
    # A single row lies contiguous in L0A (the cube's vector-matrix mode), so its columns follow one another in L1.
    a_rows = k.let("aRows", choose(eq(x.m, 1), 1, m16))
    outer, inner = max(t.k1, t.depth_b), min(t.k1, t.depth_b)
    steps = ceildiv(x.k, outer)
    with k.loop("k1", 0, steps) as i:
        k1: Scalar = k.let("chunk", (i + k.core) % steps) if t.stagger else i
        width = k.let("width", smin(outer, x.k - k1 * outer))
        first, last = eq(i, 0), eq(i, steps - 1)
        if t.k1 == t.depth_b:
            slot = k.slot(t.l1_slots, "ping1") if t.l1_slots > 1 else 0
            a1, b1 = mem.a1[slot], mem.b1[slot]
            _load_a(k, a1, x, k1 * outer, width, a_rows)
            _load_b(k, b1, x, k1 * outer, width, n16)
            _steps(k, mem, t, x, out, _Chunk(a1, b1, 0, 0, width, width, m16, n16, first, last))
        else:
            a_deep = t.k1 > t.depth_b
            deep = (mem.a1 if a_deep else mem.b1)[k.slot(t.l1_slots, "pingDeep") if t.l1_slots > 1 else 0]
            if a_deep:
                _load_a(k, deep, x, k1 * outer, width, a_rows)
            else:
                _load_b(k, deep, x, k1 * outer, width, n16)
            parts = k.let("parts", ceildiv(width, inner))
            with k.loop("k2", 0, parts) as k2:
                part = k.let("part", smin(inner, width - k2 * inner))
                at = k1 * outer + k2 * inner
                shallow = (mem.b1 if a_deep else mem.a1)[k.slot(t.l1_slots, "pingShallow") if t.l1_slots > 1 else 0]
                ends = both(first, eq(k2, 0)), both(last, eq(k2, parts - 1))
                if a_deep:
                    _load_b(k, shallow, x, at, part, n16)
                    chunk = _Chunk(deep, shallow, k2 * inner, 0, part, part, m16, n16, *ends)
                else:
                    _load_a(k, shallow, x, at, part, a_rows)
                    chunk = _Chunk(shallow, deep, 0, k2 * inner, part, width, m16, n16, *ends)
                _steps(k, mem, t, x, out, chunk)
    k.op(
        "Fixpipe",
        x.out,
        out,
        nSize=x.n,
        mSize=x.m,
        srcStride=m16,
        dstStride=x.n_size,
        quantPre=QUANT[x.out.dtype],
        unitFlag=3 if t.unit else 0,
    )


@dataclass(slots=True)
class _Chunk:
    """A piece of K in L1: where it lies in ``a1`` (from column of K ``a_at`` on) and ``b1`` (from ``b_at``, of
    ``b_width`` in all), how much of K it is, and whether it is the ``first`` or ``last`` piece."""

    a1: LocalRef
    b1: LocalRef
    a_at: Scalar
    b_at: Scalar
    width: Scalar
    b_width: Scalar
    m16: Scalar
    n16: Scalar
    first: Scalar
    last: Scalar


def _steps(k: KernelBuilder, mem: _Memories, t: CubeTile, x: _Tile, out: LocalRef, c: _Chunk) -> None:
    """Feeds L0 from a chunk and multiplies, ``k0`` of K at a time."""
    c0 = 32 // ITEMSIZE[mem.a1.dtype]
    count = ceildiv(c.width, t.k0)
    with k.loop("k0", 0, count) as k0:
        a0 = mem.a0[k.slot(2, "ping0")]
        b0 = mem.b0[a0.slot]
        depth = k.let("depth", smin(t.k0, c.width - k0 * t.k0))
        columns = k.let("columns", ceildiv(depth, c0))
        _feed_a(k, a0, c.a1, _over(c.a_at, c0) + k0 * (t.k0 // c0), x.m, c.m16, columns, c0)
        if x.b_by_k:
            _feed_b_by_k(k, b0, c.b1, _over(c.b_at, 16) + k0 * (t.k0 // 16), depth, c.b_width, c.n16, c0)
        else:
            _fractals(k, b0, c.b1[(c.b_at + k0 * t.k0) * c.n16], columns * (c.n16 // 16))
        fresh = both(c.first, eq(k0, 0))
        unit = choose(both(c.last, eq(k0, count - 1)), 3, 2) if t.unit else 0
        k.op("Mmad", out, a0, b0, m=x.m, n=x.n, k=depth, unitFlag=unit, cmatrixInitVal=fresh)


def _over(at: Scalar, by: int) -> Scalar:
    """``at / by``; ``at`` is a multiple of it."""
    return 0 if at == 0 else at // by


def _load_a(k: KernelBuilder, a1: LocalRef, x: _Tile, at: Scalar, width: Scalar, rows: Scalar) -> None:
    _load_nz(k, a1, x.a[at], x.m, width, x.k, rows)


def _load_b(k: KernelBuilder, b1: LocalRef, x: _Tile, at: Scalar, width: Scalar, n16: Scalar) -> None:
    if x.b_by_k:
        _load_b_by_k(k, b1, x.b[at * x.n_size], x, width, n16, 32 // ITEMSIZE[b1.dtype])
    else:
        _load_nz(k, b1, x.b[at], x.n, width, x.k, n16)


def _fractals(
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


def _feed_a(
    k: KernelBuilder, a0: LocalRef, a1: LocalRef, first: Scalar, m: Scalar, m16: Scalar, columns: Scalar, c0: int
) -> None:
    """L1 to L0A from column ``first``: fractals of a column go one row band apart; a single row goes as it lies."""
    with k.if_(eq(m, 1)):
        _fractals(k, a0, a1[first * c0], ceildiv(columns, 16))
    with k.else_(), k.loop("column", 0, columns) as column:
        _fractals(k, a0[column * (16 * c0)], a1[(first + column) * (m16 * c0)], m16 // 16, gap=columns - 1)


def _load_b_by_k(k: KernelBuilder, b1: LocalRef, src: GmRef, x: _Tile, width: Scalar, n16: Scalar, c0: int) -> None:
    """b [K, N] into L1. 16-bit: columns of all K rows. f32: bands of 16 K rows, so that squares of 16 lie together."""
    if c0 == 16:
        _load_nz(k, b1, src, width, x.n, x.n_size, align(width, 16))
        return
    with k.loop("band", 0, ceildiv(width, 16)) as band:
        _load_nz(k, b1[band * (16 * n16)], src[band * 16 * x.n_size], smin(16, width - band * 16), x.n, x.n_size, 16)


def _feed_b_by_k(
    k: KernelBuilder, b0: LocalRef, b1: LocalRef, first: Scalar, depth: Scalar, width: Scalar, n16: Scalar, c0: int
) -> None:
    """L1 to L0B from K band ``first``, transposing 16 x 16 squares."""
    with k.loop("kBand", 0, ceildiv(depth, 16)) as band:
        if c0 == 16:
            rows = ceildiv(width, 16)
            _fractals(k, b0[band * (16 * n16)], b1[(first + band) * 256], n16 // 16, rows, transpose=True)
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


@dataclass(frozen=True, slots=True)
class Product:
    """What a matmul kernel computes: sizes (None: a run-time argument), dtypes, and how b is stored."""

    m: int | None
    n: int | None
    k: int | None
    batch: int | None
    dtype: str
    out: str
    b_by_k: bool = False
    hi: int = 2**31 - 1


def matmul_kernel(name: str, caps: Capacities, tile: CubeTile, p: Product, source: Sequence[str] = ()) -> Kernel:
    """a [B, M, K] by b [B, N, K] (or [B, K, N]) into c [B, M, N]."""
    k = KernelBuilder(name, "aic", caps, source)

    def size(letter: str, n: int | None) -> Scalar:
        return k.arg(letter, 0, p.hi) if n is None else n

    batch, m, n, depth = size("B", p.batch), size("M", p.m), size("N", p.n), size("K", p.k)
    a = k.gm("a", p.dtype, (batch, m, depth), "in")
    b = k.gm("b", p.dtype, (batch, depth, n) if p.b_by_k else (batch, n, depth), "in", "weight")
    c = k.gm("c", p.out, (batch, m, n), "out")
    mem = _memories(k, tile, p.dtype)
    for operand in (a, b):
        if operand.name in tile.bypass:
            k.op("BypassL2", operand[0])
    block_m, block_n = tile.block_m or tile.m, tile.block_n or tile.n
    m_blocks, n_blocks = k.let("mBlocks", ceildiv(m, block_m)), k.let("nBlocks", ceildiv(n, block_n))
    each = k.let("each", m_blocks * n_blocks)
    with k.loop("t", k.core, each * batch, k.cores) as t:
        item: Scalar = 0 if p.batch == 1 else k.let("item", t // each)
        inside: Scalar = t if p.batch == 1 else k.let("inside", t % each)
        at_m, at_n = _block(k, tile, inside, m_blocks, n_blocks)
        first_m, first_n = k.let("m0", at_m * block_m), k.let("n0", at_n * block_n)

        def one(m0: Scalar, n0: Scalar, m_end: Scalar, n_end: Scalar, item: Scalar = item) -> None:
            mm, nn = k.let("m", smin(tile.m, m_end - m0)), k.let("n", smin(tile.n, n_end - n0))
            first_b = (item * n + n0) * depth if not p.b_by_k else item * depth * n + n0
            at = a[(item * m + m0) * depth], b[first_b], c[(item * m + m0) * n + n0]
            _product(k, mem, tile, _Tile(*at, mm, nn, depth, n, p.b_by_k))

        if (block_m, block_n) == (tile.m, tile.n):
            one(first_m, first_n, m, n)
        else:
            m_end, n_end = k.let("mEnd", smin(m, first_m + block_m)), k.let("nEnd", smin(n, first_n + block_n))
            down = k.let("down", ceildiv(m_end - first_m, tile.m))
            with k.loop("u", 0, down * ceildiv(n_end - first_n, tile.n)) as u:
                m1, n1 = k.let("m1", first_m + u % down * tile.m), k.let("n1", first_n + u // down * tile.n)
                one(m1, n1, m_end, n_end)
    _matmul_witnesses(k, tile, p)
    return k.finish(ceildiv(m, block_m) * ceildiv(n, block_n) * batch)


def _block(
    k: KernelBuilder, tile: CubeTile, number: Scalar, m_blocks: Scalar, n_blocks: Scalar
) -> tuple[Scalar, Scalar]:
    """Which block of the output is the ``number``-th: down the columns, or down those of one panel of rows after the
    other; on the diagonal neighbours in a column share no rows of either operand."""
    if tile.panel:
        area = k.let("area", n_blocks * tile.panel)
        top = k.let("top", number // area * tile.panel)
        height = k.let("height", smin(tile.panel, m_blocks - top))
        inside = k.let("at", number % area)
        at_m, at_n = top + inside % height, inside // height
    else:
        at_m, at_n = number % m_blocks, number // m_blocks
    return at_m, (at_n + at_m) % n_blocks if tile.diagonal else at_n


def _matmul_witnesses(k: KernelBuilder, tile: CubeTile, p: Product) -> None:
    rows = (0, 1, 2, tile.m + 1, 3 * tile.m + 17, 6 * tile.m)
    free = {"B": p.batch, "M": p.m, "N": p.n, "K": p.k}
    names = [letter for letter, n in free.items() if n is None]
    for cores in (1, 2):
        for m in rows if names else rows[:1]:
            args = {"B": 3, "M": m, "N": 2 * tile.n + 3, "K": 2 * tile.k1 + 5}
            k.witness(cores, None, **{name: min(args[name], p.hi) for name in names})


@dataclass(frozen=True, slots=True)
class Grouped:
    """What a grouped matmul computes: ``experts`` weights of [n, k], at most ``rows_hi`` rows in all."""

    experts: int
    n: int
    k: int
    dtype: str
    out: str
    rows_hi: int = 2**31 - 1


def grouped_matmul_kernel(
    name: str, caps: Capacities, tile: CubeTile, g: Grouped, source: Sequence[str] = ()
) -> Kernel:
    """rows [S, K], sorted by expert, by the weights w [E, N, K] of their experts, into out [S, N]; counts stay on the
    device.

    Every core walks the experts and takes each core-count-th tile, counting on from one expert to the next.
    """
    k = KernelBuilder(name, "aic", caps, source)
    s = k.arg("S", 0, g.rows_hi)
    a = k.gm("rows", g.dtype, (s, g.k), "in")
    b = k.gm("w", g.dtype, (g.experts, g.n, g.k), "in", "weight")
    counts = k.gm("counts", "i32", (g.experts,), "in", "counts")
    c = k.gm("out", g.out, (s, g.n), "out")
    mem = _memories(k, tile, g.dtype)
    row, done = k.let("firstRow", 0), k.let("done", 0)
    with k.loop("e", 0, g.experts) as e:
        count = k.read("count", counts[e])
        m_tiles = k.let("mTiles", ceildiv(count, tile.m))
        tiles = k.let("tiles", m_tiles * ceildiv(g.n, tile.n))
        with k.loop("t", (k.core + k.cores - done) % k.cores, tiles, k.cores) as t:
            m0, n0 = k.let("m0", t % m_tiles * tile.m), k.let("n0", t // m_tiles * tile.n)
            mm, nn = k.let("m", smin(tile.m, count - m0)), k.let("n", smin(tile.n, g.n - n0))
            at = k.let("at", row + m0)
            x = _Tile(a[at * g.k], b[(e * g.n + n0) * g.k], c[at * g.n + n0], mm, nn, g.k, g.n, False)
            _product(k, mem, tile, x)
        k.assign(row, row + count)
        k.assign(done, (done + tiles) % k.cores)
    for cores in (1, 2):
        for first, last in ((0, 0), (1, 0), (2, 1), (0, tile.m + 1), (3 * tile.m + 17, 2), (5 * tile.m, 4 * tile.m)):
            data = [first, *([0] * (g.experts - 2)), last] if g.experts > 1 else [first]
            k.witness(cores, {"counts": data}, S=sum(data))
    return k.finish(caps.aic)

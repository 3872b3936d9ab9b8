"""Matrix products on the cube: out[m, n] = sum over k of a[m, k] * b[n, k] (or b[k, n]), accumulated in f32.

Device memory is row-major. L1 holds columns of 32 bytes (C0 elements), 16 rows to a fractal; L0A holds fractals row
band by row band, L0B and L0C column by column. The f32 path has C0 = 8, the 16-bit paths 16.
"""

from __future__ import annotations

from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import ITEMSIZE, Buffer, GmRef, LocalRef
from moec.codegen.kernels.cube_feed import (
    feed_a,
    feed_a_by_k,
    feed_b_by_k,
    fractals,
    load_by_k,
    load_nz,
    load_rows,
    load_rows_by_k,
)
from moec.codegen.scalar import Scalar, Var, align, both, ceildiv, choose, eq, smax, smin
from moec.codegen.tile import CubeTile

QUANT = {"f32": "QuantMode_t::NoQuant", "f16": "QuantMode_t::F322F16", "bf16": "QuantMode_t::F322BF16"}


@dataclass(slots=True)
class Memories:
    """The buffers of a product."""

    a1: Buffer
    b1: Buffer
    a0: Buffer
    b0: Buffer
    c0: Buffer


def memories(k: KernelBuilder, t: CubeTile, dtype: str) -> Memories:
    return Memories(
        k.buffer("L1", "a1", dtype, t.m * t.k1, t.slots("a")),
        k.buffer("L1", "b1", dtype, t.n * t.depth_b, t.slots("b")),
        k.buffer("L0A", "a0", dtype, t.m * t.k0, 2),
        k.buffer("L0B", "b0", dtype, t.n * t.k0, 2),
        k.buffer("L0C", "c0", "f32", t.m * t.n, t.c_slots),
    )


@dataclass(slots=True)
class OutputTile:
    """One output tile: its operands' first elements in device memory, its extent, the depth, and the row pitch of out.

    ``b`` is [N, K], or [K, N] if ``b_by_k``; ``a`` is [M, K], or [K, ``m_size``] if that is given. ``source``: indices
    of gathered rows, of ``a`` where it is [M, K], else of ``b``, which is [K, N] then: the r-th row of the tile is the
    ``source[r]``-th of the operand, whose first row the operand's element is in. ``k``: the row pitch of what lies
    [.., K]; ``depth``: how much of it is multiplied, if not all.
    """

    a: GmRef
    b: GmRef
    out: GmRef
    m: Var
    n: Var
    k: Scalar
    n_size: Scalar
    b_by_k: bool
    m_size: Scalar | None = None
    source: GmRef | None = None
    depth: Scalar | None = None

    @property
    def length(self) -> Scalar:
        """How much of K is multiplied."""
        return self.k if self.depth is None else self.depth


def load_kept(k: KernelBuilder, mem: Memories, t: CubeTile, x: OutputTile) -> LocalRef:
    """The operand that ``t`` keeps, all of its K, for ``x`` and the tiles that share it."""
    if t.keep == "a":
        _load_a(k, mem.a1[0], x, 0, x.k, _a_rows(k, x, k.let("m16", align(x.m, 16))))
        return mem.a1[0]
    _load_b(k, mem.b1[0], x, 0, x.k, k.let("n16", align(x.n, 16)))
    return mem.b1[0]


def _a_rows(k: KernelBuilder, x: OutputTile, m16: Var) -> Var:
    """Rows of the first operand in L1: a single one lies contiguous in L0A (the cube's vector-matrix mode), so that its
    columns follow one another."""
    return m16 if x.m_size is not None else k.let("aRows", choose(eq(x.m, 1), 1, m16))


def emit_product(k: KernelBuilder, mem: Memories, t: CubeTile, x: OutputTile, kept: LocalRef | None = None) -> None:
    """Loads, multiplies and writes one output tile.

    L1 takes ``k1`` of K of the first operand at a time and ``depth_b`` of the second; where these differ, the loop over
    the larger one holds one over the smaller. ``kept``: the operand that is there already.
    """
    out = mem.c0[k.slot(t.c_slots, "pingC") if t.c_slots > 1 else 0]
    m16, n16 = k.let("m16", align(x.m, 16)), k.let("n16", align(x.n, 16))
    a_rows = _a_rows(k, x, m16)
    outer, inner = max(t.k1, t.depth_b), min(t.k1, t.depth_b)
    steps = ceildiv(x.length, outer)
    with k.loop("k1", 0, steps) as i:
        k1: Scalar = k.let("chunk", (i + k.core) % steps) if t.stagger else i
        width = k.let("width", smin(outer, x.length - k1 * outer))
        first, last = eq(i, 0), eq(i, steps - 1)
        if t.k1 == t.depth_b:
            slot = k.slot(t.l1_slots, "ping1") if t.l1_slots > 1 else 0
            a1 = kept if kept is not None and t.keep == "a" else mem.a1[slot]
            b1 = kept if kept is not None and t.keep == "b" else mem.b1[slot]
            if a1 is not kept:
                _load_a(k, a1, x, k1 * outer, width, a_rows)
            if b1 is not kept:
                _load_b(k, b1, x, k1 * outer, width, n16)
            _steps(k, mem, t, x, out, _Chunk(a1, b1, 0, 0, width, width, width, m16, n16, first, last))
        else:
            a_deep = t.k1 > t.depth_b
            deep = kept or (mem.a1 if a_deep else mem.b1)[k.slot(t.l1_slots, "pingDeep") if t.l1_slots > 1 else 0]
            if kept is None and a_deep:
                _load_a(k, deep, x, k1 * outer, width, a_rows)
            elif kept is None:
                _load_b(k, deep, x, k1 * outer, width, n16)
            parts = k.let("parts", ceildiv(width, inner))
            with k.loop("k2", 0, parts) as k2:
                part = k.let("part", smin(inner, width - k2 * inner))
                at = k1 * outer + k2 * inner
                shallow = (mem.b1 if a_deep else mem.a1)[k.slot(t.l1_slots, "pingShallow") if t.l1_slots > 1 else 0]
                ends = both(first, eq(k2, 0)), both(last, eq(k2, parts - 1))
                if a_deep:
                    _load_b(k, shallow, x, at, part, n16)
                    chunk = _Chunk(deep, shallow, k2 * inner, 0, part, width, part, m16, n16, *ends)
                else:
                    _load_a(k, shallow, x, at, part, a_rows)
                    chunk = _Chunk(shallow, deep, 0, k2 * inner, part, part, width, m16, n16, *ends)
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
    """A piece of K in L1: where it lies in ``a1`` (from column of K ``a_at`` on, of ``a_width`` in all) and ``b1``
    (from ``b_at``, of ``b_width``), how much of K it is, and whether it is the ``first`` or ``last`` piece."""

    a1: LocalRef
    b1: LocalRef
    a_at: Scalar
    b_at: Scalar
    width: Scalar
    a_width: Scalar
    b_width: Scalar
    m16: Scalar
    n16: Scalar
    first: Scalar
    last: Scalar


def _steps(k: KernelBuilder, mem: Memories, t: CubeTile, x: OutputTile, out: LocalRef, c: _Chunk) -> None:
    """Feeds L0 from a chunk and multiplies, ``k0`` of K at a time."""
    c0 = 32 // ITEMSIZE[mem.a1.dtype]
    count = ceildiv(c.width, t.k0)
    with k.loop("k0", 0, count) as k0:
        a0 = mem.a0[k.slot(2, "ping0")]
        b0 = mem.b0[a0.slot]
        depth = k.let("depth", smin(t.k0, c.width - k0 * t.k0))
        columns = k.let("columns", ceildiv(depth, c0))
        m: Scalar = x.m
        if x.m_size is None:
            feed_a(k, a0, c.a1, _over(c.a_at, c0) + k0 * (t.k0 // c0), m, c.m16, columns, c0, t.m == 16)
        else:
            feed_a_by_k(k, a0, c.a1, _over(c.a_at, 16) + k0 * (t.k0 // 16), depth, c.a_width, c.m16, c0)
            m = smax(m, 2)  # a single row would be read as a contiguous one; the second is zeros
        if x.b_by_k:
            feed_b_by_k(k, b0, c.b1, _over(c.b_at, 16) + k0 * (t.k0 // 16), depth, c.b_width, c.n16, c0)
        else:
            fractals(k, b0, c.b1[(c.b_at + k0 * t.k0) * c.n16], columns * (c.n16 // 16))
        fresh = both(c.first, eq(k0, 0))
        unit = choose(both(c.last, eq(k0, count - 1)), 3, 2) if t.unit else 0
        k.op("Mmad", out, a0, b0, m=m, n=x.n, k=depth, unitFlag=unit, cmatrixInitVal=fresh)


def _over(at: Scalar, by: int) -> Scalar:
    """``at / by``; ``at`` is a multiple of it."""
    return 0 if at == 0 else at // by


def _load_a(k: KernelBuilder, a1: LocalRef, x: OutputTile, at: Scalar, width: Scalar, rows: Scalar) -> None:
    if x.m_size is not None:
        load_by_k(k, a1, x.a[at * x.m_size], x.m, x.m_size, width, rows)
    elif x.source is not None:
        load_rows(k, a1, x.a[at], x.source, x.m, width, x.k, rows)
    else:
        load_nz(k, a1, x.a[at], x.m, width, x.k, rows)


def _load_b(k: KernelBuilder, b1: LocalRef, x: OutputTile, at: Scalar, width: Scalar, n16: Scalar) -> None:
    if x.source is not None and x.m_size is not None:
        load_rows_by_k(k, b1, x.b, x.source[at], x.n, x.n_size, width, n16)
    elif x.b_by_k:
        load_by_k(k, b1, x.b[at * x.n_size], x.n, x.n_size, width, n16)
    else:
        load_nz(k, b1, x.b[at], x.n, width, x.k, n16)

"""Scores of attention on a vector core: scale, soft cap, masks; rows of ``keys`` elements, half a tile of rows."""

from __future__ import annotations

from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import ITEMSIZE, Buffer, GmTensor, LocalRef
from moec.codegen.kernels.attention_packed import Packed
from moec.codegen.kernels.attention_tile import BITS_ROW, Attention, Tile
from moec.codegen.scalar import Scalar, align, ceildiv

LANES = 64
"""f32 elements of one repeat."""
HALF_LANES = 128
"""16-bit elements of one repeat."""
NEGATIVE = float("-inf")


@dataclass(frozen=True, slots=True)
class Place:
    """Which scores: of query rows ``row`` on (``rows`` of them) by keys ``key`` on (``keys`` of them) of head ``head``
    of batch ``batch``."""

    batch: Scalar
    head: Scalar
    row: Scalar
    rows: Scalar
    key: Scalar
    keys: Scalar


def by_rows(k: KernelBuilder, name: str, dst: LocalRef, src: LocalRef, other: LocalRef, rows: Scalar, pitch: int,
            cols: int, each: bool) -> None:  # fmt: skip
    """dst = src op other over rows ``pitch`` apart: ``other`` has one 32-byte block a row (``each``), or one row for
    all."""
    for at in range(0, cols, LANES):
        k.v(
            f"{name}.rep",
            dst[at],
            src[at],
            other if each else other[at],
            mask=min(LANES, cols - at),
            repeatTime=rows,
            dstBlkStride=1,
            src0BlkStride=1,
            src1BlkStride=0 if each else 1,
            dstRepStride=pitch // 8,
            src0RepStride=pitch // 8,
            src1RepStride=1 if each else 0,
        )


def spread(k: KernelBuilder, dst: LocalRef, src: LocalRef, count: int) -> None:
    """One number a row becomes one 32-byte block a row."""
    k.v("Brcb", dst, src, repeatTime=-(-count // 8), dstBlkStride=1, dstRepStride=8)


def fold(k: KernelBuilder, name: str, work: Buffer | None, s: LocalRef, rows: Scalar, keys: int) -> LocalRef:
    """Rows of ``keys`` folded to 64 columns, in ``work`` where there is something to fold; gives where they lie."""
    if work is None:
        assert keys == LANES
        return s
    assert keys == 2 * LANES
    k.v(
        f"{name}.rep",
        work[0],
        s,
        s[LANES],
        mask=LANES,
        repeatTime=rows,
        dstBlkStride=1,
        src0BlkStride=1,
        src1BlkStride=1,
        dstRepStride=8,
        src0RepStride=keys // 8,
        src1RepStride=keys // 8,
    )
    return work[0]


class Sequences:
    """Leaves each row of scores the keys of its own sequence."""

    def __init__(self, k: KernelBuilder, a: Attention, t: Tile, packed: Packed):
        self.k, self.a, self.t, self.packed = k, a, t, packed
        self.places = k.ub("places", "i32", t.half)
        self.bounds, self.each = k.ub("bounds", "f32", t.half), k.ub("eachBound", "f32", t.half * 8)
        self.apart = k.ub("apart", "f32", t.half * t.keys)

    def start(self) -> None:
        self.k.fill(self.bounds[0], 0.0, self.t.half)

    def limit(self, s: LocalRef, p: Place, index: Buffer, bits: Buffer) -> None:
        """``index`` has numbers of keys in a row, ``bits`` is room for a comparison; where causal, no key behind a
        sequence is left."""
        k, a = self.k, self.a
        last = k.read("startOfLast", self.packed.first[p.row + p.rows - 1])
        with k.if_(last > p.key):
            self._compare(s, p, index, bits, self.packed.first, 1.0, 0 - p.key, "CMPMODE::GE")
        if not a.causal:
            behind = k.read("behindFirst", self.packed.after[p.row])
            with k.if_(p.key + p.keys + behind > a.queries):
                self._compare(s, p, index, bits, self.packed.after, -1.0, a.queries - p.key, "CMPMODE::LT")

    def _compare(self, s: LocalRef, p: Place, index: Buffer, bits: Buffer, of: GmTensor, sign: float, shift: Scalar,
                 mode: str) -> None:  # fmt: skip
        """Keeps scores whose key stands to ``sign`` times the row's in ``of`` plus ``shift`` as ``mode`` says."""
        k, t = self.k, self.t
        count = p.rows * t.keys
        k.load(self.places[0], of[p.row], p.rows)
        k.cast(self.bounds[0], self.places[0], p.rows)
        if sign < 0:
            k.v("Muls", self.bounds[0], self.bounds[0], scalar=sign, count=p.rows)
        k.v("Adds", self.bounds[0], self.bounds[0], scalar=shift, count=p.rows)
        spread(k, self.each[0], self.bounds[0], t.half)
        for at in range(0, t.keys, LANES):
            k.v(
                "Sub.rep",
                self.apart[0][at],
                index[0][at],
                self.each[0],
                mask=LANES,
                repeatTime=p.rows,
                dstBlkStride=1,
                src0BlkStride=1,
                src1BlkStride=0,
                dstRepStride=t.keys // 8,
                src0RepStride=0,
                src1RepStride=1,
            )
        k.v("CompareScalar", bits[0], self.apart[0], scalar=0.0, mode=mode, count=count)
        k.v("SelectScalar", s, bits[0], s, scalar=NEGATIVE, count=count)


class Scores:
    """Loads raw scores and makes them the masked ones. Buffers are reserved when it is made."""

    def __init__(self, k: KernelBuilder, a: Attention, t: Tile, mask: GmTensor | None, packed: Packed | None):
        self.k, self.a, self.t, self.mask = k, a, t, mask
        self.sequences = None if packed is None else Sequences(k, a, t, packed)
        each = t.half * t.keys
        self.index = k.ub("index", "f32", BITS_ROW)  # key - query of as many rows as one comparison covers
        self.bits = k.ub("bits", "u8", max(32, each // 8))
        self.row = k.ub("penalty", "f32", t.keys)  # added to every row: 0, or -inf beyond the last key
        self.rowbits = k.ub("penaltyBits", "u8", 32)
        self.two = k.ub("two", "f32", LANES) if a.softcap is not None else None
        self.narrow = self.wide = self.each = None
        if a.mask is not None:
            copies = t.half if a.mask.rows else 1
            elements = max(HALF_LANES, copies * t.keys) if a.mask.keys else HALF_LANES
            if not a.mask.keys:
                self.each = k.ub("eachMask", "f32", t.half * 8)
            self.narrow = k.ub("maskTile", a.mask.dtype, elements)
            if a.mask.is_bool:
                self.wide = k.ub("maskWide", "f16", elements)
            elif a.mask.dtype != "f32" and a.mask.keys:
                self.wide = k.ub("maskWide", "f32", elements)

    def start(self) -> None:
        """Constants of the whole kernel."""
        k, t = self.k, self.t
        if self.sequences is not None:
            self.sequences.start()
        for q in range(BITS_ROW // t.keys):
            k.v("ArithProgression", self.index[0][q * t.keys], firstValue=float(-q), diffValue=1.0, count=t.keys)
        if self.two is not None:
            k.fill(self.two[0], 2.0, LANES)
        if self.narrow is not None and self.a.mask is not None and self.a.mask.is_bool:
            k.fill(self.narrow[0].cast("u16"), 0, self.narrow.elems // 2)

    def load(self, s: LocalRef, src: GmTensor, at: Scalar, p: Place) -> None:
        """Raw scores from ``at`` of the workspace; keys beyond the last are 0."""
        k, t = self.k, self.t
        with k.if_(p.keys < t.keys):
            k.fill(s, 0.0, p.rows * t.keys)
        whole = k.let("whole", align(p.keys, 8))
        k.load(s, src[at], p.keys, p.rows, t.keys, (t.keys - whole) // 8, 0.0, whole - p.keys)

    def finish(self, s: LocalRef, p: Place, slope: LocalRef | None = None) -> None:
        """Scale, soft cap and masks, in place; ``slope`` becomes what the cap multiplies gradients by."""
        k, a, t = self.k, self.a, self.t
        count = p.rows * t.keys
        if a.softcap is None:
            k.v("Muls", s, s, scalar=a.scale, count=count)
        else:
            self._cap(s, p.rows, a.scale, a.softcap)
            if slope is not None:
                k.v("Mul", slope, s, s, count=count)
                k.v("Muls", slope, slope, scalar=-1.0 / a.softcap**2, count=count)
                k.v("Adds", slope, slope, scalar=1.0, count=count)
        self._limits(s, p)
        if self.sequences is not None:
            self.sequences.limit(s, p, self.index, self.bits)
        if a.mask is not None and a.mask.keys:
            self._mask(s, p)
        elif a.mask is not None:
            self._mask_of_rows(s, p)
        self._ragged(s, p)

    def _cap(self, s: LocalRef, rows: Scalar, scale: float, cap: float) -> None:
        """cap tanh(scale s / cap) = cap - 2 cap / (e^(2 scale s / cap) + 1); e^x may overflow, its share is then 0."""
        k, t = self.k, self.t
        assert self.two is not None
        count = rows * t.keys
        k.v("Muls", s, s, scalar=2.0 * scale / cap, count=count)
        k.v("Exp", s, s, count=count)
        k.v("Adds", s, s, scalar=1.0, count=count)
        k.v(
            "Div.rep",
            s,
            self.two[0],
            s,
            mask=LANES,
            repeatTime=rows * (t.keys // LANES),
            dstBlkStride=1,
            src0BlkStride=1,
            src1BlkStride=1,
            dstRepStride=8,
            src0RepStride=0,
            src1RepStride=8,
        )
        k.v("Muls", s, s, scalar=-cap, count=count)
        k.v("Adds", s, s, scalar=cap, count=count)

    def _limits(self, s: LocalRef, p: Place) -> None:
        """Keys that position or window exclude: key - query > limit, or key - query <= limit - window."""
        a, k = self.a, self.k
        limit = k.let("limit", p.row + a.offset - p.key)  # of the first row
        if a.causal:
            with k.if_(p.keys - 1 > limit):
                self._compare(s, p, limit, "CMPMODE::LE")
        if a.window is not None:
            with k.if_(limit + p.rows - 1 - a.window >= 0):
                self._compare(s, p, limit - a.window, "CMPMODE::GT")

    def _compare(self, s: LocalRef, p: Place, bound: Scalar, mode: str) -> None:
        """Keeps scores whose key - query stands to ``bound`` as ``mode`` says."""
        k, t = self.k, self.t
        step = BITS_ROW // t.keys
        with k.loop("group", 0, ceildiv(p.rows, step)) as group:
            to = self.bits[0][group * (BITS_ROW // 8)]
            k.v("CompareScalar", to, self.index[0], scalar=bound + group * step, mode=mode, count=BITS_ROW)
        k.v("SelectScalar", s, self.bits[0], s, scalar=NEGATIVE, count=p.rows * t.keys)

    def _ragged(self, s: LocalRef, p: Place) -> None:
        """Keys beyond the last one."""
        k, t = self.k, self.t
        with k.if_(p.keys < t.keys):
            k.fill(self.row[0], 0.0, t.keys)
            k.v("CompareScalar", self.rowbits[0], self.index[0], scalar=p.keys, mode="CMPMODE::LT", count=t.keys)
            k.v("SelectScalar", self.row[0], self.rowbits[0], self.row[0], scalar=NEGATIVE, count=t.keys)
            by_rows(k, "Add", s, s, self.row[0], p.rows, t.keys, t.keys, False)

    def _mask(self, s: LocalRef, p: Place) -> None:
        k, t, m = self.k, self.t, self.a.mask
        assert m is not None and self.narrow is not None
        rows = p.rows if m.rows else 1
        self._load_mask(rows, p)
        source = self.narrow[0]
        if m.is_bool:
            assert self.wide is not None
            count = align(rows * t.keys, HALF_LANES)
            k.cast(self.wide[0], source, count)
            k.v("CompareScalar", self.bits[0], self.wide[0], scalar=0, mode="CMPMODE::NE", count=count)
            if m.rows:
                k.v("SelectScalar", s, self.bits[0], s, scalar=NEGATIVE, count=rows * t.keys)
                return
            k.fill(self.row[0], 0.0, t.keys)
            k.v("SelectScalar", self.row[0], self.bits[0], self.row[0], scalar=NEGATIVE, count=t.keys)
            source = self.row[0]
        elif self.wide is not None:
            k.cast(self.wide[0], source, rows * t.keys)
            source = self.wide[0]
        if m.rows:
            k.v("Add", s, s, source, count=rows * t.keys)
        else:
            by_rows(k, "Add", s, s, source, p.rows, t.keys, t.keys, False)

    def _mask_of_rows(self, s: LocalRef, p: Place) -> None:
        """A mask with one number a row of queries, or one for all of them."""
        k, t, a, m, tensor = self.k, self.t, self.a, self.a.mask, self.mask
        assert m is not None and self.narrow is not None and self.each is not None and tensor is not None
        at: Scalar = p.batch if m.batch else 0
        at = at * (a.heads if m.heads else 1) + (p.head if m.heads else 0)
        at, count = (at * a.queries + p.row, p.rows) if m.rows else (at, 1)
        k.fill(self.row[0], 0.0, t.keys)
        if m.is_bool:
            assert self.wide is not None
            k.fill(self.narrow[0].cast("u16"), 0, HALF_LANES // 2)
            k.load(self.narrow[0], tensor[at], count, pad=0, right=align(count, 32) - count)
            k.cast(self.wide[0], self.narrow[0], HALF_LANES)
            k.v("CompareScalar", self.bits[0], self.wide[0], scalar=0, mode="CMPMODE::NE", count=HALF_LANES)
            k.v("SelectScalar", self.row[0], self.bits[0], self.row[0], scalar=NEGATIVE, count=LANES)
        elif m.dtype == "f32":
            k.load(self.row[0], tensor[at], count, pad=0.0, right=align(count, 8) - count)
        else:
            k.load(self.narrow[0], tensor[at], count)
            k.cast(self.row[0], self.narrow[0], count)
        if m.rows:
            spread(k, self.each[0], self.row[0], t.half)
            by_rows(k, "Add", s, s, self.each[0], p.rows, t.keys, t.keys, True)
        else:
            k.v("Adds", s, s, scalar=k.read("maskOfRows", self.row[0]), count=p.rows * t.keys)

    def _load_mask(self, rows: Scalar, p: Place) -> None:
        k, t, a, m, tensor = self.k, self.t, self.a, self.a.mask, self.mask
        assert m is not None and self.narrow is not None and tensor is not None
        size = ITEMSIZE[m.dtype]
        unit = 32 // size
        at: Scalar = p.batch if m.batch else 0
        at = at * (a.heads if m.heads else 1) + (p.head if m.heads else 0)
        at = (at * a.queries + p.row) * a.keys if m.rows else at * a.keys
        whole = k.let("wholeMask", align(p.keys, unit))
        with k.if_(p.keys < t.keys):
            if m.is_bool:
                k.fill(self.narrow[0].cast("u16"), 0, rows * (t.keys // 2))
            else:
                k.fill(self.narrow[0], 0, rows * t.keys)
        k.load(self.narrow[0], tensor[at + p.key], p.keys, rows, a.keys, (t.keys - whole) // unit, 0, whole - p.keys)

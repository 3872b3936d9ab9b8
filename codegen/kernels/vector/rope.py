"""Rotary position embedding: a tile of rows, its pairs (a, b) turned by each row's angles, in f32.

(a, b) becomes (a cos - b sin, b cos + a sin). Halves of rows are fetched and stored as they are; interleaved pairs are
taken apart by a mask and put together by a gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import ITEMSIZE, Buffer, GmRef, GmTensor, LocalRef
from moec.codegen.kernels.vector.alternate import FIRST, SECOND, alternate
from moec.codegen.kernels.vector.assemble import balanced
from moec.codegen.kernels.vector.tile import BLOCK, LANES, MAX_REPEAT
from moec.codegen.scalar import Scalar, binary, ceildiv, smax, smin

UNIT = 16
"""Pairs of a row are rounded up to this many, so that rows of each half start on a block in any dtype."""


@dataclass(frozen=True)
class Lead:
    """A dimension of x before the last: its size, and how many rows apart its steps are in cos and sin."""

    size: Scalar
    cos: Scalar
    sin: Scalar


@dataclass(frozen=True)
class Rope:
    """x [..., width] of ``dtype``, its first 2 ``pairs`` columns turned; ``cos_both``: the table has a's and b's own
    elements, not one for both."""

    width: int
    pairs: int
    layout: str
    dtype: str
    cos_dtype: str
    sin_dtype: str
    cos_both: bool
    sin_both: bool

    @property
    def pitch(self) -> int:
        return -(-self.pairs // UNIT) * UNIT


@dataclass(frozen=True)
class _Table:
    """cos or sin and where it lies: ``both`` halves, the second ``half`` elements on; ``stride`` 0: one row for all."""

    tensor: GmTensor
    both: bool
    stride: Scalar
    half: int
    raw: Buffer
    wide: Buffer | None


class RopeBody:
    """``leads`` are x's dimensions but the last, outermost first; the last of them is the rows of a tile."""

    def __init__(
        self,
        k: KernelBuilder,
        rope: Rope,
        x: GmTensor,
        cos: GmTensor,
        sin: GmTensor,
        y: GmTensor,
        leads: Sequence[Lead],
    ):
        self.k, self.r, self.x, self.y, self.leads = k, rope, x, y, leads
        self.most = self._fit()
        self.apart_in = rope.layout in ("interleaved", "interleaved_to_half")
        self.apart_out = rope.layout in ("interleaved", "half_to_interleaved")
        n = self.most * rope.pitch
        self.raw = k.ub("x_in", rope.dtype, 2 * n, 2)
        self.out = k.ub("y_out", rope.dtype, 2 * n, 2)
        narrow = rope.dtype != "f32"
        self.turned = k.ub("turned", "f32", 2 * n)
        self.pair = k.ub("pair", "f32", 2 * n) if narrow or self.apart_in or self.apart_out else self.turned
        self.wide = k.ub("wide", "f32", 2 * n if narrow and (self.apart_in or self.apart_out) else n)
        self.tables = {
            "cos": self._table("cos", cos, rope.cos_both, leads[-1].cos),
            "sin": self._table("sin", sin, rope.sin_both, leads[-1].sin),
        }
        self.half = n
        self.rest: Buffer | None = None
        if rope.width > 2 * rope.pairs:
            block = 32 // ITEMSIZE[rope.dtype]
            self.rest = k.ub("rest", rope.dtype, self.most * (-(-(rope.width - 2 * rope.pairs) // block) * block), 2)

    def _table(self, name: str, tensor: GmTensor, both: bool, stride: Scalar) -> _Table:
        half = self.r.pitch * (1 if stride == 0 else self.most)
        elems = 2 * half if both else half
        raw = self.k.ub(f"{name}_in", tensor.dtype, elems, 2)
        return _Table(
            tensor, both, stride, half, raw, None if tensor.dtype == "f32" else self.k.ub(f"{name}32", "f32", elems)
        )

    def _fit(self) -> int:
        """Rows of a tile."""
        r = self.r
        ends = 2 * (2 * ITEMSIZE[r.dtype] + ITEMSIZE[r.cos_dtype] + ITEMSIZE[r.sin_dtype])
        each = 2 * r.pitch * (ends + 5 * 4 + 4) + 2 * ITEMSIZE[r.dtype] * (r.width - 2 * r.pairs + 16)
        return max(1, min(MAX_REPEAT, (self.k.free("UB") - 4096) // each))

    def emit(self) -> Scalar:
        """The loops; returns how many cores are wanted."""
        k, leads = self.k, self.leads
        self._prepare()
        rows = leads[-1].size
        outer: Scalar = 1
        for lead in leads[:-1]:
            outer = binary("*", outer, lead.size)
        size = k.let("rows_a_tile", smin(self.most, balanced(ceildiv(binary("*", outer, rows), k.cores), self.most, 8)))
        tiles = ceildiv(rows, size)
        with k.loop("u", k.core, binary("*", outer, tiles), k.cores) as u:
            first = k.let("first", (u % tiles) * size)
            unit: Scalar = k.let("outer", u // tiles)
            n = k.let("rows", smin(size, rows - first))
            at = k.let("row", binary("+", binary("*", unit, rows), first))
            where: dict[str, Scalar] = {
                "cos": binary("*", first, leads[-1].cos),
                "sin": binary("*", first, leads[-1].sin),
            }
            for i, lead in enumerate(reversed(leads[:-1])):
                last = i == len(leads) - 2
                index = k.let("index", unit if last else unit % lead.size)
                if not last:
                    unit = k.let("above", unit // lead.size)
                where["cos"] = binary("+", where["cos"], binary("*", index, lead.cos))
                where["sin"] = binary("+", where["sin"], binary("*", index, lead.sin))
            self._tile(at, n, where)
        work = binary("*", binary("*", outer, rows), 2 * self.r.pitch)
        return smax(1, ceildiv(work, 8 * LANES))

    def _prepare(self) -> None:
        """Blocks that no copy brings must still be numbers; and where each column of an interleaved row comes from."""
        k, n = self.k, self.half
        for b in (self.raw, *(t.raw for t in self.tables.values())):
            for slot in range(b.slots):
                k.fill(b[slot], 0.0, b.elems)
        if not self.apart_out:
            return
        self.table = k.ub("table", "i32", 2 * n)
        index, odd = self.pair[0], self.turned[0]
        k.v("ArithProgression", index, firstValue=0.0, diffValue=0.5, count=2 * n)
        k.cast(odd, index, 2 * n, "FLOOR")
        k.v("Sub", index, index, odd, count=2 * n)  # 0 for even columns, 0.5 for odd ones
        k.v("Muls", index, index, scalar=8.0 * n, count=2 * n)
        k.v("Muls", odd, odd, scalar=4.0, count=2 * n)
        k.v("Add", index, index, odd, count=2 * n)
        k.cast(self.table[0], index, 2 * n, "RINT")

    # -- one tile

    def _tile(self, at: Scalar, n: Scalar, where: dict[str, Scalar]) -> None:
        k, r = self.k, self.r
        ping = k.slot(2)
        count = k.let("count", n * r.pitch)
        self._fetch(self.raw[ping], self.x, binary("*", at, r.width), n, r.width, self.apart_in)
        a, b = self._halves(self.pair, self.raw[ping], count, self.apart_in)
        angles = {}
        for name, t in self.tables.items():
            width = 2 * r.pairs if t.both else r.pairs
            rows: Scalar = 1 if t.stride == 0 else n
            offset = binary("*", where[name], width)
            self._rows(t.raw[ping], t.tensor, offset, rows, width)
            if t.both:
                self._rows(t.raw[ping][t.half], t.tensor, binary("+", offset, r.pairs), rows, width)
            angles[name] = self._angle(t, t.raw[ping], binary("*", rows, r.pitch))
        first, second, wide = self.turned[0], self.turned[0][self.half], self.wide[0]
        (cos_a, cos_b), (sin_a, sin_b) = angles["cos"], angles["sin"]
        self._by(first, a, cos_a, n, count)
        self._by(wide, b, sin_a, n, count)
        k.v("Sub", first, first, wide, count=count)
        self._by(second, b, cos_b, n, count)
        self._by(wide, a, sin_b, n, count)
        k.v("Add", second, second, wide, count=count)
        self._store(at, n, count, ping)
        if self.rest is not None:
            cols = r.width - 2 * r.pairs
            from_ = binary("+", binary("*", at, r.width), 2 * r.pairs)
            k.load(self.rest[ping], self.x[from_], cols, n, r.width)
            k.store(self.y[from_], self.rest[ping], cols, n, r.width)

    def _rows(self, to: LocalRef, tensor: GmTensor, at: Scalar, n: Scalar, pitch: Scalar) -> None:
        """``n`` rows of ``pairs`` elements, each on a place of ``pitch`` in the unified buffer."""
        self._load(to, tensor[at], self.r.pairs, n, pitch, self.r.pitch)

    def _fetch(self, to: LocalRef, tensor: GmTensor, at: Scalar, n: Scalar, pitch: Scalar, apart: bool) -> None:
        """Rows of 2 ``pairs``: whole where pairs are interleaved, else half by half."""
        r = self.r
        if not apart:
            self._rows(to, tensor, at, n, pitch)
            self._rows(to[self.half], tensor, binary("+", at, r.pairs), n, pitch)
            return
        self._load(to, tensor[at], 2 * r.pairs, n, pitch, 2 * r.pitch)

    def _load(self, to: LocalRef, of: GmRef, cols: int, n: Scalar, pitch: Scalar, place: int) -> None:
        """``n`` rows of ``cols`` elements, ``place`` elements apart in the unified buffer."""
        block = 32 // ITEMSIZE[of.dtype]
        ragged = -cols % block
        gap = (place - cols - ragged) // block
        self.k.load(to, of, cols, n, None if n == 1 else pitch, gap, 0 if ragged else None, ragged)

    def _halves(self, to: Buffer, raw: LocalRef, count: Scalar, apart: bool) -> tuple[LocalRef, LocalRef]:
        """a and b in f32."""
        k = self.k
        a, b = to[0], to[0][self.half]
        if not apart:
            if raw.dtype == "f32":
                return raw, raw[self.half]
            k.cast(a, raw, count)
            k.cast(b, raw[self.half], count)
            return a, b
        whole = raw
        if raw.dtype != "f32":
            whole = self.wide[0]
            k.cast(whole, raw, binary("*", count, 2))
        alternate(k, a, whole, FIRST, count)
        alternate(k, b, whole, SECOND, count)
        return a, b

    def _angle(self, t: _Table, held: LocalRef, count: Scalar) -> tuple[tuple[LocalRef, bool], tuple[LocalRef, bool]]:
        """The table for a and for b in f32, each with whether one row of it serves all."""
        raw = held
        if t.wide is not None:
            held = t.wide[0]
            self.k.cast(held, raw, count)
            if t.both:
                self.k.cast(held[t.half], raw[t.half], count)
        once = t.stride == 0
        return (held, once), (held[t.half] if t.both else held, once)

    def _by(self, to: LocalRef, x: LocalRef, table: tuple[LocalRef, bool], n: Scalar, count: Scalar) -> None:
        """to = x * table."""
        k, (angle, once), pitch = self.k, table, self.r.pitch
        if not once:
            k.v("Mul", to, x, angle, count=count)
            return
        for j in range(0, pitch, LANES):
            k.v(
                "Mul.rep",
                to[j],
                x[j],
                angle[j],
                mask=min(LANES, pitch - j),
                repeatTime=n,
                dstBlkStride=1,
                src0BlkStride=1,
                src1BlkStride=1,
                dstRepStride=pitch // BLOCK,
                src0RepStride=pitch // BLOCK,
                src1RepStride=0,
            )

    def _store(self, at: Scalar, n: Scalar, count: Scalar, ping: Scalar) -> None:
        k, r = self.k, self.r
        out, to = self.out[ping], binary("*", at, r.width)
        block = 32 // ITEMSIZE[r.dtype]
        if not self.apart_out:
            for i in (1, 0):
                half = out[i * self.half]
                if r.dtype == "f32":
                    k.v("Muls", half, self.turned[0][i * self.half], scalar=1.0, count=count)
                else:
                    k.cast(half, self.turned[0][i * self.half], count)
                gap = r.pitch // block - -(-r.pairs // block)
                k.store(self.y[binary("+", to, i * r.pairs)], half, r.pairs, n, r.width, gap)
            return
        both = binary("*", count, 2)
        k.v(
            "Gather",
            out if r.dtype == "f32" else self.wide[0],
            self.turned[0],
            self.table[0].cast("u32"),
            base=0,
            count=both,
            srcBytes=8 * self.half,
        )
        if r.dtype != "f32":
            k.cast(out, self.wide[0], both)
        k.store(self.y[to], out, 2 * r.pairs, n, r.width, 2 * r.pitch // block - -(-2 * r.pairs // block))

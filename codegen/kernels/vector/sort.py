"""Rows sorted by value, of any length: indices and, where wanted, values, the largest first or the smallest.

A row is taken in blocks of at most ``BLOCK`` elements. Each is sorted in the unified buffer: runs of 32 lanes, then
merges of up to four runs until one is left. A row of one block is done then; of longer ones the sorted blocks wait in
device memory for ``merge_lists``. Equal elements keep their order throughout: Sort32 is stable, and a merge takes the
earlier of its lists (CANN asc-devkit docs, Sort32 and MrgSort).

The vector unit sorts f32. Floats become that exactly; integers do while they lie within 2^24, and others are sorted
twice, by their low 16 bits and then by the high ones, in the order that the first sort gave. The smallest come first
where keys are negated. NaN counts as +infinity.
"""

from __future__ import annotations

from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.instructions.layout import SORT_ALIGN, SORTED_ALIGN
from moec.codegen.kernel_ir import ITEMSIZE, Buffer, GmTensor, LocalRef
from moec.codegen.kernels.vector.alternate import FIRST, SECOND, alternate
from moec.codegen.kernels.vector.tile import LANES
from moec.codegen.kernels.vector.topk import RUN, WAYS
from moec.codegen.scalar import Scalar, align, binary, both, ceildiv, smax, smin

BLOCK = 4096
"""Most elements sorted at once: two buffers of 8-byte records and what goes in and out fill a unified buffer."""
UNITS = (RUN, RUN * WAYS, RUN * WAYS * WAYS)
LOW_BITS = 16
INF = float("inf")


@dataclass(frozen=True)
class Sort:
    """``rows`` of ``n`` elements, of which the first ``keep`` in order are wanted.

    ``part`` of integers to sort by: ``whole`` (they lie within 2^24), ``low`` or ``high`` bits. ``most``: a bound of n.
    """

    rows: Scalar
    n: Scalar
    keep: Scalar
    descending: bool
    part: str = "whole"
    most: int = 2**31 - 1

    @property
    def unit(self) -> int:
        """What the elements of a block are rounded up to: lists of up to a unit are all full, which makes a level of
        their merges one instruction, and there are few ways in which units come together."""
        return next((u for u in UNITS if self.most <= WAYS * u), UNITS[-1])

    @property
    def block(self) -> int:
        """Elements of a block: no more than the longest row needs."""
        return min(BLOCK, -(-max(1, self.most) // self.unit) * self.unit)

    @property
    def blocks(self) -> Scalar:
        """Blocks of a row."""
        return 1 if self.is_short else ceildiv(self.n, self.block)

    @property
    def is_short(self) -> bool:
        """Whether no row is longer than a block."""
        return self.most <= self.block

    @property
    def worst(self) -> float:
        """The key that stands behind all others."""
        return -INF

    @property
    def nan(self) -> float:
        """What NaN counts as among the keys."""
        return INF if self.descending else -INF


@dataclass(frozen=True)
class Outputs:
    """Where results go: ``index`` (i32, i64) and ``values`` (floats; None where not wanted), [rows, keep]."""

    index: GmTensor
    values: GmTensor | None = None


class Sorter:
    """Sorts blocks of x in the unified buffer."""

    def __init__(self, k: KernelBuilder, s: Sort, x: GmTensor, given: GmTensor | None):
        """``given``: i32 indices of x's elements, instead of their places in the row."""
        self.k, self.s, self.x, self.given = k, s, x, given
        lanes = s.block
        wide = -(-lanes // LANES) * LANES
        self.raw = k.ub("raw", x.dtype, lanes, 2 if lanes * ITEMSIZE[x.dtype] <= 8192 else 1)
        self.keys = k.ub("keys", "f32", wide, align=SORT_ALIGN)
        self.index = k.ub("index", "i32", lanes, align=SORT_ALIGN)
        self.bits = k.ub("bits", "u8", wide // 8)
        self.half = k.ub("narrow", "f16", lanes) if x.dtype == "u8" else None
        self.records = [k.ub("records", "f32", 2 * lanes, align=SORTED_ALIGN), k.ub("merged", "f32", 2 * lanes)]
        if given is not None:
            k.fill(self.index[0], 0, lanes)

    def block(self, row: Scalar, first: Scalar, m: Scalar) -> LocalRef:
        """The records of elements ``first`` to ``first + m`` of ``row``, in order, as pairs of f32 (key, raw index)."""
        k, s = self.k, self.s
        lanes = align(m, s.unit)
        at = binary("+", binary("*", row, s.n), first)
        raw = self.raw[k.slot(2) if self.raw.slots > 1 else 0]
        k.load(raw, self.x[at], m)
        k.fill(self.keys[0], s.worst, align(lanes, LANES))
        self._keys(raw, m)
        if self.given is None:
            k.v("ArithProgression", self.index[0], firstValue=first, diffValue=1, count=lanes)
        else:
            k.load(self.index[0], self.given[at], m, pad=0, right=binary("-", align(m, 8), m))
        k.v("Sort32", self.records[0][0], self.keys[0], self.index[0].cast("u32"), repeatTime=lanes // RUN)
        return self._merged(lanes)

    def _keys(self, raw: LocalRef, m: Scalar) -> None:
        """f32 keys of ``m`` elements: the wanted order is theirs, descending."""
        k, keys, sign = self.k, self.keys[0], 1.0 if self.s.descending else -1.0
        if self.x.dtype in ("i32", "i64"):
            whole = raw
            if self.x.dtype == "i64":
                whole = self.index[0]
                k.cast(whole, raw, m, "NONE")
            if self.s.part != "whole":
                high = self.records[0][0].cast("i32")
                k.v("ShiftRight", high, whole, scalar=LOW_BITS, count=m)
                if self.s.part == "low":
                    low = self.records[1][0].cast("i32")
                    k.v("ShiftLeft", high, high, scalar=LOW_BITS, count=m)
                    k.v("Sub", low, whole, high, count=m)
                    high = low
                whole = high
            k.cast(keys, whole, m, "RINT")
        elif self.x.dtype == "f32":
            k.v("Muls", keys, raw, scalar=sign, count=m)
        else:
            if self.half is not None:
                k.cast(self.half[0], raw, m)
                raw = self.half[0]
            k.cast(keys, raw, m)
        if self.x.dtype != "f32" and sign < 0:
            k.v("Muls", keys, keys, scalar=sign, count=m)
        if self.x.dtype in ("f32", "f16", "bf16"):
            count = align(m, LANES)
            k.v("Compare", self.bits[0], keys, keys, mode="CMPMODE::EQ", count=count)
            k.v("SelectScalar", keys, self.bits[0], keys, scalar=self.s.nan, count=count)

    def _merged(self, lanes: Scalar) -> LocalRef:
        """One list of the ``lanes`` records that stand in sorted runs of 32: up to four are merged until one is left.

        What is left over at the end of a level, and alone, is copied.
        """
        length, turn = RUN, 0
        while length < self.s.block:
            source, to = self.records[turn][0], self.records[1 - turn][0]
            groups = lanes // (WAYS * length)
            with self.k.if_(groups > 0):
                self._merge(to, source, length, [length] * WAYS, groups)
            done = binary("*", groups, WAYS * length)
            rest = binary("-", lanes, done)
            for lists in range(1, WAYS + 1):
                last = binary("-", rest, (lists - 1) * length)
                with self.k.if_(both(last > 0, last <= length)):
                    at = binary("*", done, 2)
                    self._merge(to[at], source[at], length, [length] * (lists - 1) + [last], 1)
            length, turn = length * WAYS, 1 - turn
        return self.records[turn][0]

    def _merge(self, to: LocalRef, source: LocalRef, apart: int, lengths: list[Scalar], repeats: Scalar) -> None:
        merge(self.k, to, [source[2 * apart * i] for i in range(len(lengths))], lengths, repeats)


def merge(k: KernelBuilder, to: LocalRef, lists: list[LocalRef], lengths: list[Scalar], repeats: Scalar = 1) -> None:
    """One list of up to four; one alone (a multiple of four records) is copied."""
    if len(lists) == 1:
        k.v("DataCopy", to, lists[0], count=binary("*", lengths[0], 2))
        return
    spare = WAYS - len(lists)
    sizes = {f"length{i + 1}": n for i, n in enumerate([*lengths, *([0] * spare)])}
    k.v("MrgSort", to, *lists, *([lists[-1]] * spare), **sizes, validBit=2 ** len(lists) - 1, repeatTimes=repeats)


class Extractor:
    """Splits records into indices and values, and stores them; most ``lanes`` at once."""

    def __init__(
        self, k: KernelBuilder, s: Sort, out: Outputs, lanes: int, index: Buffer | None, values: Buffer | None
    ):
        """``index`` (i32) and ``values`` (f32): buffers of that many elements that are free by then, if any."""
        self.k, self.s, self.out = k, s, out
        self.index = index or k.ub("index_out", "i32", lanes)
        self.wide = None if out.index.dtype == "i32" else k.ub("index_wide", "i64", lanes)
        self.values = self.narrow = None
        if out.values is not None:
            self.values = values or k.ub("values_out", "f32", lanes)
            self.narrow = None if out.values.dtype == "f32" else k.ub("values_narrow", out.values.dtype, lanes)

    def store(self, records: LocalRef, at: Scalar, count: Scalar) -> None:
        """``count`` records to elements ``at`` and on of the outputs."""
        k, out = self.k, self.out
        index = self.index[0]
        alternate(k, index, records.cast("i32"), SECOND, count)
        if self.wide is not None:
            k.cast(self.wide[0], index, count)
            index = self.wide[0]
        k.store(out.index[at], index, count)
        if out.values is None or self.values is None:
            return
        values = self.values[0]
        alternate(k, values, records, FIRST, count)
        if not self.s.descending:
            k.v("Muls", values, values, scalar=-1.0, count=count)
        if self.narrow is not None:
            k.cast(self.narrow[0], values, count)
            values = self.narrow[0]
        k.store(out.values[at], values, count)


def check_sizes(s: Sort) -> list[int]:
    """Lengths of a row that between them take every branch: no element, one, each number of units, and of blocks."""
    units = [s.unit * u - 7 * (u % 2) for u in range(1, s.block // s.unit + 1)]
    several = [s.block + 1, 2 * s.block + 5, 3 * s.block + 70, 11 * s.block + 5]
    return [0, 1, *units, *([] if s.is_short else several)]


def emit_short(k: KernelBuilder, s: Sort, x: GmTensor, out: Outputs, given: GmTensor | None = None) -> Scalar:
    """Rows of one block. Returns how many cores are wanted."""
    sorter = Sorter(k, s, x, given)
    extractor = Extractor(k, s, out, s.block, sorter.index, sorter.keys)
    with k.loop("row", k.core, s.rows, k.cores) as row:
        records = sorter.block(row, 0, s.n)
        extractor.store(records, binary("*", row, s.keep), s.keep)
    return smax(1, s.rows)


def emit_blocks(k: KernelBuilder, s: Sort, x: GmTensor, work: GmTensor, given: GmTensor | None = None) -> None:
    """Every block of every row sorted; its records to ``work`` [rows, blocks * block, 2], the first of two such."""
    sorter = Sorter(k, s, x, given)
    span = binary("*", s.blocks, 2 * s.block)
    with k.loop("task", k.core, binary("*", s.rows, s.blocks), k.cores) as task:
        row, number = k.let("row", task // s.blocks), k.let("number", task % s.blocks)
        first = k.let("first", number * s.block)
        m = k.let("count", smin(s.block, s.n - first))
        records = sorter.block(row, first, m)
        k.store(work[row * span + 2 * first], records, 2 * smin(m, s.keep))

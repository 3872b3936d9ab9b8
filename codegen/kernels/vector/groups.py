"""Group-limited routing: only experts of the best groups may be chosen.

A group counts by its best expert or the sum of its two best. Groups are ranked by sorting twice: once by worth, with
ties to the lower group, then back by number, which leaves each group its rank.
"""

from __future__ import annotations

from typing import Protocol

from moec.codegen.builder import KernelBuilder
from moec.codegen.instructions.layout import SORT_ALIGN
from moec.codegen.kernel_ir import Buffer, LocalRef
from moec.codegen.kernels.vector.stage import Scratch, Stage
from moec.codegen.kernels.vector.tile import BLOCK, LANES, MAX_REPEAT
from moec.codegen.kernels.vector.topk import RUN, Sorter, gather, offset_table
from moec.codegen.kernels.vector.values import Values
from moec.codegen.scalar import Scalar

BIG = 1e38
"""Its square is infinite in f32."""


class Limits(Protocol):
    """What of the routing attributes groups need."""

    @property
    def groups(self) -> int: ...
    @property
    def group_top_k(self) -> int: ...
    @property
    def group_score(self) -> str: ...
    @property
    def group_mask(self) -> str: ...
    @property
    def group_lanes(self) -> int: ...
    @property
    def group_size(self) -> int: ...


class GroupLimit:
    """Masks ``choice`` [rows, groups * group_lanes] in place."""

    def __init__(
        self, k: KernelBuilder, scratch: Scratch, g: Limits, rows: int, choice: Buffer, lane_index: Buffer, room: Buffer
    ):
        """``room`` holds a record for every lane; it is free again when ``emit`` is over."""
        self.k, self.g, self.rows, self.choice, self.lane_index = k, g, rows, choice, lane_index
        self.two = g.group_score == "sum2" and g.group_size > 1
        self.best = Sorter(k, rows * g.groups, g.group_lanes, 2 if self.two else 1, "group", room)
        self.order = Sorter(k, rows, RUN, RUN, "worth")
        n = rows * RUN
        self.worth, self.other = k.ub("worth", "f32", n, align=SORT_ALIGN), k.ub("worth_second", "f32", n)
        self.number = k.ub("group_number", "i32", n, align=SORT_ALIGN)
        self.allowed = k.ub("allowed", "f32", -(-rows * g.groups // LANES) * LANES)
        self.no_group = k.ub("no_group", "f32", RUN)
        self._tables()
        self.stage = self._mask(scratch)

    def _tables(self) -> None:
        k, g = self.k, self.g
        with k.loop("r", 0, self.rows) as r:
            k.v("ArithProgression", self.number[0][r * RUN], firstValue=0, diffValue=1, count=RUN)
        row = self.no_group[0]
        k.v("ArithProgression", row, firstValue=0.0, diffValue=-1.0, count=RUN)
        k.v("Adds", row, row, scalar=g.groups - 0.5, count=RUN)
        for _ in range(2):
            k.v("Muls", row, row, scalar=BIG, count=RUN)
        record = self.best.pitch * 8
        self.worth_at = offset_table(k, "worth_at", self.rows, RUN, g.groups * record, g.groups - 1, record)
        k.fill(self.allowed[0], 0.0, self.allowed.elems)

    def emit(self, rows: Scalar) -> None:
        """Masks the choice of ``rows`` tokens."""
        k, g = self.k, self.g
        n = rows * RUN
        self.best.sort(self.choice[0], self.lane_index[0].cast("u32"), rows * g.groups)
        gather(k, self.worth[0], self.best.result, self.worth_at, n, self.best.result_bytes)
        if self.two:
            gather(k, self.other[0], self.best.result, self.worth_at, n, self.best.result_bytes, 8)
            k.v("Add", self.worth[0], self.worth[0], self.other[0], count=n)
        k.v(
            "Min.rep",
            self.worth[0],
            self.worth[0],
            self.no_group[0],
            mask=RUN,
            repeatTime=rows,
            dstBlkStride=1,
            src0BlkStride=1,
            src1BlkStride=1,
            dstRepStride=RUN // BLOCK,
            src0RepStride=RUN // BLOCK,
            src1RepStride=0,
        )
        self._rank(rows, n)
        self._clip(rows, n)
        self.stage.emit(rows * g.groups)

    def _rank(self, rows: Scalar, n: Scalar) -> None:
        """other[r, g] = the rank of group g, 0 for the best."""
        k = self.k
        number, worth, other = self.number[0].cast("u32"), self.worth[0], self.other[0]
        self._sorted_lanes(worth, number, rows, other)
        k.v("Muls", worth, other, scalar=-1.0, count=n)
        self._sorted_lanes(worth, number, rows, other)

    def _sorted_lanes(self, values: LocalRef, lanes: LocalRef, rows: Scalar, dst: LocalRef) -> None:
        """dst = the lanes of ``values`` in descending order, as f32."""
        k, whole = self.k, dst.cast("i32")
        self.order.sort(values, lanes, rows)
        k.v(
            "GatherMask",
            whole,
            self.order.result.cast("i32"),
            pattern=2,
            reduceMode=True,
            mask=2 * RUN,
            src0BlockStride=1,
            repeatTimes=rows,
            src0RepeatStride=2 * RUN // BLOCK,
            src1RepeatStride=0,
        )
        k.cast(dst, whole, rows * RUN, "RINT")

    def _clip(self, rows: Scalar, n: Scalar) -> None:
        """allowed[r * groups + g] = +inf for a group that may be chosen from, -inf for the others."""
        k, g = self.k, self.g
        k.v("Muls", self.other[0], self.other[0], scalar=-1.0, count=n)
        k.v("Adds", self.other[0], self.other[0], scalar=g.group_top_k - 0.5, count=n)
        for _ in range(2):
            k.v("Muls", self.other[0], self.other[0], scalar=BIG, count=n)
        if g.groups == RUN:
            k.v("Muls", self.allowed[0], self.other[0], scalar=1.0, count=n)
            return
        k.v(
            "GatherMask",
            self.allowed[0],
            self.other[0],
            pattern=7,
            reduceMode=True,
            mask=g.groups,
            src0BlockStride=1,
            repeatTimes=rows,
            src0RepeatStride=RUN // BLOCK,
            src1RepeatStride=0,
        )

    def _mask(self, scratch: Scratch) -> Stage:
        g, v = self.g, Values()
        if self.rows * g.groups > MAX_REPEAT:
            raise ValueError("too many groups a tile")
        choice, allowed = v.input("full", "f32"), v.input("col", "f32")
        if g.group_mask == "minus_inf":
            out = v.min(choice, allowed)
        else:
            high = v.scalar("Maxs", allowed, 0.0)
            low = v.scalar("Mins", v.scalar("Muls", allowed, -1.0), 0.0)
            out = v.max(v.min(choice, high), low)
        v.outputs.append(out)
        places = {choice: self.choice, allowed: self.allowed, out: self.choice}
        return Stage(scratch, v, places, self.rows * g.groups, g.group_lanes, g.group_lanes)

"""The largest of each row by sorting: runs of 32 lanes, then merges of up to four runs, cut to what is wanted.

A record is a value and the lane it came from (8 bytes). Equal values keep the lower lane first: Sort32 is stable, and a
merge takes the earlier of its lists (CANN asc-devkit docs, Sort32 and MrgSort).
"""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.instructions.layout import SORTED_ALIGN
from moec.codegen.kernel_ir import Buffer, LocalRef
from moec.codegen.scalar import Scalar, binary

RUN = 32
"""Lanes that one Sort32 repeat sorts."""
WAYS = 4
"""Lists that one MrgSort merges."""
ALIGN = 4
"""Records of 32 bytes."""


def merge_levels(lists: int, keep: int) -> list[list[list[tuple[int, int]]]]:
    """Merges of ``lists`` runs of 32 in levels: each merge is its lists as (first record, records).

    Outputs of a level stand one after the other, each on a 32-byte block; only the first ``keep`` records count on.
    """
    now = [(RUN * i, min(RUN, keep)) for i in range(lists)]
    levels = []
    while len(now) > 1:
        groups = -(-len(now) // WAYS)
        merges, start, out = [], 0, 0
        following = []
        for g in range(groups):
            take = len(now) // groups + (g < len(now) % groups)
            merge = now[start : start + take]
            total = sum(n for _, n in merge)
            merges.append(merge)
            following.append((out, min(total, keep)))
            out += -(-total // ALIGN) * ALIGN
            start += take
        levels.append(merges)
        now = following
    return levels


def outputs_of(merges: list[list[tuple[int, int]]]) -> list[int]:
    """First record of each merge's output, and the record after the last."""
    out = [0]
    for merge in merges:
        out.append(out[-1] + -(-sum(n for _, n in merge) // ALIGN) * ALIGN)
    return out


class Sorter:
    """Sorts rows of ``lanes`` f32 values (a multiple of 32) descending; at most ``rows`` rows at once."""

    def __init__(self, k: KernelBuilder, rows: int, lanes: int, keep: int, name: str, room: Buffer | None = None):
        """``room``: a buffer of rows * lanes records to sort into, if another sorter has one to share. What is sorted
        stands at multiples of SORT_ALIGN bytes."""
        self.k, self.lanes = k, lanes
        self.levels = merge_levels(lanes // RUN, keep)
        even = [outputs_of(m)[-1] for m in self.levels[1::2]]
        odd = [outputs_of(m)[-1] for m in self.levels[0::2]]
        self.pitches = [max([lanes, *even]), max(odd, default=0)]
        self.buffers: list[Buffer] = [
            room or k.ub(f"{name}_sorted", "f32", rows * self.pitches[0] * 2, align=SORTED_ALIGN)
        ]
        if self.levels:
            self.buffers.append(k.ub(f"{name}_merged", "f32", rows * self.pitches[1] * 2))
        if self.pitches[0] != lanes:
            raise ValueError(f"{keep} of {lanes} lanes do not merge in place")

    @property
    def pitch(self) -> int:
        """Records from row to row of the result."""
        return self.pitches[len(self.levels) % 2]

    @property
    def result(self) -> LocalRef:
        """Records, the largest first, as pairs of f32 (value, raw lane)."""
        return self.buffers[len(self.levels) % 2][0]

    @property
    def result_bytes(self) -> int:
        return self.buffers[len(self.levels) % 2].bytes

    def sort(self, values: LocalRef, lanes: LocalRef, rows: Scalar) -> None:
        """``lanes`` holds the lane number (u32) of every element of ``values``."""
        k = self.k
        k.v("Sort32", self.buffers[0][0], values, lanes, repeatTime=binary("*", rows, self.lanes // RUN))
        for level, merges in enumerate(self.levels):
            source, to = self.buffers[level % 2][0], self.buffers[1 - level % 2][0]
            source_pitch, to_pitch = self.pitches[level % 2], self.pitches[1 - level % 2]
            with k.loop("r", 0, rows) as r:
                for merge, out in zip(merges, outputs_of(merges), strict=False):
                    lists = [source[r * (2 * source_pitch) + 2 * first] for first, _ in merge]
                    lengths = [n for _, n in merge]
                    lists += [lists[-1]] * (WAYS - len(merge))
                    lengths += [0] * (WAYS - len(merge))
                    k.v(
                        "MrgSort",
                        to[r * (2 * to_pitch) + 2 * out],
                        *lists,
                        length1=lengths[0],
                        length2=lengths[1],
                        length3=lengths[2],
                        length4=lengths[3],
                        validBit=2 ** len(merge) - 1,
                        repeatTimes=1,
                    )


def offset_table(
    k: KernelBuilder, name: str, rows: int, columns: int, row_step: int, last: int, column_step: int
) -> LocalRef:
    """u32 [rows, columns]: r * row_step + min(c, last) * column_step; ``columns`` is a power of two. For Gather."""
    count = rows * columns
    table = k.ub(name, "i32", count)
    k.v("ArithProgression", table[0], firstValue=0, diffValue=1, count=count)
    if columns == 1:
        k.v("Muls", table[0], table[0], scalar=row_step, count=count)
        return table[0].cast("u32")
    shift = columns.bit_length() - 1
    if column_step == 0:
        k.v("ShiftRight", table[0], table[0], scalar=shift, count=count)
        k.v("Muls", table[0], table[0], scalar=row_step, count=count)
        return table[0].cast("u32")
    with k.reuse():
        row, first = k.ub(f"{name}_row", "i32", count), k.ub(f"{name}_first", "i32", count)
        k.v("ShiftRight", row[0], table[0], scalar=shift, count=count)
        k.v("ShiftLeft", first[0], row[0], scalar=shift, count=count)
        k.v("Sub", table[0], table[0], first[0], count=count)
        if last < columns - 1:
            k.v("Mins", table[0], table[0], scalar=last, count=count)
        k.v("Muls", table[0], table[0], scalar=column_step, count=count)
        k.v("Muls", row[0], row[0], scalar=row_step, count=count)
        k.v("Add", table[0], table[0], row[0], count=count)
    return table[0].cast("u32")


def gather(
    k: KernelBuilder, dst: LocalRef, src: LocalRef, offsets: LocalRef, count: Scalar, src_bytes: int, base: int = 0
) -> None:
    """dst[i] = the element at byte ``base + offsets[i]`` of src."""
    k.v("Gather", dst, src, offsets, base=base, count=count, srcBytes=src_bytes)

"""Operators that only move data: fills, copies, slices, concatenations, transposes, changes of storage format."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from moec.targets.ascend.opmodel.elementwise import LANES, is_state
from moec.targets.ascend.opmodel.tensor import Tensor
from moec.targets.ascend.opmodel.work import Work

REQUEST = 128
"""Bytes of the smallest request to device memory; shorter rows move as much (CANN hardware constraints)."""

ROW_ISSUE = 20.6
"""Cycles to issue one copy of its own (CANN asc-devkit examples: a 128-byte row per instruction, 548 us)."""

BURST_ROW = 1.0
"""Cycles a row takes besides its bytes in a copy of many rows (CANN asc-devkit examples: 64 rows of 128 bytes a copy
run at 92 % of the full rate, which is 0.6 cycles a row)."""

SCATTERED = 0.7
"""Part of the rate that rows get which lie apart (CANN optimisation practice: at worst 70 % off lines of 512 bytes)."""

BLOCK = 32
"""Bytes of the smallest unit that a copy moves on chip."""

ELEMENT_ROW = 16.0
"""Cycles a row of less than a block takes: it is put in place by vector or scalar instructions (inferred)."""

SHUFFLE = 4.0
"""Vector cycles per 64 elements of 4 bytes for a transpose on chip: 16x16 blocks, once in and once out (mskpp: about
one cycle a 32-byte row)."""


def fill(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """A constant into ``outs``; operands only lend their shape."""
    writes = sum(t.bytes for t in outs)
    cold = sum(t.bytes for t in outs if is_state(t, ins, outs))
    cycles = sum(t.bytes * (HALF_FILL if t.is_float16 else 1.0) for t in outs) / 256
    return Work("fill", 0, writes, cold, vector=cycles, operands=0, units=writes / 256)


HALF_FILL = 4.5
"""Cycles per 256 bytes of 16-bit floats that are filled, as they are cast from f32 (profiled ZerosLike: 5.1 of bf16,
1.1 of f32)."""


def sequence(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """Range and its like: bounds are read and steps worked out on the scalar unit of each core."""
    writes = sum(t.bytes for t in outs)
    return Work("fill", 0, writes, vector=3 * writes / 256, single=SCALAR_SETUP, operands=len(ins))


SCALAR_SETUP = 8000.0
"""Cycles that each core spends on 64-bit scalar arithmetic before it starts (profiled 20-core rows of Range: 5 us)."""


def copy(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """As many bytes out as in, in order; what is copied was as a rule just made."""
    writes = sum(t.bytes for t in outs)
    reads = min(sum(t.bytes for t in ins), writes or sum(t.bytes for t in ins)) if ins else writes
    lines = int(reads * (RAGGED_READ - 1)) if ins and not outs and ins[0].last * ins[0].itemsize % 512 else 0
    return Work("copy", reads, writes, units=reads / 256, operands=0, hot=True, scattered=lines)


RAGGED_READ = 1 / 0.78
"""Cost of reading rows that are no multiple of 512 bytes tile by tile (CANN asc-devkit examples: 78 % of the rate)."""


def into_cache(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """New rows written to their places in a cache, which itself is not read: the largest operands."""
    most = max((t.bytes for t in ins), default=0)
    new = [t for t in ins if 2 * t.bytes <= most] or list(ins)
    moved = sum(t.bytes for t in new)
    rows = max(1, max(t.rows for t in new)) if new else 1
    return Work("cache", moved, moved, issue=ROW_ISSUE * rows, units=rows, operands=len(ins))


def strided(ins: Sequence[Tensor], outs: Sequence[Tensor], name: str = "slice") -> Work:
    """Slice, concatenation, split, padding: rows of the smaller side are copied one by one."""
    large = [t for t in ins if 16 * t.numel >= max(x.numel for x in ins)]
    moved_in, moved_out = sum(t.bytes for t in large), sum(t.bytes for t in outs)
    moved = min(moved_in, moved_out) if ins and outs else moved_in or moved_out
    row = run_length(large, outs)
    rows = moved / max(1.0, row)
    pieces = len(outs) if len(outs) > 1 else len(large)
    return Work(
        name, reads=moved, writes=max(moved_out, moved) if outs else moved,
        issue=_row_cycles(rows, row), units=moved / REQUEST, operands=max(1, pieces), scattered=_scattered(moved, row),
    )  # fmt: skip


def run_length(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> float:
    """Bytes that stay adjacent between the larger and the smaller side: the product of the trailing dimensions up to
    the first, from the right, that differs.
    """
    if not ins or not outs:
        return (ins or outs)[0].last * (ins or outs)[0].itemsize if (ins or outs) else 1.0
    small, large = (ins[0], outs[0]) if ins[0].numel <= outs[0].numel else (outs[0], ins[0])
    run = 1
    for a, b in zip(reversed(small.shape), reversed(large.shape), strict=False):
        run *= a
        if a != b:
            break
    return max(1.0, run * small.itemsize)


def transpose(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """A permutation of dimensions. Where the last stays last, whole rows move; else elements are shuffled on chip."""
    source = max(ins, key=lambda t: t.numel) if ins else Tensor(())
    result = outs[0] if outs else source
    row = source.last * source.itemsize
    if source.last == result.last and row >= BLOCK and len(source.shape) == len(result.shape) > 2:
        rows = source.numel / source.last
        return Work(
            "transpose", source.bytes, result.bytes, scattered=_scattered(source.bytes, row),
            issue=2 * _row_cycles(rows, row),
            units=source.rows, operands=1,
        )  # fmt: skip
    return _shuffled(source, result)


def relayout(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """TransData: between row-major and fractal storage."""
    source = max(ins, key=lambda t: t.numel) if ins else Tensor(())
    return _shuffled(source, outs[0] if outs else source)


def _shuffled(source: Tensor, result: Tensor) -> Work:
    """A transpose that changes the order of elements in rows: tiles of rows of 128 bytes in and out."""
    vector = SHUFFLE * source.numel / LANES * max(1.0, source.itemsize / 4)
    rows = (source.bytes + result.bytes) / REQUEST
    short = ELEMENT_ROW * source.rows if source.last * source.itemsize < BLOCK else 0.0
    return Work(
        "transpose", source.bytes, result.bytes, vector=vector, issue=BURST_ROW * rows + short / 4,
        units=source.bytes / 4096, operands=1,
    )  # fmt: skip


def _scattered(moved: int, row: float) -> int:
    """Bytes beyond ``moved`` that rows of ``row`` bytes apart from one another stand for: they are read in whole
    blocks, at the rate of scattered rows.
    """
    blocks = moved / max(1.0, row) * ceil(row / BLOCK) * BLOCK if row < 4 * REQUEST else moved
    return int(blocks / SCATTERED) - moved


def _row_cycles(rows: float, row: float) -> float:
    """Cycles that rows cost beyond their bytes."""
    return rows * (BURST_ROW if row >= BLOCK else BURST_ROW + ELEMENT_ROW * (1 - row / BLOCK))


def broadcast(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """One tensor repeated to a larger shape."""
    source = max(ins, key=lambda t: t.numel) if ins else Tensor(())
    writes = sum(t.bytes for t in outs)
    rows = outs[0].rows if outs else 1
    issue = 5.0 * rows if source.numel > 1 else 0.0
    return Work(
        "broadcast", sum(t.bytes for t in ins), writes, vector=writes / 256, issue=issue, units=writes / 256,
        operands=max(1, len(ins)),
    )  # fmt: skip

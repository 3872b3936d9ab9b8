"""Operators that only move data: fills, copies, slices, concatenations, transposes, changes of storage format."""

from __future__ import annotations

from collections.abc import Sequence

from moec.targets.ascend.opmodel.elementwise import LANES, is_state
from moec.targets.ascend.opmodel.tensor import Tensor
from moec.targets.ascend.opmodel.work import Work

ROW_ISSUE = 20.6
"""Cycles to issue one copy of its own (CANN asc-devkit examples: a 128-byte row per instruction, 548 us)."""

BURST_ROW = 4.0
"""Cycles a row takes in a copy of many short rows (the same examples: 64 rows of 128 bytes a copy run at 92 % of full
rate; rows of one 32-byte block at a quarter)."""

BLOCK = 32
"""Bytes of the smallest unit that a copy moves."""

ELEMENT_SHUFFLE = 3.0
"""Vector cycles per 64 elements of 4 bytes for a transpose within on-chip memory: 16x16 blocks, in and out (mskpp:
vnchwconv about one cycle a 32-byte row; with the copies around it, inferred)."""


def fill(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """A constant into ``outs``; operands only lend their shape."""
    writes = sum(t.bytes for t in outs)
    cold = sum(t.bytes for t in outs if is_state(t, ins, outs))
    return Work("fill", 0, writes, cold, vector=writes / 256, operands=1, units=max(1, writes // 256))


def copy(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """As many bytes out as in, in order; what is copied was as a rule just made."""
    writes = sum(t.bytes for t in outs) or sum(t.bytes for t in ins)
    reads = min(sum(t.bytes for t in ins), writes) if ins else writes
    return Work("copy", reads, writes, units=max(1, writes // 256), operands=1)


def strided(ins: Sequence[Tensor], outs: Sequence[Tensor], name: str = "slice") -> Work:
    """Slice, concatenation, split, padding: rows of the smaller side are copied one by one."""
    moved_in, moved_out = sum(t.bytes for t in ins), sum(t.bytes for t in outs)
    moved = min(moved_in, moved_out) if ins and outs else moved_in or moved_out
    many = ins if len(ins) > 1 else outs if len(outs) > 1 else [*ins[:1], *outs[:1]]
    row = run_length(ins, outs)
    rows = moved / max(1.0, row)
    writes = max(moved_out, moved) if outs else moved
    return Work(
        name, reads=moved, writes=writes, issue=_row_cycles(rows, row), units=max(1, int(rows)),
        operands=max(1, len(many)),
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
    if source.last == result.last and source.last * source.itemsize >= BLOCK and len(source.shape) == len(result.shape):
        row = source.last * source.itemsize
        return Work(
            "transpose", source.bytes, result.bytes, issue=2 * _row_cycles(source.numel / source.last, row),
            units=max(1, source.rows), operands=1,
        )  # fmt: skip
    return _shuffled("transpose", source, result)


def relayout(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """TransData: between row-major and fractal storage."""
    source = max(ins, key=lambda t: t.numel) if ins else Tensor(())
    return _shuffled("transpose", source, outs[0] if outs else source)


def _shuffled(name: str, source: Tensor, result: Tensor) -> Work:
    vector = ELEMENT_SHUFFLE * source.numel / LANES * max(1.0, source.itemsize / 4)
    rows = (source.bytes + result.bytes) / (4 * BLOCK)
    return Work(
        name, source.bytes, result.bytes, vector=vector, issue=BURST_ROW * rows,
        units=max(1, source.bytes // 4096), operands=1,
    )  # fmt: skip


def _row_cycles(rows: float, row: float) -> float:
    """Cycles that rows cost beyond their bytes."""
    if row >= 512:
        return BURST_ROW * rows * 0.25
    if row >= BLOCK:
        return BURST_ROW * rows
    return rows * (BURST_ROW + 2.0 * BLOCK / max(1.0, row))


def broadcast(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """One tensor repeated to a larger shape."""
    source = max(ins, key=lambda t: t.numel) if ins else Tensor(())
    writes = sum(t.bytes for t in outs)
    rows = outs[0].rows if outs else 1
    issue = ROW_ISSUE * rows / 4 if source.numel > 1 else 0.0
    return Work(
        "broadcast", sum(t.bytes for t in ins), writes, vector=writes / 256, issue=issue, units=max(1, writes // 256),
        operands=max(1, len(ins)),
    )  # fmt: skip

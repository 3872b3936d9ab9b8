"""Operators that address by index, sort, choose, and route tokens."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log

from moec.targets.ascend.opmodel.elementwise import LANES
from moec.targets.ascend.opmodel.rows import PER_ELEMENT
from moec.targets.ascend.opmodel.tensor import Tensor
from moec.targets.ascend.opmodel.work import Work

ROW_FETCH = 400.0
"""Cycles a gathered row waits for device memory: a copy's latency of 193 to 206 cycles (mskpp) and the scalar read of
its index; a profiled gather of 2 KiB rows takes 417 in all."""

ROW_ADD = 1500.0
"""Cycles a row takes that is added to device memory at an index: read, added and written before the next (a profiled
EmbeddingDenseGrad of 4 KiB rows takes 1800 in all)."""

ELEMENT_FETCH = 60.0
"""Cycles an element takes that is gathered on its own: three times the issue of a copy (inferred)."""

SORT32, MERGE = 0.5, 0.5
"""Cycles an element: Sort32 and one pass of MrgSort take 16 for 32 (mskpp, CANN vector throughput summary)."""

ROW_IN_FLIGHT = 100.0
"""Cycles a row takes where several copies of rows are under way at a time (inferred: a quarter of a lone one)."""

SORT_PHASES = 4000.0
"""Cycles for all cores to meet between sorting, merging and copying rows (inferred)."""

SORTING_CORES = 40
"""Vector cores that sort at a time."""

SPREAD_SORT = 4096
"""Elements that one core sorts at a time."""


def gather(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """Rows (or single elements) of the first operand at the places that the others name."""
    result = max(outs, key=lambda t: t.numel) if outs else ins[-1]
    index = next((t for t in ins[1:] if t.dtype in ("i64", "i32", "u32") and t.numel > 0), Tensor((1,), "i32"))
    rows = max(1, min(index.numel, result.numel))
    row = result.numel / rows
    cost = ROW_FETCH if row * result.itemsize >= 32 else ELEMENT_FETCH
    extra = sum(t.bytes for t in ins[1:])
    return Work(
        "gather", result.bytes + extra, result.bytes, cold=result.bytes if ins[0].bytes > (64 << 20) else 0,
        issue=cost * rows, units=rows, operands=max(1, len(ins)),
    )  # fmt: skip


def scatter(ins: Sequence[Tensor], outs: Sequence[Tensor], accumulates: bool = True) -> Work:
    """Updates at places that an operand names, in place: a copy of the whole is a kernel of its own."""
    index = [t for t in ins if t.dtype in ("i64", "i32")]
    floats = [t for t in ins if t.dtype not in ("i64", "i32")] or list(ins)
    update = min(floats, key=lambda t: t.numel) if len(floats) > 1 else floats[0]
    rows = max((t.numel for t in index), default=update.rows)
    rows = max(1, min(rows, update.numel))
    row = update.bytes / rows
    cost = (ROW_ADD if accumulates else ROW_FETCH) if row >= 32 else ELEMENT_FETCH
    return Work(
        "scatter", update.bytes * (2 if accumulates else 1) + sum(t.bytes for t in index), update.bytes,
        issue=cost * rows, units=rows, operands=max(1, len(ins)), single=2000.0,
    )  # fmt: skip


SORTED_ROW = 1000.0
"""Cycles a row that is sorted takes besides: merges that wait for one another, indices taken out (between a published
sort of 4800 rows of 1024 keys on 48 cores, 324 us, and a profiled one of a single row of 4096)."""


def sort_cycles(rows: float, length: float, each: float = 30.0) -> float:
    """Vector cycles of sorting ``rows`` rows of ``length`` keys: blocks of 32, then merges of four at a time, and
    ``each`` a row.
    """
    if length <= 1:
        return 0.0
    passes = ceil(log(max(1.0, length / 32)) / log(4)) if length > 32 else 0
    return rows * (ceil(length / 32) * 32 * (SORT32 + MERGE * passes) + each)


def sort(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """A sort with indices along the last dimension; one row uses one core up to ``SPREAD_SORT`` keys."""
    source = max(ins, key=lambda t: t.numel) if ins else Tensor(())
    wide = 4.0 if source.dtype in ("i64", "f64", "i32") else 1.0
    cycles = sort_cycles(source.rows, source.last, SORTED_ROW / wide) * wide + 6 * source.numel / LANES
    pieces = max(1, source.rows * ceil(source.last / SPREAD_SORT))
    merge = MERGE * source.last * wide if source.last > SPREAD_SORT else 0.0
    return Work(
        "sort", source.bytes, sum(t.bytes for t in outs) or 2 * source.bytes, vector=cycles, units=pieces,
        single=merge, operands=2,
    )  # fmt: skip


def compact(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """Places or values that a condition picks: counted by each core, offsets summed over cores, written one behind the
    other.
    """
    source = max(ins, key=lambda t: t.numel) if ins else Tensor(())
    return Work(
        "index", 2 * source.bytes, sum(t.bytes for t in outs), vector=COMPACT * source.numel / LANES,
        single=SORT_PHASES / 2, units=source.bytes / 4096, operands=2,
    )  # fmt: skip


COMPACT = 40.0
"""Vector cycles per 64 elements that are picked from: two passes of compares, prefix sums and GatherMask (inferred)."""


def topk(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """The k largest of each row: sorted in blocks, the best of which are merged."""
    source = max(ins, key=lambda t: t.numel) if ins else Tensor(())
    cycles = sort_cycles(source.rows, source.last, SORTED_ROW) + 8 * source.numel / LANES + 60.0 * source.rows
    return Work(
        "topk", source.bytes, sum(t.bytes for t in outs), vector=cycles,
        units=source.rows * ceil(source.last / SPREAD_SORT), operands=2,
    )  # fmt: skip


def gating(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """Scores of each token's experts, the k best of them, renormalised."""
    logits = max(ins, key=lambda t: t.numel) if ins else Tensor(())
    tokens, experts = logits.rows, logits.last
    scores = (PER_ELEMENT["softmax"] + 4) * tokens * ceil(experts / LANES)
    cycles = scores + sort_cycles(tokens, experts) + 150.0 * tokens
    return Work(
        "gating", sum(t.bytes for t in ins), sum(t.bytes for t in outs), vector=cycles, units=tokens,
        operands=max(1, len(ins)),
    )  # fmt: skip


def permute(ins: Sequence[Tensor], outs: Sequence[Tensor], sorts: bool = True) -> Work:
    """Rows sorted by expert: the keys are sorted, then each row is read and written to its places."""
    source = max(ins, key=lambda t: t.numel)
    result = max(outs, key=lambda t: t.numel) if outs else source
    keys = max((t.numel for t in ins if t.dtype in ("i32", "i64")), default=result.rows)
    row_copies = source.rows + result.rows
    small = sum(t.bytes for t in (*ins, *outs) if t is not source and t is not result)
    return Work(
        "permute", source.bytes + small, result.bytes + small, issue=ROW_IN_FLIGHT * row_copies,
        single=_sorted_keys(keys) + SORT_PHASES if sorts else 0.0, units=result.rows, operands=len(ins),
    )  # fmt: skip


def _sorted_keys(keys: int) -> float:
    """Cycles until all keys are sorted: cores sort ``SPREAD_SORT`` each at a time, one merges what they have."""
    rounds = ceil(keys / SPREAD_SORT / SORTING_CORES)
    merge = MERGE * keys if keys > SPREAD_SORT else 0.0
    return 2 * rounds * sort_cycles(1, min(keys, SPREAD_SORT)) + merge


def unpermute(ins: Sequence[Tensor], outs: Sequence[Tensor], weighted: bool = True) -> Work:
    """Each token's expert rows, times their weights, summed; or the gradient: rows out, weights' dot products."""
    tensors = [*ins, *outs]
    big = max(tensors, key=lambda t: t.numel)
    floats = [t for t in tensors if t.dtype not in ("i32", "i64")]
    casts = 2 if big.is_float16 else 0
    cycles = (3.0 + casts + (2.0 if weighted else 0.0)) * big.numel / LANES
    rows = sum(t.rows for t in floats if 4 * t.numel >= big.numel / 4 and t.last == big.last)
    return Work(
        "permute", sum(t.bytes for t in ins), sum(t.bytes for t in outs), vector=cycles,
        issue=ROW_IN_FLIGHT * rows, units=big.rows, operands=len(ins),
    )  # fmt: skip

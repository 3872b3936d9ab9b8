"""Tiles of whole rows in the unified buffer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moec.codegen.kernel_ir import ITEMSIZE, LocalRef
from moec.codegen.kernels.vector.assemble import (
    ALL_FORMS,
    COLS_ALIGN,
    SMALL_COPY,
    Frame,
    Job,
    Sink,
    Source,
    balanced,
    bytes_per_element,
    plan_of,
)
from moec.codegen.kernels.vector.plan import Plan, bits_of
from moec.codegen.kernels.vector.tile import LANES, MAX_REPEAT, Tile
from moec.codegen.kernels.vector.values import Val
from moec.codegen.scalar import Scalar, Var, align, binary, ceildiv, smax, smin

NARROW_PITCH = 1024
"""Rows up to this many elements are worked on downwards (64 columns of all rows at once), longer ones along."""
MAX_PITCH = 255 * LANES
"""The longest row that one repeat form covers."""
BURSTS = 4095
"""Most rows of one strided copy."""


@dataclass(frozen=True)
class Fit:
    """How many rows of the kernel's columns fit (symbolic columns: how many columns one row may have, as ``cols``)."""

    rows: int
    cols: int
    pitch: Scalar
    narrow: bool
    plan: Plan
    elements: int


def rows_that_fit(job: Job) -> Fit:
    """The tile of whole rows that the unified buffer holds; ``rows`` is 0 where not even one does."""
    unit, room = job.unit(), job.k.free("UB")
    static = isinstance(job.cols, int)
    folds = not (isinstance(job.cols, int) and job.cols <= LANES)
    plan = plan_of(job, job.steps, _kept(job), folds and job.reduces())
    each = bytes_per_element(job, plan, rows_too=not static)
    col = _col_bytes(job, plan)
    if not static:
        least_rows = 8
        elements = int((room - col * COLS_ALIGN - 2048) / each) // 64 * 64
        elements = min(elements, MAX_PITCH)
        return Fit(least_rows, elements, align(job.cols, unit), False, plan, elements)
    assert isinstance(job.cols, int)
    pitch = -(-job.cols // unit) * unit
    fixed = _row_bytes(job, plan, pitch) + 2048
    narrow = pitch <= NARROW_PITCH
    most = MAX_REPEAT if narrow else 64
    rows = min(most, int((room - fixed - col * COLS_ALIGN) / (each * pitch + col)) if each * pitch + col else most)
    if pitch > MAX_PITCH:
        rows = 0
    return Fit(rows, job.cols, pitch, narrow, plan, rows * pitch)


def _kept(job: Job) -> frozenset[Val]:
    """Rows that the main loop reads stay for the whole kernel."""
    used = {v for s in job.steps if s.dst.form != "row" for v in s.srcs if v.form == "row"}
    return frozenset(used)


def _col_bytes(job: Job, plan: Plan) -> float:
    """Bytes a row takes in cols and blocks."""
    per = {"col": 1, "block": 8, "lanes": 64}
    total = sum(n * per.get(form, 0) * bits / 8 for (form, bits), n in plan.slots.items())
    ends = {s.value for s in job.sources} | {s.value for s in job.sinks}
    return total + sum(2 * bits_of(v) / 8 for v in ends if v.form == "col")


def _row_bytes(job: Job, plan: Plan, pitch: int) -> int:
    n = sum(n * bits // 8 for (form, bits), n in plan.slots.items() if form == "row")
    used = _rows_of_tiles(job)
    return pitch * (n + sum(ITEMSIZE[s.value.dtype] for s in job.sources if s.value in used))


def _rows_of_tiles(job: Job) -> list[Val]:
    """Row inputs that tiles read as they are; the others are only needed while the rows are prepared."""
    steps = job.steps
    return [
        s.value
        for s in job.sources
        if s.value.form == "row" and any(s.value in t.srcs for t in steps if t.dst.form != "row")
    ]


def emit_rows(job: Job, fit: Fit, scalars: Mapping[Val, Var]) -> None:
    """The kernel's body: rows prepared once, then tile by tile."""
    k = job.k
    cap = -(-fit.rows // COLS_ALIGN) * COLS_ALIGN
    row = fit.pitch if isinstance(fit.pitch, int) else fit.elements
    elems = {"full": fit.elements, "double": 2 * fit.elements, "row": row, "col": cap, "block": align8(fit.rows) * 8}
    elems["lanes"] = fit.rows * LANES
    frame = Frame(job, elems, [fit.plan])

    def tile(rows: Scalar, slot: Scalar) -> Tile:
        count = binary("*", rows, fit.pitch)
        return Tile(
            k,
            rows,
            job.cols,
            fit.pitch,
            fit.pitch,
            count,
            align(rows, COLS_ALIGN),
            fit.narrow,
            frame.place(slot),
            lambda v: scalars[v],
            frame.scratch,
        )

    _prepare_rows(job, frame, fit, tile(1, 0))
    frame.add_inputs(ALL_FORMS, 2)
    frame.add_outputs()
    frame.add_pools(("full", "double", "col", "block", "lanes"))
    _fill_cols(job, frame, fit)
    most: Scalar = fit.rows
    if not isinstance(fit.pitch, int):
        most = k.let("most_rows", smax(1, smin(fit.rows, fit.elements // fit.pitch)))  # rows that fit, where they do
    width = max(ITEMSIZE[s.value.dtype] for s in job.sources)
    least = max(1, SMALL_COPY // (fit.pitch * width)) if isinstance(fit.pitch, int) else 1
    size = 1 if fit.rows == 1 else k.let("tile_rows", balanced(ceildiv(job.rows, k.cores), most, least))
    with k.loop("t", k.core, ceildiv(job.rows, size), k.cores) as t:
        slot = k.slot(2)
        first = k.let("first_row", t * size)
        rows = 1 if fit.rows == 1 else k.let("rows", smin(size, job.rows - first))
        here = tile(rows, slot)
        for s in job.sources:
            if s.value.form not in ("row", "one"):
                _load(job, s, here.place(s.value), fit.pitch, first, rows)
        for step in job.steps:
            if step.dst.form != "row":
                here.emit(step)
        for sink in job.sinks:
            _store(job, sink, here.place(sink.value), fit.pitch, first, rows)


def align8(rows: int) -> int:
    """Rows of a block buffer: Brcb makes eight at a time."""
    return -(-rows // 8) * 8


def _holes(job: Job, v: Val, pitch: Scalar) -> bool:
    """Whether a loaded row leaves whole blocks of its pitch unwritten (its last block is padded by the copy)."""
    block = 32 // ITEMSIZE[v.dtype]
    times = 2 if v.form == "double" else 1
    if isinstance(job.cols, int) and isinstance(pitch, int):
        return pitch * times > -(-job.cols * times // block) * block
    return job.unit() * times > block


def _prepare_rows(job: Job, frame: Frame, fit: Fit, tile: Tile) -> None:
    """Loads and works out the rows; raw inputs that no tile reads give their memory back."""
    kept = _rows_of_tiles(job)
    rows = [s for s in job.sources if s.value.form == "row"]
    frame.add_pools(("row",))
    for s in rows:
        if s.value in kept:
            frame.io[s.value] = job.k.ub("row_in", s.value.dtype, frame.elems["row"])
    with job.k.reuse():
        frame.add_inputs(("row",), 1)
        for s in rows:
            if _holes(job, s.value, fit.pitch):
                frame.fill(frame.io[s.value])
            _load(job, s, tile.place(s.value), fit.pitch, 0, 1)
        for step in job.steps:
            if step.dst.form == "row":
                tile.emit(step)


def _fill_cols(job: Job, frame: Frame, fit: Fit) -> None:
    """Fills once what copies and reductions leave unwritten and later steps read."""
    steps = job.steps
    read = {v for s in steps for v in s.srcs}
    for s in job.sources:
        v = s.value
        if (v.form in ("full", "double") and _holes(job, v, fit.pitch)) or (v.form == "col" and v in read):
            frame.fill(frame.io[v])
    reduced = [s.dst for s in steps if s.name.startswith("Row") and s.dst in read]
    for v in reduced:
        if v in frame.io:
            frame.fill(frame.io[v])
    for i in sorted({fit.plan.slot[v] for v in reduced if v not in frame.io}):
        frame.fill(frame.pools["col", 32][i])


def _only_reduced(job: Job, v: Val) -> bool:
    """Whether rows of ``v`` are short and only reduced, which leaves out what stands behind them."""
    short = isinstance(job.cols, int) and job.cols <= LANES
    return short and all(step.name.startswith("Row") for step in job.steps if v in step.srcs)


def _load(job: Job, s: Source, dst: LocalRef, pitch: Scalar, first: Scalar, rows: Scalar) -> None:
    """Rows ``first``.. of a source (one row of a row, ``rows`` elements of a col)."""
    k, size = job.k, ITEMSIZE[dst.dtype]
    if s.value.form == "col":
        assert s.row_of is None
        k.load(dst, s.tensor[s.offset + first], rows, pad=0, right=align(rows, 32 // size) - rows)
        return
    times = 2 if s.value.form == "double" else 1
    cols, row_pitch = job.cols * times, pitch * times
    from_pitch = cols if s.pitch is None else s.pitch
    block = 32 // size
    padded = align(cols, block)
    gap = (row_pitch - padded) // block
    ragged = (not isinstance(cols, int) or cols % block != 0) and not _only_reduced(job, s.value)
    pad, right = (0, padded - cols) if ragged else (None, 0)
    if s.value.form == "row":
        k.load(dst, s.tensor[s.offset], cols, pad=pad, right=right)
    elif s.row_of is not None:
        with k.loop("r", 0, rows) as r:
            at = s.offset + s.row_of(first + r) * from_pitch
            k.load(dst[r * row_pitch], s.tensor[at], cols, pad=pad, right=right)
    elif isinstance(cols, int) and row_pitch == cols and s.pitch is None:
        k.load(dst, s.tensor[s.offset + first * cols], rows * cols)
    else:
        k.load(dst, s.tensor[s.offset + first * from_pitch], cols, rows, from_pitch, gap, pad, right)


def _store(job: Job, sink: Sink, src: LocalRef, pitch: Scalar, first: Scalar, rows: Scalar) -> None:
    k, tensor = job.k, sink.tensor
    if sink.value.form == "col":
        k.store(tensor[first], src, rows)
        return
    block = 32 // ITEMSIZE[src.dtype]
    if isinstance(job.cols, int) and pitch == job.cols and sink.pitch is None:
        k.store(tensor[first * job.cols], src, rows * job.cols)
    else:
        gap = (pitch - align(job.cols, block)) // block
        apart = job.cols if sink.pitch is None else sink.pitch
        k.store(tensor[sink.offset + first * apart], src, job.cols, rows, apart, gap)

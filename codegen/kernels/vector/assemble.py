"""From a vector program to a kernel: device operands, the tile that fits, the loops, loads and stores.

Three ways of walking the work, by what the program needs: *flat* (no rows: any contiguous stretch is a tile), *rows*
(whole rows in the unified buffer) and *chunks* (rows too long for it are taken piece by piece; a reduction then costs a
pass over the row, and later passes compute again what they need).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import ITEMSIZE, Buffer, GmTensor, LocalRef
from moec.codegen.kernels.vector.plan import FOLD_POOL, Plan, Pool, bits_of, make_plan
from moec.codegen.kernels.vector.values import Step, Val, Values
from moec.codegen.scalar import Arg, Scalar, Var, binary, ceildiv, smax, smin

ALL_FORMS = ("full", "double", "row", "col", "block", "lanes")
COLS_ALIGN = 64
"""Cols are worked on in runs of 64 elements, so that comparisons may take them."""
SMALL_COPY = 16 * 1024
"""Bytes from which a copy runs near peak bandwidth (CANN asc-devkit docs, hardware constraints)."""


@dataclass(frozen=True)
class Source:
    """An input value in device memory: element (r, c) is ``tensor[offset + row(r) * pitch + c]``.

    ``pitch`` None: dense. ``row_of`` maps the tile's row to the tensor's (None: the same) where operands repeat rows.
    """

    value: Val
    tensor: GmTensor
    offset: Scalar = 0
    pitch: Scalar | None = None
    row_of: Callable[[Scalar], Scalar] | None = None


@dataclass(frozen=True)
class Sink:
    """An output value and its place: element (r, c) is ``tensor[offset + r * pitch + c]``; ``pitch`` None: dense."""

    value: Val
    tensor: GmTensor
    offset: Scalar = 0
    pitch: int | None = None


@dataclass(frozen=True)
class Job:
    """A vector program over ``rows`` x ``cols``; ``most_cols`` bounds cols."""

    k: KernelBuilder
    values: Values
    rows: Scalar
    cols: Scalar
    most_cols: int
    sources: tuple[Source, ...]
    sinks: tuple[Sink, ...]

    @property
    def steps(self) -> list[Step]:
        return self.values.live_steps()

    def compares(self) -> bool:
        return any(s.name.startswith(("Compare", "Select")) for s in self.steps)

    def reduces(self) -> bool:
        return any(s.name.startswith("Row") for s in self.steps)

    def is_flat(self) -> bool:
        """Whether rows mean nothing to the program."""
        dense = all(s.pitch is None and s.row_of is None for s in self.sources if s.value.form != "one")
        dense = dense and all(s.pitch is None for s in self.sinks)
        forms = {v.form for s in self.steps for v in (s.dst, *s.srcs)} | {s.value.form for s in self.sources}
        return dense and forms <= {"full", "one"}

    def unit(self) -> int:
        """What rows are rounded up to: 32 bytes of the narrowest dtype, or 64 elements where they are compared."""
        if self.compares():
            return 64
        ends = [
            v
            for v in (*(s.value for s in self.sources), *(s.value for s in self.sinks))
            if v.form in ("full", "row", "double")
        ]
        return 32 // min([4, *(ITEMSIZE[v.dtype] for v in ends)])


def assemble(job: Job) -> Scalar:
    """Emits the kernel's body with sizes to check it at, and returns how many cores it wants."""
    from moec.codegen.kernels.vector.chunks import emit_chunks
    from moec.codegen.kernels.vector.rowwise import emit_rows, rows_that_fit

    for sink in job.sinks:
        if sink.value not in job.values.outputs:
            job.values.outputs.append(sink.value)
    scalars = load_ones(job)
    if job.is_flat():
        whole = binary("*", job.rows, job.cols)
        flat = Job(job.k, job.values, 1, whole, 2**40, job.sources, job.sinks)
        most = emit_chunks(flat, scalars)
        _witness_flat(job, most)
        return smax(1, ceildiv(whole, SMALL_COPY // 8))
    fit = rows_that_fit(job)
    wanted = smax(1, smin(job.rows, ceildiv(binary("*", job.rows, job.cols), 1024)))
    if isinstance(job.cols, int):
        if fit.rows >= 1:
            emit_rows(job, fit, scalars)
            _witness_rows(job, fit.rows, job.cols)
        else:
            emit_chunks(job, scalars)
            _witness_rows(job, 1, job.cols)
        return wanted
    for cols in (5, 64, 100, fit.cols - 1):
        _witness_rows(job, fit.rows if cols < fit.cols - 1 else 1, cols)
    if job.most_cols <= fit.cols:
        emit_rows(job, fit, scalars)
        return wanted
    with job.k.if_(job.cols <= fit.cols), job.k.reuse():
        emit_rows(job, fit, scalars)
    with job.k.else_(), job.k.reuse():
        most = emit_chunks(job, scalars)
    for cols in (most + 5, 4 * most + 64, 5 * most + 135):
        _witness_rows(job, 1, cols)
    return wanted


def _witness_flat(job: Job, most: int) -> None:
    """One element, a ragged run, and many runs of ``most`` on one core and two."""
    for n, cores in ((1, 1), (most - 7, 1), (7 * most + 13, 1), (9 * most + 77, 2)):
        cols = job.cols if isinstance(job.cols, int) else max(1, n // 3)
        _witness(job, -(-n // cols), cols, cores)


def _witness_rows(job: Job, most: int, cols: int) -> None:
    """No row, one, one more than a tile has, full tiles on one core and many ragged ones on two."""
    for rows, cores in ((0, 1), (1, 1), (most + 1, 1), (6 * most, 1), (9 * most + 3, 2)):
        _witness(job, rows, cols, cores)


def _witness(job: Job, rows: int, cols: int, cores: int) -> None:
    """Sizes that are arguments take the numbers; any other argument is 3."""
    given = {a.name: n for a, n in ((job.rows, rows), (job.cols, cols)) if isinstance(a, Arg)}
    job.k.witness(cores, None, **{name: given.get(name, 3) for name in job.k.arguments()})


def load_ones(job: Job) -> dict[Val, Var]:
    """Scalars in device memory, read once into variables."""
    out: dict[Val, Var] = {}
    for i, s in enumerate(x for x in job.sources if x.value.form == "one"):
        raw = job.k.ub(f"one{i}", s.tensor.dtype, 32 // ITEMSIZE[s.tensor.dtype])[0]
        job.k.load(raw, s.tensor[s.offset], 1)
        if s.tensor.dtype in ("f16", "bf16"):
            wide = job.k.ub(f"one{i}_f32", "f32", 8)[0]
            job.k.cast(wide, raw, 1)
            raw = wide
        out[s.value] = job.k.read(f"scalar{i}", raw)
    return out


def balanced(per_core: Scalar, most: Scalar, least: int) -> Scalar:
    """A tile size for ``per_core`` units of work, at most ``most``: up to four tiles a core, if not below ``least``."""
    per = smax(1, per_core)
    tiles = smax(ceildiv(per, most), smin(4, smax(1, per // least)))
    return ceildiv(per, tiles)


class Frame:
    """Double buffers of the inputs and outputs and the slots of everything between."""

    def __init__(self, job: Job, elems: Mapping[str, int], plans: Sequence[Plan]):
        """``elems``: elements of a buffer of each form."""
        self.job, self.plan, self.elems, self.plans = job, plans[0], elems, plans
        self.io: dict[Val, Buffer] = {}
        self.pools: dict[Pool, list[Buffer]] = {}

    def add_inputs(self, forms: tuple[str, ...], slots: int) -> None:
        """Buffers of the inputs of these forms that have none yet."""
        for i, s in enumerate(self.job.sources):
            if s.value.form in forms and s.value not in self.io:
                self.io[s.value] = self.job.k.ub(f"in{i}", s.value.dtype, self.elems[s.value.form], slots)

    def add_outputs(self, col_slots: int = 2) -> None:
        for i, t in enumerate(self.job.sinks):
            if t.value not in self.io:
                slots = col_slots if t.value.form == "col" else 2
                self.io[t.value] = self.job.k.ub(f"out{i}", t.value.dtype, self.elems[t.value.form], slots)

    def add_pools(self, forms: tuple[str, ...]) -> None:
        """The slots of these forms."""
        for pool in sorted({p for plan in self.plans for p in plan.slots if p[0] in forms}):
            form, bits = pool
            n = max(plan.slots.get(pool, 0) for plan in self.plans)
            dtype = {1: "u8", 8: "u8", 16: "f16", 32: "f32", 64: "i64"}[bits]
            size = -(-self.elems[form] // 8) if bits == 1 else self.elems[form]
            self.pools[pool] = [self.job.k.ub(f"{form}{bits}_{i}", dtype, size) for i in range(n)]

    def place(self, slot: Scalar) -> Callable[[Val], LocalRef]:
        """Where each value is while ``slot`` of the double buffers is in turn."""

        def find(v: Val) -> LocalRef:
            if v in self.io:
                b = self.io[v]
                return b[slot if b.slots > 1 else 0]
            form, bits = v.form, bits_of(v)
            ref = self.pools[form, bits][self.plan.slot[v]][0]
            return ref.cast("u8" if v.dtype == "bits" else v.dtype)

        return find

    def scratch(self, s: Step) -> LocalRef:
        """The lanes of a row reduction."""
        return self.pools[FOLD_POOL][self.plan.scratch[s]][0]

    def fill(self, buffer: Buffer) -> None:
        """Writes all of a buffer once, so that nothing reads what no copy has delivered."""
        size = ITEMSIZE[buffer.dtype]
        for slot in range(buffer.slots):
            ref = buffer[slot]
            wide = ref if size in (2, 4) else ref.cast("u16")
            self.job.k.fill(wide, 0, buffer.elems * size // ITEMSIZE[wide.dtype])


def bytes_per_element(job: Job, plan: Plan, rows_too: bool) -> float:
    """Bytes of all full (and row) buffers for one element of the tile."""
    forms = {"full": 1, "double": 2} | ({"row": 1} if rows_too else {})
    total = 0.0
    ends = {s.value for s in job.sources} | {s.value for s in job.sinks}
    for v in sorted(ends, key=lambda v: v.number):
        total += 2 * forms.get(v.form, 0) * bits_of(v) / 8
    for (form, bits), n in plan.slots.items():
        total += n * forms.get(form, 0) * bits / 8
    return total


def plan_of(job: Job, steps: Sequence[Step], keep: frozenset[Val], folds: bool) -> Plan:
    fixed = frozenset(s.value for s in job.sources) | frozenset(s.value for s in job.sinks)
    return make_plan(steps, fixed, keep, folds)


__all__ = ["ALL_FORMS", "Frame", "Job", "Sink", "Source", "assemble", "balanced", "bytes_per_element", "plan_of"]

"""Rows taken piece by piece (and flat work, which is one long row): every buffer holds one run of columns.

With reductions the row is walked once for each level of them, and once more for the outputs. A pass computes what it
needs from the inputs again; only the reduced values stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from moec.codegen.kernel_ir import ITEMSIZE, Buffer, LocalRef
from moec.codegen.kernels.vector.assemble import (
    ALL_FORMS,
    COLS_ALIGN,
    SMALL_COPY,
    Frame,
    Job,
    Source,
    balanced,
    bytes_per_element,
    plan_of,
)
from moec.codegen.kernels.vector.plan import Plan
from moec.codegen.kernels.vector.tile import LANES, MAX_REPEAT, Tile
from moec.codegen.kernels.vector.values import Step, Val
from moec.codegen.scalar import Scalar, Var, align, binary, ceildiv, either, eq, smin
from moec.diagnostics import Problem, Refusal, Where

WIDE = ("full", "double", "row")
MOST_PASSES = 4
"""Passes over a row; the static check looks at the first and the last two iterations of a loop, so at all of these."""


@dataclass(frozen=True)
class Phase:
    """One pass over a row: ``body`` for each run of columns, the reductions it feeds, then ``tail`` on the cols."""

    body: tuple[Step, ...]
    reductions: tuple[Step, ...]
    tail: tuple[Step, ...]


def phases_of(steps: Sequence[Step], outputs: Sequence[Val]) -> tuple[list[Step], list[Phase]]:
    """Steps on cols that need no pass, and the passes that ``steps`` need in order; the last one writes the outputs."""
    made = {s.dst: s for s in steps}
    level: dict[Val, int] = {}
    for s in steps:
        below = max((level.get(v, 0) for v in s.srcs), default=0)
        level[s.dst] = below + 1 if s.name.startswith("Row") else below
    deepest = max((level[s.dst] for s in steps if s.name.startswith("Row")), default=0)
    phases = []
    for n in range(1, deepest + 1):
        reductions = [s for s in steps if s.name.startswith("Row") and level[s.dst] == n]
        body = _wide_steps(steps, made, [s.srcs[0] for s in reductions])
        tail = [s for s in steps if _is_col(s) and not s.name.startswith("Row") and level[s.dst] == n]
        phases.append(Phase(tuple(body), tuple(reductions), tuple(tail)))
    wide = [v for v in outputs if v.form in ("full", "double")]
    if wide or not phases:
        phases.append(Phase(tuple(_wide_steps(steps, made, wide)), (), ()))
    return [s for s in steps if _is_col(s) and level[s.dst] == 0], phases


def _is_col(s: Step) -> bool:
    return s.dst.form in ("col", "block")


def _wide_steps(steps: Sequence[Step], made: Mapping[Val, Step], wanted: Sequence[Val]) -> list[Step]:
    """Steps of full, double and row form that ``wanted`` needs."""
    needed = set(wanted)
    kept = []
    for s in reversed(steps):
        if s.dst in needed and not _is_col(s):
            kept.append(s)
            needed.update(v for v in s.srcs if v.form not in ("col", "block"))
    return kept[::-1]


def emit_chunks(job: Job, scalars: Mapping[Val, Var]) -> int:
    """The kernel's body; returns the columns of a run."""
    k, steps = job.k, job.steps
    head, phases = phases_of(steps, [s.value for s in job.sinks])
    cols = [s for s in steps if _is_col(s)]
    col_plan = plan_of(job, cols, frozenset(s.dst for s in cols), False)
    plans = [_with(plan_of(job, p.body, frozenset(), False), col_plan) for p in phases]
    accumulators = max(len(p.reductions) for p in phases)
    each = max(bytes_per_element(job, plan, rows_too=True) for plan in plans)
    room = (
        k.free("UB")
        - 4096
        - accumulators * LANES * 4
        - sum(n * (COLS_ALIGN * (8 if form == "block" else 1)) * 4 for (form, _), n in col_plan.slots.items())
    )
    most = min(int(room / each) // 256 * 256, MAX_REPEAT * LANES // 256 * 256)
    elems = {"full": most, "double": 2 * most, "row": most, "col": COLS_ALIGN, "block": 64}
    frame = Frame(job, elems, plans)
    frame.add_inputs(("col",), 1)
    frame.add_inputs(ALL_FORMS, 2)
    frame.add_outputs(col_slots=1)
    frame.add_pools(ALL_FORMS)
    lanes = [k.ub(f"lanes{i}", "f32", LANES) for i in range(accumulators)]
    walk = _Walk(job, scalars, frame, phases, plans, lanes, k.counter("ping"))
    _fill(job, frame, col_plan)
    width = max((ITEMSIZE[s.value.dtype] for s in job.sources), default=4)
    if not cols and all(s.value.form != "col" for s in job.sources):
        total = binary("*", job.rows, job.cols)
        size = align(balanced(ceildiv(total, k.cores), most, SMALL_COPY // width), 256)
        chunk = k.let("chunk", smin(most, size))
        runs = k.let("runs", ceildiv(job.cols, chunk))
        with k.loop("t", k.core, binary("*", job.rows, runs), k.cores) as t:
            row = 0 if isinstance(job.rows, int) and job.rows == 1 else k.let("row", t // runs)
            walk.run(0, row, k.let("first", (t % runs if isinstance(row, Var) else t) * chunk), chunk)
        return most
    if len(phases) > MOST_PASSES:
        what = f"kernel {k.name} reduces rows of up to {job.most_cols} columns in {len(phases) - 1} levels"
        raise Refusal(
            Problem(what, Where(node=", ".join(k.source)), f"up to {MOST_PASSES - 1} levels of long rows have one")
        )
    with k.loop("row", k.core, job.rows, k.cores) as row:
        for s in job.sources:
            if s.value.form == "col":
                walk.load_col(s, row)
        walk.cols(head)
        with k.loop("phase", 0, len(phases)) as phase, k.loop("first", 0, job.cols, most) as first:
            walk.turn(row, phase, first, most)
        for sink in job.sinks:
            if sink.value.form == "col":
                k.store(sink.tensor[row], frame.place(0)(sink.value), 1)
    return most


def _with(plan: Plan, cols: Plan) -> Plan:
    return Plan({**plan.slot, **cols.slot}, plan.scratch, {**plan.slots, **cols.slots})


def _fill(job: Job, frame: Frame, cols: Plan) -> None:
    """What copies and reductions leave unwritten and steps read: cols, and runs where comparisons round them up."""
    read = {v for s in job.steps for v in s.srcs}
    for s in job.sources:
        v = s.value
        if v in read and (v.form == "col" or (job.compares() and v.form in ("full", "double", "row"))):
            frame.fill(frame.io[v])
    reduced = [s.dst for s in job.steps if s.name.startswith("Row") and s.dst in read]
    for v in reduced:
        frame.fill(frame.io[v] if v in frame.io else frame.pools["col", 32][cols.slot[v]])


@dataclass
class _Walk:
    """Emits one run of columns, or one pass over a row of them."""

    job: Job
    scalars: Mapping[Val, Var]
    frame: Frame
    phases: Sequence[Phase]
    plans: Sequence[Plan]
    lanes: Sequence[Buffer]
    ping: Var

    def _tile(self, count: Scalar) -> Tile:
        whole = align(count, 64) if self.job.compares() else count
        place = self.frame.place(self.ping)
        cols = self.frame.place(0)
        return Tile(
            self.job.k,
            1,
            count,
            whole,
            whole,
            whole,
            COLS_ALIGN,
            False,
            lambda v: cols(v) if v.form in ("col", "block") else place(v),
            lambda v: self.scalars[v],
            self.frame.scratch,
        )

    def load_col(self, s: Source, row: Scalar) -> None:
        dst = self.frame.place(0)(s.value)
        self.job.k.load(dst, s.tensor[s.offset + row], 1, pad=0, right=32 // ITEMSIZE[dst.dtype] - 1)

    def cols(self, steps: Sequence[Step]) -> None:
        """Steps on what a row has one of."""
        self.frame.plan = self.plans[0]
        tile = self._tile(1)
        for step in steps:
            tile.emit(step)

    def run(self, n: int, row: Scalar, first: Scalar, chunk: Scalar) -> None:
        """Columns ``first``.. of ``row``, at most ``chunk`` of them: a pass that stands alone."""
        count = self.job.k.let("count", smin(chunk, self.job.cols - first))
        tile = self._tile(count)
        for s in self.job.sources:
            if s.value.form in WIDE:
                self._load(s, tile.place(s.value), row, first, count)
        self._body(n, tile, row, first, count)
        self.job.k.assign(self.ping, (self.ping + 1) % 2)

    def turn(self, row: Scalar, phase: Var, first: Var, most: int) -> None:
        """One run of columns in whichever pass ``phase`` says; all passes share the loads and their buffers."""
        job, k = self.job, self.job.k
        count = k.let("count", smin(most, job.cols - first))
        tile = self._tile(count)
        for s in job.sources:
            users = [n for n, p in enumerate(self.phases) if any(s.value in t.srcs for t in (*p.body, *p.reductions))]
            if s.value.form not in WIDE or not users:
                continue
            if len(users) == len(self.phases):
                self._load(s, tile.place(s.value), row, first, count)
                continue
            wanted = eq(phase, users[0])
            for n in users[1:]:
                wanted = either(wanted, eq(phase, n))
            with k.if_(wanted):
                self._load(s, tile.place(s.value), row, first, count)
        for n, p in enumerate(self.phases):
            with k.if_(eq(phase, n)):
                self.frame.plan = self.plans[n]
                if p.reductions:
                    with k.if_(eq(first, 0)):
                        self._clear(p)
                self._body(n, tile, row, first, count)
                if p.reductions:
                    with k.if_(first + most >= job.cols):
                        self._finish(p)
        k.assign(self.ping, (self.ping + 1) % 2)

    def _body(self, n: int, tile: Tile, row: Scalar, first: Scalar, count: Scalar) -> None:
        phase = self.phases[n]
        self.frame.plan = self.plans[n]
        for step in phase.body:
            tile.emit(step)
        for step, acc in zip(phase.reductions, self.lanes, strict=False):
            tile.accumulate(step.name[3:], acc[0], step.srcs[0])
        if n == len(self.phases) - 1:
            for sink in self.job.sinks:
                if sink.value.form != "col":
                    pitch = self.job.cols if sink.pitch is None else sink.pitch
                    self.job.k.store(sink.tensor[sink.offset + row * pitch + first], tile.place(sink.value), count)

    def _clear(self, phase: Phase) -> None:
        whole = self._tile(1)
        for step, acc in zip(phase.reductions, self.lanes, strict=False):
            whole.clear(step.name[3:], acc[0])

    def _finish(self, phase: Phase) -> None:
        """The reduced values of a pass and what follows from them."""
        whole = self._tile(1)
        for step, acc in zip(phase.reductions, self.lanes, strict=False):
            whole.whole(step.name[3:], whole.place(step.dst), acc[0], LANES, 8)
        for step in phase.tail:
            whole.emit(step)

    def _load(self, s: Source, dst: LocalRef, row: Scalar, first: Scalar, count: Scalar) -> None:
        times = 2 if s.value.form == "double" else 1
        pitch = self.job.cols * times if s.pitch is None else s.pitch
        at = 0 if s.value.form == "row" else (row if s.row_of is None else s.row_of(row)) * pitch
        source, width = s.tensor[s.offset + at + first * times], count * times
        if self.job.compares():
            self.job.k.load(dst, source, width, pad=0, right=align(width, 32 // ITEMSIZE[dst.dtype]) - width)
        else:
            self.job.k.load(dst, source, width)

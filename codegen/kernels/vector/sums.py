"""Rows combined (summed, multiplied, the largest, the smallest): blocks of them, all, or, summed, those of each expert;
always in ascending order.

A core takes some columns of one sum at a time. Where there are more rows than that keeps cores busy with, blocks of a
fixed number of rows are summed first and their sums after that, so that the order does not depend on the cores.
"""

from __future__ import annotations

from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import ITEMSIZE, GmTensor, Kernel
from moec.codegen.kernels.vector.folds import FOLDS, Fold, work_dtype
from moec.codegen.kernels.vector.tile import LANES
from moec.codegen.scalar import Scalar, align, binary, ceildiv, smax, smin

CHUNK = 2048
"""Most columns of a task: 8 KiB of f32, a copy near peak bandwidth with the rows that are fetched together."""
ROWS = 4
"""Rows fetched together."""
BLOCK = 128
"""Rows of a block."""


@dataclass(frozen=True)
class Sums:
    """x [``lead``, ``rows``, ``cols``] (None: a run-time argument) combined over rows; ``block`` None: all of them."""

    lead: int | None
    rows: int | None
    cols: int | None
    dtype: str
    out: str
    block: int | None = None
    hi: int = 2**31 - 1
    fold: str = "sum"
    """How: one of FOLDS."""


class _Adder:
    """The buffers of a core, and the loop that combines rows with them (integers in 32 bits)."""

    def __init__(self, k: KernelBuilder, x: GmTensor, y: GmTensor, cols: Scalar, fold: Fold):
        self.k, self.x, self.y, self.cols, self.fold = k, x, y, cols, fold
        work = work_dtype(x.dtype)
        self.together = ROWS if ITEMSIZE[x.dtype] <= 4 else 1
        self.chunk = min(CHUNK, -(-cols // LANES) * LANES) if isinstance(cols, int) else CHUNK
        self.rows_in = k.ub("rows_in", x.dtype, self.together * self.chunk, 2)
        self.wide = self.rows_in if x.dtype == work else k.ub("wide", work, self.together * self.chunk)
        self.out = k.ub("out", y.dtype, self.chunk, 2)
        self.total = self.out if y.dtype == work else k.ub("total", work, self.chunk)
        self.chunks = ceildiv(cols, self.chunk)

    def add(self, first: Scalar, count: Scalar, chunk: Scalar, to: Scalar) -> None:
        """Columns ``chunk`` of row ``to`` of y: ``count`` rows of x from ``first`` on combined."""
        k, size = self.k, ITEMSIZE[self.x.dtype]
        turn = k.slot(2, "turn")
        at = k.let("column", binary("*", chunk, self.chunk))
        width = k.let("width", smin(self.chunk, self.cols - at))
        pitch = k.let("pitch", align(width, 32 // size))
        total = self.total[turn if self.total is self.out else 0]
        k.fill(total, self.fold.nothing(work_dtype(self.x.dtype)), width)
        with k.loop("i", 0, count, self.together) as i:
            ping = k.slot(2)
            rows = k.let("some", smin(self.together, count - i))
            source = self.x[(first + i) * self.cols + at]
            cast = self.wide is not self.rows_in  # over whole pitches
            padding = (0, pitch - width) if cast else (None, 0)
            k.load(self.rows_in[ping], source, width, rows, self.cols, 0, *padding)
            wide = self.wide[0 if cast else ping]
            if cast:
                k.cast(wide, self.rows_in[ping], rows * pitch, "NONE" if size == 8 else "")
            with k.loop("j", 0, rows) as j:
                k.v(self.fold.instruction, total, total, wide[j * pitch], count=width)
        if self.total is not self.out:
            k.cast(self.out[turn], total, width)
        k.store(self.y[to * self.cols + at], self.out[turn], width)


def sums_kernel(name: str, caps: Capacities, s: Sums) -> Kernel:
    """x [lead, rows, cols] to y [lead, blocks, cols]."""
    k = KernelBuilder(name, "aiv", caps)

    def size(letter: str, n: int | None) -> Scalar:
        return k.arg(letter, 0, s.hi) if n is None else n

    lead, rows, cols = size("lead", s.lead), size("rows", s.rows), size("cols", s.cols)
    blocks: Scalar = 1 if s.block is None else ceildiv(rows, s.block)
    x = k.gm("x", s.dtype, (lead, rows, cols), "in")
    y = k.gm("y", s.out, (lead, blocks, cols), "out")
    adder = _Adder(k, x, y, cols, FOLDS[s.fold])
    tasks = binary("*", binary("*", lead, blocks), adder.chunks)
    with k.loop("t", k.core, tasks, k.cores) as t:
        to = k.let("to", t // adder.chunks)
        if s.block is None:
            adder.add(to * rows, rows, t % adder.chunks, to)
        else:
            top = k.let("top", to % blocks * s.block)
            count = k.let("count", smin(s.block, rows - top))
            adder.add(to // blocks * rows + top, count, t % adder.chunks, to)
    free = {n: v for n, v in (("lead", s.lead), ("rows", s.rows), ("cols", s.cols)) if v is None}
    for number, cores in ((0, 1), (1, 1), (ROWS + 1, 1), (7 * BLOCK + 1, 1), (11 * BLOCK + 3, 2), (5, 2)):
        given = {"lead": 11 if number < 9 else 2, "rows": number, "cols": 2 * CHUNK + 5 if number < 9 else 70}
        k.witness(cores, None, **{n: min(given[n], s.hi) for n in free})
    return k.finish(smax(1, tasks))


def segment_sum_kernel(
    name: str,
    caps: Capacities,
    known: int | None,
    cols: int,
    dtype: str,
    out: str,
    most: int = 2**31 - 1,
    experts_within: tuple[int, int] = (0, 2**31 - 1),
) -> Kernel:
    """x [S, N], sorted by expert, and counts [E] to y [E, N]: the sum of each expert's rows, exact 0 without any.

    ``known`` is E, or None where it is a run-time argument ``experts_within`` bounds (tokens may be what is summed by).
    """
    k = KernelBuilder(name, "aiv", caps)
    s = k.arg("S", 0, most)
    experts: Scalar = known if known is not None else k.arg("experts", max(0, experts_within[0]), experts_within[1])
    x, counts = k.gm("x", dtype, (s, cols), "in"), k.gm("counts", "i32", (experts,), "in", "counts")
    y = k.gm("y", out, (experts, cols), "out")
    adder = _Adder(k, x, y, cols, FOLDS["sum"])
    row = k.let("firstRow", 0)
    with k.loop("e", 0, experts) as e:
        count = k.read("number", counts[e])
        start = (k.core + k.cores - binary("*", e, adder.chunks) % k.cores) % k.cores
        with k.loop("t", start, adder.chunks, k.cores) as t:
            adder.add(row, count, t, e)
        k.assign(row, row + count)
    many = known if known is not None else min(max(3, experts_within[0]), experts_within[1])
    given = {} if known is not None else {"experts": many}
    for cores in (1, 2):
        for first, last in ((0, 0), (1, 0), (0, ROWS + 1), (3 * ROWS, 2 * ROWS + 3)):
            data = [first, *([0] * (many - 2)), last] if many > 1 else [first]
            k.witness(cores, {"counts": data}, S=sum(data), **given)
        k.witness(cores, {"counts": [1] * many}, S=many, **given)
    return k.finish(caps.aiv)

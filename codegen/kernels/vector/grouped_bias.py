"""The bias of each expert added to its rows: y = x + bias[e], in f32, rounded once."""

from __future__ import annotations

from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import ITEMSIZE, Kernel
from moec.codegen.kernels.vector.tile import LANES
from moec.codegen.scalar import align, ceildiv, smin

CHUNK = 2048
"""Most columns of a task."""
ROWS = 4
"""Rows fetched together."""
TASK = 32
"""Rows of a task, for which the bias is fetched once."""


@dataclass(frozen=True)
class GroupedBias:
    """x [S, ``cols``] f32, ``experts`` biases of ``bias``, y of ``out``."""

    experts: int
    cols: int
    bias: str
    out: str
    most_rows: int = 2**31 - 1


def grouped_bias_kernel(name: str, caps: Capacities, g: GroupedBias) -> Kernel:
    """x [S, N], sorted by expert, bias [E, N] and counts [E] to y [S, N]; S is a run-time argument.

    Every core walks the experts and takes each core-count-th task, counting on from one expert to the next.
    """
    k = KernelBuilder(name, "aiv", caps)
    s = k.arg("S", 0, g.most_rows)
    x, bias = k.gm("x", "f32", (s, g.cols), "in"), k.gm("bias", g.bias, (g.experts, g.cols), "in", "weight")
    counts = k.gm("counts", "i32", (g.experts,), "in", "counts")
    y = k.gm("y", g.out, (s, g.cols), "out")
    chunk = min(CHUNK, -(-g.cols // LANES) * LANES)
    chunks = -(-g.cols // chunk)
    raw = k.ub("raw", g.bias, chunk, 2)
    shift = raw if g.bias == "f32" else k.ub("shift", "f32", chunk)
    rows_in = k.ub("rows_in", "f32", ROWS * chunk, 2)
    out = k.ub("out", g.out, ROWS * chunk, 2)
    total = out if g.out == "f32" else k.ub("total", "f32", ROWS * chunk)
    row, done = k.let("firstRow", 0), k.let("done", 0)
    with k.loop("e", 0, g.experts) as e:
        count = k.read("number", counts[e])
        tasks = k.let("tasks", ceildiv(count, TASK) * chunks)
        with k.loop("t", (k.core + k.cores - done) % k.cores, tasks, k.cores) as t:
            turn = k.slot(2, "turn")
            at, top = k.let("column", t % chunks * chunk), k.let("top", t // chunks * TASK)
            width = k.let("width", smin(chunk, g.cols - at))
            pitch = k.let("pitch", align(width, 32 // min(4, ITEMSIZE[g.out])))
            k.load(raw[turn], bias[e * g.cols + at], width)
            here = shift[turn if shift is raw else 0]
            if shift is not raw:
                k.cast(here, raw[turn], width)
            with k.loop("i", top, smin(count, top + TASK), ROWS) as i:
                ping = k.slot(2)
                some = k.let("some", smin(ROWS, count - i))
                gap = (pitch - align(width, 8)) // 8
                k.load(rows_in[ping], x[(row + i) * g.cols + at], width, some, g.cols, gap)
                wide = total[ping if total is out else 0]
                with k.loop("j", 0, some) as j:
                    k.v("Add", wide[j * pitch], rows_in[ping][j * pitch], here, count=width)
                    if total is not out:
                        k.cast(out[ping][j * pitch], wide[j * pitch], width)
                k.store(y[(row + i) * g.cols + at], out[ping], width, some, g.cols)
        k.assign(row, row + count)
        k.assign(done, (done + tasks) % k.cores)
    for cores in (1, 2):
        for first, last in ((0, 0), (1, 0), (0, ROWS + 1), (5 * TASK, 2 * TASK + 3)):
            data = [first, *([0] * (g.experts - 2)), last] if g.experts > 1 else [first]
            k.witness(cores, {"counts": data}, S=sum(data))
        k.witness(cores, {"counts": [1] * g.experts}, S=g.experts)
    return k.finish(caps.aiv)

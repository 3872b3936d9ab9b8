"""Lowering of reductions over any dimensions: rows are reduced where the last dimensions are, else combined.

What is reduced is moved to the end first where it stands in several places. Means are sums divided in f32.
"""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernels.vector.assemble import Job, Sink, Source, assemble
from moec.codegen.kernels.vector.folds import FOLDS, check_sizes, emit_folds, work_dtype
from moec.codegen.kernels.vector.sums import BLOCK, CHUNK, Sums, sums_kernel
from moec.codegen.kernels.vector.values import Values
from moec.codegen.lower.base import Lowering, device_dtype, lowering, where
from moec.codegen.lower.moves import permuted
from moec.codegen.lower.sizes import Sizes, numel
from moec.codegen.lower.vector import single
from moec.codegen.scalar import Arg, Scalar
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node
from moec.ir.symbol import Dim, ceildiv

FLOATS = ("f32", "f16", "bf16")
INTEGERS = ("i32", "i64")


def _reduce(cx: Lowering, node: Node) -> None:
    x, how = node.operand(0), node.op.removeprefix("reduce_")
    dtype, rank, dims = device_dtype(x.type.dtype), x.type.rank, x.type.dims
    axes = tuple(sorted(node.attrs["axes"]))
    if dtype not in (*FLOATS, *INTEGERS) or (how == "mean" and dtype in INTEGERS):
        what = f"{node.op} of {x.type.dtype.name} has no kernel"
        raise NoKernel(Problem(what, where(node), f"{', '.join((*FLOATS, *INTEGERS))} have one, means those of floats"))
    if not axes or (axes == (rank - 1,) and dtype in FLOATS and how != "prod"):
        single(cx, node)
        return
    source = cx.tensor(x)
    if axes != tuple(range(axes[0], axes[-1] + 1)):
        kept = tuple(i for i in range(rank) if i not in axes)
        source = cx.scratch(f"{node.op}_moved", dtype, [dims[i] for i in (*kept, *axes)])
        permuted(cx, node, x, (*kept, *axes), source)
        dims, axes = tuple(dims[i] for i in (*kept, *axes)), tuple(range(len(kept), rank))
    lead, n, cols = numel(dims[: axes[0]]), numel(dims[axes[0] : axes[-1] + 1]), numel(dims[axes[-1] + 1 :])
    target, out = cx.result(node), dtype
    if how == "mean":
        target, out = cx.scratch("sums", "f32", (lead * cols,)), "f32"
    fold = "sum" if how == "mean" else how
    if cols != 1:
        combine(cx, node, fold, (source, dtype), (target, out), (lead, n, cols))
    elif dtype in FLOATS and how != "prod":
        _along(cx, node, fold, (source, dtype), (target, out), (lead, n))
    else:
        _fold(cx, node, fold, (source, dtype), (target, out), (lead, n))
    if how == "mean":
        _divide(cx, node, target, (cx.result(node), dtype), lead * cols, n)


for _how in ("sum", "mean", "max", "min", "prod"):
    lowering(f"reduce_{_how}")(_reduce)

End = tuple[str, str]
"""A tensor and its dtype."""


def _number(dim: Dim) -> int | None:
    return dim if isinstance(dim, int) else None


def combine(cx: Lowering, node: Node, fold: str, x: End, y: End, dims: tuple[Dim, Dim, Dim]) -> None:
    """[lead, rows, cols] over rows; in blocks of rows first where that keeps more cores busy."""
    lead, rows, cols = dims
    source, dtype = x
    hi = max(cx.bounds(d)[1] for d in dims)
    busy = cx.size(lead) * -(-cx.size(cols) // CHUNK) >= cx.capacities.aiv
    between = work_dtype(dtype)
    if not busy and cx.bounds(rows)[1] > 2 * BLOCK:
        blocks = ceildiv(rows, BLOCK)
        partial = cx.scratch("row_sums", between, (lead, blocks, cols))
        sums = Sums(_number(lead), _number(rows), _number(cols), dtype, between, BLOCK, hi, fold)
        _launch(cx, node, dims, sums, (source, partial))
        source, rows, dtype = partial, blocks, between
    sums = Sums(_number(lead), _number(rows), _number(cols), dtype, y[1], None, hi, fold)
    _launch(cx, node, (lead, rows, cols), sums, (source, y[0]))


def _launch(cx: Lowering, node: Node, sizes: tuple[Dim, Dim, Dim], sums: Sums, ends: tuple[str, str]) -> None:
    kernel = sums_kernel(f"{sums.fold}s_{sums.dtype}", cx.capacities, sums)
    given = dict(zip(("lead", "rows", "cols"), sizes, strict=True))
    cx.launch(node, kernel, {"x": ends[0], "y": ends[1]}, {n: d for n, d in given.items() if not isinstance(d, int)})


def _along(cx: Lowering, node: Node, fold: str, x: End, y: End, dims: tuple[Dim, Dim]) -> None:
    """Rows of floats."""
    k, v = KernelBuilder(f"row_{fold}", "aiv", cx.capacities), Values()
    sizes = Sizes(k, cx)
    rows, n = sizes.of(dims[0], "rows"), sizes.of(dims[1], "cols")
    source = v.input("full", x[1])
    made = v.cast(v.row_reduce(fold.capitalize(), v.cast(source, "f32")), y[1])
    ends = Source(source, k.gm("x", x[1], (rows, n), "in")), Sink(made, k.gm("y", y[1], (rows,), "out"))
    blocks = assemble(Job(k, v, rows, n, cx.bounds(dims[1])[1], ends[:1], ends[1:]))
    cx.launch(node, k.finish(blocks), {"x": x[0], "y": y[0]}, sizes.given)


def _fold(cx: Lowering, node: Node, fold: str, x: End, y: End, dims: tuple[Dim, Dim]) -> None:
    """Rows of integers, and products."""
    k = KernelBuilder(f"fold_{fold}", "aiv", cx.capacities)
    sizes = Sizes(k, cx)
    rows, n = sizes.of(dims[0], "rows"), sizes.of(dims[1], "n")
    ends = k.gm("x", x[1], (rows, n), "in"), k.gm("y", y[1], (rows,), "out")
    blocks = emit_folds(k, FOLDS[fold], *ends, rows, n)
    for length in check_sizes(n):
        for number, cores in ((0, 1), (1, 1), (131, 1), (300, 2)):
            given = {a.name: s for a, s in ((rows, number), (n, length)) if isinstance(a, Arg)}
            k.witness(cores, None, **given)
    cx.launch(node, k.finish(blocks), {"x": x[0], "y": y[0]}, sizes.given)


def _divide(cx: Lowering, node: Node, sums: str, y: End, count: Dim, by: Dim) -> None:
    """Sums to means."""
    k, v = KernelBuilder("means", "aiv", cx.capacities), Values()
    sizes = Sizes(k, cx)
    elements: Scalar = sizes.of(count, "elems")
    total = v.input("full", "f32")
    made = v.cast(v.div(total, sizes.of(by, "by")), y[1])
    source, sink = Source(total, k.gm("x", "f32", (elements,), "in")), Sink(made, k.gm("y", y[1], (elements,), "out"))
    blocks = assemble(Job(k, v, 1, elements, 2**40, (source,), (sink,)))
    cx.launch(node, k.finish(blocks), {"x": sums, "y": y[0]}, sizes.given)

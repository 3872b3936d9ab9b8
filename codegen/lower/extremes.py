"""Lowering of argmax and argmin: along the last dimension, others are turned first."""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernels.vector.assemble import Job, Sink, Source, assemble
from moec.codegen.kernels.vector.extremes import MOST, extreme_place
from moec.codegen.kernels.vector.series import emit_series
from moec.codegen.kernels.vector.values import Values
from moec.codegen.lower.base import Lowering, device_dtype, lowering, where
from moec.codegen.lower.rows import swap_last
from moec.codegen.lower.sizes import Sizes, numel
from moec.codegen.lower.sort import SORTED, first_of_order
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node
from moec.ir.symbol import Dim


@lowering("argmax")
@lowering("argmin")
def extremes(cx: Lowering, node: Node) -> None:
    """Rows that may be longer than f32 counts exactly are sorted."""
    x, axis, last = node.operand(0), node.attrs["axis"], node.attrs["last"]
    largest = node.op == "argmax"
    dims, dtype = x.type.dims, x.type.dtype.name
    if dtype not in SORTED:
        what = f"{node.op} of {dtype} has no kernel"
        raise NoKernel(Problem(what, where(node), f"{', '.join(SORTED)} have one"))
    if cx.bounds(dims[axis])[1] > MOST:
        if last:
            what = f"{node.op} to the last of equals over {dims[axis]} elements has no kernel"
            raise NoKernel(Problem(what, where(node), f"give the size a bound of at most {MOST}"))
        first_of_order(cx, node, axis, largest)
        return
    outer, n, inner = numel(dims[:axis]), dims[axis], numel(dims[axis + 1 :])
    source, device = cx.tensor(x), device_dtype(x.type.dtype)
    if inner != 1:
        turned = cx.scratch(f"{node.op}_turned", device, (outer, inner, n))
        swap_last(cx, node, source, turned, device, (outer, n, inner))
        source = turned
    places = _places(cx, node, n)
    k, v = KernelBuilder(node.op, "aiv", cx.capacities), Values()
    sizes = Sizes(k, cx)
    rows, cols = sizes.of(outer * inner, "rows"), sizes.of(n, "cols")
    raw, at = v.input("full", device), v.input("row", "f32")
    if device in ("i32", "i64"):
        numbers = v.cast(raw, "i32", "NONE" if device == "i64" else "")
    else:
        numbers = v.cast(v.cast(raw, "f16") if device == "u8" else raw, "f32")
    found = v.cast(extreme_place(v, numbers, at, largest, last), "i64", "TRUNC")
    ends = {"x": source, "places": places, "y": cx.result(node)}
    sources = (Source(raw, k.gm("x", device, (rows, cols), "in")), Source(at, k.gm("places", "f32", (cols,), "in")))
    sink = Sink(found, k.gm("y", "i64", (rows,), "out", "index"))
    blocks = assemble(Job(k, v, rows, cols, cx.bounds(n)[1], sources, (sink,)))
    cx.launch(node, k.finish(blocks), ends, sizes.given)


def _places(cx: Lowering, node: Node, n: Dim) -> str:
    """0, 1, ..., n - 1 in f32."""
    k = KernelBuilder("places", "aiv", cx.capacities)
    sizes = Sizes(k, cx)
    count = sizes.of(n, "count")
    blocks = emit_series(k, k.gm("y", "f32", (count,), "out"), count, None, None)
    sizes.witness()
    places = cx.scratch("places", "f32", (n,))
    cx.launch(node, k.finish(blocks), {"y": places}, sizes.given)
    return places

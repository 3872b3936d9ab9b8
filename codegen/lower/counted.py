"""Lowering of nonzero and range: how many elements there are is known when it is run.

Where nothing before says the number, the device counts, and the host reads the count: what follows is launched with it.
"""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernels.vector import integers
from moec.codegen.kernels.vector.assemble import Job, Sink, Source, assemble
from moec.codegen.kernels.vector.nonzero import BLOCK, COUNTS, emit_counts, emit_places, emit_starts
from moec.codegen.kernels.vector.series import emit_range_count, emit_series
from moec.codegen.kernels.vector.values import Val, Values
from moec.codegen.lower.base import Lowering, device_dtype, lowering, node_name, where
from moec.codegen.lower.sizes import Sizes, numel, strides
from moec.codegen.scalar import Arg, binary
from moec.codegen.steps import Bind
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Graph, Node
from moec.ir.symbol import Dim, ceildiv, symbols_of
from moec.ir.types import I64, TensorType

MARKED = ("f32", "f16", "bf16", "i32", "i64", "bool")
STEPPED = ("f32", "i32", "i64")


def is_open(cx: Lowering, dim: Dim) -> bool:
    """Whether ``dim`` is a symbol that neither an input nor an earlier step gives."""
    symbol = str(dim)
    if isinstance(dim, int) or symbol not in cx.module.symbols:
        return False
    given = {s for v in cx.module.main.inputs for d in v.type.dims for s in symbols_of(d)}
    return symbol not in given | {s.symbol for s in cx.steps if isinstance(s, Bind)}


def bind(cx: Lowering, node: Node, dim: Dim, tensor: str) -> None:
    """From here on ``dim`` is the number in ``tensor``, i64 []."""
    value = Graph("count").add_input("count", TensorType(I64, ()))
    cx.stored(value, tensor)
    low, high = cx.module.symbols[str(dim)]
    cx.add(Bind(str(dim), cx.on_host(node, value), low, high, (node_name(node),)))


@lowering("range")
def range_(cx: Lowering, node: Node) -> None:
    y, count = node.result, node.attrs["count"]
    dtype = device_dtype(y.type.dtype)
    if dtype not in STEPPED or (is_open(cx, count) and dtype == "f32"):
        what = f"range of {y.type.dtype.name} has no kernel"
        raise NoKernel(Problem(what, where(node), "i32 and i64 have one, f32 where the number of elements is known"))
    ends = dict(zip(("start", "limit", "step"), (cx.tensor(node.operand(i)) for i in range(3)), strict=True))
    if is_open(cx, count):
        k = KernelBuilder("range_count", "aiv", cx.capacities)
        first, end, by = (k.gm(name, dtype, (1,), "in") for name in ends)
        emit_range_count(k, first, end, by, k.gm("y", "i64", (1,), "out"))
        k.witness(1)
        number = cx.scratch("range_count", "i64", ())
        cx.launch(node, k.finish(1), {**ends, "y": number}, {})
        bind(cx, node, count, number)
    del ends["limit"]
    k = KernelBuilder("range", "aiv", cx.capacities)
    sizes = Sizes(k, cx)
    start, step = (k.gm(name, dtype, (1,), "in") for name in ends)
    length = sizes.of(count, "count")
    blocks = emit_series(k, k.gm("y", dtype, (length,), "out"), length, start, step)
    sizes.witness()
    cx.launch(node, k.finish(blocks), {**ends, "y": cx.result(node)}, sizes.given)


@lowering("nonzero")
def nonzero(cx: Lowering, node: Node) -> None:
    """Counts, starts, places as numbers of elements, and these as one index a dimension."""
    x, count = node.operand(0), node.attrs["count"]
    if x.type.dtype.name not in MARKED or not x.type.dims:
        what = f"nonzero of {x.type} has no kernel"
        raise NoKernel(Problem(what, where(node), f"{', '.join(MARKED)} of at least one dimension have one"))
    n = numel(x.type.dims)
    blocks = ceildiv(n, BLOCK)
    counts, starts = (cx.scratch(name, "i32", (blocks,)) for name in ("block_counts", "block_starts"))
    total = cx.scratch("nonzero_count", "i64", ())
    ends = {"x": cx.tensor(x), "counts": counts, "starts": starts, "total": total}
    _pass(cx, node, "counts", ends, n)
    _pass(cx, node, "starts", ends, n)
    if is_open(cx, count):
        bind(cx, node, count, total)
    places = cx.scratch("places", "i32", (count,))
    _pass(cx, node, "places", {**ends, "places": places}, n)
    _indices(cx, node, places)


def _pass(cx: Lowering, node: Node, which: str, ends: dict[str, str], n: Dim) -> None:
    """One of the three kernels that find places."""
    x = node.operand(0)
    k = KernelBuilder(f"nonzero_{which}", "aiv", cx.capacities)
    sizes = Sizes(k, cx)
    elements, blocks = sizes.of(n, "n"), sizes.of(ceildiv(n, BLOCK), "blocks")
    used = {"counts": "x counts", "starts": "counts starts total", "places": "x counts starts places"}[which].split()
    made = {"counts": ("counts",), "starts": ("starts", "total"), "places": ("places",)}[which]
    gm = {}
    for name in used:
        dtype = {"x": device_dtype(x.type.dtype), "total": "i64"}.get(name, "i32")
        shape = {"x": elements, "total": 1}.get(name, blocks)
        if name == "places":
            shape = sizes.of(node.attrs["count"], "kept")
        role = {"x": "activation", "counts": "counts" if which == "places" else "index"}.get(name, "index")
        gm[name] = k.gm(name, dtype, (shape,), "out" if name in made else "in", role)
    if which == "counts":
        wanted = emit_counts(k, gm["x"], gm["counts"], elements)
    elif which == "starts":
        emit_starts(k, gm["counts"], gm["starts"], gm["total"], elements)
        wanted = 1
        if isinstance(elements, Arg) and isinstance(blocks, Arg):  # counts enough for several fetches
            for many in (2, 5):
                k.witness(1, None, **{elements.name: many * COUNTS * BLOCK - 7, blocks.name: many * COUNTS})
    else:
        wanted = emit_places(k, gm["x"], gm["counts"], gm["starts"], gm["places"], elements)
        every = sizes.of(node.attrs["count"], "kept")
        if isinstance(elements, Arg) and isinstance(blocks, Arg) and isinstance(every, Arg):  # all is kept
            held = {"counts": (BLOCK, BLOCK, BLOCK - 7), "starts": (0, BLOCK, 2 * BLOCK)}
            for cores in (1, 2):
                k.witness(cores, held, **{elements.name: 3 * BLOCK - 7, blocks.name: 3, every.name: 3 * BLOCK - 7})
    sizes.witness((1,) if which == "starts" else (1, 2))
    cx.launch(node, k.finish(wanted), {name: ends[name] for name in used}, sizes.given)


def _indices(cx: Lowering, node: Node, places: str) -> None:
    """y [rank, count] i64: the indices of elements whose numbers are given."""
    dims, count = node.operand(0).type.dims, node.attrs["count"]
    for i, (size, step) in enumerate(zip(dims, strides(dims), strict=True)):
        k, v = KernelBuilder("nonzero_index", "aiv", cx.capacities), Values()
        sizes = Sizes(k, cx)
        kept = sizes.of(count, "kept")
        at = number = v.input("full", "i32")

        def whole(dim: Dim, like: Val = number, v: Values = v, sizes: Sizes = sizes) -> Val:
            return v.fill(sizes.of(dim), like, "i32")

        if step != 1:
            at = integers.divide(v, at, whole(step))
        if i:
            at = integers.modulo(v, at, whole(size), True)
        source = Source(number, k.gm("places", "i32", (kept,), "in", "index"))
        y = k.gm("y", "i64", (binary("*", len(dims), kept),), "out", "index")
        sink = Sink(v.cast(at, "i64"), y, binary("*", i, kept))
        blocks = assemble(Job(k, v, 1, kept, 2**40, (source,), (sink,)))
        cx.launch(node, k.finish(blocks), {"places": places, "y": cx.result(node)}, sizes.given)

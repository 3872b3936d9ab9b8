"""Lowering of argsort and topk: along the last dimension, others are turned there and back."""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernels.vector.merge_lists import emit_merges
from moec.codegen.kernels.vector.sort import Outputs, Sort, check_sizes, emit_blocks, emit_short
from moec.codegen.lower.base import Lowering, device_dtype, lowering, where
from moec.codegen.lower.rows import fetch_elements, swap_last
from moec.codegen.lower.sizes import Sizes, numel
from moec.codegen.scalar import Arg, binary
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node, Value
from moec.ir.symbol import Dim, ceildiv

FLOATS = ("f32", "f16", "bf16")
SORTED = (*FLOATS, "i32", "i64", "bool")
EXACT = 2**24
"""Integers up to here are exact in f32."""
SAME = ("reshape", "transpose", "slice", "expand", "squeeze", "unsqueeze", "save", "cast", "gather", "gather_nd")
"""Ops whose result holds elements of their first operand."""


def number_bound(value: Value) -> int | None:
    """A bound of integers that are positions: indices of a dimension of known size. None where nothing says one."""
    node = value.producer
    while node is not None and node.op in SAME:
        value = node.operand(0)
        node = value.producer
    if value.type.dtype.name == "bool":
        return 2
    if node is None:
        return None
    size: Dim | None = None
    if node.op in ("topk", "argsort", "argmax", "argmin"):
        size = node.operand(0).type.dims[node.attrs["axis"]]
    elif node.op == "gating" and value is node.results[1]:
        size = node.operand(0).type.dims[1]
    elif node.op == "iota":
        size = node.attrs["size"]
    return size if isinstance(size, int) else None


def _check(node: Node) -> None:
    name = node.operand(0).type.dtype.name
    if name not in SORTED:
        what = f"{node.op} of {name} has no kernel"
        raise NoKernel(Problem(what, where(node), f"{', '.join(SORTED)} have one"))


class _Rows:
    """x with the sorted dimension moved last: [rows, n], of which ``keep`` are wanted."""

    def __init__(self, cx: Lowering, node: Node, axis: int, keep: Dim, descending: bool):
        self.cx, self.node, self.descending, self.keep = cx, node, descending, keep
        x = node.operand(0)
        dims = x.type.dims
        self.dtype = device_dtype(x.type.dtype)
        self.outer, self.n, self.inner = numel(dims[:axis]), dims[axis], numel(dims[axis + 1 :])
        self.rows = self.outer * self.inner
        self.x = cx.tensor(x)
        if self.inner != 1:
            turned = cx.scratch(f"{node.op}_turned", self.dtype, (self.rows, self.n))
            swap_last(cx, node, self.x, turned, self.dtype, (self.outer, self.n, self.inner))
            self.x = turned

    def result(self, index: int) -> str:
        """Where a result of the op goes, [rows, keep]."""
        if self.inner == 1:
            return self.cx.result(self.node, index)
        dtype = device_dtype(self.node.results[index].type.dtype)
        return self.cx.scratch(f"{self.node.op}_sorted{index}", dtype, (self.rows, self.keep))

    def done(self, index: int, tensor: str) -> None:
        """Turns what ``result`` named back, if need be."""
        if self.inner != 1:
            dtype = device_dtype(self.node.results[index].type.dtype)
            target = self.cx.result(self.node, index)
            swap_last(self.cx, self.node, tensor, target, dtype, (self.outer, self.inner, self.keep))

    def order(self, index: str, dtype: str, values: str | None = None) -> None:
        """Indices to ``index`` (i32 or i64), values to ``values`` (floats alone)."""
        bound = number_bound(self.node.operand(0))
        if self.dtype in FLOATS or self.dtype == "u8" or (bound is not None and bound <= EXACT):
            self._sort(self.x, index, dtype, self.keep, "whole", None, values)
            return
        cx, node, dims = self.cx, self.node, (self.rows, self.n)
        first, again = cx.scratch("by_low_bits", "i32", dims), cx.scratch("in_that_order", self.dtype, dims)
        self._sort(self.x, first, "i32", self.n, "low", None, None)
        fetch_elements(cx, node, self.x, first, again, self.dtype, (*dims, self.n))
        self._sort(again, index, dtype, self.keep, "high", first, None)

    def _sort(
        self, x: str, index: str, dtype: str, keep: Dim, part: str, given: str | None, values: str | None
    ) -> None:
        """One sort by ``part`` of the numbers; ``given`` holds the indices of elements that stand in another order."""
        cx = self.cx
        k = KernelBuilder("sort" if part == "whole" else f"sort_{part}", "aiv", cx.capacities)
        sizes = Sizes(k, cx)
        rows, n, wanted = sizes.of(self.rows, "rows"), sizes.of(self.n, "n"), sizes.of(keep, "keep")
        s = Sort(rows, n, wanted, self.descending, part, cx.bounds(self.n)[1])
        source = k.gm("x", self.dtype, (rows, n), "in")
        order = None if given is None else k.gm("given", "i32", (rows, n), "in", "index")
        made = None if values is None else k.gm("values", self.dtype, (rows, wanted), "out")
        out = Outputs(k.gm("index", dtype, (rows, wanted), "out", "index"), made)
        operands = (
            {"x": x, "index": index} | ({"given": given} if given else {}) | ({"values": values} if values else {})
        )
        if s.is_short:
            blocks = emit_short(k, s, source, out, order)
        else:
            span = s.block * 2
            work = k.gm("work", "f32", (2, rows, binary("*", s.blocks, span)), "out", "workspace")
            operands["work"] = cx.scratch("sort_records", "f32", (2, self.rows, ceildiv(self.n, s.block) * span))
            with k.reuse():
                emit_blocks(k, s, source, work, order)
            blocks = emit_merges(k, s, work, out)
        _witness(sizes, s)
        cx.launch(self.node, k.finish(blocks), operands, sizes.given)


def _witness(sizes: Sizes, s: Sort) -> None:
    """Rows of every length that matters, alone and with others, on one core and two; on four, where a core goes from a
    part that is merged without a search to the first part of another row."""
    given = {a.name for a in (s.n, s.keep) if isinstance(a, Arg)}
    for n in check_sizes(s) if isinstance(s.n, Arg) else [0]:
        for rows, cores in ((1, 1), (7, 1), (5, 2), (4, 4)):
            sizes.k.witness(cores, None, **{a: n if a in given else rows for a in sizes.given})


@lowering("argsort")
def argsort(cx: Lowering, node: Node) -> None:
    _check(node)
    axis = node.attrs["axis"]
    rows = _Rows(cx, node, axis, node.operand(0).type.dims[axis], node.attrs["descending"])
    index = rows.result(0)
    rows.order(index, "i64")
    rows.done(0, index)


@lowering("topk")
def topk(cx: Lowering, node: Node) -> None:
    """Values of floats come with the sort; those of integers are fetched by their indices."""
    _check(node)
    rows = _Rows(cx, node, node.attrs["axis"], node.attrs["k"], node.attrs["largest"])
    values, index = rows.result(0), rows.result(1)
    if rows.dtype in FLOATS:
        rows.order(index, "i64", values)
    else:
        places = cx.scratch("topk_places", "i32", (rows.rows, rows.keep))
        rows.order(places, "i32")
        fetch_elements(cx, node, rows.x, places, values, rows.dtype, (rows.rows, rows.n, rows.keep))
        rows.order(index, "i64")
    rows.done(0, values)
    rows.done(1, index)


def first_of_order(cx: Lowering, node: Node, axis: int, largest: bool) -> None:
    """The node's result: the index of the first in order."""
    rows = _Rows(cx, node, axis, 1, largest)
    index = rows.result(0)
    rows.order(index, "i64")
    rows.done(0, index)

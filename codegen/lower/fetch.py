"""Lowering of gather and scatter in their forms: which rows index tuples name."""

from __future__ import annotations

from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernels.vector.fetch import Named, emit_gather, emit_scatter
from moec.codegen.lower.base import Lowering, device_dtype, lowering, where
from moec.codegen.lower.sizes import Sizes, numel, strides
from moec.codegen.scalar import Scalar, binary
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node, Value
from moec.ir.symbol import Dim
from moec.ir.types import I64
from moec.ops.build import Builder

ADDED = ("f32", "f16", "bf16", "i32")
REDUCED = {"none": "", "add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}
"""The instruction of each reduction."""


@dataclass(frozen=True)
class Form:
    """Index tuples over x in dimensions: see Named. A row's base is o * outer_rows + (o // group) * group_rows + m *
    count_rows."""

    outer: Dim
    count: Dim
    shared: bool
    sizes: tuple[Dim, ...]
    steps: tuple[Dim, ...]
    inner: Dim
    outer_rows: Dim = 0
    group: Dim = 1
    count_rows: Dim = 0


def _along(node: Node) -> Form:
    """gather: rows along an axis, the same for everything before it."""
    x, indices, axis = node.operand(0), node.operand(1), node.attrs["axis"]
    dims = x.type.dims
    size = dims[axis]
    return Form(
        numel(dims[:axis]), numel(indices.type.dims), True, (size,), (1,), numel(dims[axis + 1 :]), outer_rows=size
    )


def _elements(node: Node) -> Form:
    """gather_elements, scatter_elements: each element has an index of its own along the axis."""
    x, indices, axis = node.operand(0), node.operand(1), node.attrs["axis"]
    dims, own = x.type.dims, indices.type.dims
    after = numel(dims[axis + 1 :])
    return Form(
        numel(own[: axis + 1]), after, False, (dims[axis],), (after,), 1, dims[axis] * after, own[axis], count_rows=1
    )


def _tuples(node: Node, batch: int) -> Form:
    """gather_nd, scatter_nd."""
    x, indices = node.operand(0), node.operand(1)
    depth = indices.type.dims[-1]
    assert isinstance(depth, int)
    named = x.type.dims[batch : batch + depth]
    return Form(
        numel(x.type.dims[:batch]),
        numel(indices.type.dims[batch:-1]),
        False,
        tuple(named),
        tuple(strides(named)),
        numel(x.type.dims[batch + depth :]),
        outer_rows=numel(named),
    )


def _named(sizes: Sizes, f: Form) -> Named:
    outer_rows, group, count_rows = sizes.of(f.outer_rows), sizes.of(f.group), sizes.of(f.count_rows)

    def base(o: Scalar, m: Scalar) -> Scalar:
        return binary("+", binary("*", binary("//", o, group), outer_rows), binary("*", m, count_rows))

    count = sizes.of(f.count)
    return Named(
        sizes.of(f.outer),
        count,
        0 if f.shared else count,
        tuple(sizes.of(d) for d in f.sizes),
        tuple(sizes.of(d) for d in f.steps),
        base,
        sizes.of(f.inner),
    )


def _check_indices(node: Node) -> None:
    names = {node.operand(1).type.dtype.name}
    if not names <= {"i32", "i64"}:
        what = f"{node.op} by {', '.join(sorted(names))} has no kernel"
        raise NoKernel(Problem(what, where(node), "indices of i32 and i64 have one"))


def _gather(cx: Lowering, node: Node, f: Form) -> None:
    _check_indices(node)
    x, indices, y = node.operand(0), node.operand(1), node.result
    k = KernelBuilder(node.op, "aiv", cx.capacities)
    sizes = Sizes(k, cx)
    tensors = [
        k.gm(name, device_dtype(v.type.dtype), (sizes.of(numel(v.type.dims), "elems"),), way, role)
        for name, v, way, role in (
            ("x", x, "in", "activation"),
            ("indices", indices, "in", "index"),
            ("y", y, "out", "activation"),
        )
    ]
    blocks = emit_gather(k, tensors[0], tensors[1], tensors[2], _named(sizes, f))
    sizes.witness()
    operands = {"x": cx.tensor(x), "indices": cx.tensor(indices), "y": cx.result(node)}
    cx.launch(node, k.finish(blocks), operands, sizes.given)


def _scatter(cx: Lowering, node: Node, f: Form) -> None:
    _check_indices(node)
    x, indices, updates, y = node.operand(0), node.operand(1), node.operand(2), node.result
    how = node.attrs["reduction"]
    if how != "none" and x.type.dtype.name not in ADDED:
        what = f"{node.op} of {x.type.dtype.name} with reduction {how} has no kernel"
        raise NoKernel(Problem(what, where(node), f"none of any dtype, others of {', '.join(ADDED)} have one"))
    k = KernelBuilder(f"{node.op}_{how}", "aiv", cx.capacities)
    sizes = Sizes(k, cx)
    tensors = [
        k.gm(name, device_dtype(v.type.dtype), (sizes.of(numel(v.type.dims), "elems"),), way, role)
        for name, v, way, role in (
            ("x", x, "in", "activation"),
            ("indices", indices, "in", "index"),
            ("updates", updates, "in", "activation"),
            ("y", y, "out", "activation"),
        )
    ]
    rows = numel(x.type.dims[: len(x.type.dims) - _inner_rank(node)])
    named = _named(sizes, f)
    blocks = emit_scatter(k, tensors[0], tensors[1], tensors[2], tensors[3], named, sizes.of(rows), REDUCED[how])
    sizes.witness()
    operands = {"x": cx.tensor(x), "indices": cx.tensor(indices), "updates": cx.tensor(updates), "y": cx.result(node)}
    cx.launch(node, k.finish(blocks), operands, sizes.given)


def _inner_rank(node: Node) -> int:
    """How many of x's last dimensions make a row."""
    if node.op == "scatter_elements":
        return 0
    depth = node.operand(1).type.dims[-1]
    assert isinstance(depth, int)
    return node.operand(0).type.rank - depth


@lowering("gather")
def gather(cx: Lowering, node: Node) -> None:
    _gather(cx, node, _along(node))


def _covers(node: Node) -> bool:
    """Whether the indices go through all of x beside the axis."""
    dims, own, axis = node.operand(0).type.dims, node.operand(1).type.dims, node.attrs["axis"]
    return dims[:axis] == own[:axis] and dims[axis + 1 :] == own[axis + 1 :]


@lowering("gather_elements")
def gather_elements(cx: Lowering, node: Node) -> None:
    """Indices for a part of x only: that part is taken first."""
    if _covers(node):
        _gather(cx, node, _elements(node))
        return

    def part(b: Builder, x: Value, indices: Value) -> Value:
        for d, size in enumerate(indices.type.dims):
            if d != node.attrs["axis"] and size != x.type.dims[d]:
                x = b.slice(x, axis=d, start=0, stop=size, step=1)
        made: Value = b.gather_elements(x, indices, axis=node.attrs["axis"])
        return made

    cx.through(node, part)


@lowering("gather_nd")
def gather_nd(cx: Lowering, node: Node) -> None:
    _gather(cx, node, _tuples(node, node.attrs["batch_dims"]))


@lowering("scatter_elements")
def scatter_elements(cx: Lowering, node: Node) -> None:
    """Updates for a part of x only: each is named by all of its indices."""
    if _covers(node):
        _scatter(cx, node, _elements(node))
        return

    def named(b: Builder, x: Value, indices: Value, updates: Value) -> Value:
        own = indices.type.dims
        places = []
        for d, size in enumerate(own):
            place = indices if indices.type.dtype is I64 else b.cast(indices, to=I64)
            if d != node.attrs["axis"]:
                along = tuple(size if i == d else 1 for i in range(len(own)))
                place = b.expand(b.reshape(b.iota(size=size, dtype=I64), shape=along), shape=own)
            places.append(b.reshape(place, shape=(*own, 1)))
        tuples = places[0] if len(places) == 1 else b.concat(*places, axis=len(own))
        made: Value = b.scatter_nd(x, tuples, updates, reduction=node.attrs["reduction"])
        return made

    cx.through(node, named)


@lowering("scatter_nd")
def scatter_nd(cx: Lowering, node: Node) -> None:
    _scatter(cx, node, _tuples(node, 0))

"""Lowering of labels: one-hot rows, and the cross entropy of logits."""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernels.vector.assemble import Job, Sink, Source, assemble
from moec.codegen.kernels.vector.labels import one_hot_kernel, pick_kernel
from moec.codegen.kernels.vector.values import Values
from moec.codegen.lower.base import Lowering, device_dtype, lowering, where
from moec.codegen.scalar import Scalar
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node, Value
from moec.ir.symbol import Dim
from moec.ir.types import F32
from moec.ops.build import Builder

FLOATS = ("f32", "f16", "bf16")
CAST = (*FLOATS, "i64", "i32", "i16", "i8", "u8", "bool")


def _count(dims: tuple[Dim, ...]) -> Dim:
    total: Dim = 1
    for d in dims:
        total = total * d
    return total


@lowering("one_hot")
def one_hot(cx: Lowering, node: Node) -> None:
    """Rows of f32, f16 and bf16; other types are cast from f32, and a dimension that is not the last is moved there."""
    labels, depth, dtype = node.operand(0), node.attrs["depth"], node.result.type.dtype
    if not isinstance(depth, int) or dtype.name not in CAST or labels.type.dtype.name not in ("i32", "i64"):
        what = f"one_hot of {labels.type} as {node.result.type} has no kernel"
        todo = f"i32 and i64 labels to {', '.join(CAST)} with a depth that is a number have one"
        raise NoKernel(Problem(what, where(node), todo))
    rank = labels.type.rank
    axis = node.attrs["axis"] % (rank + 1)
    if axis == rank and dtype.name in FLOATS:
        kernel = one_hot_kernel("one_hot", cx.capacities, depth, device_dtype(labels.type.dtype), dtype.name)
        ends = {"labels": cx.tensor(labels), "y": cx.result(node)}
        cx.launch(node, kernel, ends, {"tokens": _count(labels.type.dims)})
        return

    def rows(b: Builder, x: Value) -> Value:
        hot = b.one_hot(x, depth=depth, axis=rank, dtype=dtype if dtype.name in FLOATS else F32)
        made: Value = hot if dtype.name in FLOATS else b.cast(hot, to=dtype)
        order = [*range(axis), rank, *range(axis, rank)]
        return made if axis == rank else b.transpose(made, perm=tuple(order))

    cx.through(node, rows)


@lowering("cross_entropy")
def cross_entropy(cx: Lowering, node: Node) -> None:
    """The label's logit first, then ln(sum of e^(x - max)) - (picked - max) of each row, 0 where it does not count."""
    logits, labels = node.operand(0), node.operand(1)
    dtype, cols = logits.type.dtype.name, logits.type.dims[-1]
    if dtype not in FLOATS or labels.type.dtype.name not in ("i32", "i64"):
        what = f"cross_entropy of {logits.type} by {labels.type} has no kernel"
        raise NoKernel(Problem(what, where(node), "f32, f16 and bf16 logits by i32 and i64 labels have one"))
    tokens, width = _count(labels.type.dims), cols if isinstance(cols, int) else None
    sizes = {"tokens": tokens} | ({} if width is not None else {"cols": cols})
    picked, counted = (cx.scratch(n, "f32", labels.type.dims) for n in ("picked", "counted"))
    pick = pick_kernel(
        "pick_labels", cx.capacities, device_dtype(labels.type.dtype), dtype, width, node.attrs["ignore"]
    )
    ends = {"x": cx.tensor(logits), "labels": cx.tensor(labels), "picked": picked, "counted": counted}
    cx.launch(node, pick, ends, sizes)
    k = KernelBuilder("cross_entropy", "aiv", cx.capacities)
    rows: Scalar = k.arg("tokens")
    columns: Scalar = k.arg("cols", 1, cx.bounds(cols)[1]) if width is None else width
    x = k.gm("x", dtype, (rows, columns), "in")
    chosen, counts = k.gm("picked", "f32", (rows,), "in"), k.gm("counted", "f32", (rows,), "in")
    y = k.gm("y", "f32", (rows,), "out")
    v = Values()
    raw, at, wanted = v.input("full", dtype), v.input("col", "f32"), v.input("col", "f32")
    wide = v.cast(raw, "f32")
    top = v.row_reduce("Max", wide)
    total = v.row_reduce("Sum", v.unary("Exp", v.sub(wide, top)))
    loss = v.sub(v.unary("Ln", total), v.sub(at, top))
    loss = v.select(v.compare("GT", wanted, 0.0), loss, 0.0)
    sources = (Source(raw, x), Source(at, chosen), Source(wanted, counts))
    job = Job(k, v, rows, columns, cx.bounds(cols)[1], sources, (Sink(loss, y),))
    kernel = k.finish(assemble(job))
    cx.launch(node, kernel, {"x": ends["x"], "picked": picked, "counted": counted, "y": cx.result(node)}, sizes)

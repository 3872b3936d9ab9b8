"""Writing new keys and values into a cache of fixed size: TensorScatter."""

from __future__ import annotations

from moec.frontend.onnx.context import Op
from moec.frontend.onnx.table import onnx_op
from moec.ir.graph import Value
from moec.ir.symbol import Dim
from moec.ir.types import I64


@onnx_op("TensorScatter", first=24, last=24)
def _tensor_scatter(op: Op) -> Value:
    """The cache [B, ..., P, ...] with the update [B, ..., S, ...] written along axis from each batch row's position on,
    wrapping around where the mode is circular."""
    cache, update = op.value(0), op.value(1)
    axis = op.axis(cache.type.rank, -2)
    mode = op.attr("mode", "linear")
    batch, size, count = cache.type.dims[0], cache.type.dims[axis], update.type.dims[axis]
    steps = op.emit("iota", size=count, dtype=I64)
    index = op.emit("reshape", steps, shape=_along(cache.type.rank, axis, count))
    if op.has(2):
        start = op.emit("cast", op.value(2), to=I64)
        index = op.emit("add", index, op.emit("reshape", start, shape=_along(cache.type.rank, 0, batch)))
    if mode in ("circular", b"circular"):
        index = op.emit("mod", index, op.emit("dims", values=(size,), scalar=True), fmod=False)
    index = op.emit("expand", index, shape=update.type.dims)
    return op.emit("scatter_elements", cache, index, update, axis=axis, reduction="none")


def _along(rank: int, axis: int, size: Dim) -> tuple[Dim, ...]:
    return tuple(size if i == axis else 1 for i in range(rank))

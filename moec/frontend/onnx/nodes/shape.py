"""Operators that move elements: Reshape and its kin, Transpose, Concat, Split, Slice, Pad, Expand, Tile, Trilu."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from moec.frontend.onnx.context import Op, Tensor, axes_of, normal_axis
from moec.frontend.onnx.errors import NoForm
from moec.frontend.onnx.facts import Facts
from moec.frontend.onnx.nodes.broadcasting import reshaped
from moec.frontend.onnx.shape_eval import content
from moec.frontend.onnx.shape_layout import split_sizes
from moec.frontend.onnx.table import onnx_op
from moec.ir.graph import Value
from moec.ir.symbol import Dim, Shape, ceildiv, dmax, exact_div, floordiv
from moec.ir.types import I64, TensorType


@onnx_op("Shape", last=25)
def _shape(op: Op) -> Tensor:
    shape = op.shape(0)
    rank = len(shape)
    start, end = (max(0, min(rank, a + rank if a < 0 else a)) for a in (op.attr("start", 0), op.attr("end", rank)))
    found = content(list(shape[start:end]), I64)
    return Tensor(TensorType(I64, (len(found.items),)), content=found)


@onnx_op("Size", last=25)
def _size(op: Op) -> Tensor:
    total = op.tensor(0).type.numel()
    return Tensor(TensorType(I64, ()), content=content(total, I64))


def _numel(dims: Sequence[Dim]) -> Dim:
    total: Dim = 1
    for d in dims:
        total = total * d
    return total


@onnx_op("Reshape", first=5, last=25)
def _reshape(op: Op) -> Value | Tensor:
    shape = op.shape(0)
    target = op.dims(1, "the shape")
    if not op.attr("allowzero", 0):
        if any(d == 0 and i >= len(shape) for i, d in enumerate(target)):
            raise ValueError(f"0 in shape {target} copies a dimension that {list(shape)} does not have")
        target = [shape[i] if d == 0 else d for i, d in enumerate(target)]
    if target.count(-1) > 1:
        raise ValueError(f"more than one -1 in shape {target}")
    if -1 in target:
        hole = target.index(-1)
        target[hole] = _rest(shape, [*target[:hole], *target[hole + 1 :]])
    return reshaped(op, op.value(0), target)


def _rest(shape: Shape, others: list[Dim]) -> Dim:
    total, known = _numel(shape), _numel(others)
    if known == 0:
        if isinstance(total, int) and total:
            raise ValueError(f"-1 beside {others} for a tensor of {total} elements")
        return 0
    exact = exact_div(total, known)
    if exact is None and isinstance(total, int) and isinstance(known, int):
        raise ValueError(f"{list(shape)} ({total} elements) does not split into {others}")
    return floordiv(total, known) if exact is None else exact


@onnx_op("Flatten", last=25)
def _flatten(op: Op) -> Value:
    shape = op.shape(0)
    axis = op.attr("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    return reshaped(op, op.value(0), (_numel(shape[:axis]), _numel(shape[axis:])))


@onnx_op("Squeeze", last=25)
def _squeeze(op: Op) -> Value:
    shape = op.shape(0)
    axes = axes_of(op, len(shape))
    if axes is None:
        unsure = [d for d in shape if d != 1 and not isinstance(d, int) and op.context.facts.equal(d, 1) is None]
        if any(op.context.facts.is_runtime(d) for d in unsure):
            raise NoForm(f"Squeeze without axes: whether {unsure} are 1 is not known before the model runs")
        axes = [i for i, d in enumerate(shape) if d == 1]
    if any(shape[a] != 1 and isinstance(shape[a], int) for a in axes):
        raise ValueError(f"Squeeze of axes {axes} of {list(shape)}: not all are 1")
    return reshaped(op, op.value(0), [d for i, d in enumerate(shape) if i not in axes])


@onnx_op("Unsqueeze", last=25)
def _unsqueeze(op: Op) -> Value:
    shape = op.shape(0)
    count = len(op.ints(1, "axes")) if op.has(1) else len(op.attr("axes", ()))
    axes = axes_of(op, len(shape) + count)
    if not axes:
        raise ValueError("axes are missing")
    rest = iter(shape)
    return reshaped(op, op.value(0), [1 if i in axes else next(rest) for i in range(len(shape) + count)])


@onnx_op("Transpose", last=25)
def _transpose(op: Op) -> Value | Tensor:
    rank = len(op.shape(0))
    perm = tuple(op.attr("perm", None) or reversed(range(rank)))
    if perm == tuple(range(rank)):
        return op.tensor(0)
    return op.emit("transpose", op.value(0), perm=perm)


@onnx_op("Concat", last=13)
def _concat(op: Op) -> Value | Tensor:
    values = [op.value(i) for i in range(len(op.inputs))]
    axis = op.axis(values[0].type.rank, 1 if op.opset < 4 else None)
    if len(values) == 1:
        return op.tensor(0)
    return op.emit("concat", *values, axis=axis)


@onnx_op("Expand", first=8, last=13)
def _expand(op: Op) -> Value:
    x, target = op.value(0), op.dims(1, "the shape")
    return expanded(op, x, target)


def expanded(op: Op, x: Value, target: Sequence[Dim]) -> Value:
    """x broadcast with ``target`` in both directions, as Expand does."""
    rank = max(x.type.rank, len(target))
    shape: list[Dim] = [*[1] * (rank - x.type.rank), *x.type.dims]
    for i, d in enumerate(target, rank - len(target)):
        if isinstance(d, int) and isinstance(shape[i], int) and 1 != d != shape[i] != 1:
            raise ValueError(f"{x.type} does not expand to {list(target)}")
        shape[i] = _met(op.context.facts, shape[i], d)
    return x if tuple(shape) == x.type.dims else op.emit("expand", x, shape=tuple(shape))


def _met(facts: Facts, own: Dim, wanted: Dim) -> Dim:
    """The size that two sizes are broadcast to: a number before a symbol, a named one before one that data decides."""
    if own == 1 or wanted == 1 or own == wanted:
        return wanted if own == 1 else own
    if isinstance(own, int) or isinstance(wanted, int):
        return own if isinstance(own, int) else wanted
    if facts.is_runtime(own) != facts.is_runtime(wanted):
        return wanted if facts.is_runtime(own) else own
    return dmax(own, wanted)


@onnx_op("Tile", first=6, last=13)
def _tile(op: Op) -> Value:
    return op.emit("tile", op.value(0), repeats=tuple(op.dims(1, "the repeats")))


@onnx_op("Trilu", first=14, last=14)
def _trilu(op: Op) -> Value:
    k = op.ints(1, "k")[0] if op.has(1) else 0
    return op.emit("trilu", op.value(0), upper=bool(op.attr("upper", 1)), k=k)


@onnx_op("Pad", first=2, last=25)
def _pad(op: Op) -> Value:
    rank = len(op.shape(0))
    pads = op.dims(1, "the pads") if op.opset >= 11 else list(op.attr("pads", ()))
    mode = op.attr("mode", "constant")
    if mode != "constant":
        raise NoForm(f"Pad with mode '{mode}'; only 'constant' is supported")
    axes = [normal_axis(a, rank) for a in op.ints(3, "axes")] if op.has(3) else list(range(rank))
    value = float(op.numbers(2, "the value").ravel()[0]) if op.has(2) else float(op.attr("value", 0.0))
    before: list[Dim] = [0] * rank
    after: list[Dim] = [0] * rank
    for i, axis in enumerate(axes):
        before[axis], after[axis] = pads[i], pads[len(axes) + i]
    if any(isinstance(p, int) and p < 0 for p in (*before, *after)):
        raise ValueError(f"negative pads {pads}; use Slice")
    return op.emit("pad", op.value(0), before=tuple(before), after=tuple(after), value=value)


@onnx_op("Split", last=18)
def _split(op: Op) -> list[Value]:
    x = op.value(0)
    axis = op.axis(x.type.rank, 0)
    parts = len(op.node.outputs)
    if op.has(1) and op.tensor(1).content is None:
        return _split_at_run_time(op, x, axis, op.value(1), parts)
    if op.has(1):
        sizes = op.dims(1, "the sizes")
    elif "split" in op.attrs:
        sizes = list(op.attrs["split"])
    else:
        sizes = split_sizes(x.type.dims[axis], op.attr("num_outputs", parts))
    if len(sizes) != parts:
        raise ValueError(f"{len(sizes)} sizes for {parts} outputs")
    total = sum(sizes[1:], sizes[0])
    size = x.type.dims[axis]
    if isinstance(total, int) and isinstance(size, int) and total != size:
        raise ValueError(f"sizes {sizes} do not add up to {size}")
    if total != size and op.context.facts.is_runtime(size):
        x = reshaped(op, x, [*x.type.dims[:axis], total, *x.type.dims[axis + 1 :]])
    start: Dim = 0
    results = []
    for s in sizes:
        results.append(op.emit("slice", x, axis=axis, start=start, stop=start + s, step=1))
        start = start + s
    return results


def _split_at_run_time(op: Op, x: Value, axis: int, sizes: Value, parts: int) -> list[Value]:
    """Pieces whose sizes are data: each gathers the range of rows that starts where the one before ended."""
    one = op.context.scalar(1, I64)
    start = op.context.scalar(0, I64)
    results = []
    for i in range(parts):
        size = op.emit("reshape", op.emit("slice", sizes, axis=0, start=i, stop=i + 1, step=1), shape=())
        stop = op.emit("add", start, size)
        count = op.context.facts.fresh("split", x.type.dims[axis])
        rows = op.emit("range", start, stop, one, count=count)
        results.append(op.emit("gather", x, rows, axis=axis))
        start = stop
    return results


@onnx_op("Slice", last=13)
def _slice(op: Op) -> Value:
    x = op.value(0)
    rank = x.type.rank
    if op.opset < 10:
        starts, ends = list(op.attrs["starts"]), list(op.attrs["ends"])
        axes, steps = op.attr("axes", None), None
    else:
        starts, ends = op.dims(1, "the starts"), op.dims(2, "the ends")
        axes = op.ints(3, "the axes") if op.has(3) else None
        steps = op.ints(4, "the steps") if op.has(4) else None
    axes = list(range(len(starts))) if axes is None else [normal_axis(a, rank) for a in axes]
    for i, axis in enumerate(axes):
        x = _slice_axis(op, x, axis, starts[i], ends[i], steps[i] if steps else 1)
    return x


def _slice_axis(op: Op, x: Value, axis: int, start: Dim, end: Dim, step: int) -> Value:
    facts, size = op.context.facts, x.type.dims[axis]
    if step == 0:
        raise ValueError("a step of 0")
    if step < 0:
        return _reversed(op, x, axis, start, end, step)
    start, stop = facts.clamp(start, size), facts.clamp(end, size)
    if facts.less_equal(start, stop) is False:
        stop = start
    if start == 0 and stop == size and step == 1:
        return x
    return op.emit("slice", x, axis=axis, start=start, stop=stop, step=step)


def _reversed(op: Op, x: Value, axis: int, start: Dim, end: Dim, step: int) -> Value:
    """A slice that runs backwards, as a gather at falling positions."""
    size = x.type.dims[axis]
    if not (isinstance(size, int) and isinstance(start, int) and isinstance(end, int)):
        if not (isinstance(start, int) and isinstance(end, int) and start == -1 and end < -(2**31)):
            raise ValueError(f"a step of {step} from {start} to {end} over a size of {size}")
        count = ceildiv(size, -step)
        steps = op.emit("mul", op.emit("iota", size=count, dtype=I64), op.context.scalar(step, I64))
        last = op.context.of_content(content(size - 1, I64))
        return op.emit("gather", x, op.emit("add", steps, last), axis=axis)
    positions = np.arange(size)[start if start >= -size else 0 : end if end >= -size else None : step]
    return op.emit("gather", x, op.context.array(positions.astype(np.int64)), axis=axis)

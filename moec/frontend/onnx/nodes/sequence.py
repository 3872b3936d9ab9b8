"""Sequences whose length is known at import: they are taken apart at once and leave no node."""

from __future__ import annotations

from moec.frontend.onnx.context import Op, Tensor
from moec.frontend.onnx.errors import NoForm
from moec.frontend.onnx.nodes.broadcasting import reshaped
from moec.frontend.onnx.shape_eval import content
from moec.frontend.onnx.table import onnx_op
from moec.ir.graph import Value
from moec.ir.symbol import Dim
from moec.ir.types import DTYPES, I64, TensorType

MAX_PIECES = 20_000
"""Pieces that a tensor is taken apart into."""


def _sequence(parts: list[Tensor]) -> Tensor:
    return Tensor(TensorType(DTYPES["seq"], (len(parts),)), parts=parts)


def _parts(op: Op, index: int) -> list[Tensor]:
    parts = op.tensor(index).parts
    if parts is None:
        raise NoForm(f"input {index} is no sequence, or its length is not known before the model runs")
    return parts


@onnx_op("SequenceConstruct", last=11)
def _construct(op: Op) -> Tensor:
    return _sequence([op.tensor(i) for i in range(len(op.inputs))])


@onnx_op("SplitToSequence", last=24)
def _split(op: Op) -> Tensor:
    x = op.value(0)
    axis = op.axis(x.type.rank, 0)
    size = x.type.dims[axis]
    if not isinstance(size, int):
        raise NoForm(f"the number of pieces of a dimension of {size} is not known")
    keepdims = bool(op.attr("keepdims", 1)) or op.has(1)
    chunks = op.ints(1, "the sizes") if op.has(1) else [1]
    if not op.has(1) or not op.shape(1):
        step = chunks[0]
        if step < 1:
            raise ValueError(f"pieces of {step} elements")
        if size > MAX_PIECES * step:
            raise NoForm(f"{size} elements in pieces of {step}: more than {MAX_PIECES} pieces")
        chunks = [min(step, size - start) for start in range(0, size, step)]
    if sum(chunks) != size:
        raise ValueError(f"sizes {chunks} do not add up to {size}")
    parts, start = [], 0
    for chunk in chunks:
        piece = op.emit("slice", x, axis=axis, start=start, stop=start + chunk, step=1)
        if not keepdims:
            shape: list[Dim] = [d for i, d in enumerate(piece.type.dims) if i != axis]
            piece = reshaped(op, piece, shape)
        parts.append(Tensor(piece.type, piece))
        start += chunk
    return _sequence(parts)


@onnx_op("SequenceAt", last=11)
def _at(op: Op) -> Tensor:
    parts = _parts(op, 0)
    position = op.ints(1, "the position")[0]
    if not -len(parts) <= position < len(parts):
        raise ValueError(f"position {position} in a sequence of {len(parts)}")
    return parts[position]


@onnx_op("SequenceLength", last=11)
def _length(op: Op) -> Tensor:
    return Tensor(TensorType(I64, ()), content=content(len(_parts(op, 0)), I64))


@onnx_op("ConcatFromSequence", last=11)
def _concat(op: Op) -> Value:
    values = [op.context.value_of(t) for t in _parts(op, 0)]
    new = bool(op.attr("new_axis", 0))
    axis = op.axis(values[0].type.rank + new)
    if new:
        values = [reshaped(op, v, (*v.type.dims[:axis], 1, *v.type.dims[axis:])) for v in values]
    return values[0] if len(values) == 1 else op.emit("concat", *values, axis=axis)

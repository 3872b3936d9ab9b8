"""Scans: unrolled where the number of steps is known, else ``scan`` with the body as a function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from moec.frontend.onnx.context import Op, Tensor
from moec.frontend.onnx.errors import NoForm
from moec.frontend.onnx.nodes.broadcasting import reshaped
from moec.frontend.onnx.nodes.control import Body, inline, joined, subgraph
from moec.frontend.onnx.table import onnx_op
from moec.ir.graph import Value
from moec.ir.symbol import Dim
from moec.ir.types import I64


@onnx_op("Scan", first=8, last=25)
def _scan(op: Op) -> Sequence[Tensor | Value]:
    if op.opset < 9:
        return _of_a_batch(op)
    graph, scans = subgraph(op, "body"), int(op.attr("num_scan_inputs", 0))
    states, inputs = _taken_apart(op, op.inputs, scans)
    rows = len(graph.output) - len(states)
    flags: dict[str, Any] = {}
    for name, count in (("input", scans), ("output", rows)):
        axes = op.attr(f"scan_{name}_axes", (0,) * count)
        flags[f"{name}_axes"] = axes
        flags[f"{name}_backward"] = op.attr(f"scan_{name}_directions", (0,) * count)
    flags["input_axes"] = tuple(a % v.type.rank for a, v in zip(flags["input_axes"], inputs, strict=True))
    return _steps(op, graph, states, inputs, flags)


def _taken_apart(op: Op, given: Sequence[Tensor | None], scans: int) -> tuple[list[Tensor], list[Value]]:
    """The states and the scanned inputs."""
    if not 0 < scans <= len(given):
        raise ValueError(f"num_scan_inputs is {scans} of {len(given)} inputs")
    carried, scanned = given[: len(given) - scans], given[len(given) - scans :]
    return [t for t in carried if t is not None], [op.context.value_of(t) for t in scanned if t is not None]


def _of_a_batch(op: Op) -> Sequence[Tensor | Value]:
    """Operator set 8: tensors are [batch, steps, ...] and the body is of one sample, up to the sample's own length.

    Behind that the states stay as they are and the rows are zeros, as onnxruntime has it.
    """
    graph, scans = subgraph(op, "body"), int(op.attr("num_scan_inputs", 0))
    states, inputs = _taken_apart(op, op.inputs[1:], scans)
    batch, length = inputs[0].type.dims[:2]
    backward = op.attr("directions", (0,) * scans)
    if not isinstance(batch, int) or batch < 1:
        raise NoForm(f"a Scan of opset 8 over a batch of {batch}")
    if op.has(0) and (not isinstance(length, int) or any(backward)):
        raise NoForm("a Scan of opset 8 with sequence_lens over steps that are not a number, or backwards")
    rows = len(graph.output) - len(states)
    flags = {
        "input_axes": (0,) * scans,
        "input_backward": backward,
        "output_axes": (0,) * rows,
        "output_backward": (0,) * rows,
    }
    samples: list[list[Tensor]] = []
    for i in range(batch):
        own = [_cut(op, op.context.value_of(t), 0, i) for t in states]
        cuts = [op.context.value_of(_cut(op, x, 0, i)) for x in inputs]
        until = op.context.value_of(_cut(op, op.value(0), 0, i)) if op.has(0) else None
        found = _steps(op, graph, own, cuts, flags, until)
        samples.append([t if isinstance(t, Tensor) else Tensor(t.type, t) for t in found])
    return [joined(op, column, 0, False) for column in zip(*samples, strict=True)]


def _steps(
    op: Op,
    graph: onnx.GraphProto,
    states: list[Tensor],
    inputs: list[Value],
    flags: dict[str, Any],
    until: Value | None = None,
) -> Sequence[Tensor | Value]:
    """The last states and the stacked rows; ``until`` (i64[]) is how many of the steps count, all where it is None."""
    length = inputs[0].type.dims[flags["input_axes"][0]]
    if isinstance(length, int) and length > 0 and op.context.unrolled.takes(graph, length):
        return _unrolled(op, graph, states, inputs, length, flags, until)
    if until is not None:
        raise NoForm(f"a Scan of opset 8 with sequence_lens over {length} steps")
    return _rolled(op, graph, states, inputs, length, flags)


def _cut(op: Op, x: Value, axis: int, i: int) -> Tensor:
    piece = op.emit("slice", x, axis=axis, start=i, stop=i + 1, step=1)
    piece = reshaped(op, piece, [d for j, d in enumerate(x.type.dims) if j != axis])
    return Tensor(piece.type, piece)


def _unrolled(
    op: Op,
    graph: onnx.GraphProto,
    states: list[Tensor],
    inputs: list[Value],
    length: int,
    flags: dict[str, Any],
    until: Value | None,
) -> Sequence[Tensor | Value]:
    rows: list[list[Tensor]] = []
    for i in range(length):
        cuts = [
            _cut(op, x, axis, length - 1 - i if back else i)
            for x, axis, back in zip(inputs, flags["input_axes"], flags["input_backward"], strict=True)
        ]
        found = inline(op, graph, [*states, *cuts])
        if until is not None:
            found = _counted(op, found, states, op.emit("lt", op.context.scalar(i, I64), until))
        states = found[: len(states)]
        rows.append(found[len(states) :])
    columns = [list(c) for c in zip(*rows, strict=True)]
    outputs = []
    for column, axis, back in zip(columns, flags["output_axes"], flags["output_backward"], strict=True):
        outputs.append(joined(op, column, axis % (column[0].type.rank + 1), bool(back)))
    return [*states, *outputs]


def _counted(op: Op, found: list[Tensor], before: list[Tensor], live: Value) -> list[Tensor]:
    """The results of a step where it counts, else the states as they were before and rows of zeros."""
    made = []
    for i, tensor in enumerate(found):
        value = op.context.value_of(tensor)
        other = op.context.value_of(before[i]) if i < len(before) else op.context.scalar(0, value.type.dtype)
        value = op.emit("select", live, value, other)
        made.append(Tensor(value.type, value))
    return made


def _rolled(
    op: Op, graph: onnx.GraphProto, states: list[Tensor], inputs: list[Value], length: Dim, flags: dict[str, Any]
) -> Sequence[Value]:
    context = op.context
    values = [context.value_of(t) for t in states]
    cut = [
        x.type.with_shape(tuple(np.delete(np.array(x.type.dims, object), axis)))
        for x, axis in zip(inputs, flags["input_axes"], strict=True)
    ]
    body = Body(op, graph, f"scan_{op.node.index}", [*(v.type for v in values), *cut])
    after = [v.type for v in body.values[: len(values)]]
    if after != [v.type for v in values]:
        body.drop()
        raise NoForm("the shapes of what the scan carries change at each step")
    stacked, axes = [], []
    for v, axis in zip(body.values[len(values) :], flags["output_axes"], strict=True):
        axis %= v.type.rank + 1
        axes.append(axis)
        stacked.append(v.type.with_shape((*v.type.dims[:axis], length, *v.type.dims[axis:])))
    attrs = {"body": body.name, "states": len(values), "scans": len(inputs)}
    attrs |= {**flags, "output_axes": tuple(axes)}
    order = ("body", "states", "scans", "input_axes", "input_backward", "output_axes", "output_backward")
    return context.state(
        "scan", [*values, *inputs, *body.captures().values()], {k: attrs[k] for k in order}, [*after, *stacked]
    )

"""Operands of broadcasting operators, made to fit where a size is known only when the model runs."""

from __future__ import annotations

from collections.abc import Sequence

from moec.frontend.onnx.context import Op
from moec.ir.graph import Value
from moec.ir.symbol import Dim


def fitted(op: Op, values: Sequence[Value]) -> list[Value]:
    """The operands, with sizes that data decides broadcast to the known size that they meet.

    A model that adds ``n0 + n1`` rows to ``2*T`` rows says that they are as many, or one: the result has ``2*T``, and
    it fails when it runs if that is not so. Two sizes that data decides meet when the model runs.
    """
    facts = op.context.facts
    rank = max((v.type.rank for v in values), default=0)
    known: list[Dim] = [1] * rank
    for v in values:
        for i, d in enumerate(v.type.dims, rank - v.type.rank):
            if known[i] == 1 and not facts.is_runtime(d):
                known[i] = d
    return [_stated(op, v, known[rank - v.type.rank :]) for v in values]


def _stated(op: Op, value: Value, known: Sequence[Dim]) -> Value:
    facts = op.context.facts
    shape = tuple(w if facts.is_runtime(d) and w != 1 else d for d, w in zip(value.type.dims, known, strict=True))
    return value if shape == value.type.dims else op.emit("expand", value, shape=shape)


def reshaped(op: Op, value: Value, shape: Sequence[Dim]) -> Value:
    """The value under another shape; itself where it has it already."""
    return value if value.type.shape == tuple(shape) else op.emit("reshape", value, shape=tuple(shape))

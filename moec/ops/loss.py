"""Losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ir.data import ArrayData
from moec.ir.graph import Node, Value
from moec.ir.symbol import Shape
from moec.ir.types import F32
from moec.ops.registry import Types, op
from moec.ops.shapes import known
from moec.ops.tape import Gradients, Tape

Array = np.ndarray


@op("cross_entropy(logits: [*B, V], labels: [*B], *, ignore: int?) -> [*B]")
class CrossEntropy:
    """log(sum over v of exp(logits[..., v])) - logits[..., label] for each label, in f32; 0 where the label is
    ``ignore``.
    """

    dtype = "!f32"
    cost = "composite"

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        logits, labels = known(types)
        if not labels.dtype.is_int:
            raise ValueError(f"labels are integers, not {labels.dtype}")
        return [logits.dims[:-1]]

    @staticmethod
    def ref(logits: Array, labels: Array, *, ignore: int | None) -> Array:
        counted = np.ones(labels.shape, bool) if ignore is None else labels != ignore
        index = np.where(counted, labels, 0).astype(np.int64)
        if index.size and (index.min() < 0 or index.max() >= logits.shape[-1]):
            raise ValueError(f"labels lie outside 0 .. {logits.shape[-1] - 1}")
        shifted = logits - np.max(logits, axis=-1, keepdims=True)
        chosen = np.take_along_axis(shifted, index[..., None], axis=-1)[..., 0]
        return np.where(counted, np.log(np.sum(np.exp(shifted), axis=-1)) - chosen, 0)

    @staticmethod
    def grad(t: Tape, node: Node, *dys: Value | None) -> Gradients:
        """(softmax(logits) - one at the label) * dloss, exact zeros where the label is ``ignore``."""
        (dloss,), (logits, labels), ignore = dys, node.operands, node.attrs["ignore"]
        assert dloss is not None and logits is not None and labels is not None
        wide = t.wide(logits)
        lead, axis = labels.type.dims, wide.type.rank - 1
        if ignore is not None:
            ignored = t.constant(value=ArrayData(np.array(ignore, labels.type.dtype.carrier), labels.type.dtype))
            dloss = t.select(t.ne(labels, ignored), dloss, t.constant_of(0.0, F32))
        hit = t.one_hot(labels, depth=wide.type.dims[-1], axis=axis, dtype=wide.type.dtype)
        scale = t.cast_to(t.reshaped(dloss, (*lead, 1)), wide.type.dtype)
        return [t.narrow(t.mul(t.sub(t.softmax(wide, axis=axis), hit), scale), 0), None]

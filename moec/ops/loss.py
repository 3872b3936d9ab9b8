"""Losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ir.symbol import Shape
from moec.ops.registry import Types, op
from moec.ops.shapes import known

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

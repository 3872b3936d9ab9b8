"""Rotary position embedding (Su et al., arXiv 2104.09864) in the forms that models use."""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ir.symbol import Shape
from moec.ops.registry import Types, op
from moec.ops.shapes import known, replaced

Array = np.ndarray
LAYOUTS = ("half", "interleaved", "interleaved_to_half")


@op("rope(x: any, cos: any, sin: any, *, rotary_dim: int, layout: str) -> any")
class Rope:
    """Rotates pairs of the first rotary_dim = R elements of x's last dimension; the rest passes through.

    Pair i is (x[i], x[i + R/2]) for layout "half" and (x[2i], x[2i+1]) for "interleaved"; (a, b) becomes
    (a cos - b sin, b cos + a sin). "interleaved_to_half" reads interleaved pairs and writes the results in halves
    (DeepSeek-V3). cos and sin broadcast against x with R/2 elements last, or R: then a's and b's own in that order.
    """

    dtype = "x"
    cost = "vector"

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        rotary = attrs["rotary_dim"]
        if attrs["layout"] not in LAYOUTS:
            raise ValueError(f"layout '{attrs['layout']}' is none of {', '.join(LAYOUTS)}")
        x, *tables = known(types)
        if x.shape is None:
            return [None]
        width = x.dims[-1]
        if rotary % 2 or rotary <= 0 or (isinstance(width, int) and rotary > width):
            raise ValueError(f"rotary_dim {rotary} must be even, positive and at most {width}")
        for table in tables:
            if table.shape is not None and table.shape[-1] not in (rotary, rotary // 2):
                raise ValueError(
                    f"cos and sin have {table.shape[-1]} elements last, expected {rotary // 2} or {rotary}"
                )
        return [replaced(x.shape, len(x.shape) - 1, width)]

    @staticmethod
    def ref(x: Array, cos: Array, sin: Array, *, rotary_dim: int, layout: str) -> Array:
        half = rotary_dim // 2
        turned, kept = x[..., :rotary_dim], x[..., rotary_dim:]
        if layout == "half":
            a, b = turned[..., :half], turned[..., half:]
        else:
            a, b = turned[..., 0::2], turned[..., 1::2]
        cos_a, cos_b, sin_a, sin_b = cos[..., :half], cos[..., -half:], sin[..., :half], sin[..., -half:]
        first, second = a * cos_a - b * sin_a, b * cos_b + a * sin_b
        if layout == "interleaved":
            both = np.stack([first, second], axis=-1).reshape(*first.shape[:-1], rotary_dim)
        else:
            both = np.concatenate([first, second], axis=-1)
        return np.concatenate([both, np.broadcast_to(kept, (*both.shape[:-1], kept.shape[-1]))], axis=-1)

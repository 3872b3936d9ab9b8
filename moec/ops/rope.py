"""Rotary position embedding (Su et al., arXiv 2104.09864) in the forms that models use."""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ir.graph import Node, Value
from moec.ir.symbol import Shape
from moec.ops.registry import Types, op
from moec.ops.shapes import known, replaced
from moec.ops.tape import Gradients, Tape

Array = np.ndarray
LAYOUTS = ("half", "interleaved", "interleaved_to_half", "half_to_interleaved")


@op("rope(x: any, cos: any, sin: any, *, rotary_dim: int, layout: str) -> any")
class Rope:
    """Rotates pairs of the first rotary_dim = R elements of x's last dimension; the rest passes through.

    Pair i is (x[i], x[i + R/2]) for layout "half" and (x[2i], x[2i+1]) for "interleaved"; (a, b) becomes
    (a cos - b sin, b cos + a sin). "interleaved_to_half" reads interleaved pairs and writes the results in halves
    (DeepSeek-V3); "half_to_interleaved", its adjoint, the other way round. cos and sin broadcast against x with R/2
    elements last, or R: then a's and b's own in that order.
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
        if layout in ("half", "half_to_interleaved"):
            a, b = turned[..., :half], turned[..., half:]
        else:
            a, b = turned[..., 0::2], turned[..., 1::2]
        cos_a, cos_b, sin_a, sin_b = cos[..., :half], cos[..., -half:], sin[..., :half], sin[..., -half:]
        first, second = a * cos_a - b * sin_a, b * cos_b + a * sin_b
        if layout in ("interleaved", "half_to_interleaved"):
            both = np.stack([first, second], axis=-1).reshape(*first.shape[:-1], rotary_dim)
        else:
            both = np.concatenate([first, second], axis=-1)
        return np.concatenate([both, np.broadcast_to(kept, (*both.shape[:-1], kept.shape[-1]))], axis=-1)

    @staticmethod
    def grad(t: Tape, node: Node, *dys: Value | None) -> Gradients:
        (dy,), (x, cos, sin) = dys, (node.operand(i) for i in range(3))
        assert dy is not None
        found: list[Value | None] = [None, None, None]
        rotary, layout = node.attrs["rotary_dim"], node.attrs["layout"]
        if t.wanted(0):
            back = t.neg(sin if sin.type.dims[-1] != rotary else _swapped(t, sin))
            found[0] = t.rope(dy, cos, back, rotary_dim=rotary, layout=_ADJOINT.get(layout, layout))
        if t.wanted(1) or t.wanted(2):
            a, b = _pairs(t, t.wide(x), rotary, layout in ("half", "half_to_interleaved"))
            first, second = _pairs(t, t.wide(dy), rotary, layout in ("half", "interleaved_to_half"))
            found[1] = _table_grad(t, 1, cos, t.mul(first, a), t.mul(second, b))
            found[2] = _table_grad(t, 2, sin, t.neg(t.mul(first, b)), t.mul(second, a))
        return found


_ADJOINT = {"interleaved_to_half": "half_to_interleaved", "half_to_interleaved": "interleaved_to_half"}


def _swapped(t: Tape, table: Value) -> Value:
    """A table of R elements with those of a and of b exchanged."""
    axis, half = table.type.rank - 1, table.type.dims[-1] // 2
    parts = [t.slice(table, axis=axis, start=i * half, stop=(i + 1) * half, step=1) for i in (1, 0)]
    made: Value = t.concat(*parts, axis=axis)
    return made


def _pairs(t: Tape, x: Value, rotary: int, halves: bool) -> list[Value]:
    """The first and the second elements of x's pairs."""
    axis, half = x.type.rank - 1, rotary // 2
    if halves:
        return [t.slice(x, axis=axis, start=i, stop=i + half, step=1) for i in (0, half)]
    return [t.slice(x, axis=axis, start=i, stop=rotary, step=2) for i in (0, 1)]


def _table_grad(t: Tape, index: int, table: Value, of_a: Value, of_b: Value) -> Value | None:
    """The gradient of a table from those of a's and of b's elements; None where it is not wanted."""
    if not t.wanted(index):
        return None
    whole = table.type.dims[-1] == 2 * of_a.type.dims[-1]
    both = t.concat(of_a, of_b, axis=of_a.type.rank - 1) if whole else t.add(of_a, of_b)
    return t.narrow(t.summed(both, table), index)

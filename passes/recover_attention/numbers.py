"""Numbers in a graph: scalars that exporters spell as constants, weights of one element, or arithmetic on those."""

from __future__ import annotations

import numpy as np

from moec.ir.data import TensorData
from moec.ir.graph import Value
from moec.ops.registry import opdef

_ARITHMETIC = frozenset(("add", "sub", "mul", "div", "sqrt", "rsqrt", "reciprocal", "neg", "pow"))
_VIEWS = frozenset(("reshape", "expand", "cast", "transpose"))
DEPTH = 8
"""Longest chain of arithmetic that is followed."""


def contents(value: Value) -> TensorData | None:
    """The data of a constant or of a weight that has data."""
    node = value.producer
    if node is None or node.op not in ("constant", "weight"):
        return None
    data: TensorData | None = node.attrs["value" if node.op == "constant" else "data"]
    return data


def scalar(value: Value, depth: int = DEPTH) -> float | None:
    """The one number that all elements of ``value`` are, computed in f64; None where that is not known."""
    node = value.producer
    if node is None:
        return None
    data = contents(value)
    if data is not None:
        if data.size != 1 or not (data.dtype.is_float or data.dtype.is_int or data.dtype.kind == "bool"):
            return None
        return float(data.numpy().reshape(()).astype(np.float64))
    if node.op == "dims":
        sizes = node.attrs["values"]
        return float(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], int) else None
    if depth == 0 or node.op not in _ARITHMETIC | _VIEWS:
        return None
    if node.op == "cast" and not (value.type.dtype.is_float and node.operand(0).type.dtype.kind != "opaque"):
        return None
    if node.op == "div" and not value.type.dtype.is_float:
        return None
    known = [scalar(v, depth - 1) for v in node.operands if v is not None]
    if None in known:
        return None
    if node.op in _VIEWS:
        return known[0]
    with np.errstate(all="ignore"):
        return float(opdef(node.op).ref(*[np.float64(k) for k in known if k is not None], **node.attrs))

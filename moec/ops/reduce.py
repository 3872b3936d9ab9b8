"""Reductions, softmax and scans. ``axes`` are non-negative and ascending. Sums accumulate in the compute dtype (f32
for 16-bit).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from moec.ir.symbol import Shape
from moec.ops import reduce_grad as gradients
from moec.ops.registry import Types, op
from moec.ops.shapes import check_axis, known, shape_along_axis

Array = np.ndarray


def _reduced(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    if list(axes) != sorted(set(axes)):
        raise ValueError(f"axes {list(axes)} must be ascending and distinct")
    for axis in axes:
        check_axis(axis, len(shape))
    return tuple(1 if i in axes else d for i, d in enumerate(shape) if keepdims or i not in axes)


def _reduce_shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
    shape = known(types)[0].shape
    return [None if shape is None else _reduced(shape, attrs["axes"], attrs["keepdims"])]


def _reducer(fn: Callable[..., Array]) -> Callable[..., Array]:
    def ref(x: Array, *, axes: tuple[int, ...], keepdims: bool) -> Array:
        if x.dtype.kind == "f":
            return np.asarray(fn(x, axis=axes, keepdims=keepdims), x.dtype)
        return np.asarray(fn(x, axis=axes, keepdims=keepdims)).astype(x.dtype, copy=False)

    return ref


def _max(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    low = -np.inf if x.dtype.kind == "f" else (False if x.dtype.kind == "b" else np.iinfo(x.dtype).min)
    return np.max(x, axis=axis, keepdims=keepdims, initial=low)


def _min(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    high = np.inf if x.dtype.kind == "f" else (True if x.dtype.kind == "b" else np.iinfo(x.dtype).max)
    return np.min(x, axis=axis, keepdims=keepdims, initial=high)


def _mean(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    with np.errstate(all="ignore"):
        count = np.prod([x.shape[a] for a in axis])
        return np.asarray(np.sum(x, axis=axis, keepdims=keepdims) / x.dtype.type(count))


_REDUCTIONS: list[tuple[str, str, Callable[..., Array], str]] = [
    ("reduce_sum", "Sum over axes; 0 over none.", np.sum, "ReduceSum"),
    ("reduce_mean", "Mean over axes.", _mean, "ReduceMean"),
    ("reduce_max", "Maximum over axes; the dtype's lowest value over none.", _max, "ReduceMax"),
    ("reduce_min", "Minimum over axes; the dtype's highest value over none.", _min, "ReduceMin"),
    ("reduce_prod", "Product over axes; 1 over none.", np.prod, "ReduceProd"),
]
for _name, _doc, _fn, _onnx in _REDUCTIONS:
    op(f"{_name}(x: any, *, axes: ints, keepdims: bool) -> any")(
        type(
            _name,
            (),
            {
                "__doc__": _doc,
                "dtype": "x",
                "shape": staticmethod(_reduce_shape),
                "ref": staticmethod(_reducer(_fn)),
                "cost": "vector",
                "onnx": _onnx,
                "traits": ("reduction",),
                "grad": staticmethod(gradients.GRADS[_name]),
            },
        )
    )


def _arg_shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
    shape = known(types)[0].shape
    return [None if shape is None else _reduced(shape, (attrs["axis"],), attrs["keepdims"])]


def _arg(pick: Callable[..., Array]) -> Callable[..., Array]:
    def ref(x: Array, *, axis: int, keepdims: bool, last: bool) -> Array:
        if not last:
            return pick(x, axis=axis, keepdims=keepdims)
        return x.shape[axis] - 1 - pick(np.flip(x, axis), axis=axis, keepdims=keepdims)

    return ref


for _name, _pick, _onnx in [("argmax", np.argmax, "ArgMax"), ("argmin", np.argmin, "ArgMin")]:
    op(f"{_name}(x: any, *, axis: int, keepdims: bool, last: bool) -> any")(
        type(
            _name,
            (),
            {
                "__doc__": f"Index of the {_name[3:]}imum along axis; of equals the first, with ``last`` the last.",
                "dtype": "!i64",
                "shape": staticmethod(_arg_shape),
                "ref": staticmethod(_arg(_pick)),
                "cost": "vector",
                "onnx": _onnx,
                "traits": ("index",),
                "nondiff": "an index choice",
            },
        )
    )


def softmax(x: Array, *, axis: int) -> Array:
    """e^(x - max) / sum, NaN-free for finite x; a row of -inf gives NaN, as IEEE arithmetic does."""
    with np.errstate(invalid="ignore"):
        e = np.exp(x - _max(x, (axis,), True))
        return e / np.sum(e, axis=axis, keepdims=True)


@op("softmax(x: any, *, axis: int) -> any")
class Softmax:
    """e^(x - max(x)) / sum(e^(x - max(x))) along axis."""

    dtype = "x"
    shape = staticmethod(shape_along_axis)
    ref = staticmethod(softmax)
    cost = "vector"
    onnx = "Softmax"
    traits = ("reduction",)
    grad = staticmethod(gradients.softmax)


@op("log_softmax(x: any, *, axis: int) -> any")
class LogSoftmax:
    """x - max(x) - log(sum(e^(x - max(x)))) along axis."""

    dtype = "x"
    shape = staticmethod(shape_along_axis)
    cost = "vector"
    onnx = "LogSoftmax"
    traits = ("reduction",)
    grad = staticmethod(gradients.log_softmax)

    @staticmethod
    def ref(x: Array, *, axis: int) -> Array:
        shifted = x - np.max(x, axis=axis, keepdims=True)
        return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


@op("cumsum(x: any, *, axis: int, exclusive: bool, reverse: bool) -> any")
class CumSum:
    """Running sum along axis; ``exclusive`` leaves out the element itself, ``reverse`` runs from the end."""

    dtype = "x"
    shape = staticmethod(shape_along_axis)
    cost = "vector"
    onnx = "CumSum"
    grad = staticmethod(gradients.cumsum)

    @staticmethod
    def ref(x: Array, *, axis: int, exclusive: bool, reverse: bool) -> Array:
        y = np.flip(x, axis) if reverse else x
        total = np.cumsum(y, axis=axis, dtype=y.dtype)
        if exclusive:
            total = np.roll(total, 1, axis)
            total[(slice(None),) * axis + (slice(0, 1),)] = 0
        return np.flip(total, axis) if reverse else total

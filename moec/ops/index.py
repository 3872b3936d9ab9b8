"""Gather, scatter, top-k, sort, one-hot, nonzero and histogram.

Indices are integers; negative ones count from the end as in numpy; out of range is a ValueError. ``topk`` and
``argsort`` are stable: of
equal elements the lower index comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from moec.ir.symbol import Shape
from moec.ir.types import DType
from moec.ops import index_grad as gradients
from moec.ops.registry import Types, op
from moec.ops.shapes import check_axis, known, replaced, same_shape, shape_along_axis

Array = np.ndarray


def _normal(indices: Array, size: int) -> Array:
    if indices.size and (indices.min() < -size or indices.max() >= size):
        raise ValueError(f"index out of range: [{indices.min()}, {indices.max()}] into {size} elements")
    return np.where(indices < 0, indices + size, indices)


def _integers(types: Types, position: int) -> None:
    t = known(types)[position]
    if not t.dtype.is_int:
        raise ValueError(f"indices must be integers, got {t}")


@op("gather(x: any, indices: any, *, axis: int) -> any")
class Gather:
    """Slices of x along axis at indices: result[..., i..., ...] = x[..., indices[i...], ...]."""

    dtype = "x"
    cost = "copy"
    onnx = "Gather"
    grad = staticmethod(gradients.gather)

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        _integers(types, 1)
        x, i, axis = known(types)[0].shape, known(types)[1].shape, attrs["axis"]
        if x is None or i is None:
            return [None]
        check_axis(axis, len(x))
        return [(*x[:axis], *i, *x[axis + 1 :])]

    @staticmethod
    def ref(x: Array, indices: Array, *, axis: int) -> Array:
        return np.take(x, _normal(indices, x.shape[axis]), axis=axis)


@op("gather_elements(x: any, indices: any, *, axis: int) -> any")
class GatherElements:
    """result[i, j, ...] = x[i, indices[i, j, ...], ...] with the index standing at axis."""

    dtype = "x"
    cost = "copy"
    onnx = "GatherElements"
    grad = staticmethod(gradients.gather_elements)

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        _integers(types, 1)
        x, i = known(types)[0].shape, known(types)[1].shape
        if x is not None and i is not None and len(x) != len(i):
            raise ValueError(f"gather_elements of {known(types)[0]} at {known(types)[1]}: ranks differ")
        shape_along_axis(types, attrs)
        return [i]

    @staticmethod
    def ref(x: Array, indices: Array, *, axis: int) -> Array:
        grid: list[Array] = list(np.indices(indices.shape, sparse=True))
        grid[axis] = _normal(indices, x.shape[axis])
        return x[tuple(grid)]


def _nd_tail(types: Types, batch_dims: int) -> tuple[Shape, Shape] | None:
    x, i = known(types)[0].shape, known(types)[1].shape
    if x is None or i is None:
        return None
    depth = i[-1] if i else 0
    if not isinstance(depth, int) or batch_dims + depth > len(x):
        raise ValueError(f"index tuples of length {depth} into {known(types)[0]} (batch_dims {batch_dims})")
    return i[:-1], x[batch_dims + depth :]


@op("gather_nd(x: any, indices: any, *, batch_dims: int) -> any")
class GatherND:
    """result[b..., i...] = x[b..., indices[b..., i..., :], ...]: the last dimension of indices is an index tuple."""

    dtype = "x"
    cost = "copy"
    onnx = "GatherND"
    grad = staticmethod(gradients.gather_nd)

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        _integers(types, 1)
        parts = _nd_tail(types, attrs["batch_dims"])
        return [None if parts is None else (*parts[0], *parts[1])]

    @staticmethod
    def ref(x: Array, indices: Array, *, batch_dims: int) -> Array:
        return x[_nd_index(x, indices, batch_dims)]


def _nd_index(x: Array, indices: Array, batch_dims: int) -> tuple[Array, ...]:
    lead = indices.shape[:-1]
    sparse: tuple[Array, ...] = np.indices(lead, sparse=True)
    grid = [np.broadcast_to(g, lead) for g in sparse[:batch_dims]]
    return (*grid, *(_normal(indices[..., j], x.shape[batch_dims + j]) for j in range(indices.shape[-1])))


_COMBINE: dict[str, Callable[..., None]] = {
    "none": lambda out, index, updates: out.__setitem__(index, updates),
    "add": np.add.at,
    "mul": np.multiply.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
}


def _scatter(x: Array, index: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    out = x.copy()
    _COMBINE[reduction](out, index, updates)
    return out


def _check_reduction(attrs: dict[str, Any]) -> None:
    if attrs["reduction"] not in _COMBINE:
        raise ValueError(f"reduction '{attrs['reduction']}' is none of {', '.join(_COMBINE)}")


@op("scatter_elements(x: any, indices: any, updates: any, *, axis: int, reduction: str) -> any")
class ScatterElements:
    """x with result[.., indices[.., j, ..], ..] combined with updates[.., j, ..] along axis; in order of updates
    where an index repeats.
    """

    dtype = "x"
    cost = "copy"
    onnx = "ScatterElements"
    grad = staticmethod(gradients.scatter_elements)

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        _integers(types, 1)
        _check_reduction(attrs)
        return shape_along_axis(types, attrs)

    @staticmethod
    def ref(x: Array, indices: Array, updates: Array, *, axis: int, reduction: str) -> Array:
        grid = list(np.broadcast_arrays(*np.indices(indices.shape, sparse=True))) if indices.ndim else []
        grid[axis] = _normal(indices, x.shape[axis])
        return _scatter(x, tuple(grid), updates, reduction)


@op("scatter_nd(x: any, indices: any, updates: any, *, reduction: str) -> any")
class ScatterND:
    """x with result[indices[i..., :], ...] combined with updates[i..., ...]; in order where an index tuple repeats."""

    dtype = "x"
    cost = "copy"
    onnx = "ScatterND"
    grad = staticmethod(gradients.scatter_nd)

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        _integers(types, 1)
        _check_reduction(attrs)
        _nd_tail(types, 0)
        return same_shape(types, attrs)

    @staticmethod
    def ref(x: Array, indices: Array, updates: Array, *, reduction: str) -> Array:
        return _scatter(x, _nd_index(x, indices, 0), updates, reduction)


@op("one_hot(indices: any, *, depth: dim, axis: int, dtype: dtype) -> any")
class OneHot:
    """1 where the position along the new dimension ``axis`` equals the index, else 0; an index out of range gives all
    zeros, negative ones count from the end.
    """

    dtype = "=dtype"
    cost = "vector"
    nondiff = "an index choice"

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        _integers(types, 0)
        shape, axis = known(types)[0].shape, attrs["axis"]
        if shape is None:
            return [None]
        check_axis(axis, len(shape) + 1)
        return [(*shape[:axis], attrs["depth"], *shape[axis:])]

    @staticmethod
    def ref(indices: Array, *, depth: int, axis: int, dtype: DType) -> Array:
        wrapped = np.where(indices < 0, indices + depth, indices)
        return (np.expand_dims(wrapped, axis) == np.arange(depth).reshape((-1,) + (1,) * (indices.ndim - axis))).astype(
            dtype.carrier
        )


@op("nonzero(x: any, *, count: dim) -> any")
class NonZero:
    """Indices of the non-zero elements in row-major order, one column each; ``count`` names how many there are (known
    when run).
    """

    dtype = "!i64"
    cost = "vector"
    onnx = "NonZero"
    nondiff = "an index choice"

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        return [(known(types)[0].rank, attrs["count"])]

    @staticmethod
    def ref(x: Array, *, count: int | None) -> Array:
        return np.stack(np.nonzero(np.atleast_1d(x))).astype(np.int64)[: max(x.ndim, 0)]


def _order_keys(x: Array, descending: bool) -> Array:
    """Keys whose ascending stable order is the wanted one: NaN counts as the largest element."""
    if not descending:
        return x
    if x.dtype.kind == "f":
        return -x
    return np.invert(x) if x.dtype.kind in "iu" else ~x


def stable_argsort(x: Array, axis: int, descending: bool) -> Array:
    """Indices that sort x along axis; equal elements keep their order."""
    keys = _order_keys(x, descending)
    order = np.argsort(keys, axis=axis, kind="stable")
    if descending and x.dtype.kind == "f" and np.isnan(x).any():
        first = np.argsort(~np.isnan(np.take_along_axis(x, order, axis)), axis=axis, kind="stable")
        order = np.take_along_axis(order, first, axis)
    return order.astype(np.int64, copy=False)


@op("topk(x: any, *, k: dim, axis: int, largest: bool, sorted: bool) -> (values: any, indices: any)")
class TopK:
    """The k largest (or smallest) elements along axis and their indices, in order; of equal elements the lower index
    comes first.
    """

    dtype = ("x", "!i64")
    cost = "vector"
    onnx = "TopK"
    grad = staticmethod(gradients.topk)
    traits = ("index",)

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        shape, axis, k = known(types)[0].shape, attrs["axis"], attrs["k"]
        if shape is None:
            return [None, None]
        size = shape[check_axis(axis, len(shape))]
        if isinstance(size, int) and isinstance(k, int) and not 0 <= k <= size:
            raise ValueError(f"top {k} of a dimension of {size}")
        return [replaced(shape, axis, k)] * 2

    @staticmethod
    def ref(x: Array, *, k: int, axis: int, largest: bool, sorted: bool) -> tuple[Array, Array]:
        order = np.take(stable_argsort(x, axis, largest), np.arange(k), axis=axis)
        return np.take_along_axis(x, order, axis), order


@op("argsort(x: any, *, axis: int, descending: bool) -> any")
class ArgSort:
    """Indices that sort x along axis; stable."""

    dtype = "!i64"
    shape = staticmethod(shape_along_axis)
    cost = "vector"
    nondiff = "an index choice"

    @staticmethod
    def ref(x: Array, *, axis: int, descending: bool) -> Array:
        return stable_argsort(x, axis, descending)


@op("histogram(x: any, *, bins: dim) -> any")
class Histogram:
    """How many elements of x equal 0, 1, ..., bins-1; others are not counted."""

    dtype = "!i32"
    cost = "vector"
    nondiff = "a count"

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        _integers(types, 0)
        return [(attrs["bins"],)]

    @staticmethod
    def ref(x: Array, *, bins: int) -> Array:
        flat = x.ravel().astype(np.int64)
        return np.bincount(flat[(flat >= 0) & (flat < bins)], minlength=bins).astype(np.int32)

"""Ops that move or view elements without computing: reshape, transpose, concat, slice, pad, expand, tile, trilu."""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ir.symbol import Dim, Shape, ceildiv
from moec.ops import shape_grad as gradients
from moec.ops.registry import Types, op
from moec.ops.shapes import check_axis, common_dtype, known, replaced, same_shape

Array = np.ndarray


def _numel(shape: Shape) -> Dim:
    total: Dim = 1
    for d in shape:
        total = total * d
    return total


@op("reshape(x: any, *, shape: dims) -> any")
class Reshape:
    """The same elements in row-major order under another shape."""

    dtype = "x"
    cost = "view"
    onnx = "Reshape"
    grad = staticmethod(gradients.reshape)
    traits = ("view",)

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        old, new = known(types)[0].shape, attrs["shape"]
        if old is not None:
            a, b = _numel(old), _numel(new)
            if isinstance(a, int) and isinstance(b, int) and a != b:
                raise ValueError(f"reshape of {known(types)[0]} ({a} elements) to {list(new)} ({b} elements)")
        return [new]

    @staticmethod
    def ref(x: Array, *, shape: tuple[int, ...]) -> Array:
        return x.reshape(shape)


@op("transpose(x: any, *, perm: ints) -> any")
class Transpose:
    """Result dimension i is x's dimension perm[i]."""

    dtype = "x"
    cost = "copy"
    onnx = "Transpose"
    grad = staticmethod(gradients.transpose)

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        shape, perm = known(types)[0].shape, attrs["perm"]
        if shape is not None and sorted(perm) != list(range(len(shape))):
            raise ValueError(f"perm {list(perm)} is no permutation of rank {len(shape)}")
        return [None if shape is None else tuple(shape[i] for i in perm)]

    @staticmethod
    def ref(x: Array, *, perm: tuple[int, ...]) -> Array:
        return np.transpose(x, perm)


@op("concat(xs...: any, *, axis: int) -> any")
class Concat:
    """The operands one after another along axis."""

    dtype = staticmethod(common_dtype)
    cost = "copy"
    onnx = "Concat"
    grad = staticmethod(gradients.concat)

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        shapes = [t.shape for t in known(types)]
        if not shapes:
            raise ValueError("concat of nothing")
        axis, first = attrs["axis"], shapes[0]
        if first is None or None in shapes:
            return [None]
        check_axis(axis, len(first))
        total: Dim = 0
        for s in shapes:
            assert s is not None
            if len(s) != len(first) or any(map(_differ, replaced(s, axis, 0), replaced(first, axis, 0))):
                raise ValueError(f"concat along axis {axis} of {' and '.join(map(str, known(types)))}")
            total = total + s[axis]
        return [replaced(first, axis, total)]

    @staticmethod
    def ref(*xs: Array, axis: int) -> Array:
        return np.concatenate(xs, axis=axis)


def _short(wanted: Dim, own: Dim) -> bool:
    """Whether a dimension of ``own`` is no broadcast to ``wanted``, whatever the symbols are."""
    return own not in (1, wanted) and (isinstance(own, int) or wanted == 1)


def _differ(a: Dim, b: Dim) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a != b


@op("slice(x: any, *, axis: int, start: dim, stop: dim, step: int) -> any")
class Slice:
    """Elements start, start+step, ... below stop along axis; 0 <= start <= stop <= size and step >= 1."""

    dtype = "x"
    cost = "copy"
    onnx = "Slice"
    grad = staticmethod(gradients.slice)

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        shape = known(types)[0].shape
        axis, start, stop, step = attrs["axis"], attrs["start"], attrs["stop"], attrs["step"]
        if shape is None:
            return [None]
        size = shape[check_axis(axis, len(shape))]
        numbers = [d for d in (start, stop, size) if isinstance(d, int)]
        if step < 1 or sorted(numbers) != numbers or (numbers and numbers[0] < 0):
            raise ValueError(f"slice [{start}:{stop}:{step}] of a dimension of {size}")
        return [replaced(shape, axis, ceildiv(stop - start, step))]

    @staticmethod
    def ref(x: Array, *, axis: int, start: int, stop: int, step: int) -> Array:
        return x[(slice(None),) * axis + (slice(start, stop, step),)]


@op("pad(x: any, *, before: dims, after: dims, value: float) -> any")
class Pad:
    """x surrounded by ``value``: before[i] elements ahead of dimension i and after[i] behind it."""

    dtype = "x"
    cost = "copy"
    onnx = "Pad"
    grad = staticmethod(gradients.pad)

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        shape, before, after = known(types)[0].shape, attrs["before"], attrs["after"]
        if shape is None:
            return [None]
        if not len(shape) == len(before) == len(after):
            raise ValueError(f"pad of rank {len(shape)} by {list(before)} and {list(after)}")
        return [tuple(b + d + a for b, d, a in zip(before, shape, after, strict=True))]

    @staticmethod
    def ref(x: Array, *, before: tuple[int, ...], after: tuple[int, ...], value: float) -> Array:
        return np.pad(x, tuple(zip(before, after, strict=True)), constant_values=x.dtype.type(value))


@op("expand(x: any, *, shape: dims) -> any")
class Expand:
    """x broadcast to shape, as numpy's broadcast_to; whether two different symbols fit, the run tells."""

    dtype = "x"
    cost = "copy"
    onnx = "Expand"
    grad = staticmethod(gradients.expand)

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        shape, target = known(types)[0].shape, attrs["shape"]
        lead = 0 if shape is None else len(target) - len(shape)
        if shape is not None and (lead < 0 or any(map(_short, target[lead:], shape))):
            raise ValueError(f"expand of {known(types)[0]} to {list(target)}")
        return [target]

    @staticmethod
    def ref(x: Array, *, shape: tuple[int, ...]) -> Array:
        return np.broadcast_to(x, shape)


@op("tile(x: any, *, repeats: dims) -> any")
class Tile:
    """x repeated repeats[i] times along dimension i."""

    dtype = "x"
    cost = "copy"
    onnx = "Tile"
    grad = staticmethod(gradients.tile)

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        shape, repeats = known(types)[0].shape, attrs["repeats"]
        if shape is not None and len(shape) != len(repeats):
            raise ValueError(f"tile of rank {len(shape)} by {list(repeats)}")
        return [None if shape is None else tuple(d * r for d, r in zip(shape, repeats, strict=True))]

    @staticmethod
    def ref(x: Array, *, repeats: tuple[int, ...]) -> Array:
        return np.tile(x, repeats)


@op("trilu(x: any, *, upper: bool, k: int) -> any")
class Trilu:
    """The upper or lower triangle of the last two dimensions from diagonal k on; zeros elsewhere."""

    dtype = "x"
    shape = staticmethod(same_shape)
    cost = "vector"
    onnx = "Trilu"
    grad = staticmethod(gradients.trilu)

    @staticmethod
    def ref(x: Array, *, upper: bool, k: int) -> Array:
        return np.triu(x, k) if upper else np.tril(x, k)

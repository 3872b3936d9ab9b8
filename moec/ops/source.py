"""Ops without tensor operands: constants, weights, sizes as data, and number ranges; and calls of functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ir.data import TensorData
from moec.ir.graph import Node, Value
from moec.ir.symbol import Shape
from moec.ir.types import DType
from moec.ops.registry import Types, op
from moec.ops.shapes import common_dtype
from moec.ops.tape import Gradients, Tape, no_grad

Array = np.ndarray


@op("constant(*, value: tensor) -> any")
class Constant:
    """A tensor known at compile time."""

    cost = "view"
    traits = ("source",)
    nondiff = "no operand"

    @staticmethod
    def dtype(types: Types, attrs: dict[str, Any]) -> DType:
        found: DType = attrs["value"].dtype
        return found

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        return [attrs["value"].shape]

    @staticmethod
    def ref(*, value: TensorData) -> Array:
        return value.numpy()


@op("weight(*, name: str, dtype: dtype, shape: dims, data: tensor? = None) -> any")
class Weight:
    """A parameter of the layer. ``data`` holds its numbers where the source had them; else they are given by name
    when it runs.
    """

    dtype = "=dtype"
    cost = "view"
    traits = ("source",)
    nondiff = "no operand"

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        data = attrs["data"]
        if data is not None and (data.shape != attrs["shape"] or data.dtype is not attrs["dtype"]):
            raise ValueError(
                f"weight '{attrs['name']}' is {attrs['dtype']}{list(attrs['shape'])} but its data is {data}"
            )
        return [attrs["shape"]]

    @staticmethod
    def ref(*, name: str, dtype: DType, shape: tuple[int, ...], data: TensorData | None) -> Array:
        if data is None:
            raise ValueError(f"weight '{name}' has no data; give it among the inputs")
        return data.numpy()


@op("dims(*, values: dims, scalar: bool) -> any")
class Dims:
    """Sizes as data: i64[n], or i64[] for the single one if ``scalar``."""

    dtype = "!i64"
    cost = "scalar"
    traits = ("source",)
    nondiff = "sizes"

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        if attrs["scalar"] and len(attrs["values"]) != 1:
            raise ValueError(f"scalar dims of {len(attrs['values'])} values")
        return [() if attrs["scalar"] else (len(attrs["values"]),)]

    @staticmethod
    def ref(*, values: tuple[int, ...], scalar: bool) -> Array:
        return np.array(values[0] if scalar else values, np.int64)


@op("iota(*, size: dim, dtype: dtype) -> [n]")
class Iota:
    """0, 1, ..., size-1."""

    dtype = "=dtype"
    cost = "vector"
    traits = ("source",)
    nondiff = "no operand"

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        return [(attrs["size"],)]

    @staticmethod
    def ref(*, size: int, dtype: DType) -> Array:
        return np.arange(size).astype(dtype.carrier)


@op("range(start: [], limit: [], delta: [], *, count: dim) -> [n]")
class Range:
    """start, start+delta, ... before limit; ``count`` names how many there are (known when run)."""

    dtype = staticmethod(common_dtype)
    cost = "vector"
    onnx = "Range"

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        return [(attrs["count"],)]

    @staticmethod
    def ref(start: Array, limit: Array, delta: Array, *, count: int | None) -> Array:
        n = max(0, int(np.ceil((limit - start) / delta)))
        return start + np.arange(n).astype(start.dtype) * delta

    @staticmethod
    def grad(t: Tape, node: Node, *dys: Value | None) -> Gradients:
        """The sum of dy for start; that of dy times position for delta; none for limit."""
        dy = dys[0]
        assert dy is not None
        dy = t.wide(dy)
        found: list[Value | None] = [None] * 3
        if t.wanted(0):
            found[0] = t.narrow(t.reduce_sum(dy, axes=(0,), keepdims=False), 0)
        if t.wanted(2):
            steps = t.mul(dy, t.iota(size=dy.type.dims[0], dtype=dy.type.dtype))
            found[2] = t.narrow(t.reduce_sum(steps, axes=(0,), keepdims=False), 2)
        return found


@op("call(xs...: any, *, fn: fn) -> any")
class Call:
    """The results of the module's function ``fn``; typed by it."""

    dtype = "xs"
    cost = "composite"
    traits = ("call",)
    grad = no_grad("autodiff differentiates the function")

    @staticmethod
    def ref(*xs: Array, fn: str) -> Array:
        raise ValueError(f"the evaluator runs function {fn}, not this reference")


@op("fused(xs...: any, *, fn: fn) -> any")
class Fused:
    """The results of the module's function ``fn``, run as one vector kernel; typed by it."""

    dtype = "xs"
    cost = "vector"
    traits = ("call",)
    grad = no_grad("autodiff differentiates the function's nodes")

    @staticmethod
    def ref(*xs: Array, fn: str) -> Array:
        raise ValueError(f"the evaluator runs function {fn}, not this reference")

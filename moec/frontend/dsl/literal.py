"""Numbers as tensors: a literal beside a tensor, and ``tensor([...], dtype)``.

A number beside a tensor takes the tensor's dtype. A float is rounded to it, beside a float tensor only. An integer must
be one that the dtype holds exactly, so ``2 * x`` is fine for every float tensor and ``257 * x`` is refused for a bf16
one, which would make it 256. ``true`` and ``false`` go with bool tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.frontend.dsl.values import Item
from moec.ir.data import ArrayData
from moec.ir.types import DType


def scalar(value: Item, dtype: DType) -> ArrayData:
    """The scalar of ``dtype`` that the literal stands for; ValueError where it is not one."""
    return ArrayData(np.array(_number(value, dtype), dtype.carrier), dtype)


def array(items: Item, dtype: DType) -> ArrayData:
    """The tensor that nested lists of numbers spell; ValueError for ragged ones and for numbers that do not fit."""
    if dtype.kind == "opaque":
        raise ValueError(f"there are no numbers of dtype {dtype}")
    shape = _shape(items)
    flat = [_number(x, dtype) for x in _flat(items)]
    return ArrayData(np.array(flat, dtype.carrier).reshape(shape), dtype)


def _shape(items: Item) -> tuple[int, ...]:
    shape: list[int] = []
    while isinstance(items, tuple):
        shape.append(len(items))
        if not items:
            break
        items = items[0]
    return tuple(shape)


def _flat(items: Item) -> list[Item]:
    """The numbers in row-major order; ValueError where two rows differ in length or depth."""
    if not isinstance(items, tuple):
        return [items]
    shapes = {_shape(i) for i in items}
    if len(shapes) > 1:
        raise ValueError("the rows of a tensor differ in length")
    return [x for i in items for x in _flat(i)]


def _number(value: Item, dtype: DType) -> Any:
    if isinstance(value, bool) or dtype.kind == "bool":
        if not (isinstance(value, bool) and dtype.kind == "bool"):
            raise ValueError(f"{_spelt(value)} is no number of dtype {dtype}")
        return value
    if isinstance(value, int):
        return _integer(value, dtype)
    if isinstance(value, float) and dtype.kind in ("float", "complex"):
        with np.errstate(over="ignore"):
            rounded = np.array(value).astype(dtype.carrier)
        if np.isfinite(value) and not np.isfinite(rounded.astype(np.complex128)):
            raise ValueError(f"{value!r} is beyond the largest {dtype}")
        return rounded
    raise ValueError(f"{_spelt(value)} is no number of dtype {dtype}")


def _integer(value: int, dtype: DType) -> Any:
    if dtype.is_int:
        low, high = (
            (0, 2**dtype.bits - 1) if dtype.kind == "uint" else (-(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1)
        )
        if not low <= value <= high:
            raise ValueError(f"{value} does not fit {dtype} ([{low}, {high}])")
        return value
    with np.errstate(over="ignore"):
        rounded = np.array(float(value)).astype(dtype.carrier)
    if not np.isfinite(rounded.astype(np.complex128)) or int(rounded.astype(np.complex128).real) != value:
        raise ValueError(
            f"{dtype} does not hold the integer {value} exactly; write {float(value)!r} to have it rounded"
        )
    return rounded


def _spelt(value: Item) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)

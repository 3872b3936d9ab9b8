"""Tensor contents that are not read until someone needs the numbers.

``ArrayData`` holds an array; ``FileData`` is a region of a file, mapped and not read; ``DerivedData`` is a layout
change
(stack, concat, transpose, reshape, slice) of others, done when the numbers are asked for. So stacking the weights of
256 experts costs
nothing at compile time, and a model with gigabytes of weights compiles without touching them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from moec.ir.types import DType, dtype_of

INLINE_ELEMENTS = 16
"""Constants of at most this many elements print inline; larger ones print as a key."""

HASHED_BYTES = 1 << 22
"""A derived tensor above this size is keyed by its recipe, so that printing it does not read it."""


class TensorData:
    """The contents of a tensor: ``dtype``, concrete ``shape``, ``numpy()`` for the numbers, ``key`` for identity."""

    __slots__ = ("dtype", "shape", "_key")

    def __init__(self, dtype: DType, shape: Sequence[int]):
        self.dtype = dtype
        self.shape = tuple(int(d) for d in shape)
        self._key: str | None = None

    def numpy(self) -> np.ndarray:
        """The numbers, in the dtype's numpy carrier. Callers must not write to the array."""
        raise NotImplementedError(f"{type(self).__name__} must say how to read itself")

    def _make_key(self) -> str:
        raise NotImplementedError(f"{type(self).__name__} must say what identifies it")

    @property
    def key(self) -> str:
        """Text that is equal exactly when dtype, shape and (as far as is known without reading files) content are."""
        if self._key is None:
            self._key = self._make_key()
        return self._key

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes on the host."""
        return self.size * self.dtype.carrier.itemsize

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, TensorData)
            and self.dtype is other.dtype
            and self.shape == other.shape
            and self.key == other.key
        )

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dtype}[{', '.join(map(str, self.shape))}])"


def _digest(array: np.ndarray) -> str:
    digest = hashlib.sha256(f"{array.dtype}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).tobytes())
    return "sha256:" + digest.hexdigest()[:16]


class ArrayData(TensorData):
    """Contents held in memory."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray, dtype: DType | None = None):
        super().__init__(dtype or dtype_of(array), array.shape)
        self.array = array

    def numpy(self) -> np.ndarray:
        return self.array

    def _make_key(self) -> str:
        if self.array.dtype == object:
            return "sha256:" + hashlib.sha256(repr(self.array.tolist()).encode()).hexdigest()[:16]
        return _digest(self.array)


class FileData(TensorData):
    """A region of a file, little-endian and dense, mapped when its numbers are asked for."""

    __slots__ = ("path", "offset")

    def __init__(self, path: Path, offset: int, dtype: DType, shape: Sequence[int]):
        super().__init__(dtype, shape)
        self.path, self.offset = path, offset

    def numpy(self) -> np.ndarray:
        if self.size == 0:
            return np.empty(self.shape, self.dtype.carrier)
        return np.memmap(self.path, self.dtype.carrier, "r", self.offset, self.shape)

    def _make_key(self) -> str:
        region = f"{self.path}@{self.offset}:{self.dtype}{self.shape}"
        return f"file:{self.offset}+{self.nbytes}:" + hashlib.sha256(region.encode()).hexdigest()[:16]


_LAYOUTS: dict[str, Callable[..., np.ndarray]] = {
    "stack": lambda parts: np.stack(parts),
    "concat": lambda parts, axis: np.concatenate(parts, axis=axis),
    "transpose": lambda parts, perm: np.transpose(parts[0], perm),
    "reshape": lambda parts, shape: parts[0].reshape(shape),
    "slice": lambda parts, axis, start, stop, step: parts[0][(slice(None),) * axis + (slice(start, stop, step),)],
}


class DerivedData(TensorData):
    """A layout change of other contents, carried out on reading. Small ones are carried out at once by ``derive``."""

    __slots__ = ("how", "parts", "params")

    def __init__(self, how: str, parts: tuple[TensorData, ...], params: dict[str, Any], shape: Sequence[int]):
        super().__init__(parts[0].dtype, shape)
        self.how, self.parts, self.params = how, parts, params

    def numpy(self) -> np.ndarray:
        return _LAYOUTS[self.how]([p.numpy() for p in self.parts], **self.params)

    def _make_key(self) -> str:
        if self.nbytes <= HASHED_BYTES:
            return _digest(self.numpy())
        recipe = repr((self.how, sorted(self.params.items()), [p.key for p in self.parts]))
        return "recipe:" + hashlib.sha256(recipe.encode()).hexdigest()[:16]


def derive(how: str, parts: Sequence[TensorData], **params: Any) -> TensorData:
    """A layout change of ``parts``: ``stack()``, ``concat(axis)``, ``transpose(perm)``, ``reshape(shape)`` or
    ``slice(axis, start, stop, step)`` with non-negative bounds and positive step. The shape is worked out here, the
    numbers when asked for."""
    first = parts[0].shape
    if how == "stack":
        shape: tuple[int, ...] = (len(parts), *first)
    elif how == "concat":
        axis = params["axis"]
        shape = (*first[:axis], sum(p.shape[axis] for p in parts), *first[axis + 1 :])
    elif how == "transpose":
        shape = tuple(first[i] for i in params["perm"])
    elif how == "slice":
        axis = params["axis"]
        count = len(range(*slice(params["start"], params["stop"], params["step"]).indices(first[axis])))
        shape = (*first[:axis], count, *first[axis + 1 :])
    else:
        shape = tuple(params["shape"])
    return DerivedData(how, tuple(parts), params, shape)

"""Writing tensor contents to a file without holding them in memory: piece by piece, zeros and holes left as holes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from moec.ir.data import ArrayData, DerivedData, FileData, TensorData, derive

PIECE = 1 << 24
"""Bytes that are in memory at once while a tensor is written."""


def write_elements(file: BinaryIO, data: TensorData) -> None:
    """Write the elements in row-major order at the file's position, and leave it behind them.

    A file whose last elements are zero must be truncated to its size afterwards: they are not written.
    """
    for piece in _pieces(data):
        if isinstance(piece, FileData):
            _copy(file, piece)
            continue
        raw = piece.view(np.uint8)
        if raw.any():
            file.write(raw.data)
        else:
            file.seek(raw.nbytes, os.SEEK_CUR)


def _pieces(data: TensorData) -> Iterator[FileData | np.ndarray]:
    """The elements in row-major order: regions of files, and arrays of about a piece's size."""
    if isinstance(data, FileData):
        yield data
        return
    if isinstance(data, DerivedData) and data.size:
        if data.how == "reshape":
            yield from _pieces(data.parts[0])
            return
        if data.how == "stack" or (data.how == "concat" and data.params["axis"] == 0):
            for part in data.parts:
                yield from _pieces(part)
            return
        if len(data.shape) > 1 and data.nbytes > PIECE and (rows := _rows(data)) is not None:
            for row in rows:
                yield from _pieces(row)
            return
    array = data.numpy().astype(data.dtype.carrier, copy=False)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False) if array.dtype.byteorder == ">" else array
    if array.ndim == 0 or array.nbytes <= PIECE:
        yield np.ascontiguousarray(array).reshape(-1)
        return
    step = max(1, PIECE * len(array) // array.nbytes)
    for i in range(0, len(array), step):
        yield np.ascontiguousarray(array[i : i + step]).reshape(-1)


def _rows(data: DerivedData) -> Iterator[TensorData] | None:
    """The entries along the first dimension, each derived by itself; None where that takes more than a part's entry."""
    if data.how == "concat":
        axis = data.params["axis"] - 1
        return (derive("concat", [_row(p, i) for p in data.parts], axis=axis) for i in range(data.shape[0]))
    perm = data.params.get("perm", (1,))
    if data.how == "transpose" and perm[0] == 0:
        inner = tuple(p - 1 for p in perm[1:])
        return (derive("transpose", [_row(data.parts[0], i)], perm=inner) for i in range(data.shape[0]))
    return None


def _row(data: TensorData, i: int) -> TensorData:
    if isinstance(data, DerivedData) and data.how == "stack":
        return data.parts[i]
    if isinstance(data, FileData):
        shape = data.shape[1:]
        size = data.nbytes // data.shape[0]
        return FileData(data.path, data.offset + i * size, data.dtype, shape)
    if isinstance(data, ArrayData):
        return ArrayData(data.array[i], data.dtype)
    return derive("reshape", [derive("slice", [data], axis=0, start=i, stop=i + 1, step=1)], shape=data.shape[1:])


def _copy(file: BinaryIO, region: FileData) -> None:
    """Copy a region of a file, holes as holes."""
    start, end = file.tell(), region.offset + region.nbytes
    with region.path.open("rb") as source:
        at = region.offset
        while at < end:
            at = _next(source, at, end)
            if at >= end:
                break
            stop = min(end, os.lseek(source.fileno(), at, os.SEEK_HOLE))
            source.seek(at)
            file.seek(start + at - region.offset)
            while at < stop:
                piece = source.read(min(PIECE, stop - at))
                if not piece:
                    raise OSError(f"{region.path} ends at {at}, bytes up to {end} are wanted")
                file.write(piece)
                at += len(piece)
    file.seek(start + region.nbytes)


def _next(source: BinaryIO, at: int, end: int) -> int:
    """Where the next bytes that are no hole begin."""
    try:
        return os.lseek(source.fileno(), at, os.SEEK_DATA)
    except OSError:
        return end

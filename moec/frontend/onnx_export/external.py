"""Weights in a file beside the model: laid out when the model is made, written piece by piece."""

from __future__ import annotations

from pathlib import Path

import onnx

from moec.ir.data import DerivedData, FileData, TensorData
from moec.ir.stream import write_elements

SMALLEST = 1024
"""Contents of fewer bytes stay in the model."""

ALIGNMENT = 4096
"""Where a tensor starts: runtimes map pages."""


def on_disk(data: TensorData) -> bool:
    """Whether part of it lies in a file, read or not."""
    if isinstance(data, DerivedData):
        return any(on_disk(p) for p in data.parts)
    return isinstance(data, FileData) and data.nbytes >= SMALLEST


class External:
    """The contents of a file ``location`` beside a model."""

    def __init__(self, location: str):
        self.location = location
        self.entries: list[tuple[int, TensorData]] = []
        """Where each tensor starts, in ascending order."""
        self._end = 0

    def takes(self, data: TensorData) -> bool:
        """Whether contents belong in the file."""
        return data.nbytes >= SMALLEST and data.dtype.bits >= 8 and data.dtype.name != "string"

    def add(self, data: TensorData, name: str) -> onnx.TensorProto:
        """Place for ``data``; the tensor ``name`` that refers to it."""
        start = -(-self._end // ALIGNMENT) * ALIGNMENT
        self._end = start + data.nbytes
        self.entries.append((start, data))
        proto = onnx.TensorProto(name=name, data_type=data.dtype.onnx, dims=data.shape)
        proto.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", self.location), ("offset", start), ("length", data.nbytes)):
            proto.external_data.add(key=key, value=str(value))
        return proto

    def write(self, path: Path) -> None:
        """Write the file. Zeros are left out as holes, and holes of source files are not read."""
        with path.open("wb") as file:
            for start, data in self.entries:
                file.seek(start)
                write_elements(file, data)
            file.truncate(self._end)

"""TensorProto contents as ``TensorData``: in-memory ones share the parsed bytes, external ones stay on disk.

Sizes are checked against the bytes that are there before anything is allocated, so a small header cannot ask for much.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from moec.ir.data import ArrayData, FileData, TensorData
from moec.ir.types import BY_ONNX, DType

MAX_ELEMENTS = 1 << 62
"""Above this many elements a byte count no longer fits 64 bits."""

_FIELDS = {
    "f32": "float_data",
    "c64": "float_data",
    "f64": "double_data",
    "c128": "double_data",
    "i64": "int64_data",
    "u64": "uint64_data",
    "u32": "uint64_data",
    "string": "string_data",
}
"""The typed field that holds a dtype's elements; int32_data where not listed."""


def onnx_dtype(number: int) -> DType:
    """The dtype of a TensorProto.DataType number; ValueError for one that moec does not know."""
    found = BY_ONNX.get(number)
    if found is None:
        raise ValueError(f"unknown dtype number {number}")
    return found


def tensor_data(proto: onnx.TensorProto, folder: Path | None) -> TensorData:
    """The contents of ``proto``.

    ``folder`` is where its external data may lie. ValueError says what is wrong with it.
    """
    element = onnx_dtype(proto.data_type)
    dims = tuple(proto.dims)
    if any(d < 0 for d in dims):
        raise ValueError(f"negative dimension in {list(dims)}")
    count = math.prod(dims)
    if count > MAX_ELEMENTS:
        raise ValueError(f"{list(dims)} has more elements than 64-bit offsets reach")
    if proto.HasField("segment"):
        raise ValueError("segmented tensors are not supported")
    if proto.data_location == onnx.TensorProto.EXTERNAL:
        return _external(proto, element, dims, folder)
    if element.name == "string":
        return _strings(proto, element, dims, count)
    if element.bits < 8:
        return _packed(proto, element, dims, count)
    if proto.HasField("raw_data"):
        raw = proto.raw_data
        wanted = count * element.bytes
        if len(raw) != wanted:
            raise ValueError(f"{len(raw)} bytes of data, but {element.name}{list(dims)} takes {wanted}")
        return ArrayData(np.frombuffer(raw, element.carrier).reshape(dims), element)
    return _typed(proto, element, dims, count)


def _typed(proto: onnx.TensorProto, element: DType, dims: tuple[int, ...], count: int) -> TensorData:
    field = getattr(proto, _FIELDS.get(element.name, "int32_data"))
    per = 2 if element.kind == "complex" else 1
    if len(field) != count * per:
        raise ValueError(f"{len(field)} elements of data, but {element.name}{list(dims)} has {count * per}")
    if element.is_float and element.bits <= 16:
        bits = np.array(field, np.uint16 if element.bits == 16 else np.uint8)
        array = bits.view(element.carrier)
    elif element.kind == "complex":
        array = np.array(field, np.float32 if element.bits == 64 else np.float64).view(element.carrier)
    else:
        array = np.array(field).astype(element.carrier)
    return ArrayData(array.reshape(dims), element)


def _strings(proto: onnx.TensorProto, element: DType, dims: tuple[int, ...], count: int) -> TensorData:
    if len(proto.string_data) != count:
        raise ValueError(f"{len(proto.string_data)} strings, but the shape {list(dims)} has {count}")
    array = np.empty(count, object)
    array[:] = [s.decode("utf-8", "surrogateescape") for s in proto.string_data]
    return ArrayData(array.reshape(dims), element)


def _packed(proto: onnx.TensorProto, element: DType, dims: tuple[int, ...], count: int) -> TensorData:
    wanted = (count * element.bits + 7) // 8
    held = len(proto.raw_data) if proto.HasField("raw_data") else len(proto.int32_data)
    if held != wanted:
        raise ValueError(f"{held} packed bytes of data, but {element.name}{list(dims)} takes {wanted}")
    return ArrayData(numpy_helper.to_array(proto).astype(element.carrier, copy=False), element)


def _external(proto: onnx.TensorProto, element: DType, dims: tuple[int, ...], folder: Path | None) -> TensorData:
    entries = {e.key: e.value for e in proto.external_data}
    location = entries.get("location", "")
    if not location or folder is None:
        raise ValueError("external data without a location")
    path = _inside(folder, location)
    offset, length = (_number(entries, key) for key in ("offset", "length"))
    wanted = (math.prod(dims) * element.bits + 7) // 8
    if length is not None and length != wanted:
        raise ValueError(f"external length {length}, but {element.name}{list(dims)} takes {wanted} bytes")
    size = path.stat().st_size
    start = offset or 0
    if start + wanted > size:
        raise ValueError(f"external data {location} has {size} bytes; bytes {start} to {start + wanted} are wanted")
    if element.bits < 8:
        with path.open("rb") as file:
            file.seek(start)
            held = onnx.TensorProto(data_type=proto.data_type, dims=dims, raw_data=file.read(wanted))
        return _packed(held, element, dims, math.prod(dims))
    return FileData(path, start, element, dims)


def _inside(folder: Path, location: str) -> Path:
    root = folder.resolve()
    try:
        path = (root / location).resolve()
        found = path.is_file()
    except (OSError, ValueError):
        raise ValueError(f"external data '{location[:200]}' is no name of a file") from None
    if Path(location).is_absolute() or not path.is_relative_to(root):
        raise ValueError(f"external data '{location}' lies outside the model's folder")
    if not found:
        raise ValueError(f"external data file '{location}' is missing beside the model")
    return path


def _number(entries: dict[str, str], key: str) -> int | None:
    text = entries.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError(f"external {key} is '{text}', not a number")
    return int(text)

"""Side files of IR texts: the contents of tensors that a text prints by key.

``tensors.safetensors`` holds the numbers. Tensors that are mapped from the input's own files, and layouts of such
tensors, are not copied: ``tensors.json`` says which file, offset and layout. Both are read without reading numbers.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from moec.diagnostics import Refusal, Where
from moec.ir.attrs import is_inline
from moec.ir.data import DerivedData, FileData, TensorData, derive
from moec.ir.graph import Module
from moec.ir.types import DTYPES

NUMBERS, RECIPES = "tensors.safetensors", "tensors.json"

_NAMES = {
    "f64": "F64", "f32": "F32", "f16": "F16", "bf16": "BF16", "i64": "I64", "i32": "I32", "i16": "I16", "i8": "I8",
    "u64": "U64", "u32": "U32", "u16": "U16", "u8": "U8", "bool": "BOOL", "f8e4m3fn": "F8_E4M3", "f8e5m2": "F8_E5M2",
}  # fmt: skip
"""Dtypes in a safetensors header (its format description); others are stored as raw bytes, dtype and shape in the
metadata.
"""


def tensors_of(modules: Iterable[Module]) -> dict[str, TensorData]:
    """Every tensor that the texts of ``modules`` print by key, in order of first use."""
    found: dict[str, TensorData] = {}
    for module in modules:
        for node in module.nodes():
            for value in node.attrs.values():
                if isinstance(value, TensorData) and not is_inline(value) and value.dtype.kind != "opaque":
                    found.setdefault(value.key, value)
    return found


def save(tensors: dict[str, TensorData], folder: Path, final: Path, whole: bool = False) -> None:
    """Write the side files of ``tensors`` into ``folder``, which will be renamed to ``final``: paths are kept relative
    to that. ``whole``: numbers are copied even where they are mapped from a file, so that the folder stands alone.
    """
    numbers: dict[str, TensorData] = {}
    recipes: dict[str, dict[str, Any]] = {}

    def visit(key: str, data: TensorData) -> None:
        if key in recipes or key in numbers:
            return
        if whole:
            numbers[key] = data
        elif isinstance(data, FileData):
            recipes[key] = _recipe(data) | {"path": os.path.relpath(data.path, final), "offset": data.offset}
        elif isinstance(data, DerivedData) and data.key.startswith("recipe:") and _mapped(data):
            for part in data.parts:
                visit(part.key, part)
            layout = {"how": data.how, "params": data.params, "parts": [p.key for p in data.parts]}
            recipes[key] = _recipe(data) | layout
        else:
            numbers[key] = data

    for key, data in tensors.items():
        visit(key, data)
    if numbers:
        _write(numbers, folder / NUMBERS)
    if recipes:
        (folder / RECIPES).write_text(json.dumps(recipes, indent=1) + "\n", encoding="utf-8")


def _recipe(data: TensorData) -> dict[str, Any]:
    return {"dtype": data.dtype.name, "shape": list(data.shape)}


def _mapped(data: TensorData) -> bool:
    if isinstance(data, DerivedData):
        return any(map(_mapped, data.parts))
    return isinstance(data, FileData)


def _write(numbers: dict[str, TensorData], path: Path) -> None:
    raw = {k: json.dumps(_recipe(d)) for k, d in numbers.items() if d.dtype.name not in _NAMES}
    header: dict[str, Any] = {"__metadata__": raw} if raw else {}
    at = 0
    for key, data in numbers.items():
        name = _NAMES.get(data.dtype.name)
        shape = list(data.shape) if name else [data.nbytes]
        header[key] = {"dtype": name or "U8", "shape": shape, "data_offsets": [at, at + data.nbytes]}
        at += data.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for data in numbers.values():
            file.write(np.ascontiguousarray(data.numpy()).tobytes())


def load(folder: Path) -> dict[str, TensorData]:
    """The tensors by key that side files in ``folder`` describe; empty where there are none. Refusal where one is
    damaged.
    """
    store: dict[str, TensorData] = {}
    try:
        if (folder / NUMBERS).is_file():
            _read_numbers(folder / NUMBERS, store)
        if (folder / RECIPES).is_file():
            _read_recipes(folder / RECIPES, store)
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        raise Refusal(f"damaged side file: {error}", Where(str(folder)), "compile the input again") from None
    return store


def _read_numbers(path: Path, store: dict[str, TensorData]) -> None:
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        size = path.stat().st_size
        if length > size:
            raise ValueError(f"{path.name} is truncated")
        header = json.loads(file.read(length))
    raw = header.pop("__metadata__", {})
    by_name = {v: k for k, v in _NAMES.items()}
    for key, entry in header.items():
        start, stop = entry["data_offsets"]
        if 8 + length + stop > size:
            raise ValueError(f"{path.name} is truncated")
        kind = json.loads(raw[key]) if key in raw else {"dtype": by_name[entry["dtype"]], "shape": entry["shape"]}
        store[key] = _keyed(FileData(path, 8 + length + start, DTYPES[kind["dtype"]], kind["shape"]), key)


def _read_recipes(path: Path, store: dict[str, TensorData]) -> None:
    for key, entry in json.loads(path.read_text(encoding="utf-8")).items():
        if "path" in entry:
            file = Path(os.path.normpath(path.parent / entry["path"]))
            data: TensorData = FileData(file, entry["offset"], DTYPES[entry["dtype"]], entry["shape"])
        else:
            params = {k: tuple(v) if isinstance(v, list) else v for k, v in entry["params"].items()}
            data = derive(entry["how"], [store[p] for p in entry["parts"]], **params)
        store[key] = _keyed(data, key)


def _keyed(data: TensorData, key: str) -> TensorData:
    """``data`` known by the key that the text prints, so that printing what was read gives the same text."""
    data._key = key
    return data

"""Side files: what is printed by key is read back with the same key, dtype, shape and numbers."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from moec import store
from moec.diagnostics import Refusal
from moec.ir.data import ArrayData, DerivedData, FileData, TensorData, derive
from moec.ir.graph import Graph, Module
from moec.ir.text import parse_module, print_module
from moec.ir.types import DTYPES
from moec.ops.build import Builder

RNG = np.random.default_rng(3)


def module_with(*tensors: TensorData) -> Module:
    module = Module()
    graph = module.add(Graph("main"))
    b = Builder(graph)
    values = [b.weight(name=f"w{i}", dtype=t.dtype, shape=t.shape, data=t) for i, t in enumerate(tensors)]
    graph.set_outputs(values, [f"y{i}" for i in range(len(values))])
    return module


def round_trip(module: Module, folder: Path) -> Module:
    text = print_module(module)
    store.save(store.tensors_of([module]), folder, folder)
    read = parse_module(text, store=store.load(folder))
    assert print_module(read) == text
    for a, b in zip(module.nodes(), read.nodes(), strict=True):
        mine, theirs = a.attrs["data"], b.attrs["data"]
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())
    return read


NAMES = ["f64", "f32", "f16", "bf16", "i64", "i8", "u8", "bool", "f8e4m3fn", "i4", "f8e5m2fnuz"]


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_number(name: str, tmp_path: Path) -> None:
    carrier = DTYPES[name].carrier
    array = RNG.integers(0, 2, (3, 4, 5)).astype(carrier)
    round_trip(module_with(ArrayData(array, DTYPES[name])), tmp_path)


def test_equal_bytes_of_another_shape_or_dtype_are_another_tensor(tmp_path: Path) -> None:
    zeros = np.zeros((4, 8), np.float32)
    tensors = [ArrayData(zeros), ArrayData(zeros.reshape(8, 4)), ArrayData(zeros.view(np.int32))]
    round_trip(module_with(*tensors), tmp_path)


def test_the_file_is_safetensors(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    array = RNG.standard_normal((4, 6)).astype(np.float32)
    data = ArrayData(array)
    store.save({data.key: data}, tmp_path, tmp_path)
    np.testing.assert_array_equal(load_file(tmp_path / store.NUMBERS)[data.key], array)


def test_mapped_tensors_are_referred_to_and_not_copied(tmp_path: Path) -> None:
    weights = tmp_path / "in" / "weights.bin"
    weights.parent.mkdir()
    array = RNG.standard_normal((2, 3, 1024, 512)).astype(np.float32)
    array.tofile(weights)
    parts = [FileData(weights, i * array[0].nbytes, DTYPES["f32"], array[0].shape) for i in range(2)]
    stacked = derive("stack", [derive("transpose", [p], perm=(0, 2, 1)) for p in parts])
    assert isinstance(stacked, DerivedData) and stacked.key.startswith("recipe:")
    folder = tmp_path / "out"
    folder.mkdir()
    round_trip(module_with(parts[0], stacked), folder)
    assert not (folder / store.NUMBERS).exists()
    assert sum(f.stat().st_size for f in folder.iterdir()) < 10_000


def test_a_moved_output_still_finds_relative_files(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    np.arange(32, dtype=np.float32).tofile(tmp_path / "a" / "w.bin")
    data = FileData(tmp_path / "a" / "w.bin", 0, DTYPES["f32"], (4, 8))
    (tmp_path / "a" / "out").mkdir()
    store.save({data.key: data}, tmp_path / "a" / "out", tmp_path / "a" / "out")
    (tmp_path / "a").rename(tmp_path / "b")
    found = store.load(tmp_path / "b" / "out")[data.key]
    np.testing.assert_array_equal(found.numpy().ravel(), np.arange(32, dtype=np.float32))


@pytest.mark.parametrize("cut", [0, 5, 60, -1])
def test_a_damaged_file_is_refused(cut: int, tmp_path: Path) -> None:
    data = ArrayData(np.ones((4, 8), ml_dtypes.bfloat16))
    store.save({data.key: data}, tmp_path, tmp_path)
    file = tmp_path / store.NUMBERS
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(Refusal, match="damaged side file"):
        store.load(tmp_path)

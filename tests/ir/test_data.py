"""Tensor contents: files are mapped and not read, layout changes are carried out on reading, keys identify."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest

from moec.ir.data import ArrayData, FileData, TensorData, derive
from moec.ir.types import BF16, F32, I64

GIB = 1 << 30


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    """A file of 3 GiB that takes no space: a hole, with a 7 at element 5 and a 9 at the end."""
    path = tmp_path / "weights.bin"
    with path.open("wb") as file:
        file.truncate(3 * GIB)
        file.seek(20)
        file.write(np.float32(7).tobytes())
        file.seek(3 * GIB - 4)
        file.write(np.float32(9).tobytes())
    return path


def _resident() -> int:
    """Bytes of memory in use by this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_file_data_is_mapped_at_its_offset(sparse: Path) -> None:
    data = FileData(sparse, 16, F32, (2, 3))
    assert data.numpy().tolist() == [[0, 7, 0], [0, 0, 0]]
    assert isinstance(data.numpy(), np.memmap)
    assert (data.size, data.nbytes) == (6, 24)


def test_regions_differ_by_file_offset_shape_and_dtype(tmp_path: Path) -> None:
    """Two folders may hold files of one name, and merging their weights would be silent."""
    data = FileData(tmp_path / "a" / "w.bin", 8, F32, (2, 3))
    assert data == FileData(tmp_path / "a" / "w.bin", 8, F32, (2, 3))
    others = [
        FileData(tmp_path / "b" / "w.bin", 8, F32, (2, 3)),
        FileData(tmp_path / "a" / "w.bin", 4, F32, (2, 3)),
        FileData(tmp_path / "a" / "w.bin", 8, F32, (3, 2)),
        FileData(tmp_path / "a" / "w.bin", 8, I64, (2, 3)),
    ]
    assert len({data.key, *(o.key for o in others)}) == 5 and all(o != data for o in others)


def test_an_empty_region_needs_no_file(tmp_path: Path) -> None:
    assert FileData(tmp_path / "missing", 0, BF16, (0, 4)).numpy().shape == (0, 4)


def test_three_gib_stack_and_transpose_without_being_read(sparse: Path) -> None:
    experts, rows, columns = 96, 2048, 4096
    size = rows * columns * 4
    assert experts * size == 3 * GIB
    before = _resident()
    parts = [FileData(sparse, e * size, F32, (rows, columns)) for e in range(experts)]
    stacked = derive("stack", [derive("transpose", [p], perm=(1, 0)) for p in parts])
    whole = derive("reshape", [stacked], shape=(experts * columns, rows))
    assert stacked.shape == (experts, columns, rows) and whole.nbytes == 3 * GIB
    assert len({p.key for p in parts}) == experts
    assert stacked.key.startswith("recipe:") and whole.key != stacked.key
    assert stacked.key == derive("stack", [derive("transpose", [p], perm=(1, 0)) for p in parts]).key
    assert stacked != derive("stack", [derive("transpose", [p], perm=(1, 0)) for p in reversed(parts)])
    assert _resident() - before < 64 << 20
    last = derive("transpose", [parts[-1]], perm=(1, 0)).numpy()
    assert last[-1, -1] == 9 and last.shape == (columns, rows)
    assert derive("slice", [parts[0]], axis=1, start=0, stop=6, step=5).numpy()[0].tolist() == [0, 7]
    assert _resident() - before < 64 << 20


LAYOUTS = [
    ("stack", {}, lambda a, b: np.stack([a, b])),
    ("concat", {"axis": 1}, lambda a, b: np.concatenate([a, b], 1)),
    ("transpose", {"perm": (2, 0, 1)}, lambda a, b: a.transpose(2, 0, 1)),
    ("reshape", {"shape": (6, 4)}, lambda a, b: a.reshape(6, 4)),
    ("slice", {"axis": 2, "start": 1, "stop": 4, "step": 2}, lambda a, b: a[:, :, 1:4:2]),
]


@pytest.mark.parametrize(("how", "params", "expected"), LAYOUTS, ids=[layout[0] for layout in LAYOUTS])
def test_layout_changes_are_numpys(how: str, params: dict, expected: object) -> None:
    a, b = np.arange(24, dtype=np.int64).reshape(2, 3, 4), np.arange(24, 48, dtype=np.int64).reshape(2, 3, 4)
    parts = [ArrayData(a), ArrayData(b)] if how in ("stack", "concat") else [ArrayData(a)]
    made = derive(how, parts, **params)
    want = expected(a, b)  # type: ignore[operator]
    assert made.shape == want.shape and made.dtype is I64
    np.testing.assert_array_equal(made.numpy(), want)
    assert made == ArrayData(want), "small contents are known by their numbers, however they came about"


def test_equal_bytes_of_another_shape_or_dtype_are_another_tensor() -> None:
    zeros = ArrayData(np.zeros((2, 3), np.float32))
    assert zeros == ArrayData(np.zeros((2, 3), np.float32)) and hash(zeros) == hash(
        ArrayData(np.zeros((2, 3), np.float32))
    )
    assert zeros != ArrayData(np.zeros((3, 2), np.float32))
    assert zeros != ArrayData(np.zeros((2, 3), np.int32))
    assert zeros.key != ArrayData(np.zeros((3, 2), np.float32)).key


def test_what_a_kind_must_say() -> None:
    bare = TensorData(F32, (1,))
    for ask in (bare.numpy, lambda: bare.key):
        with pytest.raises(NotImplementedError, match="TensorData must say"):
            ask()

"""Weights beside the file: written piece by piece from wherever they lie, never all in memory."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from moec.frontend.onnx import load_onnx
from moec.frontend.onnx_export import export_onnx
from moec.frontend.onnx_export.external import External, on_disk
from moec.ir import stream
from moec.ir.data import ArrayData, FileData, TensorData, derive
from moec.ir.types import BF16, F32


def on_file(folder: Path, array: np.ndarray, name: str) -> FileData:
    """The array as a region in the middle of a file."""
    path = folder / name
    path.write_bytes(b"\xff" * 12 + array.tobytes() + b"\xff" * 5)
    return FileData(path, 12, F32, array.shape)


def written(folder: Path, *contents: TensorData) -> list[np.ndarray]:
    external = External("w.data")
    protos = [external.add(c, f"w{i}") for i, c in enumerate(contents)]
    external.write(folder / "w.data")
    return [onnx.numpy_helper.to_array(p, str(folder)) for p in protos]


def layouts(a: TensorData, b: TensorData) -> dict[str, TensorData]:
    """Contents derived from two of shape [4, 6, 8] in ways that imports and recoveries derive weights."""
    swapped = [derive("transpose", [x], perm=(0, 2, 1)) for x in (a, b)]
    stacked = derive("stack", [a, b])
    return {
        "as it is": a,
        "stacked": stacked,
        "joined": derive("concat", [a, b], axis=0),
        "gate beside up": derive("concat", swapped, axis=1),
        "gate beside up, transposed": derive("transpose", [derive("concat", [a, b], axis=2)], perm=(0, 2, 1)),
        "first moved": derive("transpose", [a], perm=(2, 0, 1)),
        "cut": derive("slice", [a], axis=1, start=1, stop=6, step=2),
        "reshaped": derive("reshape", [swapped[0]], shape=(4, 48)),
        "stack of stacks": derive("concat", [stacked, stacked], axis=1),
        "nothing": derive("slice", [a], axis=0, start=2, stop=2, step=1),
    }


@pytest.mark.parametrize("piece", [stream.PIECE, 64])
@pytest.mark.parametrize("where", ["file", "memory"])
def test_every_layout_is_written_as_it_reads(
    where: str, piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "PIECE", piece)
    arrays = [np.random.default_rng(i).standard_normal((4, 6, 8)).astype(np.float32) for i in (0, 1)]
    made = [on_file(tmp_path, a, f"{i}") if where == "file" else ArrayData(a) for i, a in enumerate(arrays)]
    cases = layouts(*made)
    for name, array, data in zip(cases, written(tmp_path, *cases.values()), cases.values(), strict=True):
        np.testing.assert_array_equal(array, data.numpy(), name)


def test_16_bit_floats(tmp_path: Path) -> None:
    array = np.arange(600).astype(BF16.carrier)
    (got,) = written(tmp_path, ArrayData(array, BF16))
    np.testing.assert_array_equal(got, array)


def sparse_model(folder: Path, layers: int, width: int) -> Path:
    """A chain of products with weights of ``width`` squared in a sparse file: zeros but for one number each."""
    nbytes = width * width * 4
    with (folder / "big.data").open("wb") as file:
        for i in range(layers):
            file.seek(i * nbytes + 4 * (width + 2))
            file.write(np.float32(i + 1).tobytes())
        file.truncate(layers * nbytes)
    nodes, held = [], []
    for i in range(layers):
        w = TensorProto(name=f"w{i}", data_type=1, dims=[width, width], data_location=TensorProto.EXTERNAL)
        for key, value in (("location", "big.data"), ("offset", i * nbytes), ("length", nbytes)):
            w.external_data.add(key=key, value=str(value))
        held.append(w)
        nodes.append(helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"h{i + 1}"]))
    infos = [helper.make_tensor_value_info(n, 1, ["T", width]) for n in ("h0", f"h{layers}")]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], held)
    path = folder / "big.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString())
    return path


def test_external_weights_stay_external(tmp_path: Path) -> None:
    path = sparse_model(tmp_path, 2, 64)
    module = load_onnx(path)
    assert any(on_disk(n.attrs["data"]) for n in module.main if n.op == "weight")
    out = tmp_path / "out"
    out.mkdir()
    export_onnx(module, out / "m.onnx")
    assert (out / "m.onnx").stat().st_size < 2000
    assert (out / "m.onnx.data").stat().st_size == 2 * 64 * 64 * 4
    x = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    before, after = (onnxruntime.InferenceSession(p).run(None, {"h0": x})[0] for p in (path, out / "m.onnx"))
    np.testing.assert_array_equal(after, before)


def compiled(path: Path, out: Path, limit: int) -> Any:
    """``moec compile`` in a process that may not take more than ``limit`` bytes of memory of its own."""
    code = "import sys; from moec.cli import main; sys.exit(main())"

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    command = [sys.executable, "-c", code, "compile", str(path), "-o", str(out)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, preexec_fn=bound)


def test_u8_three_gib_of_external_weights_compile_without_being_read(tmp_path: Path) -> None:
    """A sparse file: what compiles it may take a third of that memory, and what is written is as sparse."""
    path = sparse_model(tmp_path, 3, 16384)
    assert (tmp_path / "big.data").stat().st_size == 3 << 30
    done = compiled(path, tmp_path / "out", 1 << 30)
    assert done.returncode == 0, done.stderr[-2000:]
    copy = tmp_path / "out" / "optimized.onnx.data"
    for file in (copy, tmp_path / "out" / "ascendc" / "weights.bin"):
        assert file.stat().st_size == 3 << 30 and file.stat().st_blocks * 512 < 1 << 20

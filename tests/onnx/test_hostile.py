"""Whatever a file holds: a sound layer or a refusal, in bounded memory, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hostile import base

from moec.diagnostics import Refusal
from moec.frontend.onnx import import_model, load_onnx
from moec.ops.verify import verify

EXAMPLES = 250
SCRIPT = Path(__file__).parent.parent / "support" / "hostile.py"
ROOT = Path(__file__).parent.parent.parent


def test_damaged_files_are_layers_or_refused_within_a_gib(tmp_path: Path) -> None:
    """Mutations of a layer with every kind of part, in a process with limited memory and time."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(SCRIPT), str(tmp_path / "files"), str(EXAMPLES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]


def test_the_undamaged_layer_is_read() -> None:
    verify(import_model(base()))


def test_truncation_at_every_byte(tmp_path: Path) -> None:
    content = base().SerializeToString()
    path = tmp_path / "cut.onnx"
    read = 0
    for size in range(len(content)):
        path.write_bytes(content[:size])
        try:
            load_onnx(path)
            read += 1
        except Refusal as refusal:
            assert refusal.problems
    assert read < len(content) // 10


def field(number: int, payload: bytes) -> bytes:
    """A length-delimited protobuf field."""
    size, length = len(payload), b""
    while size >= 128:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + payload


@pytest.mark.parametrize("levels", [40, 1000])
def test_nesting_deeper_than_the_library_reads(levels: int, tmp_path: Path) -> None:
    graph = b""
    for _ in range(levels):
        attribute = field(1, b"then_branch") + field(6, graph)
        graph = field(1, field(4, b"If") + field(5, attribute))
    (tmp_path / "deep.onnx").write_bytes(field(7, graph))
    with pytest.raises(Refusal, match="no complete protobuf"):
        load_onnx(tmp_path / "deep.onnx")


@pytest.mark.parametrize("how", ["itself", "in a circle"])
def test_functions_that_call_themselves(how: str, tmp_path: Path) -> None:
    model = base()
    own = model.functions[0]
    own.node[0].op_type, own.node[0].domain = "Twice", "local"
    del own.node[0].input[1:]
    if how != "itself":
        other = type(own).FromString(own.SerializeToString())
        other.name = "Other"
        own.node[0].op_type = "Other"
        model.functions.append(other)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(Refusal, match="function"):
        load_onnx(tmp_path / "m.onnx")


def test_names_that_are_no_text(tmp_path: Path) -> None:
    content = base().SerializeToString().replace(b"MatMul", b"Mat\xfful")
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(Refusal, match="not UTF-8 text"):
        load_onnx(tmp_path / "m.onnx")


@pytest.mark.parametrize("op", ["Mul", "Add", "Pow", "Concat"])
def test_sizes_that_grow_without_bound(op: str, tmp_path: Path) -> None:
    """Seventy squarings: the numbers and polynomials are left to be computed when the model runs, or refused."""
    from hostile import growth

    for source in ("rows", "two"):
        model, values = base(), iter([source, op, 70])
        growth(model, lambda _, values=values: next(values))  # type: ignore[misc]
        (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
        try:
            verify(load_onnx(tmp_path / "m.onnx"))
        except Refusal as refusal:
            assert refusal.problems

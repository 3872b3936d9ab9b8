"""Files made to do harm, of every kind that moec reads: a refusal that says what, at once and in little memory."""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import floats, model, node

from moec.arrays import cases, read_npz
from moec.diagnostics import Problem, Refusal, Where
from moec.eval import run
from moec.frontend.dsl import parse_moe
from moec.frontend.onnx import import_model
from moec.ir.text import parse_module
from moec.sources import read

HEAD = "func main(%x: f32[T, 16]) -> (y: f32[T, 16]) {\n"


def refused(path: Path, content: bytes | str) -> str:
    """What the refusal of a file says."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(Refusal) as caught:
        read(path)
    return str(caught.value)


def calling(name: str, *callees: str) -> str:
    """A function of IR text that calls others one after another."""
    last, lines = "%x", ""
    for i, callee in enumerate(callees):
        lines += f'  %{i} = call({last}) {{fn = "{callee}"}} : f32[T, 16]\n'
        last = f"%{i}"
    return f"func {name}(%x: f32[T, 16]) -> (y: f32[T, 16]) {{\n{lines}  return {last}\n}}\n"


LEAF = "func leaf(%x: f32[T, 16]) -> (y: f32[T, 16]) {\n  %0 = silu(%x) : f32[T, 16]\n  return %0\n}\n"
MIR = {
    "main calls itself": (calling("main", "main"), "calls itself (main -> main)"),
    "in a circle": (calling("main", "f") + calling("f", "g") + calling("g", "f"), "calls itself (f -> g -> f)"),
    "two to the sixtieth nodes": (
        calling("main", "f0") + "".join(calling(f"f{i}", *[f"f{i + 1}"] * 2) for i in range(60)) + calling("f60"),
        "more than 20,000,000 nodes",
    ),
    "calls three hundred deep": (
        calling("main", "f0") + "".join(calling(f"f{i}", f"f{i + 1}") for i in range(300)) + calling("f300"),
        "nested deeper than 100",
    ),
    "a negative size": (HEAD.replace("T", "-4") + "  return %x\n}\n", "f32[-4, 16] is no tensor"),
    "a size beyond any": (HEAD.replace("T", "9" * 30) + "  return %x\n}\n", "no tensor that a machine holds"),
    "bounds beyond any": (f"symbol T in [1, {'9' * 30}]\n{HEAD}  return %x\n}}\n", "no bounds of a size"),
    "negative bounds": (f"symbol T in [-9, 4]\n{HEAD}  return %x\n}}\n", "no bounds of a size"),
}


@pytest.mark.parametrize("name", MIR)
def test_ir_text(name: str, tmp_path: Path) -> None:
    text, message = MIR[name]
    assert message in refused(tmp_path / "m.mir", text)


def test_calls_that_are_many_but_not_too_many_are_taken(tmp_path: Path) -> None:
    text = calling("main", "f0") + "".join(calling(f"f{i}", *[f"f{i + 1}"] * 2) for i in range(9)) + LEAF
    (tmp_path / "m.mir").write_text(text.replace('"f9"', '"leaf"'))
    assert len(read(tmp_path / "m.mir").module.functions) == 11


X = "input x: f32[4]\n"
LAYER = "layer f(a) {\nweight w: f32[4]\nreturn a * w\n}\n"
MOE = {
    "a thousand million layers": (X + LAYER + "output y = f[10**9](x)", "1000000000 layers in a row"),
    "layers without end": (X + LAYER + "output y = f[0:10**18](x)", "layers in a row"),
    "a thousand million turns": (X + "y = x\nfor i in 0:10**9 {\ny = y + 1\n}\noutput y", "more than 20000 statements"),
    "functions tripled twenty times": (
        X
        + "".join(f"fn f{i}(a) {{\nb = f{i + 1}(a)\nc = f{i + 1}(b)\nreturn f{i + 1}(c)\n}}\n" for i in range(20))
        + "fn f20(a) { return a + 1 }\noutput y = f0(x)",
        "more than 20,000,000 nodes",
    ),
    "a tensor of 10^24 elements": ("input x: f32[10**12, 10**12]\noutput y = x + 1", "no tensor that a machine holds"),
    "a library of itself": ("use linear\nuse linear\n" + X + "output y = x", "'linear' is taken twice"),
    "names in letters that look alike": ("input \u0445: f32[4]\noutput y = \u0445", "unexpected character"),
    "a megabyte": ("# " + "x" * (1 << 20), "at most 1024 KiB"),
}


@pytest.mark.parametrize("name", MOE)
def test_language(name: str, tmp_path: Path) -> None:
    text, message = MOE[name]
    assert message in refused(tmp_path / "m.moe", text)


def header(shape: str, descr: str = "'<f4'") -> bytes:
    """The header of an ``.npy`` file of version 1."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (63 - (len(text) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def npz(*members: tuple[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *a, **k: None)
        for name, content in members:
            file.writestr(name, content)
    return packed.getvalue()


def flipped(content: bytes, local: int, central: int, value: int) -> bytes:
    """A zip file with one byte of its member's two headers changed."""
    changed = bytearray(content)
    changed[local] = value
    changed[content.index(b"PK\x01\x02") + central] = value
    return bytes(changed)


GOOD = npz(("x.npy", header("(2, 16)") + bytes(128)))
NPZ: dict[str, tuple[Callable[[], bytes], str]] = {
    "a bomb": (lambda: npz(("x.npy", header("(4194304,)") + bytes(1 << 24))), "unpacks to"),
    "a shape of 64 TiB": (lambda: npz(("x.npy", header("(1099511627776, 16)"))), "its shape"),
    "a negative shape": (lambda: npz(("x.npy", header("(-1, 16)") + bytes(64))), "negative dimension"),
    "a shape of NaN": (lambda: npz(("x.npy", header("(float('nan'), 16)") + bytes(64))), "cannot read arrays"),
    "objects": (lambda: npz(("x.npy", header("(1,)", "'|O'") + bytes(8))), "Object arrays cannot be loaded"),
    "elements of a GiB": (lambda: npz(("x.npy", header("(1,)", "[('a', '<f4', (1 << 28,))]"))), "cannot read arrays"),
    "a version of the future": (lambda: npz(("x.npy", b"\x93NUMPY\x09\x00" + bytes(99))), "version 9.0"),
    "one name twice": (lambda: npz(*[("x.npy", header("(2, 16)") + bytes(128))] * 2), "there twice"),
    "no array": (lambda: npz(("x", b"hello")), "'x' is no array"),
    "damaged data": (lambda: GOOD[:60] + b"\xff\xff\xff" + GOOD[63:], "cannot read arrays"),
    "unknown packing": (lambda: flipped(GOOD, 8, 10, 99), "not supported"),
    "encrypted": (lambda: flipped(GOOD, 6, 8, 1), "encrypted"),
    "one bare array": (lambda: header("(2, 16)") + bytes(128), "one bare array"),
    "cut short": (lambda: GOOD[:80], "cannot read arrays"),
    "empty": (lambda: b"", "cannot read arrays"),
}


@pytest.mark.parametrize("name", NPZ)
def test_arrays(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moec.arrays.SMALL", 1 << 10)
    make, message = NPZ[name]
    (tmp_path / "a.npz").write_bytes(make())
    with pytest.raises(Refusal, match=message):
        read_npz(tmp_path / "a.npz")


def test_sound_arrays_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(GOOD)
    assert read_npz(tmp_path / "a.npz")["x"].shape == (2, 16)
    np.savez_compressed(
        tmp_path / "b.npz", zeros=np.zeros((1 << 20,), np.float32), none=np.zeros((0, 4)), one=np.float64(1)
    )
    assert {k: v.shape for k, v in read_npz(tmp_path / "b.npz").items()} == {
        "zeros": (1 << 20,),
        "none": (0, 4),
        "one": (),
    }
    (only,) = cases({f"in{'9' * 5000}.x": np.zeros(1)})
    assert list(only.inputs) == [f"in{'9' * 5000}.x"]


@pytest.mark.parametrize("suffix", [".moe", ".onnx", ".mir", ".json", ".npz"])
@pytest.mark.parametrize("what", ["a device", "a pipe", "a link to itself"])
def test_what_is_no_file(what: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"m{suffix}"
    if what == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if what == "a device" else path)
    with pytest.raises(Refusal, match="cannot read"):
        read_npz(path) if suffix == ".npz" else read(path)


@pytest.mark.parametrize("suffix", [".onnx", ".mir", ".json"])
def test_sparse_files_beyond_what_is_read(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"m{suffix}"
    with path.open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(Refusal, match="are read"):
        read(path)


def local(name: str, *nodes: onnx.NodeProto) -> onnx.FunctionProto:
    return helper.make_function(
        "l", name, ["a"], ["b"], nodes, [helper.make_opsetid("", 21), helper.make_opsetid("l", 1)]
    )


def doubled() -> onnx.ModelProto:
    """Local functions that each call the next twice, forty deep."""
    proto = model([node("F0", ["x"], domain="l")], {"x": floats(4)}, domains=[("l", 1)])
    for i in range(40):
        calls = node(f"F{i + 1}", ["a"], ["t"], domain="l"), node(f"F{i + 1}", ["t"], ["b"], domain="l")
        proto.functions.append(local(f"F{i}", *calls))
    proto.functions.append(local("F40", node("Relu", ["a"], ["b"])))
    return proto


def with_external(location: str, offset: str = "0") -> onnx.ModelProto:
    proto = model([node("Relu", ["x"])], {"x": floats(4)})
    tensor = proto.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[4])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset)):
        tensor.external_data.add(key=key, value=value)
    return proto


def sized(op: str, values: Sequence[int]) -> onnx.ModelProto:
    return model([node(op, ["x", "s"])], {"x": floats(*[1] * len(values))}, initializers={"s": np.array(values)})


ONNX: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "functions doubled forty times": (doubled, "more than 2,000,000 nodes"),
    "a link out of the folder": (lambda: with_external("link"), "outside the model's folder"),
    "a name with a zero": (lambda: with_external("a\0b"), "is no name of a file"),
    "a name of 5000 letters": (lambda: with_external("x" * 5000), "is no name of a file"),
    "digits of another script": (lambda: with_external("data", "\u00b2"), "not a number"),
    "an offset of 400 digits": (lambda: with_external("data", "9" * 400), "not a number"),
    "tiles beyond 64 bits": (lambda: sized("Tile", [1 << 62, 4]), "no tensor that a machine holds"),
    "expanded beyond 64 bits": (lambda: sized("Expand", [1 << 62, 1 << 62]), "no tensor that a machine holds"),
    "a range of a quadrillion": (
        lambda: model(
            [node("Range", ["a", "b", "c"])],
            {"x": floats(1)},
            initializers={"a": np.float32(0), "b": np.float32(1e12), "c": np.float32(1e-3)},
        ),
        "more than 67108864 elements",
    ),
}


@pytest.mark.parametrize("name", ONNX)
def test_onnx(name: str, tmp_path: Path) -> None:
    make, message = ONNX[name]
    (tmp_path / "link").symlink_to("/etc/hostname")
    (tmp_path / "data").write_bytes(bytes(16))
    assert message in refused(tmp_path / "m.onnx", make().SerializeToString())


def loop(levels: int) -> onnx.ModelProto:
    """Loops of a hundred steps inside one another."""
    infos = [("i", TensorProto.INT64, []), ("c", TensorProto.BOOL, []), ("s", TensorProto.FLOAT, [4])]
    inputs = [helper.make_tensor_value_info(*info) for info in infos]
    outputs = [helper.make_tensor_value_info(*info) for info in (("co", *infos[1][1:]), ("so", *infos[2][1:]))]
    go_on = node("Identity", ["c"], ["co"])
    body = helper.make_graph([go_on, node("Add", ["s", "s"], ["so"])], "b", inputs, outputs)
    for _ in range(levels - 1):
        body = helper.make_graph([go_on, node("Loop", ["m", "", "s"], ["so"], body=body)], "b", inputs, outputs)
    return model([node("Loop", ["m", "", "x"], body=body)], {"x": floats(4)}, initializers={"m": np.int64(100)})


def test_loops_in_loops_are_unrolled_within_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """100^12 steps: some are written out, the others stay loops or nodes as they came."""
    monkeypatch.setattr("moec.frontend.onnx.context.ALL_UNROLLED_NODES", 5_000)
    assert len(list(import_model(loop(12)).nodes())) < 20_000


def test_evaluation_that_asks_for_more_than_there_is_or_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moec.eval.control.STEPS", 1_000)
    with pytest.raises(Refusal, match="cannot evaluate iota"):
        run(parse_moe("output y = iota(size = 30000000000000, dtype = f32)"), {})
    proto = loop(1)
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.int64(10**18), "m"))
    with pytest.raises(Refusal, match="more than 1000 steps"):
        run(import_model(proto), {"x": np.zeros(4, np.float32)})


def test_names_that_steer_a_terminal_are_shown() -> None:
    text = str(Problem("no '\x1b[2J\u202e'", Where(node="\x07"), "try\x9b"))
    assert text == "\\x07: no '\\x1b[2J\\u202e'\n  -> try\\x9b"


def test_a_function_that_calls_itself_is_found_by_the_verifier() -> None:
    from moec.diagnostics import CheckFailed
    from moec.ops.verify import verify

    with pytest.raises(CheckFailed, match="calls itself"):
        verify(parse_module(calling("main", "f") + calling("f", "f"), "m.mir"))

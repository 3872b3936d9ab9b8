"""Input that cannot be taken: exit 1 with what, where and what to do, all at once, nothing left, no traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import onnx
import pytest
from command import ROOT, moec, refused
from onnx import TensorProto, helper

MODEL = ROOT / "tests" / "data" / "qwen3_moe_moe_dynamo_batched_mm_dyn_op21.onnx"


def compiled(source: Path, tmp_path: Path, *more: str) -> CompletedProcess[str]:
    """Compile; whatever happens, the output's folder must hold nothing of it afterwards unless it succeeded."""
    place = tmp_path / "place"
    place.mkdir()
    done = moec("compile", source, "-o", place / "out", *more)
    if done.returncode != 0:
        assert list(place.iterdir()) == [], "something was left behind"
    return done


def model_with(nodes: list[onnx.NodeProto], opset: int = 17, dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", dtype, [4, 4])
    y = helper.make_tensor_value_info("y", dtype, [4, 4])
    graph = helper.make_graph(nodes, "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def unknown_op() -> bytes:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Wibble", ["b"], ["y"], name="second", domain="acme.ai"),
    ]
    model = model_with(nodes)
    model.opset_import.append(helper.make_opsetid("acme.ai", 1))
    model.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, [4, 4]))
    return bytes(model.SerializeToString())


def unknown_opset() -> bytes:
    return bytes(model_with([helper.make_node("Relu", ["x"], ["y"])], opset=99).SerializeToString())


def unknown_dtype() -> bytes:
    return bytes(model_with([helper.make_node("Identity", ["x"], ["y"])], dtype=77).SerializeToString())


def unknown_attribute() -> bytes:
    return bytes(model_with([helper.make_node("Relu", ["x"], ["y"], bogus=3)]).SerializeToString())


def cyclic() -> bytes:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"], name="one"), helper.make_node("Relu", ["a"], ["b"], name="two")]
    nodes.append(helper.make_node("Relu", ["b"], ["y"]))
    return bytes(model_with(nodes).SerializeToString())


def missing_weight() -> bytes:
    return bytes(model_with([helper.make_node("MatMul", ["x", "w"], ["y"], name="mm")]).SerializeToString())


def truncated() -> bytes:
    return MODEL.read_bytes()[:1000]


CASES: dict[str, tuple[Callable[[], bytes], tuple[str, ...]]] = {
    "unknown op": (unknown_op, ("Frobnicate", "Wibble")),
    "unknown opset": (unknown_opset, ("99",)),
    "unknown dtype": (unknown_dtype, ("77",)),
    "unknown attribute": (unknown_attribute, ("bogus",)),
    "cyclic graph": (cyclic, ("one", "two")),
    "missing weight": (missing_weight, ("'w'",)),
    "truncated protobuf": (truncated, ()),
    "empty file": (lambda: b"", ()),
    "noise": (lambda: bytes(range(256)) * 4, ()),
}


@pytest.mark.parametrize("case", CASES)
def test_an_onnx_file_that_cannot_be_taken(case: str, tmp_path: Path) -> None:
    make, texts = CASES[case]
    file = tmp_path / "bad.onnx"
    file.write_bytes(make())
    refused(compiled(file, tmp_path), 1, "bad.onnx", *texts)


MIR: dict[str, tuple[str, tuple[str, ...]]] = {
    "unknown op": ("%0 = sofmax(%x) {axis = 1} : f32[T, 16]", ("sofmax", "did you mean 'softmax'?")),
    "unknown dtype": ("%0 = cast(%x) {to = !f33} : f33[T, 16]", ("f33",)),
    "unknown attribute": ("%0 = softmax(%x) {axes = 1} : f32[T, 16]", ("axes",)),
    "wrong type": ("%0 = softmax(%x) {axis = 1} : f32[T, 17]", ("f32[T, 16]", "f32[T, 17]")),
    "undefined value": ("%0 = silu(%q) : f32[T, 16]", ("%q",)),
    "no such function": ('%0 = call(%x) {fn = "nowhere"} : f32[T, 16]', ("nowhere",)),
    "torn line": ("%0 = silu(%x", ("expected",)),
}


@pytest.mark.parametrize("case", MIR)
def test_ir_text_that_cannot_be_taken(case: str, tmp_path: Path) -> None:
    line, texts = MIR[case]
    file = tmp_path / "bad.mir"
    file.write_text(f"func main(%x: f32[T, 16]) -> (y: f32[T, 16]) {{\n  {line}\n  return %0\n}}\n", encoding="utf-8")
    refused(compiled(file, tmp_path), 1, "bad.mir", *texts)


def test_problems_of_a_language_file_come_all_at_once_with_a_caret(tmp_path: Path) -> None:
    file = tmp_path / "bad.moe"
    file.write_text("dim T in [1, 8]\ninput x: f32[T, 16]\ny = sillu(x)\nz = softmax(x, axes = 1)\noutput y\n")
    refused(compiled(file, tmp_path), 1, "bad.moe:3", "bad.moe:4", "did you mean 'silu'?", "^")


@pytest.mark.parametrize("name", ["absent.moe", "absent.onnx", "absent.mir", "folder.onnx"])
def test_an_unreadable_path_is_refused(name: str, tmp_path: Path) -> None:
    if name.startswith("folder"):
        (tmp_path / name).mkdir()
    refused(compiled(tmp_path / name, tmp_path), 1, name, "cannot read")


def test_a_file_of_no_known_kind_is_refused_with_the_kinds(tmp_path: Path) -> None:
    file = tmp_path / "layer.txt"
    file.write_text("hello\n")
    refused(compiled(file, tmp_path), 1, "layer.txt", ".moe", ".onnx", ".mir")


def test_a_kernel_that_no_tile_fits_is_refused(router: Path, tmp_path: Path) -> None:
    """65,536 experts: their scores do not fit the vector unit's memory whatever the tile."""
    text = router.read_text(encoding="utf-8").replace("8, 16]", "65536, 16]").replace("[T, 8]", "[T, 65536]")
    file = tmp_path / "wide.mir"
    file.write_text(text, encoding="utf-8")
    refused(compiled(file, tmp_path), 1, "65536 experts", "up to 8160", "wide.mir")


def test_ir_is_known_by_its_content(router: Path, tmp_path: Path) -> None:
    renamed = tmp_path / "router.txt"
    renamed.write_bytes(router.read_bytes())
    assert moec("check", renamed).returncode == 0


def test_sizes_that_do_not_fit_are_refused_all_at_once(router: Path, tmp_path: Path) -> None:
    done = compiled(router, tmp_path, "--set", "t=4,T=65")
    refused(done, 1, "2 problems", "no dim 't'", "did you mean 'T'?", "T=65", "from 1 to 64")


@pytest.mark.parametrize("setting", ["T", "T=", "T=x", "=4", "T=1.5"])
def test_a_setting_that_is_none_is_wrong_usage(setting: str, router: Path, tmp_path: Path) -> None:
    refused(compiled(router, tmp_path, "--set", setting), 2, "NAME=NUMBER")


def test_an_unknown_target_is_refused(router: Path, tmp_path: Path) -> None:
    refused(compiled(router, tmp_path, "--target", "ascend910b9"), 1, "ascend910b9", "did you mean 'ascend910b")


def test_unknown_passes_and_options_come_all_at_once(router: Path, tmp_path: Path) -> None:
    done = compiled(router, tmp_path, "--passes", "canonicalize,cse{x=1},nothing")
    refused(done, 2, "3 problems", "did you mean 'canonicalise'?", "no option 'x'", "nothing")


def test_print_after_a_pass_that_does_not_run_is_wrong_usage(router: Path, tmp_path: Path) -> None:
    done = compiled(router, tmp_path, "--passes", "cse", "--print-after", "fold")
    refused(done, 2, "'fold'", "cse")


def test_debug_shows_the_traceback_and_the_message(tmp_path: Path) -> None:
    done = moec("check", tmp_path / "absent.mir", "--debug")
    assert done.returncode == 1 and "Traceback" in done.stderr and "cannot read the input" in done.stderr

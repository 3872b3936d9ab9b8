"""The text form: golden texts of what is read, every refusal of the parser, and names."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_plugin import Golden

from moec.diagnostics import Refusal
from moec.ir.attrs import UnreadData, print_attr
from moec.ir.compare import modules_equal
from moec.ir.graph import Graph, Module, Origin, Source
from moec.ir.text import load_module, parse_module, print_module
from moec.ir.types import F32, TensorType

GOLDEN = Path(__file__).parent / "text"
VECTOR = TensorType(F32, (4,))


def _cases(kind: str) -> list[str]:
    return sorted(p.stem.removeprefix(f"{kind}_") for p in GOLDEN.glob(f"{kind}_*.txt"))


@pytest.mark.parametrize("case", _cases("reads"))
def test_reads(case: str, golden: Golden) -> None:
    module = parse_module(golden.text, f"{case}.mir")
    text = print_module(module)
    assert print_module(parse_module(text)) == text
    assert modules_equal(parse_module(text), module)
    golden(text)


@pytest.mark.parametrize("case", _cases("refuses"))
def test_refuses(case: str, golden: Golden) -> None:
    with pytest.raises(Refusal) as refused:
        parse_module(golden.text, f"{case}.mir")
    golden("\n".join(map(str, refused.value.problems)))


def test_what_every_kind_prints_is_what_was_written() -> None:
    text = (GOLDEN / "reads_every_attribute_kind.txt").read_text().split("==== expected\n")[0]
    assert print_module(parse_module(text)) == text


def _chain(names: list[str]) -> Module:
    """A chain of silu nodes whose results have these names."""
    module = Module()
    graph = module.add(Graph("main"))
    value = graph.add_input("x", VECTOR)
    for name in names:
        value = graph.append("silu", [value], {}, [VECTOR]).result
        value.name = name
    graph.set_outputs([value], ["y"])
    return module


@pytest.mark.parametrize(
    "names",
    [
        ["5", "", "0", ""],
        ["", "0", "0"],
        ["x", "x", "x.1", "x"],
        ["none", "a b", 'q"', "\\", "é", "%0", "h.1", "h", "h"],
    ],
)
def test_any_name_reads_back_as_itself(names: list[str]) -> None:
    text = print_module(_chain(names))
    again = parse_module(text)
    assert print_module(again) == text
    read = [n.result.name for n in again.main]
    for name, found in zip(names, read, strict=True):
        assert found == name or (name and found.startswith(f"{name}."))
    assert len({n for n in read if n}) == len([n for n in names if n])


def test_a_name_that_stands_many_times_costs_one_step_each() -> None:
    """The suffix goes on from the last one; counted in lookups, as trying 1, 2, ... from the start is quadratic."""
    names = [n.result.name for n in parse_module(print_module(_chain(["h"] * 3000))).main]
    assert names[:3] == ["h", "h.1", "h.2"] and names[-1] == "h.2999"


def test_origins_are_shown_and_not_read() -> None:
    module = _chain(["a"])
    node = next(iter(module.main))
    node.origin = Origin(
        (Source("m.onnx", 3, "Silu 'x  # y'"), *(Source("m.onnx", i, "") for i in range(4, 9))), ("fold",)
    )
    text = print_module(module, origins=True)
    assert "# m.onnx:3 Silu 'x  # y'; m.onnx:4; m.onnx:5; and 3 more by fold" in text
    assert modules_equal(parse_module(text), module)


def test_a_node_knows_the_line_it_was_read_from() -> None:
    module = parse_module(print_module(_chain(["a", "b"])), "m.mir")
    assert [n.origin.sources for n in module.main] == [(Source("m.mir", 2, "silu"),), (Source("m.mir", 3, "silu"),)]


def test_a_tensor_without_its_side_file_has_no_numbers() -> None:
    node = "%y = constant() {value = dense<f32[64]: sha256:01>} : f32[64]"
    text = f"func main() -> (y: f32[64]) {{\n  {node}\n  return %y\n}}\n"
    data = next(iter(parse_module(text).main)).attrs["value"]
    assert isinstance(data, UnreadData) and data.key == "sha256:01" and data.shape == (64,)
    with pytest.raises(ValueError, match="side file"):
        data.numpy()


def test_attributes_of_two_nodes_with_the_same_text_are_two_dicts() -> None:
    module = parse_module(
        "func main(%x: f32[4]) -> () {\n  %0 = softmax(%x) {axis = 0} : f32[4]\n"
        "  %1 = softmax(%0) {axis = 0} : f32[4]\n  return\n}\n"
    )
    first, second = module.main
    first.attrs["axis"] = 1
    assert second.attrs == {"axis": 0}


def test_an_attribute_of_another_kind_has_no_text() -> None:
    with pytest.raises(TypeError, match="an attribute cannot be a set"):
        print_attr({1})


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="cannot read"):
        load_module(tmp_path / "missing.mir")
    (tmp_path / "a.mir").write_bytes(b"\xff\xfe")
    with pytest.raises(Refusal, match="cannot read"):
        load_module(tmp_path / "a.mir")

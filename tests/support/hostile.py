"""Hostile ONNX files for the importer, made and read in a process whose memory is limited.

``python hostile.py FOLDER EXAMPLES`` reads that many; whatever is no layer must be a Refusal. Exit code 0 where all
was so.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from moec.diagnostics import Refusal
from moec.frontend.onnx import load_onnx
from moec.ir.text import print_module
from moec.ops.verify import verify

MEMORY = 1 << 30
"""Bytes of data that the process may have, libraries included."""
SECONDS = 90
"""Of processor time for all examples."""
HUGE = (2**31, 2**40, 2**62, 2**63 - 1)
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Draw = Callable[[st.SearchStrategy], object]


def base() -> onnx.ModelProto:
    """A layer with every kind of part: sizes computed from shapes, a branch, a loop, a function, constants."""

    def info(name: str, type_: int, *dims: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, type_, dims)

    def node(op: str, inputs: list[str], outputs: list[str], **attrs: object) -> onnx.NodeProto:
        return helper.make_node(op, inputs, outputs, outputs[0], **attrs)

    then = helper.make_graph([node("Neg", ["h"], ["t"])], "then", [], [info("t", FLOAT, "T", 4)])
    other = helper.make_graph([node("Abs", ["h"], ["e"])], "else", [], [info("e", FLOAT, "T", 4)])
    body = helper.make_graph(
        [node("Add", ["s", "h"], ["s1"]), node("Identity", ["go"], ["go1"])],
        "body",
        [info("i", INT64), info("go", TensorProto.BOOL), info("s", FLOAT, "T", 4)],
        [info("go1", TensorProto.BOOL), info("s1", FLOAT, "T", 4)],
    )
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Shape", ["h"], ["dims"]),
        node("Gather", ["dims", "zero"], ["rows"], axis=0),
        node("Concat", ["rows", "two", "two"], ["shape"], axis=0),
        node("Reshape", ["h", "shape"], ["r"]),
        node("Reshape", ["r", "dims"], ["h2"]),
        node("If", ["c"], ["b"], then_branch=then, else_branch=other),
        node("Loop", ["n", "", "b"], ["l"], body=body),
        helper.make_node("Twice", ["l"], ["f"], "twice", domain="local"),
        node("TopK", ["f", "k"], ["v", "at"], axis=1),
        node("Softmax", ["v"], ["p"], axis=-1),
        node("Cast", ["p"], ["y"], to=FLOAT),
        node("Expand", ["y", "wide"], ["z"]),
    ]
    held = {"w": np.ones((4, 4), np.float32), "zero": np.array([0]), "two": np.array([2]), "k": np.array([2])}
    held |= {"n": np.array(3), "wide": np.array([1, 1])}
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", FLOAT, "T", 4), info("c", TensorProto.BOOL)],
        [info("z", FLOAT, "T", 2), info("h2", FLOAT, "T", 4)],
        [numpy_helper.from_array(a, n) for n, a in held.items()],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    inner = [helper.make_node("Add", ["a", "a"], ["b"])]
    twice = helper.make_function("local", "Twice", ["a"], ["b"], inner, imports[:1])
    return helper.make_model(graph, opset_imports=imports, functions=[twice], ir_version=10)


def _node(m: onnx.ModelProto, draw: Draw) -> onnx.NodeProto:
    return draw(st.sampled_from(list(m.graph.node)))


def _tensor(m: onnx.ModelProto, draw: Draw) -> TensorProto:
    return draw(st.sampled_from(list(m.graph.initializer)))


def _names(m: onnx.ModelProto) -> list[str]:
    return ["x", *(t.name for t in m.graph.initializer), *(o for n in m.graph.node for o in n.output), "", "nowhere"]


def rewire(m: onnx.ModelProto, draw: Draw) -> None:
    """Any input or output gets any name: cycles, duplicates, names of nothing, types that do not fit."""
    node, name = _node(m, draw), draw(st.sampled_from(_names(m)))
    field = draw(st.sampled_from([f for f in (node.input, node.output) if len(f)] or [["nothing"]]))
    field[draw(st.integers(0, len(field) - 1))] = name


def reorder(m: onnx.ModelProto, draw: Draw) -> None:
    nodes = draw(st.permutations(list(m.graph.node)))
    del m.graph.node[:]
    m.graph.node.extend(nodes)


def dims(m: onnx.ModelProto, draw: Draw) -> None:
    """An initializer's or an input's sizes become enormous, negative or more."""
    size = draw(st.sampled_from([*HUGE, -1, -(2**63), 0, 3]))
    if draw(st.booleans()):
        tensor = _tensor(m, draw)
        tensor.dims.extend([size] * draw(st.integers(0, 3)))
        if len(tensor.dims):
            tensor.dims[0] = size
    else:
        shape = m.graph.input[0].type.tensor_type.shape
        shape.dim[draw(st.integers(0, 1))].dim_value = size


def numbers(m: onnx.ModelProto, draw: Draw) -> None:
    """The numbers that sizes and counts are made of become enormous."""
    tensor = draw(st.sampled_from([t for t in m.graph.initializer if t.data_type == INT64]))
    values = st.sampled_from([*HUGE, -1, -(2**63), 0, 7])
    count = max(1, len(tensor.raw_data) // 8)
    array = np.array([draw(values) for _ in range(count)], np.int64)
    tensor.raw_data = array.tobytes()


def raw(m: onnx.ModelProto, draw: Draw) -> None:
    tensor = _tensor(m, draw)
    tensor.raw_data = draw(st.binary(max_size=80))


def enums(m: onnx.ModelProto, draw: Draw) -> None:
    number = draw(st.sampled_from([0, 8, 17, 21, 23, 99, 2**31 - 1, -1]))
    kind = draw(st.integers(0, 3))
    if kind == 0:
        _tensor(m, draw).data_type = number
    elif kind == 1:
        m.graph.input[0].type.tensor_type.elem_type = number
    elif kind == 2:
        draw(st.sampled_from([a for n in m.graph.node for a in n.attribute] or [AttributeProto()])).i = number
    else:
        _tensor(m, draw).data_location = draw(st.sampled_from([0, 1]))


def attributes(m: onnx.ModelProto, draw: Draw) -> None:
    """An attribute is dropped, doubled, or becomes one of another type."""
    node = draw(st.sampled_from([n for n in m.graph.node if len(n.attribute)] or [onnx.NodeProto()]))
    if not len(node.attribute):
        return
    attribute = node.attribute[draw(st.integers(0, len(node.attribute) - 1))]
    how = draw(st.integers(0, 3))
    if how == 0:
        del node.attribute[:]
    elif how == 1:
        node.attribute.append(attribute)
    elif how == 2:
        attribute.type = draw(st.sampled_from(list(AttributeProto.AttributeType.values())))
    else:
        attribute.i = draw(st.sampled_from([*HUGE, -(2**63), -3]))


def operators(m: onnx.ModelProto, draw: Draw) -> None:
    """A node becomes any other operator of the standard set, or of none."""
    node = _node(m, draw)
    known = sorted({s.name for s in onnx.defs.get_all_schemas()})
    node.op_type = draw(st.sampled_from([*known, "Nonsense", ""]))
    if draw(st.booleans()):
        node.domain = draw(st.sampled_from(["com.microsoft", "ai.onnx.ml", "nobody", "local"]))


def external(m: onnx.ModelProto, draw: Draw) -> None:
    """Contents in files outside the folder, in links out of it, in folders, or beyond their end."""
    tensor = _tensor(m, draw)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    places = ["../secret", "/etc/passwd", "link", "sub/../../secret", "sub", "", ".", "missing", "data", "data\0x"]
    values = {"location": draw(st.sampled_from(places))}
    values |= {k: draw(st.sampled_from(["0", "-1", "x", str(2**63), "8"])) for k in ("offset", "length")}
    for key, value in values.items():
        tensor.external_data.add(key=key, value=value)


def nesting(m: onnx.ModelProto, draw: Draw) -> None:
    """Branches within branches, up to where the protobuf library stops reading."""
    branches = [n for n in m.graph.node if n.op_type == "If" and len(n.attribute) == 2]
    if not branches:
        return
    then, other = (branches[0].attribute[i].g for i in (0, 1))
    out = helper.make_tensor_value_info("t", FLOAT, ["T", 4])
    graph = then
    for i in range(draw(st.sampled_from([1, 5, 20, 28]))):
        node = helper.make_node("If", ["c"], ["t"], f"level{i}", then_branch=graph, else_branch=other)
        graph = helper.make_graph([node], f"g{i}", [], [out])
    then.CopyFrom(graph)


def functions(m: onnx.ModelProto, draw: Draw) -> None:
    """A function that calls itself, or another that calls it, or is there twice."""
    function = m.functions[0]
    if function.node[0].op_type != "Add":
        return
    how = draw(st.integers(0, 2))
    if how == 0:
        function.node[0].op_type, function.node[0].domain = "Twice", "local"
        del function.node[0].input[1:]
    elif how == 1:
        other = onnx.FunctionProto.FromString(function.SerializeToString())
        other.name = "Other"
        for f, name in ((function, "Other"), (other, "Twice")):
            f.node[0].op_type, f.node[0].domain = name, "local"
            del f.node[0].input[1:]
        m.functions.append(other)
    else:
        m.functions.append(function)


def growth(m: onnx.ModelProto, draw: Draw) -> None:
    """Sizes that are squared again and again: numbers and polynomials that would fill memory."""
    source = draw(st.sampled_from(["rows", "two", "dims"]))
    op = draw(st.sampled_from(["Mul", "Add", "Concat", "Pow"]))
    at = min(3, len(m.graph.node))
    for i in range(draw(st.sampled_from([3, 20, 70]))):
        attrs = {"axis": 0} if op == "Concat" else {}
        made = helper.make_node(op, [source, source], [f"grown{i}"], **attrs)
        m.graph.node.insert(at, made)
        source, at = f"grown{i}", at + 1
    m.graph.node.insert(at, helper.make_node("Expand", ["h", source], ["grown"]))


MUTATIONS = [
    rewire, reorder, dims, numbers, raw, enums, attributes, operators, external, nesting, functions, growth,
]  # fmt: skip


@st.composite
def files(draw: Draw) -> bytes:
    """The bytes of a damaged model."""
    m = base()
    for mutate in draw(st.lists(st.sampled_from(MUTATIONS), max_size=3, unique=True)):
        mutate(m, draw)
    content = bytearray(m.SerializeToString())
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 4]))):
        content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
    if draw(st.sampled_from([False, False, True])):
        del content[draw(st.integers(0, len(content))) :]
    return bytes(content)


def check(content: bytes, folder: Path) -> None:
    """What is read is a sound layer, or refused."""
    path = folder / "hostile.onnx"
    path.write_bytes(content)
    try:
        module = load_onnx(path)
    except Refusal as refusal:
        assert refusal.problems and all(p.what for p in refusal.problems)
        return
    verify(module)
    print_module(module)


def main() -> None:
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    folder = Path(sys.argv[1]) / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "data").write_bytes(bytes(64))
    (folder.parent / "secret").write_bytes(bytes(256))
    os.symlink("../secret", folder / "link")

    @settings(
        max_examples=int(sys.argv[2]), deadline=None, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(files())
    def survives(content: bytes) -> None:
        check(content, folder)

    survives()


if __name__ == "__main__":
    main()

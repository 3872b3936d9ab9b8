"""Bad models are refused: what is wrong, where, and what to do; all of it at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import floats, imported, model, node

from moec.diagnostics import Refusal
from moec.eval import run
from moec.frontend.onnx import import_model, load_onnx, read_onnx
from moec.frontend.onnx.attributes import schema_version
from moec.frontend.onnx.read import MAX_OPSET
from moec.frontend.onnx.table import HANDLERS


def refused(proto: onnx.ModelProto) -> str:
    with pytest.raises(Refusal) as caught:
        import_model(proto, "m.onnx")
    return str(caught.value)


def test_u5_all_unsupported_operators_at_once_with_count_and_first_node() -> None:
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Teleport", ["a"], ["b"], domain="com.acme"),
        node("Teleport", ["b"], ["c"], domain="com.acme"),
        node("Beam", ["c", "c"], ["d"], domain="com.acme"),
        node("Relu", ["d"]),
    ]
    text = refused(model(nodes, {"x": floats(2)}, domains=[("com.acme", 3)]))
    assert "com.acme.Teleport (2 nodes, the first is node 1)" in text and "opset 3 wanted" in text
    assert "com.acme.Beam (1 nodes, the first is node 3)" in text
    assert "n_b" in text


def test_domain_without_opset() -> None:
    assert "'com.acme' has no opset_import" in refused(model([node("F", ["x"], domain="com.acme")], {"x": floats(2)}))


@pytest.mark.parametrize("opset", [99, 0])
def test_opset_out_of_range(opset: int) -> None:
    proto = model([node("Relu", ["x"])], {"x": floats(2)})
    proto.opset_import[0].version = opset
    assert f"opset {opset} " in refused(proto) and f"1 to {MAX_OPSET}" in refused(proto)


def test_no_handler_claims_an_operator_version_it_was_not_written_for() -> None:
    """``last`` is the newest version of each operator up to MAX_OPSET; a newer onnx must not change what that means."""
    for (domain, name), entry in HANDLERS.items():
        version = schema_version(name, domain, MAX_OPSET)
        assert domain or version is None or version == entry.last, f"{name}: {version}"


def test_an_old_operator_version_is_kept_as_it_is() -> None:
    proto = model([node("TopK", ["x"], ["y", "i"], k=1)], {"x": floats(2)}, opset=9)
    graph = imported(proto).main
    assert [n.op for n in graph] == ["opaque"]
    assert run(imported(proto), {"x": np.array([1, 3], np.float32)})["y"].tolist() == [3]


def test_unknown_attribute_gets_a_suggestion() -> None:
    proto = model([node("Softmax", ["x"], axes=1)], {"x": floats(2)})
    assert "unknown attribute 'axes' did you mean 'axis'?" in refused(proto)


def test_undefined_tensors_are_all_named() -> None:
    text = refused(model([node("Add", ["x", "w1"], ["a"]), node("Add", ["a", "w2"])], {"x": floats(2)}))
    assert "'w1'" in text and "'w2'" in text and "node 1 (Add n_y)" in text


def test_cycle_is_shown() -> None:
    nodes = [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), node("Relu", ["b"])]
    text = refused(model(nodes, {"x": floats(2)}))
    assert "cycle" in text and "Add n_a" in text and "Relu n_b" in text


def test_unsorted_graph_is_sorted_and_stable() -> None:
    nodes = [node("Relu", ["b"]), node("Neg", ["x"], ["a"]), node("Exp", ["a"], ["b"])]
    assert [n.op for n in imported(model(nodes, {"x": floats(2)})).main] == ["neg", "exp", "relu"]


def test_names_defined_twice() -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Neg", ["x"], ["a"]), node("Relu", ["a"])]
    assert "'a' is defined twice" in refused(model(nodes, {"x": floats(2)}))
    proto = model([node("Relu", ["x"])], {"x": floats(2)}, initializers={"w": np.zeros(2, np.float32)})
    proto.graph.initializer.append(proto.graph.initializer[0])
    assert "initializer 'w' is defined twice" in refused(proto)


def test_missing_output() -> None:
    assert "output 'z'" in refused(model([node("Relu", ["x"])], {"x": floats(2)}, ["z"]))


def test_unknown_dtype_and_missing_shape() -> None:
    proto = model([node("Relu", ["x"])], {"x": (77, [2])})
    assert "unknown dtype number 77" in refused(proto)
    proto = model([node("Relu", ["x"])], {"x": floats(2)})
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    assert "no shape, not even a rank" in refused(proto)


def test_initializer_with_too_little_data_or_enormous_dims_allocates_nothing() -> None:
    proto = model([node("Relu", ["x"])], {"x": floats(2)})
    for name, dims in (("short", [3]), ("huge", [2**40, 2**40]), ("large", [2**31, 64])):
        proto.graph.initializer.append(TensorProto(name=name, data_type=1, dims=dims, raw_data=b"\0" * 8))
    proto.graph.initializer.append(TensorProto(name="negative", data_type=1, dims=[-1]))
    text = refused(proto)
    assert all(f"initializer '{n}'" in text for n in ("short", "huge", "large", "negative"))


def test_enormous_input_dims_are_only_numbers() -> None:
    module = imported(model([node("Relu", ["x"])], {"x": floats(2**40, 2**20)}))
    assert str(module.main.inputs[0].type) == f"f32[{2**40}, {2**20}]"


@pytest.mark.parametrize("cut", [0.3, 0.9])
def test_truncated_file(tmp_path: Path, cut: float) -> None:
    proto = model([node("Add", ["x", "w"])], {"x": floats(64)}, initializers={"w": np.ones(64, np.float32)})
    raw = proto.SerializeToString()
    path = tmp_path / "cut.onnx"
    path.write_bytes(raw[: int(len(raw) * cut)])
    with pytest.raises(Refusal, match=r"cut\.onnx"):
        load_onnx(path)


@pytest.mark.parametrize("content", [b"", b"hello"])
def test_not_a_model(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(Refusal, match=r"ONNX model|no graph"):
        load_onnx(path)


def test_unreadable_path(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.onnx", tmp_path):
        with pytest.raises(Refusal, match="cannot read"):
            load_onnx(path)


def external(tmp_path: Path, location: str, size: int = 16, **entries: int) -> Path:
    proto = model([node("Add", ["x", "w"])], {"x": floats(4)})
    w = proto.graph.initializer.add(name="w", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        w.external_data.add(key=key, value=str(value))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "w.bin").write_bytes(np.arange(size // 4, dtype=np.float32).tobytes())
    (tmp_path / "outside.bin").write_bytes(b"\0" * 64)
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data_is_mapped(tmp_path: Path) -> None:
    module = load_onnx(external(tmp_path, "w.bin", 32, offset=16, length=16))
    (weight,) = [n for n in module.main if n.op == "weight"]
    assert type(weight.attrs["data"]).__name__ == "FileData"
    assert weight.attrs["data"].numpy().tolist() == [4.0, 5.0, 6.0, 7.0]


@pytest.mark.parametrize("location", ["../outside.bin", "link.bin", "/etc/hostname", "absent.bin"])
def test_external_data_stays_in_the_models_folder(tmp_path: Path, location: str) -> None:
    with pytest.raises(Refusal, match=r"outside the model's folder|missing beside the model"):
        load_onnx(external(tmp_path, location))


@pytest.mark.parametrize("entries", [{"offset": 4}, {"length": 12}, {"offset": -4}, {"offset": 2**62}])
def test_external_data_must_fit_its_file(tmp_path: Path, entries: dict[str, int]) -> None:
    with pytest.raises(Refusal, match="initializer 'w'"):
        load_onnx(external(tmp_path, "w.bin", **entries))


def test_u6_a_shape_that_data_decides_keeps_the_node_and_the_warning_names_what_lost_it(tmp_path: Path) -> None:
    nodes = [node("Cast", ["x"], ["i"], to=TensorProto.INT64), node("Reshape", ["x", "i"])]
    proto = model(nodes, {"x": floats(2)})
    onnx.save(proto, tmp_path / "m.onnx")
    found = read_onnx(tmp_path / "m.onnx")
    (text,) = map(str, found.warnings)
    assert "node 1 (Reshape n_y)" in text and "Cast n_i" in text
    assert run(found.module, {"x": np.array([2, 1], np.float32)})["y"].tolist() == [[2], [1]]


def test_problems_of_several_nodes_are_collected() -> None:
    nodes = [
        node("MatMul", ["x", "x"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("Concat", ["x", "w"], ["c"], axis=0),
        node("Add", ["b", "c"]),
    ]
    text = refused(model(nodes, {"x": floats(2, 3)}, initializers={"w": np.zeros((2, 4), np.float32)}))
    assert "n_a" in text and "n_c" in text and "Relu" not in text


def test_dimension_names_become_identifiers_and_stay_apart() -> None:
    info = {"x": floats("batch size", "batch.size", "seq"), "y0": floats("batch size", "seq + seq", 2)}
    graph = imported(model([node("Relu", ["x"]), node("Relu", ["y0"], ["z"])], info, ["y", "z"])).main
    assert str(graph.inputs[0].type) == "f32[batch_size, batch_size_2, seq]"
    assert str(graph.inputs[1].type) == "f32[batch_size, 2*seq, 2]"


def test_initializers_of_every_stored_form() -> None:
    forms = [
        helper.make_tensor("a", TensorProto.FLOAT16, [2], [1.0, 2.0]),
        helper.make_tensor("b", TensorProto.INT8, [2], [-1, 2]),
        helper.make_tensor("c", TensorProto.BOOL, [2], [True, False]),
        helper.make_tensor("d", TensorProto.INT4, [3], [-8, 7, 1]),
        numpy_helper.from_array(np.array([1, 2], np.uint64), "e"),
        helper.make_tensor("f", TensorProto.DOUBLE, [2], [0.5, 1e300]),
    ]
    nodes = [node("Identity", [t.name], [f"y{t.name}"]) for t in forms]
    proto = model(nodes, {}, [f"y{t.name}" for t in forms])
    proto.graph.initializer.extend(forms)
    from moec.eval import run

    values = [v.astype(np.float64).tolist() for v in run(imported(proto), {}).values()]
    assert values == [[1, 2], [-1, 2], [1, 0], [-8, 7, 1], [1, 2], [0.5, 1e300]]

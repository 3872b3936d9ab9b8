"""What users of such compilers reported, each with the smallest input that shows the same here: import and rewrites.

Reports that have their test beside the code that they are about are not repeated: U2, U3, U5, U6, U8, U10, U11, U15
and U16.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx_models import agree, floats, int64s, model, node
from onnx_models import imported as onnx_module

from moec.eval import run
from moec.explain import explain
from moec.frontend.dsl import parse_moe
from moec.frontend.onnx import load_onnx, read_onnx
from moec.frontend.onnx_export import to_onnx
from moec.ir.graph import Module
from moec.ir.text import print_module
from moec.passes.base import DEFAULT_PIPELINE, PassManager, default_passes, known_passes
from moec.rewrite.match import match

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
EXPORT = DATA / "qwen3_moe_moe_dynamo_dyn_op21_tf451.onnx"


def optimised(module: Module, passes: str = DEFAULT_PIPELINE) -> Module:
    PassManager.parse(passes).run(module)
    return module


def ops(module: Module) -> list[str]:
    return [n.op for n in module.main if n.op != "weight"]


def test_u1_the_reads_of_the_host_that_counting_tokens_implies_are_reported() -> None:
    """Each expert's count is a symbol with the bound of all slots, and the warning says who waits for it."""
    found = read_onnx(EXPORT)
    (warning,) = map(str, found.warnings)
    assert "sizes that only data tells (8 nodes; nonzero0 is at most 4*s47*s87)" in warning
    assert "host waits to read" in warning and "NonZero node_NonZero_27" in warning
    recovered = optimised(found.module, "canonicalise,fold,canonicalise,cse,dce,recover-moe,dce")
    assert "moe" in ops(recovered) and "nonzero" not in ops(recovered) and set(recovered.symbols) == {"s47", "s87"}


def test_u9_a_fused_node_lists_the_nodes_that_it_came_from() -> None:
    """Node names may be equal: file and index tell them apart, through every pass."""
    proto = model([node("Sigmoid", ["x"], ["s"]), node("Mul", ["x", "s"], ["y"])], {"x": floats("T", 32)})
    for each in proto.graph.node:
        each.name = "same"
    (silu,) = [n for n in optimised(onnx_module(proto), "canonicalise").main if n.op == "silu"]
    assert [(s.file, s.line, s.label) for s in silu.origin.sources] == [
        ("test.onnx", 0, "Sigmoid same"),
        ("test.onnx", 1, "Mul same"),
    ]
    module = optimised(load_onnx(EXPORT))
    for each in module.main:
        assert all(s.file == EXPORT.name for s in each.origin.sources), each
    (gating,) = [n for n in module.main if n.op == "gating"]
    assert len(gating.origin.sources) > 20 and "recover-moe" in gating.origin.rewrites


HALVES = """
input x: f32[2, 5, 8]{tables}
a = x[..., {low}]
b = x[..., {high}]
output y = x * cos_p + concat({turned}, axis = -1) * sin_p
"""
TABLES = ", cos_p: f32[5, 8], sin_p: f32[5, 8]"


@pytest.mark.parametrize(
    ("low", "high", "turned", "tables", "fires"),
    [
        (":4", "4:", "-b, a", TABLES, True),
        ("::2", "1::2", "-b, a", TABLES, False),
        (":4", "4:", "b, a", TABLES, False),
        (":4", "4:", "-a, b", TABLES, False),
        (":2", "2:", "-b, a", TABLES, False),
        (":4", "4:", "-b, a", ", cos_p: f32[5, 8], sin_p: f32[5, 1]", False),
    ],
    ids=["halves", "interleaved", "not negated", "the other half", "a part", "tables of two shapes"],
)
def test_u14_rotate_half_elim_takes_halves_only(low: str, high: str, turned: str, tables: str, fires: bool) -> None:
    module = parse_moe(HALVES.format(low=low, high=high, turned=turned, tables=tables))
    rng = np.random.default_rng(0)
    feeds = {v.name: rng.standard_normal(v.type.dims) for v in module.main.inputs}
    expected = run(module, feeds, fp64=True)["y"]
    assert ("rope" in ops(optimised(module, "rotate-half-elim,dce"))) is fires
    np.testing.assert_allclose(run(module, feeds, fp64=True)["y"], expected, atol=1e-14)


@pytest.mark.parametrize("score", ["softmax(x, axis = -1)", "sigmoid(x)"])
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_u17_the_order_of_top_k_survives_the_passes(dtype: str, score: str) -> None:
    """Different logits whose scores round to the same: the lower index goes first, so scores come before."""
    text = (
        f"input x: {dtype}[4, 16]\nw, e = topk({score}, k = 4, axis = -1, largest = true, sorted = true)\noutput w, e"
    )
    logits = np.float32([8.0]) + np.arange(16, dtype=np.float32) / 2**10 * np.array([[1], [1 / 2**6], [0], [-1]])
    logits = logits.astype(np.float16 if dtype == "f16" else np.float32)
    before, after = (run(m, {"x": logits}) for m in (parse_moe(text), optimised(parse_moe(text))))
    assert any(len(set(row)) < 4 for row in before["w"])
    np.testing.assert_array_equal(after["e"], before["e"])
    np.testing.assert_array_equal(after["w"], before["w"])


def test_u18_chains_that_share_a_shape_constant_keep_both_through_rewrites_and_export() -> None:
    """Names are display only: initializers, and names of values from two subgraphs, may be equal or shared."""
    nodes = [
        node("Reshape", ["x", "shape"], ["a"]),
        node("Reshape", ["z", "shape"], ["b"]),
        node("Transpose", ["a"], ["at"], perm=[1, 0]),
        node("Transpose", ["b"], ["bt"], perm=[1, 0]),
        node("Reshape", ["at", "flat"], ["af"]),
        node("Reshape", ["bt", "flat"], ["bf"]),
        node("Mul", ["af", "w"], ["p"]),
        node("Add", ["bf", "w"], ["q"]),
        node("Concat", ["p", "q"], axis=0),
    ]
    held = {"shape": np.array([2, 3]), "flat": np.array([6]), "w": np.arange(6, dtype=np.float32)}
    proto = model(nodes, {"x": floats(6), "z": floats(6)}, initializers=held)
    rng = np.random.default_rng(0)
    feeds = {n: rng.standard_normal(6).astype(np.float32) for n in ("x", "z")}
    expected = run(onnx_module(proto), feeds)["y"]
    written = to_onnx(optimised(onnx_module(proto)))
    onnx.checker.check_model(written)
    made = [t.name for t in written.graph.initializer] + [o for n in written.graph.node for o in n.output]
    assert len(set(made)) == len(made)
    np.testing.assert_array_equal(run(onnx_module(written), feeds)["y"], expected)


def test_u20_any_two_passes_together_leave_a_sound_graph() -> None:
    """The graph is verified after each, in every order of two, and computes the same."""
    path = DATA / "qwen3_moe_moe_dynamo_batched_mm_dyn_op21.onnx"
    x = {"hidden_states": np.random.default_rng(0).standard_normal((1, 3, 32)).astype(np.float32)}
    expected = run(load_onnx(path), x)["output"]
    names = dict.fromkeys(p.name for p in default_passes())
    for first, second in product(names, names):
        module = optimised(load_onnx(path), f"{first},{second}")
        np.testing.assert_allclose(run(module, x)["output"], expected, atol=2e-6, err_msg=f"{first},{second}")


PROGRAM = """
import sys
from pathlib import Path
from moec.explain import explain
from moec.frontend.onnx import read_onnx
from moec.frontend.onnx_export import to_onnx
from moec.ir.text import print_module
from moec.passes.base import PassManager, default_passes
from contextlib import nullcontext
path = Path(sys.argv[1])
found = read_onnx(path)
print(print_module(found.module, origins=True), *found.warnings)
PassManager(default_passes()).run(found.module)
entries = explain(path, default_passes(), None, {}, lambda _: nullcontext())
print(print_module(found.module, origins=True), [e.json() for e in entries])
sys.stdout.flush()
sys.stdout.buffer.write(to_onnx(found.module).SerializeToString(deterministic=True))
"""


def test_onnxscript_2878_import_rewrites_and_export_are_the_same_bytes_under_any_hash_seed() -> None:
    found = []
    for seed in ("0", "4711"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", PROGRAM, str(EXPORT)]
        found.append(subprocess.run(command, env=env, capture_output=True, check=True).stdout)
    assert len(found[0]) > 20_000 and found[0] == found[1]


@pytest.mark.parametrize("flips", list(product([False, True], repeat=4)), ids=lambda f: "".join("01"[i] for i in f))
def test_onnxscript_2741_2397_operands_of_commutative_operators_stand_in_any_order(flips: tuple[bool, ...]) -> None:
    """One rule, not one for each order: RMSNorm with a weight, its four commutative operators either way round."""

    def either(op: str, a: str, b: str, out: str, flip: bool) -> onnx.NodeProto:
        return node(op, [b, a] if flip else [a, b], [out])

    nodes = [
        node("Mul", ["x", "x"], ["sq"]),
        node("ReduceMean", ["sq", "axes"], ["mean"]),
        either("Add", "mean", "eps", "some", flips[0]),
        node("Sqrt", ["some"], ["root"]),
        node("Reciprocal", ["root"], ["inv"]),
        either("Mul", "x", "inv", "normed", flips[1]),
        either("Mul", "normed", "w", "scaled", flips[2]),
        either("Add", "scaled", "x", "y", flips[3]),
    ]
    held = {"axes": np.array([-1]), "eps": np.float32(1e-6), "w": np.arange(32, dtype=np.float32)}
    module = optimised(onnx_module(model(nodes, {"x": floats("T", 32)}, initializers=held)), "canonicalise,dce")
    assert ops(module) == ["rms_norm", "add"]


@pytest.mark.parametrize(
    "cast", [(), ("router",), ("weights",), ("router", "weights")], ids=lambda c: "+".join(c) or "no"
)
def test_onnxruntime_27449_a_cast_more_or_less_does_not_stop_recovery(cast: tuple[str, ...]) -> None:
    """Exporters put casts to the same dtype around the router's scores, or none."""
    proto = onnx.load(EXPORT)
    targets = {"router": "Softmax", "weights": "TopK"}
    for name in cast:
        (at,) = [n for n in proto.graph.node if n.op_type == targets[name]]
        old = at.output[0]
        at.output[0] = f"{old}_raw"
        again = onnx.helper.make_node("Cast", [at.output[0]], [old], to=onnx.TensorProto.FLOAT, name=f"cast_{name}")
        proto.graph.node.insert(list(proto.graph.node).index(at) + 1, again)
    assert (
        ops(optimised(onnx_module(proto), "canonicalise,fold,canonicalise,cse,dce,recover-moe,dce")).count("moe") == 1
    )


def test_onnxruntime_27449_every_exporter_version_is_the_same_block() -> None:
    """One layer by two exporters and two versions of the modelling code: one ``moe`` with the same attributes."""
    found = {}
    for path in sorted(DATA.glob("qwen3_moe_moe_*_op2?*.onnx")):
        if "eager" in path.name:
            continue
        module = optimised(load_onnx(path), "canonicalise,fold,canonicalise,cse,dce,recover-moe,dce")
        (moe,) = [n for n in module.main if n.op == "moe"]
        found[path.stem] = {k: v for k, v in moe.attrs.items() if not k.endswith("_dtype")}
    assert len(found) == 5
    assert all(attrs == found[EXPORT.stem] for attrs in found.values())


def test_onnxsim_1284_1293_sizes_of_unknown_rank_are_not_folded() -> None:
    """A reshape to a shape that is an input: nothing about the result's rank is known, nor what is computed from it."""
    nodes = [
        node("Reshape", ["x", "shape"], ["r"]),
        node("Shape", ["r"], ["s"]),
        node("Size", ["s"], ["rank"]),
        node("ReduceProd", ["s", "axis"], ["count"], keepdims=0),
        node("Mul", ["rank", "count"], ["y"]),
    ]
    proto = model(nodes, {"x": floats(12), "shape": int64s("R")}, initializers={"axis": np.array([0])})
    for shape in ([12], [3, 4], [2, 3, 2]):
        agree(proto, {"x": np.zeros(12, np.float32), "shape": np.array(shape)})
        folded = optimised(onnx_module(proto), "canonicalise,fold,canonicalise,cse,dce")
        y = run(folded, {"x": np.zeros(12, np.float32), "shape": np.array(shape)})["y"]
        assert y == len(shape) * 12


def test_onnxsim_1284_folding_goes_through_the_references() -> None:
    """Integer division, wrap-around and rounding of folded constants are those of evaluation, operator by operator."""
    nodes = [
        node("Div", ["a", "b"], ["q"]),
        node("Mul", ["q", "big"], ["m"]),
        node("Cast", ["m"], ["f"], to=onnx.TensorProto.FLOAT16),
        node("Cast", ["f"], ["g"], to=onnx.TensorProto.FLOAT),
        node("Add", ["g", "x"]),
    ]
    held = {"a": np.int32([[-7, 7]]), "b": np.int32([[2, -2]]), "big": np.int32([[2**30 + 3, 2**30 + 1]])}
    proto = model(nodes, {"x": floats(1, 2)}, initializers=held)
    feeds = {"x": np.zeros((1, 2), np.float32)}
    agree(proto, feeds)
    module = optimised(onnx_module(proto), "canonicalise,fold,dce")
    np.testing.assert_array_equal(run(module, feeds)["y"], run(onnx_module(proto), feeds)["y"])


def test_onnxruntime_10359_a_block_that_was_not_fused_has_a_reason(tmp_path: Path) -> None:
    """Routing weights divided by something that is not their sum, as ``moec explain`` tells it with the node."""
    from contextlib import nullcontext

    proto = onnx.load(EXPORT)
    (div,) = [n for n in proto.graph.node if n.op_type == "Div" and n.output[0] == "div"]
    proto.graph.initializer.append(numpy_helper.from_array(np.float32(3.0), "three"))
    div.input[1] = "three"
    onnx.save(proto, tmp_path / "m.onnx")
    entries = explain(tmp_path / "m.onnx", default_passes(), None, {}, lambda _: nullcontext())
    misses = [e.json() for e in entries if e.rule == "recover-moe"]
    assert misses and not misses[0]["fired"] and misses[0]["near_misses"][0]["reason"]
    assert misses[0]["near_misses"][0]["at"]


def test_onnxscript_1909_matches_are_found_without_rewriting() -> None:
    module = load_onnx(EXPORT)
    before = print_module(module)
    rules = [r for name in ("canonicalise", "fuse-gating") for r in known_passes()[name].rules()]  # type: ignore[attr-defined]
    assert [m.rule.name for m in match(rules, module.main)]
    assert print_module(module) == before

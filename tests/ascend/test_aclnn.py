"""Calls of the vendor's operator library: what is offered, that it runs as the reference says, and what it costs."""

from __future__ import annotations

from pathlib import Path

import moe_attrs
import numpy as np
import pytest
from ascend_run import built

import moec
from moec.codegen.operator_call import OperatorCall
from moec.codegen.program import Memset, Program
from moec.codegen.program_text import parse_program, print_program
from moec.eval import run
from moec.ir.graph import Graph, Module
from moec.ir.symbol import sym
from moec.ir.text import parse_module
from moec.ir.types import DTYPES, TensorType, dtype
from moec.ops.build import Builder
from moec.targets.ascend import load_target
from moec.targets.ascend.aclnn.offer import RULES, NotOffered, offer
from moec.targets.ascend.aclnn.time import call_time

ROUTING = {**moe_attrs.ROUTING, "top_k": 3, "weights_dtype": DTYPES["f32"]}
GATED = moe_attrs.ACTIVATION
CAUSAL = {"scale": 0.3, "causal": True, "offset": 0, "window": None, "softcap": None, "empty_rows": "nan"}
EXPERTS, TOP_K, HIDDEN, INNER = 5, 3, 12, 7


def every_op(name: str) -> Module:
    """A module that uses each op that the library offers, in ``name``; T tokens, some experts without any."""
    t, f = sym("T"), DTYPES[name]
    module = Module()
    module.symbols["T"] = (1, 64)
    graph = module.add(Graph("main"))

    def given(label: str, *dims: object, of: str = name) -> object:
        return graph.add_input(label, TensorType(dtype(of), dims))

    b = Builder(graph)
    x, logits = given("x", t, HIDDEN), given("logits", t, EXPERTS, of="f32")
    up, bias = given("up", EXPERTS, 2 * INNER, HIDDEN), given("bias", EXPERTS, 2 * INNER)
    down = given("down", EXPERTS, INNER, HIDDEN)
    gate = b.node("gating", logits, **ROUTING)
    weights, experts, counts = gate.results
    rows, places = b.node("permute", x, experts, counts).results
    h = b.grouped_matmul(rows, up, counts, bias)
    a = b.swiglu(h, **GATED)
    z = b.grouped_matmul(a, down, counts, transpose_weight=False)
    scale = weights if name != "f16" else b.cast(weights, to=f)
    y = b.unpermute(z, places, scale)
    drows, dscale = b.node("unpermute_grad", given("dy", t, HIDDEN), z, places, scale).results
    da = b.grouped_matmul(drows, down, counts)
    dh = b.swiglu_grad(h, da, **GATED)
    dup = b.grouped_matmul_dw(dh, rows, counts)
    dx = b.unpermute(b.grouped_matmul(dh, up, counts, transpose_weight=False), places)
    normed = b.rms_norm(x, given("gamma", HIDDEN), eps=1e-6)
    wide = given("wide", 2, t, HIDDEN)
    plain = b.matmul(wide, given("w", 9, HIDDEN), transpose_b=True)
    batched = b.matmul(given("left", 2, HIDDEN, t), wide, transpose_a=True, transpose_b=True)
    soft = b.softmax(given("scores", 3, t, 6), axis=1)
    q, k, v = given("q", 2, 4, t, 6), given("k", 2, 2, t, 6), given("v", 2, 2, t, 5)
    causal, most, total = b.node("attention_stats", q, k, v, **CAUSAL).results
    seen = b.node("attention_stats", q, k, v, **{**CAUSAL, "causal": False}).results[0]
    plainly = b.attention(q, k, v, **CAUSAL)
    grads = b.node("attention_grad", q, k, v, causal, most, total, given("dout", 2, 4, t, 5), **CAUSAL).results[:3]
    outputs = {
        "y": y, "weights": weights, "experts": experts, "counts": counts, "dscale": dscale, "dup": dup,
        "dx": dx, "normed": normed, "plain": plain, "batched": batched, "soft": soft, "causal": causal,
        "most": most, "total": total, "seen": seen, "plainly": plainly, "dq": grads[0], "dk": grads[1], "dv": grads[2],
    }  # fmt: skip
    graph.set_outputs(list(outputs.values()), list(outputs))
    return module


def calls_of(program: Program) -> list[OperatorCall]:
    return [s for s in program.steps if isinstance(s, OperatorCall)]


def inputs_of(module: Module, tokens: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(tokens)
    out = {}
    for value in module.main.inputs:
        shape = [d if isinstance(d, int) else tokens for d in value.type.dims]
        out[str(value.name)] = rng.standard_normal(shape).astype(value.type.dtype.carrier)
    return out


@pytest.mark.parametrize(
    "name", ["f32", pytest.param("bf16", marks=pytest.mark.slow), pytest.param("f16", marks=pytest.mark.slow)]
)
def test_the_librarys_calls_compute_what_the_ops_mean(name: str, tmp_path: Path) -> None:
    module = every_op(name)
    program = load_target("ascend910b1").lower(module, {}, "aclnn")
    assert parse_program(print_program(program)) == program
    assert {c.function for c in calls_of(program)} >= {f"aclnn{op}" for op in FUNCTIONS}
    lists = [
        a for c in calls_of(program) if c.function == "aclnnCast" for n, a in c.arguments if "group_list" in str(a)
    ]
    assert len(lists) == 1  # one list of counts for all grouped products
    project = built(program, tmp_path)
    for tokens in (1, 5, 17):
        given = inputs_of(module, tokens)
        got = project.outputs(given, {"T": tokens})
        exact, reference = run(module, given, fp64=True), run(module, given)
        eps = {"f32": 2.0**-22, "bf16": 2.0**-7, "f16": 2.0**-10}[name]
        for output, want in exact.items():
            allowed = 4 * np.abs(reference[output].astype(np.float64) - want).max() + eps * np.abs(want).max()
            found = got[output].astype(np.float64)
            np.testing.assert_allclose(found, want, rtol=0, atol=allowed, err_msg=f"{output} of {tokens} tokens")


FUNCTIONS = (
    "Cast", "Expand", "FlashAttentionScore", "FlashAttentionScoreGrad", "GroupedMatmulV4", "Matmul",
    "MoeGatingTopKSoftmaxV2", "MoeTokenPermute", "MoeTokenPermuteGrad", "MoeTokenUnpermute", "MoeTokenUnpermuteGrad",
    "RmsNorm", "Softmax", "SwiGlu", "SwiGluGrad",
)  # fmt: skip


@pytest.mark.parametrize("name", ["bf16", pytest.param("f16", marks=pytest.mark.slow)])
def test_gradients_of_weights_in_f32_are_added_to_zeros(name: str, tmp_path: Path) -> None:
    """Groups of 3, 0 and 2 rows; both products share the list of ends."""
    module = parse_module(
        f"func main(%d: {name}[5, 12], %r: {name}[5, 7], %c: i32[3]) -> (dw: f32[3, 12, 7], back: f32[3, 7, 12]) {{\n"
        "  %1 = grouped_matmul_dw(%d, %r, %c) {to = !f32} : f32[3, 12, 7]\n"
        "  %2 = grouped_matmul_dw(%r, %d, %c) {to = !f32} : f32[3, 7, 12]\n"
        "  return %1, %2\n}\n"
    )
    target = load_target("ascend910b1")
    program = target.lower(module, {}, "aclnn")
    functions = ["aclnnCumsum", "aclnnGroupedMatmulAdd", "aclnnGroupedMatmulAdd"]
    assert [c.function for c in calls_of(program)] == functions
    assert sum(isinstance(s, Memset) for s in program.steps) == 2
    given = inputs_of(module, 5) | {"c": np.array([3, 0, 2], np.int32)}
    got, exact = built(program, tmp_path).outputs(given, {}), run(module, given, fp64=True)
    for output, want in exact.items():
        np.testing.assert_allclose(got[output], want, rtol=0, atol=1e-6 * np.abs(want).max())
        assert not got[output][1].any()


def test_zeros_before_a_call_are_paid_for() -> None:
    """Weights of 256 MiB: the fill costs more than the product of one row."""
    rows, counts = _t("bf16", 1, 8192), _t("i32", 1)
    module = Module()
    graph = module.add(Graph("main"))
    values = [graph.add_input(f"x{i}", t) for i, t in enumerate((rows, rows, counts))]
    node = Builder(graph).node("grouped_matmul_dw", *values, to=DTYPES["f32"])
    target, made = load_target("ascend910b1"), offer(node, module)
    calls = sum(call_time(target.machine, call, {}).us for call in made.calls)
    assert target._offer_us({}, made) > calls + 8192 * 8192 * 4 / 1.8e12 * 1e6


def test_every_offer_is_tried_above() -> None:
    module = every_op("f32")
    offer(next(n for n in module.main if n.op == "matmul"), module)  # loads the rules
    assert set(RULES) - {"fused"} <= {n.op for n in module.main}


def _only(op: str, *types: TensorType | None, **attrs: object) -> str:
    """Why the library does not have an op; '' where it has."""
    module = Module()
    graph = module.add(Graph("main"))
    values = [None if t is None else graph.add_input(f"x{i}", t) for i, t in enumerate(types)]
    node = Builder(graph).node(op, *values, **attrs)
    try:
        offer(node, module)
    except NotOffered as reason:
        return str(reason)
    return ""


def _t(name: str, *dims: int) -> TensorType:
    return TensorType(DTYPES[name], dims)


def test_what_the_library_does_not_compute_is_not_offered() -> None:
    logits = _t("f32", 8, 5)
    assert _only("gating", logits, **ROUTING) == ""
    assert _only("gating", logits, **{**ROUTING, "renormalize": False}) == ""
    assert _only("gating", logits, **{**ROUTING, "score_order": "after_topk", "renormalize": False}) == ""
    assert "bias" in _only("gating", logits, _t("f32", 5), **ROUTING)
    assert "softmax" in _only("gating", logits, **{**ROUTING, "score": "sigmoid"})
    assert "times" in _only("gating", logits, **{**ROUTING, "scale": 2.5})
    assert "sum" in _only("gating", logits, **{**ROUTING, "renormalize_eps": 1e-20})
    h = _t("bf16", 4, 6)
    assert "silu" in _only("swiglu", h, **{**GATED, "glu": "interleaved"})
    assert "silu" in _only("swiglu", h, **{**GATED, "activation": "gelu"})
    assert "silu" in _only("swiglu", h, **{**GATED, "limit": 7.0})
    q, wide = _t("bf16", 1, 4, 8, 16), _t("bf16", 1, 4, 8, 32)
    assert _only("attention", q, q, q, **CAUSAL) == ""
    assert "window" in _only("attention", q, q, q, **{**CAUSAL, "window": 4})
    assert "causal" in _only("attention", q, q, q, **{**CAUSAL, "offset": 3})
    assert "no wider" in _only("attention", q, q, wide, **CAUSAL)
    assert "mask" in _only("attention", q, q, q, _t("bool", 8, 8), **CAUSAL)
    assert "sinks" in _only("attention", q, q, q, None, _t("bf16", 4), **CAUSAL)
    assert "rotary" in _only("attention", q, q, q, None, None, _t("bf16", 1, 4, 8, 8), _t("bf16", 1, 1, 8, 8), **CAUSAL)
    assert "65535" in _only("grouped_matmul", _t("bf16", 8, 65536), _t("bf16", 2, 4, 65536), _t("i32", 2))
    assert "16777214" in _only("permute", _t("bf16", 1 << 23, 1), _t("i32", 1 << 23, 2), _t("i32", 4))
    assert "f64" in _only("softmax", _t("f64", 4, 4), axis=1)
    assert "no call" in _only("erf", h)


NORMS = """
func main(%x: {t}[T, 12], %y: {t}[T, 12], %g: {t}[12]) -> (total: {t}[T, 12], normed: {t}[T, 12], plain: {t}[T, 12]) {{
  %1 = add(%x, %y) : {t}[T, 12]
  %2 = rms_norm(%1, %g) {{eps = 0.001}} : {t}[T, 12]
  %3 = matmul(%2, %2) {{transpose_a = false, transpose_b = true, to = none}} : {t}[T, T]
  %4 = matmul(%3, %2) {{transpose_a = false, transpose_b = false, to = none}} : {t}[T, 12]
  %5 = rms_norm(%4, %g) {{eps = 0.001}} : {t}[T, 12]
  return %1, %2, %5
}}
"""


def norms(text: str) -> Module:
    module = parse_module(text)
    module.symbols["T"] = (1, 64)
    return moec.compile(module).module


@pytest.mark.parametrize("name", ["f32", pytest.param("bf16", marks=pytest.mark.slow)])
def test_norms_in_fused_kernels_are_recognised(name: str, tmp_path: Path) -> None:
    """Alone, and behind a residual addition whose sum is kept."""
    module = norms(NORMS.format(t=name))
    program = load_target("ascend910b1").lower(module, {}, "aclnn")
    assert [c.function for c in calls_of(program) if "Norm" in c.function] == ["aclnnAddRmsNorm", "aclnnRmsNorm"]
    given = inputs_of(module, 5)
    got, exact = built(program, tmp_path).outputs(given, {"T": 5}), run(module, given, fp64=True)
    for output, want in exact.items():
        np.testing.assert_allclose(
            got[output].astype(float), want, rtol=0, atol=(1e-5 if name == "f32" else 0.05) * np.abs(want).max()
        )


def test_other_fused_kernels_are_not_taken_for_norms() -> None:
    changed = (
        NORMS.format(t="f32")
        .replace("return %1", "%6 = mul(%5, %5) : f32[T, 12]\n  return %1")
        .replace("%2, %5", "%2, %6")
    )
    module = norms(changed)
    reasons = [c.reason for c in load_target("ascend910b1").lower(module, {}, "aclnn").choices if "fused" in c.node]
    assert any("no call for what" in r for r in reasons), reasons


def test_auto_takes_the_faster_by_the_estimate() -> None:
    """Never slower than either; a node goes to the library exactly where its call is cheaper."""
    layer = Path(__file__).resolve().parents[2] / "examples" / "tiny_moe.moe"
    times = {mode: moec.compile(layer, lower=mode).summary["total"]["us"] for mode in ("kernels", "auto", "aclnn")}
    assert times["auto"] <= min(times.values()) * (1 + 1e-9)
    choices = moec.compile(layer, lower="auto").summary["lowering"]["choices"]
    compared = [c for c in choices if c["kernel_us"] is not None]
    assert compared and all((c["library_us"] < c["kernel_us"]) == bool(c["calls"]) for c in compared)


def test_a_call_that_breaks_the_librarys_rules_is_refused_by_the_cpu_model(tmp_path: Path) -> None:
    """Counts that do not fill the rows, which a device would read past."""
    module = Module()
    graph = module.add(Graph("main"))
    rows, weight, counts = (graph.add_input(n, t) for n, t in (
        ("rows", _t("f32", 6, 4)), ("weight", _t("f32", 2, 3, 4)), ("counts", _t("i32", 2))))  # fmt: skip
    graph.set_outputs([Builder(graph).grouped_matmul(rows, weight, counts)], ["y"])
    project = built(load_target("ascend910b1").lower(module, {}, "aclnn"), tmp_path)
    given = {"rows": np.ones((6, 4), np.float32), "weight": np.ones((2, 3, 4), np.float32)}
    assert (project.outputs({**given, "counts": np.array([4, 2], np.int32)}, {})["y"] == 4).all()
    code, messages, _ = project.run({**given, "counts": np.array([4, 1], np.int32)}, {})
    assert code == 86 and "groups do not fill the operand" in messages

"""Gating on the CPU model against the numpy reference: routing attributes, dtypes, sizes, ties, NaN, counts."""

from __future__ import annotations

import numpy as np
import pytest
from vector_run import ORDERS, Layer, numbers

Case = dict[str, object]

DEEPSEEK: Case = {
    "score": "sigmoid",
    "score_order": "before_topk",
    "groups": 8,
    "group_top_k": 4,
    "group_score": "sum2",
    "group_mask": "zero",
    "renormalize": True,
    "renormalize_eps": 1e-20,
    "scale": 2.5,
}
PLAIN: Case = {
    "score": "softmax",
    "score_order": "before_topk",
    "groups": 1,
    "group_top_k": 1,
    "group_score": "none",
    "group_mask": "none",
    "renormalize": True,
    "renormalize_eps": 0.0,
    "scale": 1.0,
}
CASES: dict[str, Case] = {
    "mixtral": dict(PLAIN, experts=8, top_k=2, dtype="f32", weights="f32"),
    "qwen3_bf16": dict(PLAIN, experts=128, top_k=8, dtype="bf16", weights="bf16"),
    "gpt_oss": dict(
        PLAIN, experts=32, top_k=4, dtype="f32", weights="f32", score_order="after_topk", renormalize=False
    ),
    "deepseek_v3": dict(DEEPSEEK, experts=256, top_k=8, dtype="f32", weights="f32", bias="f32"),
    "deepseek_v2": dict(
        PLAIN,
        experts=40,
        top_k=6,
        dtype="f32",
        weights="f32",
        groups=4,
        group_top_k=2,
        group_score="max",
        group_mask="zero",
        renormalize=False,
        scale=16.0,
    ),
    "odd_f16": dict(
        PLAIN, experts=7, top_k=3, dtype="f16", weights="f16", score="sigmoid", score_order="after_topk", bias="f16"
    ),
    "odd_groups": dict(
        DEEPSEEK,
        experts=30,
        top_k=5,
        dtype="bf16",
        weights="f32",
        groups=3,
        group_top_k=2,
        group_mask="minus_inf",
        bias="bf16",
    ),
    "wide": dict(PLAIN, experts=321, top_k=16, dtype="f32", weights="f32"),
    "all_of_one": dict(PLAIN, experts=1, top_k=1, dtype="f32", weights="f32"),
}


FLAGS = {True: "true", False: "false"}


def node(i: int, c: Case) -> str:
    e, k = c["experts"], c["top_k"]
    attrs = ", ".join(f'{n} = "{c[n]}"' for n in ("score", "score_order", "group_score", "group_mask"))
    attrs += ", ".join(["", *(f"{n} = {c[n]}" for n in ("top_k", "groups", "group_top_k"))])
    attrs += f", renormalize = {FLAGS[bool(c['renormalize'])]}, renormalize_eps = {float(str(c['renormalize_eps']))!r}"
    attrs += f", scale = {float(str(c['scale']))!r}, weights_dtype = !{c['weights']}"
    bias = f"%b{i}" if "bias" in c else "none"
    return f"  %w{i}, %e{i}, %c{i} = gating(%x{i}, {bias}) {{{attrs}}} : {c['weights']}[T, {k}], i32[T, {k}], i32[{e}]"


def text(cases: list[Case]) -> str:
    """One module with a gating node a case; all see the same number of tokens."""
    given, made, returned = [], [], []
    for i, c in enumerate(cases):
        e, k = c["experts"], c["top_k"]
        given += [f"%x{i}: {c['dtype']}[T, {e}]"] + ([f"%b{i}: {c['bias']}[{e}]"] if "bias" in c else [])
        made += [f"weights{i}: {c['weights']}[T, {k}]", f"experts{i}: i32[T, {k}]", f"counts{i}: i32[{e}]"]
        returned += [f"%w{i}", f"%e{i}", f"%c{i}"]
    nodes = "\n".join(node(i, c) for i, c in enumerate(cases))
    return (
        f"symbol T in [0, 100000]\nfunc main({', '.join(given)}) -> ({', '.join(made)}) {{\n{nodes}\n"
        f"  return {', '.join(returned)}\n}}\n"
    )


def inputs(rng: np.random.Generator, cases: list[Case], tokens: int) -> dict[str, np.ndarray]:
    out = {}
    for i, c in enumerate(cases):
        out[f"x{i}"] = numbers(rng, (tokens, int(str(c["experts"]))), str(c["dtype"]), 2.0)
        if "bias" in c:
            out[f"b{i}"] = numbers(rng, (int(str(c["experts"])),), str(c["bias"]), 0.1)
    return out


def check(layer: Layer, cases: dict[str, Case], arrays: dict[str, np.ndarray], **environment: str) -> None:
    got, want = layer.run(arrays, **environment), layer.reference(arrays)
    for i, (name, c) in enumerate(cases.items()):
        np.testing.assert_array_equal(got[f"experts{i}"], want[f"experts{i}"], name)
        np.testing.assert_array_equal(got[f"counts{i}"], want[f"counts{i}"], name)
        tolerance = {"f32": 1e-6, "f16": 1e-3, "bf16": 8e-3}[str(c["weights"])]
        weights = (a[f"weights{i}"].astype(np.float64) for a in (got, want))
        np.testing.assert_allclose(*weights, rtol=tolerance, atol=1e-9, err_msg=name)


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Layer:
    return Layer(text(list(CASES.values())), tmp_path_factory.mktemp("gating"))


@pytest.mark.parametrize("tokens", [0, 1, 2, 5, 127])
def test_gating(layer: Layer, tokens: int) -> None:
    check(layer, CASES, inputs(np.random.default_rng(tokens), list(CASES.values()), tokens))


@pytest.mark.parametrize("order", ORDERS)
def test_gating_in_any_order_of_cores(layer: Layer, order: str) -> None:
    check(layer, CASES, inputs(np.random.default_rng(33), list(CASES.values()), 33), MOEC_CPU_ORDER=order)


@pytest.mark.parametrize("step", [1.0, 1e9])
def test_ties_go_to_the_lower_expert(layer: Layer, step: float) -> None:
    arrays = inputs(np.random.default_rng(40), list(CASES.values()), 40)
    for i in range(len(CASES)):
        x = arrays[f"x{i}"]
        arrays[f"x{i}"] = (np.round(x.astype(np.float32) / step) * step).astype(x.dtype)
    check(layer, CASES, arrays)


def test_nan_logits_are_chosen_first_and_never_leave_the_experts(layer: Layer) -> None:
    arrays = inputs(np.random.default_rng(3), list(CASES.values()), 12)
    i = list(CASES).index("gpt_oss")
    x = arrays[f"x{i}"]
    x[1, 5] = np.nan
    x[2, 3] = np.nan
    x[3] = np.nan
    x[4] = -np.inf
    x[5, :30] = -np.inf
    got, want = layer.run(arrays), layer.reference(arrays)
    for name in (f"experts{i}", f"counts{i}"):
        np.testing.assert_array_equal(got[name], want[name])
    np.testing.assert_allclose(got[f"weights{i}"], want[f"weights{i}"], rtol=1e-6)

"""Joint graphs of whole decoder layers at small sizes against central differences of their forward in f64.

Attention, router, experts, shared expert, norms and residuals together; before and after all passes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from grad_cases import ROUTERS

from moec.autodiff import Options, saved_values
from moec.eval import run
from moec.frontend.dsl import parse_moe
from moec.frontend.hf import parse_config
from moec.frontend.onnx_export import export_onnx
from moec.ir.graph import Module
from moec.ir.types import DType
from moec.passes.base import Context, Pass, PassManager, parse_passes, train_passes
from tests.support.train import check_gradients, copy, joint

Array = np.ndarray
EXAMPLES = Path(__file__).parents[2] / "examples"
MLA = {"H": 16, "N": 2, "Lq": 12, "Lkv": 8, "Dn": 4, "Dr": 4, "Dv": 6, "E": 8, "I": 6}
SMALL: dict[str, dict[str, int]] = {
    "pangu_ultra_moe_layer": MLA,
    "deepseek_v3_layer": MLA | {"Dr": 64},
    "qwen3_moe_235b_layer": {"H": 16, "N": 4, "M": 2, "D": 8, "E": 16, "I": 6},
    "mixtral_8x7b_layer": {"H": 16, "N": 4, "M": 2, "D": 4, "E": 8, "I": 6},
    "gpt_oss_120b_layer": {"H": 16, "N": 4, "M": 2, "D": 64, "W": 3, "E": 16, "I": 6},
}
"""Sizes that are quick to evaluate; widths that YaRN's bounds depend on stay."""

FEWER = {"deepseek_v3_layer": (("top_k = 8", "top_k = 3"), ("group_top_k = 4", "group_top_k = 3"))}
TOLERANCE = 2e-7
"""Of a directional derivative, relative to the largest of its kind: central differences at a step of 1e-5."""


def layer(
    name: str, routing: dict[str, Any] | None = None, biased: bool = True, change: tuple[str, str] = ("", "")
) -> Module:
    """An example at small sizes, with other routing if given."""
    text = (EXAMPLES / f"{name}.moe").read_text()
    text = text.replace(*change) if change[0] else text
    for size, number in SMALL[name].items():
        text = re.sub(rf"^{size} = \d+", f"{size} = {number}", text, flags=re.M)
    if routing is not None:
        pairs = ", ".join(f"{k} = {_spelt(v)}" for k, v in {**routing, "router_dtype": routing["score_dtype"]}.items())
        text = re.sub(r"routing = \{.*?\}", "routing = { " + pairs + " }", text, flags=re.S)
        if not biased:
            text = text.replace("down, score_bias = score_bias,", "down,")
    else:
        for old, new in FEWER.get(name, ()):
            text = text.replace(old, new)
    return parse_moe(text)


def _spelt(value: Any) -> str:
    return value.name if isinstance(value, DType) else json.dumps(value)


def weights_of(module: Module, rng: np.random.Generator) -> dict[str, Array]:
    """Numbers for every weight of a module."""
    nodes = {n.attrs["name"]: n.attrs["shape"] for n in module.nodes() if n.op == "weight"}
    return {n: rng.standard_normal(s) / 2 for n, s in nodes.items()}


def check(
    module: Module, x: Array, weights: dict[str, Array], skip: tuple[str, ...] = (), passes: Sequence[Pass] = ()
) -> dict[str, Array]:
    """Assert that the gradients by x and by each weight agree with differences along a direction, when they are made
    and after all passes (those of the training pipeline); the gradients.
    """
    forward, made = copy(module), copy(module)
    rng = np.random.default_rng(11)
    shape = run(forward, {"hidden_states": x}, weights, fp64=True)["output"].shape
    dy = rng.standard_normal(shape)
    found: list[dict[str, Array]] = []
    given = {"hidden_states": x, "d_output": dy}
    for step in PassManager(passes or train_passes()).steps(made, Context()):
        if step.made_by.name in ("autodiff", "fuse-vector"):
            found.append(run(made, given, weights, fp64=True))
    found.append(run(made, given, weights, fp64=True))
    assert saved_values(made)

    def loss(name: str, moved: Array) -> float:
        at = {**weights, "hidden_states": x, name: moved}
        out = run(forward, {"hidden_states": at["hidden_states"]}, {n: at[n] for n in weights}, fp64=True)
        return float(np.sum(dy * out["output"]))

    for name, value in {"hidden_states": x, **weights}.items():
        if name in skip:
            continue
        direction = rng.standard_normal(value.shape)
        direction /= np.linalg.norm(direction)
        expected = (loss(name, value + 1e-5 * direction) - loss(name, value - 1e-5 * direction)) / 2e-5
        for gradients in found:
            gradient = gradients[f"d_{name}"]
            scale = max(abs(expected), float(np.linalg.norm(gradient)) / 10, 1.0)
            actual = float(np.sum(gradient * direction))
            assert abs(actual - expected) <= TOLERANCE * scale, f"{name}: {actual} and not {expected}"
    for name, gradient in found[0].items():
        for later in found[1:]:
            np.testing.assert_allclose(later[name], gradient, rtol=0, atol=1e-9 * max(1.0, np.abs(gradient).max()))
    return {n[2:]: a for n, a in found[-1].items() if n.startswith("d_")}


def bias_of(weights: dict[str, Array]) -> tuple[str, ...]:
    return tuple(n for n in weights if "correction_bias" in n)


@pytest.mark.parametrize("name", SMALL)
def test_layers(name: str) -> None:
    module = layer(name)
    rng = np.random.default_rng(5)
    weights = weights_of(module, rng)
    found = check(module, rng.standard_normal((2, 5, SMALL[name]["H"])), weights, bias_of(weights))
    assert sorted(found) == sorted({"hidden_states", *weights} - set(bias_of(weights)))


@pytest.mark.parametrize("name", SMALL)
def test_joint_graphs_export_and_onnxruntime_computes_the_same(name: str, tmp_path: Path) -> None:
    """In f32, after all passes."""
    module = layer(name, change=("bf16", "f32"))
    PassManager(train_passes()).run(module)
    rng = np.random.default_rng(13)
    weights = {n: a.astype(np.float32) for n, a in weights_of(module, rng).items()}
    arrays = {v.name: rng.standard_normal((2, 5, SMALL[name]["H"]), np.float32) for v in module.main.inputs}
    expected = run(module, arrays, weights)
    export_onnx(module, tmp_path / "joint.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "joint.onnx")
    given = {i.name: {**arrays, **weights}[i.name] for i in session.get_inputs()}
    got = dict(zip([o.name for o in session.get_outputs()], session.run(None, given), strict=True))
    assert sorted(got) == sorted(expected)
    for output, wanted in expected.items():
        assert np.abs(got[output] - wanted).max() <= 1e-5 * np.abs(wanted).max(), output


@pytest.mark.parametrize("router", ROUTERS)
def test_router_variants(router: str) -> None:
    attrs, biased = ROUTERS[router]
    module = layer("deepseek_v3_layer", attrs, biased)
    rng = np.random.default_rng(6)
    weights = weights_of(module, rng)
    check(module, rng.standard_normal((1, 3, MLA["H"])), weights, bias_of(weights), parse_passes("autodiff,dce"))


def test_experts_without_tokens_get_exact_zeros() -> None:
    """Three tokens choose three of eight experts each; the last four are ruled out by their bias."""
    module = layer("deepseek_v3_layer", {**ROUTERS["sigmoid, before_topk, renormalised"][0], "top_k": 3})
    rng = np.random.default_rng(8)
    weights = weights_of(module, rng)
    (bias,) = bias_of(weights)
    weights[bias] = np.array([0.0] * 4 + [-9.0] * 4)
    found = check(module, rng.standard_normal((1, 3, MLA["H"])), weights, (bias,))
    for name in ("gate_up_proj", "down_proj"):
        (gradient,) = (a for n, a in found.items() if n.endswith(f"experts.{name}") and "shared" not in n)
        assert not gradient[4:].any() and gradient[:3].any()


def test_ties_go_to_the_lower_expert() -> None:
    """Experts 2 and 5 have one row in the router, so they tie for every token; a tie at the edge of the choice goes to
    the lower, and the other gets exact zeros.
    """
    module = layer("pangu_ultra_moe_layer", {**ROUTERS["sigmoid, after_topk"][0], "top_k": 1})
    rng = np.random.default_rng(9)
    weights = weights_of(module, rng)
    (router,) = (n for n in weights if n.endswith("mlp.gate.weight"))
    weights[router] *= 0.01
    weights[router][2] = weights[router][5] = 0.0
    weights[router][[0, 1, 3, 4, 6, 7]] = -np.abs(weights[router][[0, 1, 3, 4, 6, 7]])
    found = check(module, np.abs(rng.standard_normal((1, 4, MLA["H"]))), weights, (router,))
    (down,) = (a for n, a in found.items() if n.endswith("experts.down_proj"))
    assert down[2].any() and not down[5].any()


def test_repeated_layers_are_differentiated_once_and_agree_with_differences() -> None:
    config = {
        "model_type": "pangu_ultra_moe",
        "hidden_size": 16,
        "num_hidden_layers": 3,
        "moec_layers": [0, 1, 2],
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "attention_q_lora_dim": 12,
        "attention_kv_lora_dim": 8,
        "attention_qk_dim": 4,
        "attention_qk_rope_dim": 4,
        "attention_v_dim": 6,
        "intermediate_size": 20,
        "moe_intermediate_size": 6,
        "num_routed_experts": 8,
        "num_experts_per_tok": 2,
        "num_shared_experts": 1,
        "num_dense_layers": 1,
        "max_position_embeddings": 64,
        "rope_theta": 1e4,
        "rms_norm_eps": 1e-5,
        "routed_scaling_factor": 2.5,
        "norm_topk_prob": True,
        "sandwich_norm": True,
        "hidden_act": "silu",
        "vocab_size": 32,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
    }
    module = parse_config(json.dumps(config))
    rng = np.random.default_rng(10)
    weights = weights_of(module, rng)
    check(module, rng.standard_normal((1, 3, 16)), weights)
    made = copy(module)
    for step in PassManager(train_passes()).steps(made, Context()):
        if step.made_by.name == "autodiff":
            break
    calls = [n.attrs["fn"] for n in made.main if n.op == "call"]
    assert len(calls) == 6 and len(set(calls)) == 4, calls


def test_a_whole_model_with_two_losses() -> None:
    """Embedding, dense and MoE layers, the head that predicts the token after next, and both losses summed."""
    text = (EXAMPLES / "pangu_ultra_moe.moe").read_text()
    sizes = {"H": 16, "N": 2, "Lq": 12, "Lkv": 8, "Dn": 4, "Dr": 4, "Dv": 6, "V": 19, "F": 10, "E": 10, "I": 6}
    for size, number in sizes.items():
        text, count = re.subn(rf"^{size} = \d+", f"{size} = {number}", text, flags=re.M)
        assert count == 1, size
    module = parse_moe(text.replace("[0:3]", "[0:1]").replace("[3:61]", "[1:2]"))
    PassManager.parse("expand-moe").run(module)
    rng = np.random.default_rng(12)
    weights = weights_of(module, rng)
    tokens = rng.integers(0, 19, (2, 6))
    options = Options(loss=("loss", "mtp_loss"))
    check_gradients(module, {"tokens": tokens}, weights, list(weights), directions=1, options=options, tolerance=1e-5)
    made = joint(module, options)
    calls = [n.attrs["fn"] for n in made.main if n.op == "call"]
    assert [calls.count(f"{kind}_layer.{way}") for kind in ("dense", "moe") for way in ("fwd", "bwd")] == [1, 1, 2, 2]
    assert sum(n.op == "seed" for n in made.main) == 2

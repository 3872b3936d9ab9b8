"""Families without an export, against their papers' formulas written out token by token and head by head in fp64."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from hf_exports import CONFIGS

from moec.eval import run
from moec.frontend.hf import parse_config

Array = np.ndarray
Weights = Mapping[str, Array]

TINY = {
    k: v for k, v in CONFIGS["mixtral"].items() if "expert" not in k and k not in ("model_type", "intermediate_size")
}
S = 6


def layer(config: dict[str, Any]) -> tuple[Array, Array, Weights]:
    """An input [S, H], what the layer makes of it, and the weights by name below the layer."""
    module = parse_config(json.dumps(config))
    rng = np.random.default_rng(3)
    nodes = [n for n in module.main if n.op == "weight"]
    numbers = {n.attrs["name"]: rng.standard_normal(n.attrs["shape"]) / 3 for n in nodes}
    x = rng.standard_normal((1, S, config["hidden_size"]))
    y = run(module, {"hidden_states": x}, numbers, fp64=True)["output"]
    return x[0], y[0], {k.split(".", 3)[3]: v for k, v in numbers.items()}


def norm(x: Array, weight: Array, eps: float) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softmax(x: Array) -> Array:
    return np.exp(x - x.max()) / np.exp(x - x.max()).sum()


def turned(x: Array, position: int, theta: float, width: int, neighbours: bool) -> Array:
    """One head's vector with the pairs of its first ``width`` elements turned, one at a time."""
    y = x.copy()
    for i in range(width // 2):
        a, b = (2 * i, 2 * i + 1) if neighbours else (i, i + width // 2)
        angle = position * theta ** (-2 * i / width)
        y[a] = x[a] * np.cos(angle) - x[b] * np.sin(angle)
        y[b] = x[b] * np.cos(angle) + x[a] * np.sin(angle)
    return y


def attention(q: Array, k: Array, v: Array, window: int = S, sinks: Array | None = None) -> Array:
    """q [S, N, D], k and v [S, M, D] to [S, N D], query by query."""
    heads, share = q.shape[1], q.shape[1] // k.shape[1]
    out = np.zeros((S, heads, v.shape[2]))
    for t in range(S):
        seen = range(max(0, t - window + 1), t + 1)
        for n in range(heads):
            scores = [q[t, n] @ k[u, n // share] / np.sqrt(q.shape[2]) for u in seen]
            scores += [] if sinks is None else [sinks[n]]
            for weight, u in zip(softmax(np.array(scores)), seen, strict=False):
                out[t, n] += weight * v[u, n // share]
    return out.reshape(S, -1)


def projected(x: Array, w: Weights, name: str, heads: int) -> Array:
    y = x @ w[f"self_attn.{name}_proj.weight"].T + w.get(f"self_attn.{name}_proj.bias", 0)
    return np.asarray(y).reshape(S, heads, -1)


def swiglu(x: Array, gate: Array, up: Array, down: Array) -> Array:
    g = gate @ x
    return np.asarray(down @ (g * sigmoid(g) * (up @ x)))


def blocks(x: Array, w: Weights, eps: float, attend: Callable[[Array], Array], mlp: Callable[[Array], Array]) -> Array:
    """A pre-norm layer."""
    h = x + attend(norm(x, w["input_layernorm.weight"], eps))
    return h + np.stack([mlp(t) for t in norm(h, w["post_attention_layernorm.weight"], eps)])


def expert(x: Array, w: Weights, e: int) -> Array:
    gate, up = np.split(w["mlp.experts.gate_up_proj"][e], 2)
    return swiglu(x, gate, up, w["mlp.experts.down_proj"][e])


def shared(x: Array, w: Weights) -> Array:
    gate, up = np.split(w["mlp.shared_experts.gate_up_proj.weight"], 2)
    return swiglu(x, gate, up, w["mlp.shared_experts.down_proj.weight"])


def same(got: Array, expected: Array) -> None:
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6)


def test_gpt_oss() -> None:
    """Sinks, biases everywhere, a window of 3, softmax over the chosen, clamped SwiGLU with alternating rows."""
    config = TINY | {
        "model_type": "gpt_oss",
        "head_dim": 16,
        "intermediate_size": 24,
        "num_local_experts": 8,
        "num_experts_per_tok": 3,
        "sliding_window": 3,
        "swiglu_limit": 0.5,
    }
    x, got, w = layer(config)

    def attend(x: Array) -> Array:
        q, k, v = (projected(x, w, n, h) for n, h in (("q", 4), ("k", 2), ("v", 2)))
        q, k = (np.stack([[turned(h, t, 1e6, 16, False) for h in row] for t, row in enumerate(a)]) for a in (q, k))
        mixed = attention(q, k, v, 3, w["self_attn.sinks"])
        return np.asarray(mixed @ w["self_attn.o_proj.weight"].T + w["self_attn.o_proj.bias"])

    def mlp(x: Array) -> Array:
        logits = w["mlp.router.weight"] @ x + w["mlp.router.bias"]
        best = np.argsort(-logits, kind="stable")[:3]
        y = np.zeros_like(x)
        for p, e in zip(softmax(logits[best]), best, strict=True):
            h = w["mlp.experts.gate_up_proj"][e] @ x + w["mlp.experts.gate_up_proj_bias"][e]
            gate, up = np.minimum(h[0::2], 0.5), np.clip(h[1::2], -0.5, 0.5)
            h = gate * sigmoid(1.702 * gate) * (up + 1)
            y += p * (w["mlp.experts.down_proj"][e] @ h + w["mlp.experts.down_proj_bias"][e])
        return y

    same(got, blocks(x, w, 1e-5, attend, mlp))


def test_ernie() -> None:
    """Neighbouring pairs are turned; softmax scores, a bias on the choice, weights renormalised; two shared experts."""
    config = TINY | {
        "model_type": "ernie4_5_moe",
        "moe_intermediate_size": 12,
        "moe_num_experts": 8,
        "moe_k": 3,
        "moe_num_shared_experts": 2,
        "moe_layer_start_index": 0,
        "use_bias": False,
        "moe_norm_min": 1e-12,
    }
    x, got, w = layer(config)
    assert w["mlp.shared_experts.down_proj.weight"].shape == (32, 24)

    def attend(x: Array) -> Array:
        q, k, v = (projected(x, w, n, h) for n, h in (("q", 4), ("k", 2), ("v", 2)))
        q, k = (np.stack([[turned(h, t, 1e6, 8, True) for h in row] for t, row in enumerate(a)]) for a in (q, k))
        return np.asarray(attention(q, k, v) @ w["self_attn.o_proj.weight"].T)

    def mlp(x: Array) -> Array:
        scores = softmax(w["mlp.gate.weight"] @ x)
        best = np.argsort(-(scores + w["mlp.moe_statics.e_score_correction_bias"]), kind="stable")[:3]
        return shared(x, w) + sum(scores[e] / scores[best].sum() * expert(x, w, e) for e in best)

    same(got, blocks(x, w, 1e-5, attend, mlp))


def test_glm4_moe() -> None:
    """Half of a head is turned, heads are normed, biases on q, k and v only; DeepSeek-V3's router without groups."""
    config = TINY | {
        "model_type": "glm4_moe",
        "head_dim": 16,
        "attention_bias": True,
        "use_qk_norm": True,
        "partial_rotary_factor": 0.5,
        "moe_intermediate_size": 12,
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "n_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 0,
        "routed_scaling_factor": 1.5,
    }
    x, got, w = layer(config)

    def attend(x: Array) -> Array:
        q, k, v = (projected(x, w, n, h) for n, h in (("q", 4), ("k", 2), ("v", 2)))
        q, k = norm(q, w["self_attn.q_norm.weight"], 1e-5), norm(k, w["self_attn.k_norm.weight"], 1e-5)
        q, k = (np.stack([[turned(h, t, 1e6, 8, False) for h in row] for t, row in enumerate(a)]) for a in (q, k))
        return np.asarray(attention(q, k, v) @ w["self_attn.o_proj.weight"].T)

    def mlp(x: Array) -> Array:
        scores = sigmoid(w["mlp.gate.weight"] @ x)
        best = np.argsort(-(scores + w["mlp.gate.e_score_correction_bias"]), kind="stable")[:3]
        return shared(x, w) + sum(1.5 * scores[e] / scores[best].sum() * expert(x, w, e) for e in best)

    same(got, blocks(x, w, 1e-5, attend, mlp))


def test_granite() -> None:
    """Scores and what joins the residual have their own factors; softmax over the logits of the chosen."""
    config = TINY | {
        "model_type": "granitemoe",
        "intermediate_size": 12,
        "num_local_experts": 8,
        "num_experts_per_tok": 3,
        "attention_multiplier": 0.1,
        "residual_multiplier": 0.22,
        "embedding_multiplier": 12.0,
        "logits_scaling": 6.0,
    }
    x, got, w = layer(config)

    def attend(x: Array) -> Array:
        q, k, v = (projected(x, w, n, h) for n, h in (("q", 4), ("k", 2), ("v", 2)))
        q, k = (np.stack([[turned(h, t, 1e6, 8, False) for h in row] for t, row in enumerate(a)]) for a in (q, k))
        mixed = attention(q * 0.1 * np.sqrt(8), k, v)
        return np.asarray(0.22 * mixed @ w["self_attn.o_proj.weight"].T)

    def mlp(x: Array) -> Array:
        logits = w["block_sparse_moe.router.layer.weight"] @ x
        best = np.argsort(-logits, kind="stable")[:3]
        y = np.zeros_like(x)
        for p, e in zip(softmax(logits[best]), best, strict=True):
            gate, up = np.split(w["block_sparse_moe.input_linear.weight"][e], 2)
            y += 0.22 * p * swiglu(x, gate, up, w["block_sparse_moe.output_linear.weight"][e])
        return y

    same(got, blocks(x, w, 1e-5, attend, mlp))


def test_olmoe() -> None:
    """Queries and keys are normed over their whole width; weights are not renormalised."""
    config = TINY | {
        "model_type": "olmoe",
        "num_key_value_heads": 4,
        "intermediate_size": 12,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "norm_topk_prob": False,
        "clip_qkv": None,
    }
    x, got, w = layer(config)

    def attend(x: Array) -> Array:
        q, k, v = (projected(x, w, n, 1) for n in "qkv")
        q, k = norm(q, w["self_attn.q_norm.weight"], 1e-5), norm(k, w["self_attn.k_norm.weight"], 1e-5)
        q, k, v = (a.reshape(S, 4, 8) for a in (q, k, v))
        q, k = (np.stack([[turned(h, t, 1e6, 8, False) for h in row] for t, row in enumerate(a)]) for a in (q, k))
        return np.asarray(attention(q, k, v) @ w["self_attn.o_proj.weight"].T)

    def mlp(x: Array) -> Array:
        scores = softmax(w["mlp.gate.weight"] @ x)
        return np.asarray(sum(scores[e] * expert(x, w, e) for e in np.argsort(-scores, kind="stable")[:3]))

    same(got, blocks(x, w, 1e-5, attend, mlp))


MLA = {
    "num_key_value_heads": 4,
    "q_lora_rank": None,
    "kv_lora_rank": 10,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 5,
    "moe_intermediate_size": 12,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
}


def latent(x: Array, w: Weights, eps: float) -> Array:
    """MLA with queries projected in one step, head by head; turned pairs are neighbours."""
    q = projected(x, w, "q", 4)
    low = x @ w["self_attn.kv_a_proj_with_mqa.weight"].T
    kv = norm(low[:, :10], w["self_attn.kv_a_layernorm.weight"], eps) @ w["self_attn.kv_b_proj.weight"].T
    kv = kv.reshape(S, 4, 11)
    k = np.zeros((S, 4, 10))
    for t in range(S):
        k_turned = turned(low[t, 10:], t, 1e6, 4, True)
        for n in range(4):
            q[t, n, 6:] = turned(q[t, n, 6:], t, 1e6, 4, True)
            k[t, n] = np.concatenate([kv[t, n, :6], k_turned])
    return np.asarray(attention(q, k, kv[:, :, 6:]) @ w["self_attn.o_proj.weight"].T)


def test_deepseek_v2() -> None:
    """The best two of four groups by their best expert; softmax weights times 16, not renormalised."""
    config = TINY | MLA | {
        "model_type": "deepseek_v2",
        "topk_method": "group_limited_greedy",
        "n_group": 4,
        "topk_group": 2,
        "routed_scaling_factor": 16.0,
        "norm_topk_prob": False,
    }  # fmt: skip
    x, got, w = layer(config)

    def mlp(x: Array) -> Array:
        scores = softmax(w["mlp.gate.weight"] @ x)
        groups = np.argsort(-scores.reshape(4, 2).max(1), kind="stable")[:2]
        allowed = [e for e in range(8) if e // 2 in groups]
        best = sorted(allowed, key=lambda e: -scores[e])[:2]
        return shared(x, w) + sum(16 * scores[e] * expert(x, w, e) for e in best)

    same(got, blocks(x, w, 1e-5, lambda x: latent(x, w, 1e-6), mlp))


def test_pangu_ultra_moe() -> None:
    """Sandwich norm around MLA and around experts chosen by sigmoid scores, renormalised and scaled."""
    renamed = {
        "attention_kv_lora_dim": 10,
        "attention_qk_dim": 6,
        "attention_qk_rope_dim": 4,
        "attention_v_dim": 5,
        "num_key_value_heads": 4,
        "moe_intermediate_size": 12,
        "num_routed_experts": 8,
        "num_experts_per_tok": 2,
        "num_shared_experts": 1,
        "num_dense_layers": 0,
        "routed_scaling_factor": 2.5,
        "norm_topk_prob": True,
        "sandwich_norm": True,
    }
    x, got, w = layer(TINY | renamed | {"model_type": "pangu_ultra_moe"})
    h = x + norm(
        latent(norm(x, w["input_layernorm.weight"], 1e-5), w, 1e-6), w["post_attention_layernorm.weight"], 1e-5
    )
    y = np.zeros_like(h)
    for t, token in enumerate(norm(h, w["pre_mlp_layernorm.weight"], 1e-5)):
        scores = sigmoid(w["mlp.gate.weight"] @ token)
        best = np.argsort(-scores, kind="stable")[:2]
        y[t] = shared(token, w) + sum(2.5 * scores[e] / scores[best].sum() * expert(token, w, e) for e in best)
    same(got, h + norm(y, w["post_mlp_layernorm.weight"], 1e-5))

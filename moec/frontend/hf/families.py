"""What the code of each model family does where its ``config.json`` is silent, and how it names its weights.

A family is found by ``model_type``, else by ``architectures``; a file of no known family must say everything itself.
Sources: the modelling files of transformers 4.51 to 5.24 for each family, and for openPangu Ultra MoE the modelling
file published with the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Names:
    """The names of a layer's modules in the state dict, below ``model.layers.<n>``. ``router``, ``experts_in`` (gate
    and up), ``experts_out``, ``score_bias`` and ``shared`` stand below ``mlp``.
    """

    input_norm: str = "input_layernorm"
    post_norm: str = "post_attention_layernorm"
    pre_mlp_norm: str = "pre_mlp_layernorm"
    post_mlp_norm: str = "post_mlp_layernorm"
    attention: str = "self_attn"
    output: str = "o_proj"
    q_norm: str = "q_norm"
    k_norm: str = "k_norm"
    mlp: str = "mlp"
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    router: str = "gate"
    experts_in: str = "experts.gate_up_proj"
    experts_out: str = "experts.down_proj"
    score_bias: str = "gate.e_score_correction_bias"
    shared: str = "shared_experts"


@dataclass(frozen=True)
class Family:
    """``says``: fields (of ``fields.FIELDS``) that the model's code decides unless the file does. ``always``: fields
    that the code decides whatever the file says; a file that says otherwise is refused.
    """

    says: Mapping[str, Any] = field(default_factory=dict)
    always: Mapping[str, Any] = field(default_factory=dict)
    names: Names = Names()


_LLAMA = {"attention_bias": False, "qk_norm": "none", "rope_layout": "half", "score_bias": False}
"""Attention as in Llama, with no bias anywhere."""

_NOAUX = {
    "scoring_func": "sigmoid",
    "renormalize_eps": 1e-20,
    "score_bias": True,
    "router_f32": True,
    "weights_f32": True,
    "norm_topk_prob": True,
    "topk_method": "noaux_tc",
}
"""The router of DeepSeek-V3 (arXiv 2412.19437, section 2.1.2)."""

_DEEPSEEK_V3 = Family({**_LLAMA, **_NOAUX, "rope_layout": "interleaved_to_half"})

_MIXTRAL = Names(mlp="block_sparse_moe")

FAMILIES: dict[str, Family] = {
    "mixtral": Family(
        {**_LLAMA, "scoring_func": "softmax", "rope_theta": 1e6},
        {"norm_topk_prob": True, "expert_width": "intermediate_size"},
        _MIXTRAL,
    ),
    "qwen2_moe": Family(
        {
            **_LLAMA,
            "attention_bias": True,
            "output_bias": False,
            "scoring_func": "softmax",
            "norm_topk_prob": False,
            "shared_expert_gate": True,
            "use_sliding_window": False,
            "windowed_layers": "from max_window_layers",
        },
        names=Names(shared="shared_expert"),
    ),
    "qwen3_moe": Family(
        {
            **_LLAMA,
            "qk_norm": "head",
            "scoring_func": "softmax",
            "norm_topk_prob": False,
            "use_sliding_window": False,
        },
    ),
    "olmoe": Family(
        {**_LLAMA, "qk_norm": "width", "scoring_func": "softmax", "norm_topk_prob": False, "rms_norm_eps": 1e-5},
        {"expert_width": "intermediate_size"},
    ),
    "deepseek_v2": Family(
        {
            **_LLAMA,
            "rope_layout": "interleaved",
            "scoring_func": "softmax",
            "router_f32": True,
            "weights_f32": True,
            "group_mask": "zero",
        },
        {"norm_topk_prob": False},
    ),
    "deepseek_v3": _DEEPSEEK_V3,
    "pangu_ultra_moe": Family(
        {**_DEEPSEEK_V3.says, "score_bias": False, "topk_method": "greedy"},
    ),
    "gpt_oss": Family(
        {
            **_LLAMA,
            "attention_bias": True,
            "sinks": True,
            "scoring_func": "softmax",
            "swiglu_alpha": 1.702,
            "swiglu_limit": 7.0,
            "windowed_layers": "even",
        },
        {
            "expert_width": "intermediate_size",
            "score_order": "after_topk",
            "norm_topk_prob": False,
            "router_bias": True,
            "score_f32": False,
            "expert_bias": True,
            "hidden_act": "silu",
            "glu": "interleaved",
            "swiglu_offset": 1.0,
        },
        Names(router="router"),
    ),
    "glm4_moe": Family({**_LLAMA, **_NOAUX, "output_bias": False, "qk_norm": "head", "use_qk_norm": False}),
    "dots1": Family(
        {**_LLAMA, **_NOAUX, "qk_norm": "head", "norm_topk_prob": False, "windowed_layers": "from max_window_layers"}
    ),
    "granitemoe": Family(
        {**_LLAMA, "scoring_func": "softmax", "attention_multiplier": 1.0},
        {"score_order": "after_topk", "norm_topk_prob": False, "expert_width": "intermediate_size"},
        Names(
            mlp="block_sparse_moe",
            router="router.layer",
            experts_in="input_linear.weight",
            experts_out="output_linear.weight",
        ),
    ),
    "ernie4_5_moe": Family(
        {
            **_LLAMA,
            "rope_layout": "interleaved",
            "scoring_func": "softmax",
            "moe_norm_min": 1e-12,
            "router_f32": True,
            "rope_theta": 500000.0,
            "moe_layer_start_index": 1,
        },
        {"norm_topk_prob": True, "score_bias": True, "attention_bias": False},
        Names(score_bias="moe_statics.e_score_correction_bias"),
    ),
    "minimax_m2": Family(
        {**_LLAMA, "qk_norm": "width", "scoring_func": "sigmoid", "score_bias": True, "weights_f32": True},
        {"norm_topk_prob": True, "expert_width": "intermediate_size"},
        replace(_MIXTRAL, score_bias="e_score_correction_bias"),
    ),
    "lfm2_moe": Family(
        {**_LLAMA, "hidden_act": "silu", "qk_norm": "head", "renormalize_eps": 1e-6, "score_bias": True},
        {"scoring_func": "sigmoid", "score_f32": False},
        Names(
            input_norm="operator_norm",
            post_norm="ffn_norm",
            output="out_proj",
            q_norm="q_layernorm",
            k_norm="k_layernorm",
            mlp="feed_forward",
            gate="w1",
            up="w3",
            down="w2",
            score_bias="expert_bias",
        ),
    ),
}
"""Families by ``model_type``."""

ARCHITECTURES: dict[str, str] = {
    "MixtralForCausalLM": "mixtral",
    "Qwen2MoeForCausalLM": "qwen2_moe",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "OlmoeForCausalLM": "olmoe",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "PanguUltraMoEForCausalLM": "pangu_ultra_moe",
    "GptOssForCausalLM": "gpt_oss",
    "Glm4MoeForCausalLM": "glm4_moe",
    "Dots1ForCausalLM": "dots1",
    "GraniteMoeForCausalLM": "granitemoe",
    "Ernie4_5_MoeForCausalLM": "ernie4_5_moe",
    "MiniMaxM2ForCausalLM": "minimax_m2",
    "Lfm2MoeForCausalLM": "lfm2_moe",
}
"""The family of each architecture: models with a ``model_type`` of their own often reuse one (Kimi K2: DeepSeek-V3)."""

"""The fields of a Hugging Face ``config.json``: what each means, how models spell it, and which change nothing.

A field that stands in no table here is refused, because it may change what the layer computes. Spellings and meanings
are those of the configuration classes of transformers 4.51 to 5.24 and of the files that DeepSeek-V3, openPangu Ultra
MoE, Qwen3-235B-A22B, Mixtral-8x7B, GPT-OSS-120B, GLM-4.5 and ERNIE-4.5 were published with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

UNSAID: Any = object()
"""The default of a field whose absence leaves the layer open: the file or the model's family must say it."""


@dataclass(frozen=True)
class Field:
    """A field by its name here: the ``kind`` of its value, what it ``means``, and its ``default`` where the file and
    the family are silent. Kinds end in ``?`` where null is a value.
    """

    name: str
    kind: str
    means: str
    default: Any = UNSAID
    spellings: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()


_SIZES = (
    Field("hidden_size", "size", "width of the residual stream"),
    Field("num_hidden_layers", "size", "number of decoder layers"),
    Field("num_attention_heads", "size", "query heads"),
    Field("num_key_value_heads", "size?", "key and value heads; as many as query heads if absent", None),
    Field("head_dim", "size?", "width of a head; hidden_size / num_attention_heads if absent", None),
    Field("intermediate_size", "size?", "inner width of a dense layer's SwiGLU", None),
    Field("moe_intermediate_size", "size?", "inner width of an expert", None),
    Field(
        "expert_width",
        "str",
        "the field that holds an expert's inner width",
        "moe_intermediate_size",
        choices=("moe_intermediate_size", "intermediate_size"),
    ),
    Field("max_position_embeddings", "size", "longest sequence; the bound of seq", 131072),
    Field("dtype", "str?", "element type of weights and activations", None, ("torch_dtype",)),
)

_LATENT = (
    Field("kv_lora_rank", "size?", "latent width of keys and values: makes the attention MLA", None,
          ("attention_kv_lora_dim",)),
    Field("q_lora_rank", "size?", "latent width of queries; queries are projected in one step if null", None,
          ("attention_q_lora_dim",)),
    Field("qk_nope_head_dim", "size?", "part of a query or key head without position", None, ("attention_qk_dim",)),
    Field("qk_rope_head_dim", "size?", "part of a query or key head that is rotated", None, ("attention_qk_rope_dim",)),
    Field("qk_head_dim", "size?", "width of a query or key head of MLA, both parts together", None),
    Field("v_head_dim", "size?", "width of a value head", None, ("attention_v_dim",)),
    Field("latent_norm_eps", "eps", "epsilon of the norms of the latents", 1e-6),
)  # fmt: skip

_ATTENTION = (
    Field("attention_bias", "bool", "the query, key and value projections have biases (with MLA: the projections into "
          "the latents)", spellings=("qkv_bias", "use_bias")),
    Field("output_bias", "bool?", "the output projection has a bias; as attention_bias says if absent", None),
    Field("qk_norm", "str", "RMS norm of queries and keys: of each head, of the whole width before it is cut into "
          "heads, or none", choices=("none", "head", "width")),
    Field("use_qk_norm", "bool?", "whether the norm of queries and keys that the family has is on", None),
    Field("qk_norm_type", "str?", "MiniMax: the norm of queries and keys is of the whole width", None,
          choices=("per_layer",)),
    Field("sinks", "bool", "each head has one more score that takes part in the softmax and is dropped", False),
    Field("attention_multiplier", "float?", "scale of the scores; one over the square root of the head's width if "
          "absent", None),
    Field("clip_qkv", "positive?", "bound of queries, keys and values", None),
    Field("sliding_window", "size?", "keys that a query sees, itself included", None),
    Field("use_sliding_window", "bool", "whether sliding_window counts", True),
    Field("windowed_layers", "str", "which layers have the window where layer_types does not say",
          "all", choices=("all", "from max_window_layers", "even")),
    Field("max_window_layers", "int", "the first layer with a window, counted from 0", 0),
    Field("layer_types", "strs?", "the attention of each layer: full_attention or sliding_attention", None),
    Field("attn_type_list", "ints?", "MiniMax: the attention of each layer, 1 for full", None),
)  # fmt: skip

_ROPE = (
    Field("rope_theta", "positive?", "base of the rotary frequencies", None),
    Field("rope_scaling", "record?", "how frequencies are stretched: rope_type (or type) linear, llama3 or yarn", None),
    Field("rope_parameters", "record?", "rope_theta and rope_scaling in one record", None),
    Field("partial_rotary_factor", "positive", "share of a head that is rotated", 1.0),
    Field("rotary_dim", "size?", "elements of a head that are rotated", None),
    Field("rope_layout", "str", "which elements are a pair: i and i + R/2 (half), 2i and 2i + 1 (interleaved), or the "
          "latter with the results written in halves", choices=("half", "interleaved", "interleaved_to_half")),
    Field("rope_interleave", "bool?", "DeepSeek: pairs are 2i and 2i + 1", None),
)  # fmt: skip

_NORMS = (
    Field("rms_norm_eps", "eps", "epsilon of the RMS norms", spellings=("norm_eps",)),
    Field("sandwich_norm", "bool", "attention and MLP outputs are normed before they join the residual", False),
    Field("residual_multiplier", "float", "factor on what joins the residual", 1.0),
)

_ROUTER = (
    Field("num_experts", "size", "routed experts", spellings=("num_local_experts", "n_routed_experts",
          "moe_num_experts", "num_routed_experts")),
    Field("num_experts_per_tok", "size", "experts of a token", spellings=("moe_k", "experts_per_token")),
    Field("scoring_func", "str", "what turns logits into scores", choices=("softmax", "sigmoid")),
    Field("score_order", "str", "whether scores are taken of all logits or of the chosen ones", "before_topk",
          choices=("before_topk", "after_topk")),
    Field("norm_topk_prob", "bool", "the weights of a token's experts are divided by their sum"),
    Field("renormalize_eps", "eps", "added to that sum", 0.0),
    Field("moe_norm_min", "positive?", "least value of that sum", None),
    Field("routed_scaling_factor", "float", "factor on the weights", 1.0),
    Field("n_group", "size?", "groups that experts stand in", None),
    Field("topk_group", "size?", "groups that a token may choose from", None),
    Field("topk_method", "str?", "how experts are chosen", None,
          choices=("greedy", "group_limited_greedy", "noaux_tc")),
    Field("group_mask", "str", "the score of an expert outside the chosen groups", "minus_inf",
          choices=("zero", "minus_inf")),
    Field("score_bias", "bool", "a bias on the scores steers the choice but not the weights",
          spellings=("use_expert_bias", "use_routing_bias", "router_enable_expert_bias")),
    Field("router_bias", "bool", "the logits have a bias", False),
    Field("router_f32", "bool", "logits are f32 whatever the layer's dtype", False),
    Field("weights_f32", "bool", "weights of experts are f32 whatever the layer's dtype", False),
    Field("score_f32", "bool", "scores are f32 whatever the layer's dtype", True),
)  # fmt: skip

_EXPERTS = (
    Field("hidden_act", "str", "activation of the gate", choices=("silu", "gelu", "gelu_pytorch_tanh", "relu")),
    Field("glu", "str", "gate and up in a product's result: one half each, or even and odd columns", "chunked",
          choices=("chunked", "interleaved")),
    Field("swiglu_alpha", "float", "factor in the sigmoid of silu", 1.0),
    Field("swiglu_limit", "positive?", "bound of gate (above) and up (both sides)", None),
    Field("swiglu_offset", "float", "added to up", 0.0),
    Field("expert_bias", "bool", "both products of an expert have biases", False),
    Field("mlp_bias", "bool", "the products of MLPs have biases", False),
    Field("n_shared_experts", "count?", "shared experts, each as wide as a routed one", None,
          ("num_shared_experts", "moe_num_shared_experts")),
    Field("shared_expert_intermediate_size", "count?", "inner width of the shared expert", None,
          ("shared_intermediate_size",)),
    Field("shared_expert_gate", "bool", "the shared expert is weighted by a sigmoid gate", False),
)  # fmt: skip

_LAYOUT = (
    Field("first_k_dense_replace", "count", "dense layers before the first MoE layer", 0, ("num_dense_layers",)),
    Field("moe_layer_freq", "size", "MoE layers are those whose number it divides", 1),
    Field("mlp_only_layers", "ints", "dense layers, by number", ()),
    Field("decoder_sparse_step", "size", "MoE layers are those whose number, counted from 1, it divides", 1,
          ("moe_layer_interval",)),
    Field("moe_layer_start_index", "count", "the first layer that may be MoE", 0),
    Field("moe_layer_end_index", "int", "the last layer that may be MoE, -1 for the last there is", -1),
    Field("mlp_layer_types", "strs?", "dense or sparse, for each layer", None),
    Field("moec_layers", "layers", "what is built: `kinds` (one layer of each different kind, in order), `all`, or "
          "numbers of layers", "kinds"),
)  # fmt: skip

FIELDS: dict[str, Field] = {
    f.name: f
    for f in (*_SIZES, *_LATENT, *_ATTENTION, *_ROPE, *_NORMS, *_ROUTER, *_EXPERTS, *_LAYOUT)
}  # fmt: skip
"""Every field that says what a layer computes, by its name here."""

SPELLINGS: dict[str, str] = {s: f.name for f in FIELDS.values() for s in (f.name, *f.spellings)}
"""The field that each spelling is of."""

_IDENTITY = "model_type architectures auto_map _name_or_path name_or_path transformers_version is_decoder torchscript"
_TOKENS = (
    "vocab_size pad_token_id bos_token_id eos_token_id sep_token_id unk_token_id tie_word_embeddings "
    "embedding_multiplier logits_scaling pretraining_tp"
)
_TRAINING = (
    "initializer_range attention_dropout hidden_dropout resid_pdrop embd_pdrop router_aux_loss_coef aux_loss_alpha "
    "seq_aux output_router_logits router_jitter_noise router_z_loss_coef use_aux_loss ep_size moe_use_aux_free "
    "moe_capacity moe_gate"
)
_RUN_TIME = (
    "use_cache output_attentions output_hidden_states return_dict keys_to_ignore_at_inference chunk_size_feed_forward"
)
_CONVOLUTION = "conv_bias conv_L_cache"
_OUTSIDE = "num_nextn_predict_layers num_mtp_layers num_mtp_modules use_mtp mtp_transformer_layers"
_REPEATED = "initial_context_length max_seq_len_cached"

IGNORED: dict[str, str] = {
    name: reason
    for names, reason in (
        (_IDENTITY, "says which file this is"),
        (_TOKENS, "of the embedding and the output head, which stand outside the decoder layers"),
        (_TRAINING, "of training only"),
        (_RUN_TIME, "of the framework that runs the model"),
        (_OUTSIDE, "of the multi-token prediction layers, which are not built"),
        (_CONVOLUTION, "of convolution layers, which are refused themselves"),
        (_REPEATED, "repeats what other fields say"),
    )
    for name in names.split()
}
"""Fields that change nothing in a decoder layer's forward computation, and why."""

WARNED: dict[str, str] = {
    "quantization_config": "weights and products are those of the unquantised model in the layer's dtype",
}
"""Fields that do change numbers and are left aside, with what is done instead."""

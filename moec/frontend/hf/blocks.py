"""From fields to the parts of a layer: attention, dense MLP, MoE block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from moec.frontend.hf.rope import read_rope
from moec.frontend.hf.spec import Attention, Dense, Latent, Moe
from moec.frontend.hf.values import Values
from moec.ir.types import F32

ACTIVATIONS = {"silu": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}
"""The activation of op ``moe`` for each ``hidden_act``."""


def read_attention(values: Values, hidden: int) -> Callable[[int | None], Attention] | None:
    """The attention of a layer as a function of its window; None where a problem was found (it is in ``values``)."""
    heads = values.get("num_attention_heads") or 1
    kv_heads = values.get("num_key_value_heads") or heads
    latent = _latent(values)
    if latent is not None:
        rotated, value = values.need("qk_rope_head_dim", "MLA"), values.need("v_head_dim", "MLA")
        head = latent.nope + (rotated or 0)
        if values.said("qk_head_dim") and values.get("qk_head_dim") != head:
            values.wrong(values.spelling("qk_head_dim"), f"the parts of a query or key head make {head}")
        if kv_heads != heads:
            values.wrong(values.spelling("num_key_value_heads"), "MLA has as many key heads as query heads")
    else:
        head = value = rotated = values.get("head_dim") or hidden // heads
        if not head:
            values.wrong("hidden_size", f"{heads} heads of a width of {hidden} have no width")
    if heads % kv_heads:
        values.wrong(
            values.spelling("num_key_value_heads"), f"{heads} query heads do not share {kv_heads} key heads evenly"
        )
    if values.get("clip_qkv") is not None:
        values.wrong(values.spelling("clip_qkv"), "bounds on queries, keys and values are not built")
    rope = read_rope(values, rotated or 2)
    norm = _qk_norm(values, latent is not None)
    bias, sinks = values.get("attention_bias"), values.get("sinks")
    output = values.get("output_bias")
    scale = values.get("attention_multiplier")
    if values.problems:
        return None
    if scale is None:
        scale = float(head**-0.5) * (rope.mscale**2 if latent is not None else 1.0)
    made = Attention(
        heads,
        kv_heads,
        head,
        value,
        bias,
        bias if output is None else output,
        norm,
        sinks,
        float(scale),
        None,
        rope,
        latent,
    )
    return lambda window: replace(made, window=window)


def _latent(values: Values) -> Latent | None:
    rank = values.get("kv_lora_rank")
    if rank is None:
        for name in ("q_lora_rank", "qk_nope_head_dim", "v_head_dim"):
            if values.said(name):
                values.missing(f"'{values.spelling(name)}' is of MLA, but nothing says 'kv_lora_rank'", "kv_lora_rank")
        return None
    nope = values.need("qk_nope_head_dim", "MLA")
    return Latent(values.get("q_lora_rank"), rank, nope or 0, values.get("latent_norm_eps"))


def _qk_norm(values: Values, latent: bool) -> str:
    use = values.get("use_qk_norm")
    norm = "none" if use is False or (latent and not values.said("qk_norm")) else values.get("qk_norm")
    spelling = values.spelling("use_qk_norm")
    if use and (norm == "none" or latent):
        values.wrong(spelling, f"'{spelling}': where {values.title} norms queries and keys is not known")
    if norm not in ("none", None) and latent:
        values.wrong(values.spelling("qk_norm"), "a norm of queries and keys is not built with MLA")
    return str(norm)


def read_dense(values: Values) -> Dense:
    """The MLP of a dense layer."""
    inner = values.need("intermediate_size", "there are dense layers")
    return Dense(inner or 0, _activation(values))


def _activation(values: Values) -> str:
    if values.get("mlp_bias"):
        values.wrong(values.spelling("mlp_bias"), "biases in MLPs are not built")
    return ACTIVATIONS.get(str(values.get("hidden_act")), "silu")


def read_moe(values: Values) -> Moe | None:
    """The MoE block; None where a problem was found (it is in ``values``)."""
    experts, top_k = values.get("num_experts"), values.get("num_experts_per_tok")
    inner = values.need(values.get("expert_width"), "there are MoE layers")
    shared = _shared(values, inner or 0)
    attrs: dict[str, Any] = {
        "top_k": top_k,
        "score": values.get("scoring_func"),
        "score_order": values.get("score_order"),
        "renormalize": values.get("norm_topk_prob"),
        "scale": float(values.get("routed_scaling_factor")),
        "activation": _activation(values),
        "glu": values.get("glu"),
        "alpha": float(values.get("swiglu_alpha")),
        "limit": values.get("swiglu_limit"),
        "up_offset": float(values.get("swiglu_offset")),
        "weights_on": "output",
        "capacity": None,
        "capacity_scope": "none",
        "dropped": "none",
        **_groups(values, experts or 1),
    }
    attrs["renormalize_eps"] = float(values.get("renormalize_eps")) if attrs["renormalize"] else 0.0
    if experts and top_k and top_k > experts:
        values.wrong(values.spelling("num_experts_per_tok"), f"a token takes {top_k} of {experts} experts")
    _check_least_sum(values, attrs, experts or 1)
    _check_swiglu(values)
    wide = [values.get(n) for n in ("router_f32", "score_f32", "weights_f32")]
    flags = [bool(values.get(n)) for n in ("router_bias", "expert_bias", "shared_expert_gate")]
    score_bias = _score_bias(values)
    if values.problems:
        return None
    attrs |= {n: F32 for n, w in zip(("router_dtype", "score_dtype", "weights_dtype"), wide, strict=True) if w}
    attrs["limit"] = None if attrs["limit"] is None else float(attrs["limit"])
    return Moe(
        experts, inner, tuple(sorted(attrs.items())), score_bias, flags[0], flags[1], shared, flags[2] and bool(shared)
    )


def _groups(values: Values, experts: int) -> dict[str, Any]:
    """How the choice is limited to groups of experts, as attributes."""
    method = values.get("topk_method")
    groups, keep = values.get("n_group") or 1, values.get("topk_group") or 1
    if method != "greedy" and values.said("n_group") != values.said("topk_group") and max(groups, keep) > 1:
        given, other = ("n_group", "topk_group") if groups > 1 else ("topk_group", "n_group")
        values.need(other, f"'{values.spelling(given)}' is {max(groups, keep)}")
    elif keep > groups:
        values.wrong(values.spelling("topk_group"), f"a token chooses from {keep} of {groups} groups")
    if method == "greedy" or groups <= 1 or keep >= groups:
        return {"groups": 1, "group_top_k": 1, "group_score": "none", "group_mask": "none"}
    if method is None:
        values.missing("nothing says 'topk_method': what a group of experts is chosen by", "topk_method")
    if experts % groups:
        values.wrong(values.spelling("n_group"), f"{experts} experts do not split into {groups} groups")
    elif values.get("num_experts_per_tok") and keep * (experts // groups) < values.get("num_experts_per_tok"):
        values.wrong(values.spelling("topk_group"), f"{keep} groups have too few experts for a token's")
    score = "max" if method == "group_limited_greedy" else "sum2"
    return {"groups": groups, "group_top_k": keep, "group_score": score, "group_mask": values.get("group_mask")}


def _score_bias(values: Values) -> bool:
    """Whether a bias steers the choice: by its own field, else by ``topk_method``, else by the family."""
    if values.said("score_bias") or not values.said("topk_method"):
        return bool(values.get("score_bias"))
    return bool(values.get("topk_method") == "noaux_tc")


def _shared(values: Values, inner: int) -> int:
    width, count = values.get("shared_expert_intermediate_size"), values.get("n_shared_experts")
    if width and count:
        spelling = values.spelling("n_shared_experts")
        values.wrong(spelling, f"'{spelling}' and '{values.spelling('shared_expert_intermediate_size')}' both say it")
    return int(width or (count or 0) * inner)


def _check_least_sum(values: Values, attrs: dict[str, Any], experts: int) -> None:
    """``moe_norm_min`` bounds the sum that weights are divided by from below; only where no sum gets there is it built.

    The best of a softmax sum to at least top_k / experts; experts that a bias chose may score less, but not 1e-6 of it.
    """
    least = values.get("moe_norm_min")
    if not least or not attrs["renormalize"]:
        return
    reached = (attrs["top_k"] or 1) / experts * (1e-6 if _score_bias(values) else 1.0)
    if attrs["score"] != "softmax" or least > reached:
        values.wrong(values.spelling("moe_norm_min"), f"a least sum of {least} of the weights can be reached")


def _check_swiglu(values: Values) -> None:
    """The numbers of a clamped SwiGLU are understood as those of GPT-OSS."""
    for name in ("swiglu_limit", "swiglu_alpha", "swiglu_offset"):
        if values.said(name) and values.get("glu") != "interleaved":
            values.wrong(values.spelling(name), f"'{name}': what {values.title} does with it is not known")

"""Layers of real exports beside the config.json that they were made from: their weights under the names of the state
dict, and small configs that fit them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

Array = np.ndarray
Config = dict[str, Any]

_TINY: Config = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "hidden_act": "silu",
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-6,
    "torch_dtype": "float32",
}

CONFIGS: dict[str, Config] = {
    "mixtral": _TINY
    | {
        "model_type": "mixtral",
        "intermediate_size": 48,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
    },
    "qwen2_moe": _TINY
    | {
        "model_type": "qwen2_moe",
        "moe_intermediate_size": 24,
        "shared_expert_intermediate_size": 40,
        "num_experts": 8,
        "num_experts_per_tok": 4,
    },
    "qwen3_moe": _TINY
    | {
        "model_type": "qwen3_moe",
        "head_dim": 8,
        "moe_intermediate_size": 24,
        "num_experts": 8,
        "num_experts_per_tok": 4,
        "norm_topk_prob": True,
    },
    "deepseek_v3": _TINY
    | {
        "model_type": "deepseek_v3",
        "num_key_value_heads": 4,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 8,
        "v_head_dim": 8,
        "moe_intermediate_size": 16,
        "n_routed_experts": 16,
        "num_experts_per_tok": 4,
        "n_shared_experts": 1,
        "n_group": 4,
        "topk_group": 2,
        "routed_scaling_factor": 2.5,
    },
    "minimax_m2": _TINY
    | {
        "model_type": "minimax_m2",
        "head_dim": 8,
        "rotary_dim": 4,
        "rope_theta": 5e6,
        "intermediate_size": 24,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "use_routing_bias": True,
    },
    "lfm2_moe": _TINY
    | {
        "model_type": "lfm2_moe",
        "norm_eps": 1e-5,
        "rope_theta": 1e6,
        "moe_intermediate_size": 24,
        "num_dense_layers": 0,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
        "use_expert_bias": True,
        "layer_types": ["full_attention"],
    },
}
"""The config of the exported layers of each family; sizes stand in the graphs, the rest are the makers' defaults."""
del CONFIGS["lfm2_moe"]["rms_norm_eps"]

_CARRIERS = ("MatMul", "Gemm", "Gather", "GatherND", "Split", "Add")
"""Operators through which a layer uses its weights; norms, whose weights keep their names, aside."""


def _order(family: str, stacked: bool, experts: int, dense: bool = False) -> Iterator[str]:
    """The matrices of a layer in the order in which its graph uses them."""
    at = "self_attn"
    if family == "deepseek_v3":
        yield from (f"{at}.{n}.weight" for n in ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"))
    else:
        yield from (f"{at}.{n}.weight" for n in ("q_proj", "k_proj", "v_proj"))
    yield f"{at}.o_proj.weight"
    if dense:
        yield from (f"mlp.{n}.weight" for n in ("gate_proj", "up_proj", "down_proj"))
        return
    yield "mlp.gate.weight"
    if family == "deepseek_v3":
        yield "mlp.gate.e_score_correction_bias"
    if stacked:
        yield from ("mlp.experts.gate_up_proj", "mlp.experts.down_proj")
    for e in () if stacked else range(experts):
        yield from (f"mlp.experts.{e}.{n}.weight" for n in ("gate_proj", "up_proj", "down_proj"))
    if family == "deepseek_v3":
        yield from (f"mlp.shared_experts.{n}.weight" for n in ("gate_proj", "up_proj", "down_proj"))
    if family == "qwen2_moe":
        yield from (f"mlp.shared_expert.{n}.weight" for n in ("gate_proj", "up_proj", "down_proj"))
        yield "mlp.shared_expert_gate.weight"


def _is_weight(array: Array, op: str, experts: int) -> bool:
    """Whether an initializer without a name is a weight: not a scalar, a bin edge or a mask."""
    return op in _CARRIERS and (array.size == experts if op == "Add" else array.size >= experts)


def _stacked(tensors: dict[str, Array], experts: int) -> dict[str, Array]:
    """Experts stacked and gate above up, as the layers built from a config have them."""
    found = {k: v for k, v in tensors.items() if ".experts." not in k or v.ndim == 3}
    if "mlp.experts.0.down_proj.weight" in tensors:
        each = {n: [tensors[f"mlp.experts.{e}.{n}.weight"] for e in range(experts)] for n in ("gate_proj", "up_proj")}
        found["mlp.experts.gate_up_proj"] = np.concatenate([np.stack(v) for v in each.values()], axis=1)
        found["mlp.experts.down_proj"] = np.stack(
            [tensors[f"mlp.experts.{e}.down_proj.weight"] for e in range(experts)]
        )
    for shared in ("mlp.shared_expert", "mlp.shared_experts"):
        if f"{shared}.up_proj.weight" in found:
            halves = [found.pop(f"{shared}.{n}.weight") for n in ("gate_proj", "up_proj")]
            found[f"{shared}.gate_up_proj.weight"] = np.concatenate(halves)
    return found


def _collected(path: Path, prefix: str, roles: Sequence[str], experts: int) -> dict[str, Array]:
    """The weights of an export by name less ``prefix``: exporters keep the names of some, the others have ``roles`` in
    the order of use.
    """
    graph = onnx.load(path).graph
    arrays = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    uses: dict[str, str] = {}
    for node in graph.node:
        for name in node.input:
            if name in arrays and arrays[name].dtype.kind not in "iub":
                uses.setdefault(name, node.op_type)
    named = {n.removeprefix(prefix): arrays[n] for n in uses if n.startswith(prefix)}
    loose = [n for n in uses if not n.startswith(prefix) and _is_weight(arrays[n], uses[n], experts)]
    open_ = [r for r in roles if r not in named and r.replace("mlp.", "feed_forward.") not in named]
    for name, role in zip(loose, open_, strict=True):
        array = arrays[name]
        named[role] = np.swapaxes(array, -1, -2) if uses[name] in ("MatMul", "Split") else array
        if role.endswith("bias"):
            named[role] = array.reshape(-1)
    return named


def _is_stacked(path: Path) -> bool:
    return any(len(i.dims) == 3 and i.data_type not in (6, 7, 9) for i in onnx.load(path).graph.initializer)


def layer_weights(path: Path, family: str) -> dict[str, Array]:
    """The weights of an exported layer by state-dict name below ``model.layers.<n>``, experts stacked."""
    experts = CONFIGS[family].get("n_routed_experts", 8)
    roles = list(_order(family, _is_stacked(path), experts))
    return _stacked(_collected(path, "layer.", roles, experts), experts)


def model_weights(path: Path, family: str, dense: Sequence[bool]) -> dict[str, Array]:
    """The weights of an exported model by state-dict name, experts stacked; ``dense`` says which layers are."""
    experts = CONFIGS[family].get("n_routed_experts", 8)
    stacked = _is_stacked(path)
    layers = [[f"model.layers.{i}.{r}" for r in _order(family, stacked, experts, d)] for i, d in enumerate(dense)]
    found = _collected(path, "m.", [*(r for roles in layers for r in roles), "lm_head.weight"], experts)
    whole = {k: v for k, v in found.items() if not k.startswith("model.layers.")}
    for i in range(len(dense)):
        prefix = f"model.layers.{i}."
        one = {k.removeprefix(prefix): v for k, v in found.items() if k.startswith(prefix)}
        whole |= {prefix + k: v for k, v in _stacked(one, experts).items()}
    return whole


def for_module(weights: Mapping[str, Array], wanted: Mapping[str, Any]) -> dict[str, Array]:
    """The weights under the full names that a module has; families name the blocks differently than some exporters."""
    found: dict[str, Array] = {}
    for name in wanted:
        plain = (
            name.replace("block_sparse_moe.", "mlp.")
            .replace("feed_forward.", "mlp.")
            .replace("self_attn.out_proj", "self_attn.o_proj")
        )
        spelled = (name, plain, name.split(".", 3)[3], plain.split(".", 3)[3])
        found[name] = next(weights[n] for n in spelled if n in weights)
    return found

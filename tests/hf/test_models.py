"""All decoder layers of a model in a row, between embedding and output head, against exports of whole models."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from hf_exports import CONFIGS, for_module, model_weights

from moec.eval import run
from moec.frontend.hf import parse_config

FIRST_DENSE = {"first_k_dense_replace": 1, "intermediate_size": 48}
MODELS: list[tuple[str, dict[str, Any], list[bool]]] = [
    ("mixtral_model_dynamo_batched_mm_static_op21", {}, [False, False]),
    ("qwen2_moe_model_dynamo_batched_mm_static_op22", {}, [False, False]),
    ("qwen3_moe_model_dynamo_batched_mm_static_op23", {}, [False, False]),
    ("minimax_m2_model_dynamo_batched_mm_static_op22", {}, [False, False]),
    ("deepseek_v3_model_dynamo_batched_mm_static_op19", FIRST_DENSE, [True, False]),
]
"""Exports with what their config says beyond that of a single layer, and which layers are dense."""


@pytest.mark.parametrize(("name", "fields", "dense"), MODELS, ids=[m[0] for m in MODELS])
def test_computes_what_torch_did(corpus: Any, name: str, fields: dict[str, Any], dense: list[bool]) -> None:
    family = re.split(r"_model_", name)[0]
    config = CONFIGS[family] | fields | {"num_hidden_layers": len(dense), "moec_layers": "all"}
    module = parse_config(json.dumps(config))
    numbers = model_weights(corpus.onnx(name), family, dense)
    weights = for_module(numbers, {n.attrs["name"]: n for n in module.main if n.op == "weight"})
    with np.load(corpus.npz(name)) as stored:
        ids, expected = stored["in.input_ids"], stored["out.0"]
    x = run(module, {"hidden_states": numbers["model.embed_tokens.weight"][ids]}, weights)["output"]
    eps = config.get("rms_norm_eps", config.get("norm_eps"))
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * numbers["model.norm.weight"]
    np.testing.assert_allclose(x @ numbers["lm_head.weight"].T, expected, atol=2e-5, rtol=0)

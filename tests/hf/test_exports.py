"""Layers built from a config.json against exports of the same models: same weights, same inputs, the stored outputs of
torch. So what each field means is what the models' own code makes of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus_paths import corpus_folder
from hf_exports import CONFIGS, for_module, layer_weights

from moec.eval import run
from moec.frontend.hf import parse_config
from moec.ops.verify import verify

DATA = Path(__file__).parents[1] / "data" / "layers"
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
TOLERANCE = {"fp32": 5e-6, "bf16": 0.07, "fp16": 0.01}


def exports() -> Iterator[tuple[Path, str, str]]:
    """The layer exports of the families that have a config here: file, family, dtype."""
    for folder in filter(None, (DATA, corpus_folder())):
        for record in json.loads((folder / "index.json").read_text()):
            name, derived = str(record["name"]), "exporter" in record and "->" in record["exporter"]
            if record["part"] != "layer" or record["family"] not in CONFIGS or "trainjoint" in name:
                continue
            if folder == DATA or not derived:
                yield folder / name, record["family"], record["dtype"]


def evaluated(config: dict[str, Any], path: Path, family: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """What the layer of the config makes of each stored input, and what is stored."""
    module = parse_config(json.dumps(config))
    verify(module)
    wanted = {n.attrs["name"]: n.attrs["shape"] for n in module.main if n.op == "weight"}
    weights = for_module(layer_weights(path.with_name(path.name + ".onnx"), family), wanted)
    for name, shape in wanted.items():
        assert weights[name].shape == shape, name
    with np.load(path.with_name(path.name + ".npz")) as stored:
        for given, expected in (("in", "out.0"), ("in2", "out2.0")):
            if f"{given}.hidden_states" in stored.files:
                got = run(module, {"hidden_states": stored[f"{given}.hidden_states"]}, weights)["output"]
                yield got.astype(np.float32), stored[expected]


@pytest.mark.parametrize(
    ("path", "family", "dtype"), list(exports()), ids=lambda v: v.name if isinstance(v, Path) else ""
)
def test_computes_what_torch_did(path: Path, family: str, dtype: str) -> None:
    config = CONFIGS[family] | {"torch_dtype": DTYPES[dtype]}
    compared = 0
    for got, expected in evaluated(config, path, family):
        np.testing.assert_allclose(got, expected, atol=TOLERANCE[dtype], rtol=0)
        compared += 1
    assert compared


CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("deepseek_v3", {"rope_theta": 20000.0}),
    ("deepseek_v3", {"rope_interleave": False}),
    ("deepseek_v3", {"topk_group": 1}),
    ("deepseek_v3", {"routed_scaling_factor": 1.0}),
    ("deepseek_v3", {"norm_topk_prob": False}),
    ("deepseek_v3", {"num_experts_per_tok": 2}),
    ("deepseek_v3", {"rms_norm_eps": 0.1}),
    ("deepseek_v3", {"latent_norm_eps": 0.1}),
    ("qwen3_moe", {"norm_topk_prob": False}),
    ("qwen3_moe", {"sliding_window": 2, "use_sliding_window": True}),
    ("qwen3_moe", {"partial_rotary_factor": 0.5}),
    ("qwen3_moe", {"hidden_act": "gelu"}),
    ("qwen3_moe", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
]


@pytest.mark.parametrize(("family", "change"), CHANGES, ids=[next(iter(c)) for _, c in CHANGES])
def test_a_field_that_says_otherwise_is_seen(family: str, change: dict[str, Any]) -> None:
    """The comparison above can fail: each of these fields alone changes the numbers."""
    (path,) = [p for p, f, _ in exports() if f == family and p.parent == DATA]
    got, expected = next(evaluated(CONFIGS[family] | change, path, family))
    assert np.abs(got - expected).max() > 1e-3

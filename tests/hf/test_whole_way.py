"""A config.json through everything that takes a layer: which files are one, all passes with checks, ONNX out, the
command line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from command import ROOT, moec
from hf_exports import CONFIGS

from moec import driver, sources
from moec.diagnostics import Refusal
from moec.eval import run

GPT_OSS = {k: v for k, v in CONFIGS["mixtral"].items() if k != "rope_theta"} | {
    "model_type": "gpt_oss",
    "num_hidden_layers": 2,
    "head_dim": 8,
    "sliding_window": 3,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 150000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 16,
        "truncate": False,
    },
}
DEEPSEEK = CONFIGS["deepseek_v3"] | {"num_hidden_layers": 2, "first_k_dense_replace": 1, "intermediate_size": 48}


@pytest.mark.parametrize("fields", [DEEPSEEK, GPT_OSS, CONFIGS["qwen2_moe"]], ids=lambda f: f["model_type"])
def test_passes_keep_its_numbers_and_onnxruntime_agrees(tmp_path: Path, fields: dict[str, Any]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(fields))
    done = driver.compile(path, tmp_path / "out", check=True, set={"batch": 2, "seq": 5})
    assert done.summary["checks"] and done.summary["input"] == {"file": "config.json", "kind": "json"}
    module = sources.load(path)
    rng = np.random.default_rng(2)
    weights = {
        n.attrs["name"]: (rng.standard_normal(n.attrs["shape"]) / 4).astype(np.float32)
        for n in module.main
        if n.op == "weight"
    }
    x = rng.standard_normal((2, 5, fields["hidden_size"])).astype(np.float32)
    session = onnxruntime.InferenceSession(tmp_path / "out" / "optimized.onnx")
    feeds = {i.name: weights.get(i.name, x) for i in session.get_inputs()}
    assert set(feeds) == {"hidden_states", *weights}
    (got,) = session.run(None, feeds)
    np.testing.assert_allclose(got, run(module, {"hidden_states": x}, weights)["output"], atol=1e-5, rtol=0)


def test_a_config_is_known_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "mixtral.txt"
    path.write_text(json.dumps(CONFIGS["mixtral"], indent=2))
    assert sources.kind_of(path) == ".json"
    assert sources.read(path).tune == {"batch": 1, "seq": 64}
    path.write_text('{"version": 1}')
    with pytest.raises(Refusal, match="not an input that moec knows"):
        sources.kind_of(path)
    path.rename(tmp_path / "tokenizer.json")
    with pytest.raises(Refusal, match="'model_type' or 'architectures'"):
        sources.read(tmp_path / "tokenizer.json")


def test_the_command_line_takes_one(tmp_path: Path) -> None:
    shown = moec("check", str(ROOT / "examples" / "configs" / "pangu_ultra_moe.json"))
    assert shown.returncode == 0, shown.stderr
    assert "hidden_states: bf16[batch, seq, 7680]" in shown.stdout and "seq in [1, 131072]" in shown.stdout
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGS["mixtral"] | {"num_heads": 4, "hidden_act": "swish"}, indent=1))
    shown = moec("check", str(path))
    assert shown.returncode == 1
    assert "2 problems" in shown.stderr and "'num_heads' is not understood" in shown.stderr

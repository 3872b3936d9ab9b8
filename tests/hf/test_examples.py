"""The decoder layers in ``examples/*_layer.moe`` against their config.json and, where one exists, against an export."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from corpus_paths import corpus_folder
from hf_exports import for_module, layer_weights

from moec.eval import run
from moec.frontend.dsl import parse_moe
from moec.frontend.hf import parse_config
from moec.ir.graph import Module, Node
from moec.ops.verify import verify
from moec.sources import read

EXAMPLES = Path(__file__).parents[2] / "examples"
DATA = Path(__file__).parents[1] / "data" / "layers"
EXPORTS = corpus_folder() or DATA

LAYERS: dict[str, tuple[str, int]] = {
    "pangu_ultra_moe_layer": ("pangu_ultra_moe", 3),
    "deepseek_v3_layer": ("deepseek_v3", 3),
    "qwen3_moe_235b_layer": ("qwen3_235b_a22b", 0),
    "mixtral_8x7b_layer": ("mixtral_8x7b", 0),
    "gpt_oss_120b_layer": ("gpt_oss_120b", 0),
}
"""Each example with its config and the number of the layer that it is."""

MLA = {"H": 32, "N": 2, "Lq": 24, "Lkv": 16, "Dn": 8, "Dr": 64, "Dv": 12, "E": 32, "I": 24}
SMALL: dict[str, dict[str, int]] = {
    "pangu_ultra_moe_layer": MLA,
    "deepseek_v3_layer": MLA,
    "qwen3_moe_235b_layer": {"H": 32, "N": 4, "M": 2, "D": 16, "E": 16, "I": 24},
    "mixtral_8x7b_layer": {"H": 32, "N": 4, "M": 2, "D": 8, "E": 8, "I": 24},
    "gpt_oss_120b_layer": {"H": 48, "N": 4, "M": 2, "D": 64, "W": 3, "E": 16, "I": 24},
}
"""Sizes that are quick to evaluate; widths that YaRN's bounds depend on stay."""

FIELDS = {
    "H": ("hidden_size",),
    "N": ("num_attention_heads",),
    "M": ("num_key_value_heads",),
    "D": ("head_dim",),
    "W": ("sliding_window",),
    "Lq": ("q_lora_rank", "attention_q_lora_dim"),
    "Lkv": ("kv_lora_rank", "attention_kv_lora_dim"),
    "Dn": ("qk_nope_head_dim", "attention_qk_dim"),
    "Dr": ("qk_rope_head_dim", "attention_qk_rope_dim"),
    "Dv": ("v_head_dim", "attention_v_dim"),
    "E": ("num_experts", "num_local_experts", "n_routed_experts", "num_routed_experts"),
    "I": ("moe_intermediate_size", "intermediate_size"),
}


def text_of(name: str, sizes: dict[str, int]) -> str:
    """An example with other sizes."""
    text = (EXAMPLES / f"{name}.moe").read_text()
    for size, number in sizes.items():
        text, count = re.subn(rf"^{size} = \d+", f"{size} = {number}", text, flags=re.M)
        assert count == 1, size
    return text


def config_of(name: str, sizes: dict[str, int]) -> dict[str, Any]:
    """Its config with the same sizes, its layer alone."""
    config, number = LAYERS[name]
    fields = json.loads((EXAMPLES / "configs" / f"{config}.json").read_text())
    for size, value in sizes.items():
        found = [f for f in FIELDS[size] if f in fields]
        assert found or size == "D"
        fields |= {found[0]: value} if found else {}
    if "M" not in sizes:
        fields["num_key_value_heads"] = sizes["N"]
    return fields | {"moec_layers": [number]}


def weights_of(module: Module) -> dict[str, Node]:
    """The weight nodes of ``main`` by name below the layer."""
    nodes = [n for n in module.main if n.op == "weight"]
    return {re.sub(r"^model\.layers\.\d+\.", "", n.attrs["name"]): n for n in nodes}


@pytest.mark.parametrize("name", LAYERS)
def test_reads_like_a_figure(name: str) -> None:
    lines = (EXAMPLES / f"{name}.moe").read_text().splitlines()
    assert len(lines) < 80 and max(map(len, lines)) <= 120


@pytest.mark.parametrize("name", LAYERS)
def test_is_the_layer_of_its_config(name: str) -> None:
    """At full size: the same weights, and the same attributes of everything that has any."""
    example = read(EXAMPLES / f"{name}.moe").module
    config, number = LAYERS[name]
    fields = json.loads((EXAMPLES / "configs" / f"{config}.json").read_text()) | {"moec_layers": [number]}
    layer = parse_config(json.dumps(fields))
    types = [{k: str(n.result.type) for k, n in weights_of(m).items()} for m in (example, layer)]
    assert types[0] == types[1]
    for op in ("moe", "attention", "rms_norm", "rope"):
        attrs = [
            sorted(
                str({k: round(v, 12) if isinstance(v, float) else v for k, v in n.attrs.items()})
                for n in m.nodes()
                if n.op == op
            )
            for m in (example, layer)
        ]
        assert attrs[0] == attrs[1] != [], op
    assert layer.symbols["seq"] == example.symbols["S"] and layer.symbols["batch"] == example.symbols["B"]


@pytest.mark.parametrize("name", LAYERS)
def test_computes_what_its_config_does(name: str) -> None:
    """At small sizes in fp64, on the same weights and inputs."""
    sizes = SMALL[name]
    example, layer = parse_moe(text_of(name, sizes)), parse_config(json.dumps(config_of(name, sizes)))
    verify(layer)
    rng = np.random.default_rng(7)
    x = rng.standard_normal((2, 9, sizes["H"]))
    numbers = {k: rng.standard_normal(n.attrs["shape"]) / 4 for k, n in weights_of(example).items()}
    got = [
        run(m, {"hidden_states": x}, {n.attrs["name"]: numbers[k] for k, n in weights_of(m).items()}, fp64=True)[
            "output"
        ]
        for m in (example, layer)
    ]
    assert np.abs(got[0]).max() > 0.1
    np.testing.assert_allclose(got[0], got[1], rtol=0, atol=1e-5)


PLAIN = (("/ 40.0", "/ 1.0"), ("= 1.3688879454113936", "= 1.0"))
RESIZED: dict[str, tuple[str, dict[str, int], tuple[tuple[str, str], ...]]] = {
    "mixtral_8x7b_layer": ("mixtral", {"H": 32, "N": 4, "M": 2, "D": 8, "E": 8, "I": 48}, ()),
    "qwen3_moe_235b_layer": (
        "qwen3_moe",
        {"H": 32, "N": 4, "M": 2, "D": 8, "E": 8, "I": 24},
        (("theta = 1e6", "theta = 1e4"), ("top_k = 8", "top_k = 4")),
    ),
    "deepseek_v3_layer": (
        "deepseek_v3",
        {"H": 32, "N": 4, "Lq": 16, "Lkv": 16, "Dn": 8, "Dr": 8, "Dv": 8, "E": 16, "I": 16},
        (
            *PLAIN,
            ("top_k = 8, score", "top_k = 4, score"),
            ("groups = 8, group_top_k = 4", "groups = 4, group_top_k = 2"),
        ),
    ),
}
"""What makes an example the layer that was exported: family, sizes, other numbers."""


@pytest.mark.parametrize("name", RESIZED)
def test_computes_what_its_export_stored(name: str) -> None:
    family, sizes, changes = RESIZED[name]
    found = sorted(p for p in EXPORTS.glob(f"{family}_layer_*.onnx") if "trainjoint" not in p.name)
    found = [p for p in found if not re.search(r"bf16|fp16|__", p.name) or p.parent == DATA]
    if not found:
        pytest.skip("no export of this family; set MOEC_CORPUS")
    text = text_of(name, sizes).replace("bf16", "f32")
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    module = parse_moe(text)
    wanted = {n.attrs["name"]: n for n in module.main if n.op == "weight"}
    for path in found:
        numbers = layer_weights(path, family)
        weights = for_module(numbers, {f"model.layers.0.{k}": n for k, n in wanted.items()})
        weights = {k.removeprefix("model.layers.0."): v for k, v in weights.items()}
        with np.load(path.with_suffix(".npz")) as stored:
            got = run(module, {"hidden_states": stored["in.hidden_states"]}, weights)["output"]
            np.testing.assert_allclose(got, stored["out.0"], atol=5e-6, rtol=0)


@pytest.mark.parametrize("path", sorted((EXAMPLES / "configs").glob("*.json")), ids=lambda p: p.stem)
def test_every_config_builds_in_no_time(path: Path) -> None:
    """All layers of a model of hundreds of billions of weights: the number of nodes is that of a few functions and one
    call a layer, whatever the sizes.
    """
    fields = json.loads(path.read_text())
    module = parse_config(json.dumps(fields | {"moec_layers": "all"}))
    verify(module)
    calls = [n.attrs["fn"] for n in module.main if n.op == "call"]
    assert len(calls) == fields["num_hidden_layers"]
    assert 1 <= len(set(calls)) == len(module.functions) - 1 <= 2
    assert all(n.attrs["data"] is None for n in module.nodes() if n.op == "weight")


def test_counts_weights_as_published() -> None:
    """Weights in the decoder layers, in billions: the models' published totals less embeddings and output heads."""

    def billions(name: str) -> float:
        text = (EXAMPLES / "configs" / f"{name}.json").read_text()
        module = parse_config(json.dumps(json.loads(text) | {"moec_layers": "all"}))
        return sum(float(np.prod(n.attrs["shape"])) for n in module.main if n.op == "weight") / 1e9

    assert billions("mixtral_8x7b") == pytest.approx(46.70 - 0.26, abs=0.01)
    assert billions("deepseek_v3") == pytest.approx(671.03 - 1.85, abs=0.1)
    assert billions("qwen3_235b_a22b") == pytest.approx(235.09 - 1.24, abs=0.01)
    assert billions("pangu_ultra_moe") == pytest.approx(718 - 2.36, abs=2)
    assert billions("gpt_oss_120b") == pytest.approx(116.83 - 1.16, abs=0.01)


BLOCKS: dict[str, tuple[str, dict[str, int], dict[str, str]]] = {
    "qwen3_moe_block": (
        "qwen3_moe_moe_dynamo_batched_mm_dyn_op21",
        {"H": 32, "E": 8, "I": 24},
        {"top_k = 8": "top_k = 4"},
    ),
    "mixtral_block": ("mixtral_moe_dynamo_batched_mm_dyn_op18", {"H": 32, "E": 8, "I": 48}, {}),
    "deepseek_v3_block": (
        "deepseek_v3_moe_dynamo_batched_mm_dyn_op23",
        {"H": 32, "E": 16, "I": 16},
        {"top_k = 8": "top_k = 4", "groups = 8, group_top_k = 4": "groups = 4, group_top_k = 2"},
    ),
}
"""Each block with its export, the sizes of that, and other numbers."""


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_computes_what_its_export_stored(name: str) -> None:
    export, sizes, changes = BLOCKS[name]
    path = next((p for f in (DATA.parent, EXPORTS) if (p := f / f"{export}.onnx").is_file()), None)
    if path is None:
        pytest.skip("no export of this block; set MOEC_CORPUS")
    text = text_of(name, sizes).replace("bf16", "f32")
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    held = [onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer]
    router, gate_up, down, *shared = [a for a in held if a.ndim > 1]
    weights = {"router": router, "gate_up": gate_up, "down": down}
    if shared:
        gate, up, last = (a.T for a in shared)
        bias = next(a for a in held if a.shape == (sizes["E"],))
        weights |= {"shared_gate_up": np.concatenate([gate, up]), "shared_down": last, "score_bias": bias}
    with np.load(path.with_suffix(".npz")) as stored:
        for case in ("", "2"):
            x, wanted = stored[f"in{case}.hidden_states"], stored[f"out{case}.0"]
            got = run(parse_moe(text), {"x": x.reshape(-1, sizes["H"])}, weights)["y"]
            np.testing.assert_allclose(got, wanted.reshape(got.shape), atol=5e-6, rtol=0)

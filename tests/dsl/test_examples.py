"""The example layers: they load, are short, say what their papers say, and the small one computes what it should."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from moec.eval import run
from moec.frontend.dsl import read_moe, read_moe_text
from moec.frontend.dsl.format import format_text
from moec.frontend.hf import parse_config
from moec.ir.compare import modules_equal
from moec.ir.graph import Module
from moec.ir.text import parse_module, print_module
from moec.ops.verify import verify
from moec.sizes import symbol_bounds

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(p.name for p in EXAMPLES.glob("*.moe"))


@pytest.mark.parametrize("name", FILES)
def test_reads_like_a_figure(name: str) -> None:
    lines = (EXAMPLES / name).read_text().splitlines()
    assert len(lines) < 80


@pytest.mark.parametrize("name", FILES)
def test_loads_without_a_warning_and_prints_back(name: str) -> None:
    loaded = read_moe(EXAMPLES / name)
    verify(loaded.module)
    assert loaded.warnings == ()
    assert set(loaded.tune) == set(symbol_bounds(loaded.module))
    assert modules_equal(parse_module(print_module(loaded.module)), loaded.module)
    for node in loaded.module.nodes():
        source = node.origin.sources[0]
        assert source.file.endswith((name, "moec:shared.moe")) and source.line > 0


@pytest.mark.parametrize("name", FILES)
def test_is_in_canonical_form(name: str) -> None:
    text = (EXAMPLES / name).read_text()
    assert format_text(text, name) == text


def test_the_guide_is_right() -> None:
    guide = (EXAMPLES / "README.md").read_text()
    loaded = [read_moe_text(code, "README.md") for code in guide.split("```")[1::2]]
    for each in loaded:
        verify(each.module)
        assert each.warnings == ()
    assert [list(each.module.functions) for each in loaded] == [
        ["main", "mlp"],
        ["main", "block", "mlp"],
        ["main", "block", "norm", "linear", "linear.1"],
        ["main", "host"],
    ]
    assert loaded[0].tune == {"T": 4096}
    weights = [n.attrs["name"] for n in loaded[1].module.main if n.op == "weight"]
    assert weights[1] == "model.layers.0.norm" and weights[-1] == "model.layers.31.mlp.down"
    assert all(f"`{name}`" in guide for name in FILES)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("pangu_ultra_moe_block", (7680, 256, 2048, 8, 1, 2.5, "sigmoid", True)),
        ("deepseek_v3_block", (7168, 256, 2048, 8, 8, 2.5, "sigmoid", True)),
        ("qwen3_moe_block", (4096, 128, 1536, 8, 1, 1.0, "softmax", False)),
        ("mixtral_block", (4096, 8, 14336, 2, 1, 1.0, "softmax", False)),
    ],
)
def test_is_the_published_block(name: str, sizes: tuple[object, ...]) -> None:
    """Hidden, experts, inner width, top-k, groups, scale, score and shared expert of the models' config.json."""
    path = EXAMPLES / f"{name}.moe"
    assert len(path.read_text().splitlines()) < 40
    loaded = read_moe(path)
    (moe,) = (n for n in loaded.module.main if n.op == "moe")
    experts, hidden, inner = moe.operand(3).type.dims
    shared = len(moe.operands) > 9 and moe.operand(9).type.dims == (hidden, inner)
    a = moe.attrs
    assert (hidden, experts, inner, a["top_k"], a["groups"], a["scale"], a["score"], shared) == sizes
    assert a["renormalize"] is True and a["capacity"] is None
    assert loaded.tune == {"T": 4096}


def test_the_whole_of_pangu_has_the_weights_of_its_config() -> None:
    """By name and type: those of the config's 61 layers, and those of one more MoE layer for the token after next."""
    fields = json.loads((EXAMPLES / "configs" / "pangu_ultra_moe.json").read_text()) | {"moec_layers": "all"}
    config, whole = parse_config(json.dumps(fields)), read_moe(EXAMPLES / "pangu_ultra_moe.moe").module
    wanted, found = ({n.attrs["name"]: str(n.result.type) for n in m.main if n.op == "weight"} for m in (config, whole))
    wanted |= {k.replace(".60.", ".61."): v for k, v in wanted.items() if ".60." in k}
    beside = [k for k in found if k not in wanted]
    assert {k: v for k, v in found.items() if k in wanted} == wanted
    assert beside == [
        "model.embed_tokens.weight",
        "lm_head.weight",
        *(f"model.layers.61.{n}.weight" for n in ("enorm", "hnorm", "eh_proj")),
        "model.norm.weight",
        "model.layers.61.shared_head.norm.weight",
    ]


def test_the_whole_of_pangu_has_718b_parameters() -> None:
    module = read_moe(EXAMPLES / "pangu_ultra_moe.moe").module
    sizes = {n.attrs["name"]: math.prod(n.attrs["shape"]) for n in module.main if n.op == "weight"}
    layers = {name.split(".")[2] for name in sizes if name.startswith("model.layers.")}
    assert layers == {str(i) for i in range(62)}
    main = sum(size for name, size in sizes.items() if not name.startswith("model.layers.61."))
    assert 717e9 < main < 720e9
    assert [n.attrs["fn"] for n in module.main if n.op == "call"].count("moe_layer") == 59


SMALL = {
    "H = 7680": "H = 32", "N = 128": "N = 2", "Lq = 1536": "Lq = 12", "Lkv = 512": "Lkv = 8", "Dn = 128": "Dn = 8",
    "Dr = 64": "Dr = 4", "Dv = 128": "Dv = 6", "E = 256": "E = 16", "I = 2048": "I = 24", "V = 153600": "V = 40",
    "F = 18432": "F = 20",
}  # fmt: skip


def small(name: str, *changes: tuple[str, str]) -> Module:
    """An example with small sizes."""
    text = (EXAMPLES / name).read_text()
    for old, new in SMALL.items():
        text = re.sub(rf"^{re.escape(old)}\b", new, text, flags=re.M)
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return read_moe_text(text, name).module


def test_the_whole_of_pangu_is_made_of_the_layer() -> None:
    """At small sizes: the MoE layers of the whole, against the example of one layer run twice."""
    whole = small(
        "pangu_ultra_moe.moe", ("dense_layer[0:3](", "dense_layer[0:1]("), ("moe_layer[3:61](h", "moe_layer[1:3](h")
    )
    one = small("pangu_ultra_moe_layer.moe")
    rng = np.random.default_rng(0)
    weights = {n.attrs["name"]: rng.standard_normal(n.attrs["shape"]) * 0.3 for n in whole.main if n.op == "weight"}
    seen = []
    tokens = rng.integers(0, 40, (2, 7))
    out = run(whole, {"tokens": tokens}, weights, fp64=True,
              observe=lambda n, r: seen.append(r[0]) if n.attrs.get("fn", "").endswith("_layer") else None)  # fmt: skip
    h = seen[0]
    for i in (1, 2):
        own = {k.removeprefix(f"model.layers.{i}."): v for k, v in weights.items()}
        h = run(one, {"hidden_states": h}, own, fp64=True)["output"]
        np.testing.assert_allclose(seen[i], h, rtol=1e-10, atol=1e-12)
    normed = h / np.sqrt((h * h).mean(-1, keepdims=True) + 1e-5) * weights["model.norm.weight"]
    logits = normed @ weights["lm_head.weight"].T
    each = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, tokens[:, 1:6, None], -1)[..., 0]
    np.testing.assert_allclose(out["loss"], each.mean(), rtol=1e-10)


@pytest.mark.parametrize("tokens", [1, 7, 64])
def test_tiny_block_computes_the_formula(tokens: int) -> None:
    loaded = read_moe(EXAMPLES / "tiny_moe.moe")
    rng = np.random.default_rng(tokens)
    weights = {
        n.attrs["name"]: rng.standard_normal(n.attrs["shape"]) / 8 for n in loaded.module.main if n.op == "weight"
    }
    x = rng.standard_normal((tokens, 64))
    y = run(loaded.module, {"x": x}, weights, fp64=True)["y"]

    def expert(rows: np.ndarray, gate_up: np.ndarray, down: np.ndarray) -> np.ndarray:
        gate, up = np.split(rows @ gate_up.T, 2, axis=-1)
        return (gate / (1 + np.exp(-gate)) * up) @ down.T

    scores = 1 / (1 + np.exp(-(x @ weights["router"].T)))
    expected = expert(x, weights["shared_gate_up"], weights["shared_down"])
    for t in range(tokens):
        best = np.argsort(-scores[t], kind="stable")[:2]
        for e in best:
            weight = 2.5 * scores[t, e] / scores[t, best].sum()
            expected[t] += weight * expert(x[t : t + 1], weights["gate_up"][e], weights["down"][e])[0]
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)

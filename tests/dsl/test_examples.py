"""The example layers: they load, are short, say what their papers say, and the small one computes what it should."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from moec.eval import run
from moec.frontend.dsl import read_moe, read_moe_text
from moec.ir.compare import modules_equal
from moec.ir.text import parse_module, print_module
from moec.ops.verify import verify
from moec.sizes import symbol_bounds

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(p.name for p in EXAMPLES.glob("*.moe"))


@pytest.mark.parametrize("name", FILES)
def test_loads_without_a_warning_and_prints_back(name: str) -> None:
    loaded = read_moe(EXAMPLES / name)
    verify(loaded.module)
    assert loaded.warnings == ()
    assert set(loaded.tune) == set(symbol_bounds(loaded.module))
    assert modules_equal(parse_module(print_module(loaded.module)), loaded.module)
    for node in loaded.module.nodes():
        source = node.origin.sources[0]
        assert source.file.endswith(name) and source.line > 0


def test_the_guide_is_right() -> None:
    guide = (EXAMPLES / "README.md").read_text()
    code = guide.split("```")[1]
    loaded = read_moe_text(code, "README.md")
    verify(loaded.module)
    assert loaded.warnings == () and loaded.tune == {"T": 4096}
    assert list(loaded.module.functions) == ["main", "mlp"]
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

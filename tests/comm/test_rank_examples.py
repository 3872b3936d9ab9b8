"""Layers as one of their ranks runs them against the same layers whole, at widths that are evaluated in a moment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from moec.eval import run
from moec.frontend.dsl import parse_moe
from moec.ir.graph import Module

EXAMPLES = Path(__file__).parents[2] / "examples"
RANKS, S, H = 4, 6, 24
MLA = {"H": "24", "N": "2", "Lq": "6", "Lkv": "5", "Dn": "4", "Dr": "2", "Dv": "4", "E": "16", "I": "6"}
GQA = {"H": "24", "D": "4", "E": "8", "I": "6"}
CASES = {
    "deepseek_v3": ("deepseek_v3_layer.moe", MLA, {"group ep": "4"}, {}),
    "qwen3_235b": ("qwen3_moe_235b_layer.moe", GQA, {"group tp": "2", "group ep": "4", "N": "4 // tp", "M": "2 // tp"},
                   {"N": "4", "M": "2"}),
}  # fmt: skip
"""The whole layer; widths of both; what the ranks' file has beside them, what the layer's has."""


def narrow(file: str, widths: Mapping[str, str]) -> Module:
    """The layer of ``file`` at ``widths``, 3 experts a token, weights called by their names in the file."""
    text = (EXAMPLES / file).read_text(encoding="utf-8")
    for name, width in widths.items():
        text, found = re.subn(rf"^({re.escape(name)} += )[^#\n]*", rf"\g<1>{width} ", text, flags=re.MULTILINE)
        assert found == 1, name
    text = re.sub(r"^K += 8", "K = 3", text, flags=re.MULTILINE).replace("top_k = 8", "top_k = 3")
    return parse_moe(re.sub(r' *= "[a-z_.A-Z0-9]+\.[a-z_.A-Z0-9]+"', "", text))


@pytest.mark.parametrize("name", CASES)
def test_ranks_compute_the_layer(name: str) -> None:
    file, both, mine, its = CASES[name]
    ranks, whole = narrow(f"{name}_rank.moe", both | mine), narrow(file, both | its)
    rng = np.random.default_rng(0)
    weights = {
        n.attrs["name"]: rng.standard_normal(n.attrs["shape"]) * (0.3 if len(n.attrs["shape"]) > 1 else 1)
        for n in whole.nodes()
        if n.op == "weight"
    }
    parts = 2 if "group tp" in mine else 1  # ranks that share a sequence
    x = rng.standard_normal((RANKS // parts, S, 1, H))
    given = {f"rank{r}.x": x[r // parts][r % parts * S // parts :][: S // parts] for r in range(RANKS)}
    got = run(ranks, given, weights, fp64=True)
    for r in range(RANKS):
        want = run(whole, {"hidden_states": x[r // parts].reshape(1, S, H)}, weights, fp64=True)["output"]
        own = want.reshape(S, 1, H)[r % parts * S // parts :][: S // parts]
        np.testing.assert_allclose(got[f"rank{r}.out"], own, rtol=1e-9, atol=1e-9, err_msg=f"rank {r}")

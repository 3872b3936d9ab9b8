"""The layer of ``examples/pangu_ultra_moe_rank.moe`` at widths that are simulated in a moment: 4 ranks, 2 of them with
the same heads, all of them with experts.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from moec.frontend.dsl import parse_moe
from moec.ir.graph import Module
from moec.passes.base import TRAIN_PIPELINE, Context, PassManager, parse_passes

Array = np.ndarray
EXAMPLE = Path(__file__).parents[2] / "examples" / "pangu_ultra_moe_rank.moe"
WIDTHS = {
    "group tp": "2",
    "group ep": "4",
    "H": "24",
    "N": "4 // tp",
    "Lq": "6",
    "Lkv": "5",
    "Dn": "4",
    "Dr": "2",
    "Dv": "4",
    "E": "8",
    "I": "6",
    "K": "3",
}
RANKS = 4
SIZES = {"p": 3, "mbs": 2}
JOINT = TRAIN_PIPELINE.split(",fuse-residual")[0] + ",inline,canonicalise,cse,dce"
"""The passes up to where recompute, swap and the planner run."""


def layer() -> Module:
    """The layer at ``WIDTHS``."""
    text = EXAMPLE.read_text(encoding="utf-8")
    for name, width in WIDTHS.items():
        text, found = re.subn(rf"^({re.escape(name)} += )[^#\n]*", rf"\g<1>{width} ", text, flags=re.MULTILINE)
        assert found == 1, name
    return parse_moe(text)


def joint(passes: str = JOINT) -> Module:
    """Its training graph."""
    made = layer()
    PassManager(parse_passes(passes)).run(made, Context(tune=SIZES))
    return made


def feeds(module: Module, seed: int) -> tuple[dict[str, Array], dict[str, Array]]:
    """Inputs of every rank, with the gradients that come in, and the whole of every weight."""
    rng = np.random.default_rng(seed)
    given = {}
    for v in module.main.inputs:
        for rank in range(RANKS):
            given[f"rank{rank}.{v.name}"] = rng.standard_normal((SIZES["p"], SIZES["mbs"], 24)).astype(
                v.type.dtype.carrier
            )
    weights = {}
    for node in module.nodes():
        if node.op == "weight":
            shape = list(node.attrs["shape"])
            for shard in module.shards.get(node.attrs["name"], ()):
                shape[shard.axis] *= shard.group.size
            scale = 1 if len(shape) == 1 else shape[-1] ** -0.5
            made = scale * rng.standard_normal(shape)
            weights[node.attrs["name"]] = made.astype(node.attrs["dtype"].carrier)
    return given, weights

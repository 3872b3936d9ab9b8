"""Decoder layers of four models at small widths, as training graphs: compiled, run on the CPU model, and judged.

Widths come from the models' ``config.json`` with every size replaced; what the models do stays. ``TINY`` widths are
alike where they can be, so that products share kernels and the layer builds in seconds; ``ODD`` ones are multiples of
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ascend_run import Project, built
from counted import disagreements, integers, run_counted
from roundings import judged

from moec.codegen.program import Program
from moec.driver import load_target
from moec.ir.graph import Module
from moec.ir.symbol import evaluate
from moec.passes.base import Context, PassManager, train_passes
from moec.sources import read

CONFIGS = Path(__file__).parents[2] / "examples" / "configs"
Widths = Mapping[str, int | list[int] | str]
TINY: dict[str, Widths] = {
    "pangu_ultra_moe": {
        "hidden_size": 40, "num_attention_heads": 2, "num_key_value_heads": 2, "attention_q_lora_dim": 40,
        "attention_kv_lora_dim": 32, "attention_qk_dim": 12, "attention_qk_rope_dim": 8, "attention_v_dim": 20,
        "num_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 20, "moec_layers": [3],
    },
    "deepseek_v3": {
        "hidden_size": 40, "num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 40, "kv_lora_rank": 32,
        "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 20, "n_routed_experts": 8, "n_group": 4,
        "topk_group": 2, "num_experts_per_tok": 2, "moe_intermediate_size": 20, "moec_layers": [3],
    },
    "qwen3_235b_a22b": {
        "hidden_size": 160, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 80, "num_experts": 6,
        "num_experts_per_tok": 2, "moe_intermediate_size": 80, "moec_layers": [0],
    },
    "gpt_oss_120b": {
        "hidden_size": 40, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 20, "num_local_experts": 6,
        "num_experts_per_tok": 2, "experts_per_token": 2, "intermediate_size": 20, "sliding_window": 8,
        "moec_layers": [0],
    },
}  # fmt: skip
ODD: dict[str, Widths] = {
    "pangu_ultra_moe": {
        **TINY["pangu_ultra_moe"], "hidden_size": 127, "num_attention_heads": 3, "num_key_value_heads": 3,
        "attention_q_lora_dim": 45, "attention_kv_lora_dim": 33, "attention_qk_dim": 23, "attention_qk_rope_dim": 10,
        "attention_v_dim": 19, "num_routed_experts": 5, "moe_intermediate_size": 37,
    },
    "deepseek_v3": {
        **TINY["deepseek_v3"], "hidden_size": 67, "num_attention_heads": 3, "num_key_value_heads": 3,
        "q_lora_rank": 45, "kv_lora_rank": 33, "qk_nope_head_dim": 20, "qk_rope_head_dim": 6, "v_head_dim": 25,
        "moe_intermediate_size": 37,
    },
    "qwen3_235b_a22b": {
        **TINY["qwen3_235b_a22b"], "hidden_size": 65, "num_attention_heads": 4, "num_key_value_heads": 2,
        "num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 37,
    },
    "gpt_oss_120b": {
        **TINY["gpt_oss_120b"], "hidden_size": 66, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 34,
        "num_local_experts": 7, "intermediate_size": 41,
    },
}  # fmt: skip
TUNE = {"batch": 2, "seq": 5}
"""What tiles are chosen for; runs have other sizes."""


@dataclass(frozen=True)
class Small:
    """A training graph and its built kernels."""

    module: Module
    program: Program
    project: Project

    def agrees(self, batch: int, seq: int, counted: bool = True, **environment: str) -> None:
        """Every output and gradient is within what roundings do to it (see ``roundings``), with the experts that the
        kernels chose. Where ``counted``, calls and bytes are those that the kernels say and the cycle model charges.
        """
        sizes = {"batch": batch, "seq": seq}
        inputs, weights = feeds(self.module, sizes)
        given = {**inputs, **weights}
        got, ran = run_counted(self.project, given, sizes, self.project.folder, MOEC_CPU_STRICT="1", **environment)
        right = judged(self.module, inputs, weights, got["experts"])
        assert set(got) == set(right.exact) and len(got) > 12
        for name, want in right.exact.items():
            np.testing.assert_allclose(
                got[name].astype(np.float64), want, rtol=0, atol=right.allowed[name], err_msg=f"{name} of {sizes}"
            )
        if counted:
            assert disagreements(self.program, sizes, ran, integers(self.program, given, got)) == []


def written(model: str, widths: Widths, folder: Path, dtype: str = "float32") -> Path:
    """The model's ``config.json`` with ``widths``."""
    config = json.loads((CONFIGS / f"{model}.json").read_text(encoding="utf-8"))
    path = folder / "config.json"
    path.write_text(json.dumps({**config, **widths, "torch_dtype": dtype}, indent=1), encoding="utf-8")
    return path


def small(model: str, widths: Widths, folder: Path, dtype: str = "float32") -> Small:
    """The training graph of one layer, lowered and built. The experts chosen and their rows are outputs too."""
    module = read(written(model, widths, folder, dtype)).module
    target = load_target("ascend910b1")
    PassManager(train_passes()).run(module, Context(target, TUNE))
    (routing,) = (node for node in module.main if node.op == "gating")
    names = [*module.main.output_names, "experts", "rows of experts"]
    module.main.set_outputs([*module.main.outputs, *routing.results[1:]], names)
    program = target.lower(module, TUNE)
    return Small(module, program, built(program, folder))


def feeds(module: Module, sizes: Mapping[str, int]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Inputs and weights; products keep the size of what they multiply, as large ones would make errors grow."""
    rng = np.random.default_rng(sum(sizes.values()))
    inputs = {
        str(v.name): rng.standard_normal([evaluate(d, sizes) for d in v.type.dims]).astype(v.type.dtype.carrier)
        for v in module.main.inputs
    }
    weights = {}
    for node in module.main:
        if node.op == "weight":
            shape = node.attrs["shape"]
            made = rng.standard_normal(shape) * (shape[-1] ** -0.5 if len(shape) > 1 else 1)
            weights[node.attrs["name"]] = made.astype(node.attrs["dtype"].carrier)
    return inputs, weights

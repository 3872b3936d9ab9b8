"""Layers of Pangu Ultra MoE, DeepSeek-V3, Qwen3-MoE and GPT-OSS, forward and backward, on the CPU model.

Between them: latent attention with a rotary part, sandwich norms, normed heads of 80, grouped queries, sinks, a sliding
window, biases on everything, group-limited and biased routing, shared experts, clamped SwiGLU. Tiles are chosen for 5
positions, runs have others; one token leaves all experts but its two empty.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from small_layers import ODD, TINY, small

SIZES = ((1, 1), (1, 5), (2, 126), (1, 127))
ORDERS = ("forward", "reverse", "random:1", "random:2")


MOST = ("deepseek_v3", "gpt_oss_120b")
"""Latent attention and grouped routing; sinks, a window and biases."""


@pytest.mark.parametrize("model", [m if m in MOST else pytest.param(m, marks=pytest.mark.slow) for m in TINY])
def test_a_tiny_layer(model: str, tmp_path: Path) -> None:
    layer = small(model, TINY[model], tmp_path)
    layer.agrees(1, 1, counted=False)
    layer.agrees(1, 127, MOEC_CPU_ORDER="random:3", MOEC_POISON="1")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("model", ODD)
def test_widths_and_sizes_that_are_multiples_of_nothing(model: str, dtype: str, tmp_path: Path) -> None:
    layer = small(model, ODD[model], tmp_path, dtype)
    for (batch, seq), order in zip(SIZES, ORDERS, strict=True):
        layer.agrees(batch, seq, MOEC_CPU_ORDER=order)

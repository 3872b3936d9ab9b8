"""Rotary frequencies: hand-worked cases of each way of stretching, and what a scaled config does to the attention."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hf_exports import CONFIGS

from moec.frontend.hf import parse_config
from moec.frontend.hf.rope import Rope, read_rope
from moec.frontend.hf.values import Values

YARN = {"rope_type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1}


def rope(head: int = 64, **fields: Any) -> Rope:
    values = Values(json.dumps(CONFIGS["qwen3_moe"] | fields), "config.json")
    made = read_rope(values, head)
    values.raise_if_wrong()
    return made


def test_default_and_partial() -> None:
    assert rope(8).frequencies == pytest.approx([1, 0.1, 0.01, 0.001])
    assert rope(8, partial_rotary_factor=0.5).frequencies == pytest.approx([1, 0.01])
    assert rope(8, rotary_dim=4).width == 4
    one = rope(8, rope_theta=None, rope_parameters={"rope_theta": 1e6, "rope_type": "default"})
    assert one.frequencies == pytest.approx([10 ** (-1.5 * i) for i in range(4)])
    assert rope(8, rope_parameters={"rope_theta": 1e4, "partial_rotary_factor": 0.25}).width == 2


def test_linear() -> None:
    assert rope(8, rope_scaling={"type": "linear", "factor": 4.0}).frequencies == pytest.approx(
        [0.25, 0.025, 0.0025, 0.00025]
    )


def test_llama3_keeps_fast_slows_slow_and_mixes_between() -> None:
    """Length 2 pi 100: pair i makes 100 theta_i turns. Above 4 turns kept, below 1 divided by 8, 2.5 is half way."""
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 2 * math.pi * 100,
    }
    theta = 40.0**2  # frequencies 1 and 1/40: 100 and 2.5 turns
    fast, middle = rope(4, rope_theta=theta, rope_scaling=scaling).frequencies
    assert fast == 1.0 and middle == pytest.approx((1 + 1 / 8) / 2 / 40)
    _, slow = rope(4, rope_theta=1e6, rope_scaling=scaling).frequencies
    assert slow == pytest.approx(1e-3 / 8)


def test_yarn_of_deepseek_v3() -> None:
    """Bounds floor(10.47) and ceil(22.51): pairs up to 10 stay, from 23 on are 40 times slower, 14 keeps 9/13."""
    made = rope(64, rope_scaling=YARN | {"mscale": 1.0, "mscale_all_dim": 1.0})
    plain = 1e4 ** (-np.arange(32) / 32)
    share = np.array(made.frequencies) / plain
    np.testing.assert_allclose(share[:11], 1)
    np.testing.assert_allclose(share[23:], 1 / 40)
    assert share[14] == pytest.approx(9 / 13 + 4 / 13 / 40)
    assert made.factor == 1.0 and made.mscale == pytest.approx(0.1 * math.log(40) + 1)


def test_yarn_factors() -> None:
    plain = 0.1 * math.log(40) + 1
    assert rope(rope_scaling=YARN).factor == pytest.approx(plain)
    assert rope(rope_scaling=YARN | {"attention_factor": 1.5}).factor == 1.5
    both = rope(rope_scaling=YARN | {"mscale": 2.0, "mscale_all_dim": 1.0})
    assert both.factor == pytest.approx((0.2 * math.log(40) + 1) / plain)
    assert rope(rope_scaling=YARN | {"factor": 1.0}).factor == 1.0


def test_yarn_of_gpt_oss_does_not_round_its_bounds() -> None:
    made = rope(64, rope_theta=150000.0, rope_scaling=YARN | {"factor": 32.0, "truncate": False})
    share = np.array(made.frequencies) * 150000.0 ** (np.arange(32) / 32)
    low, high = 8.092779115512402, 17.39802450158856
    assert share[8] == 1.0 and share[18] == pytest.approx(1 / 32)
    slowed = (9 - low) / (high - low)
    assert share[9] == pytest.approx(1 - slowed + slowed / 32)


def test_the_scale_of_mla_follows_mscale() -> None:
    base = CONFIGS["deepseek_v3"] | {"rope_scaling": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}}
    scales = []
    for config in (CONFIGS["deepseek_v3"], base):
        (node,) = [n for n in parse_config(json.dumps(config)).nodes() if n.op == "attention"]
        scales.append(node.attrs["scale"])
    assert scales[0] == pytest.approx(16**-0.5)
    assert scales[1] == pytest.approx(16**-0.5 * (0.1 * math.log(40) + 1) ** 2)

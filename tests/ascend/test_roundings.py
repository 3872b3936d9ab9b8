"""The judge of small layers: sums that cancel are allowed what their terms are off by, and no more; a choice of experts
must be the best one up to roundings.
"""

from __future__ import annotations

import numpy as np
import pytest
from roundings import judged

from moec.frontend.dsl import parse_moe

ROUTED = """
input x: f32[2, 3], r: f32[4, 3], y: f32[1, 3], w: f32[3, 1]
probs, experts, counts = gating(x @ r.T, top_k = 2, score = "softmax", score_order = "before_topk", renormalize = true,
    renormalize_eps = 0.0, scale = 1.0, score_dtype = f32, weights_dtype = f32, groups = 1, group_top_k = 1,
    group_score = "none", group_mask = "none")
output probs, experts, counts, sum = y @ w
"""


def given(sums: tuple[float, float, float], gap: float = 1.0) -> dict[str, np.ndarray]:
    """Logits of both tokens are 3, 2, 2 - gap and 0."""
    return {
        "x": np.array([[1, 0, 0], [1, 0, 0]], np.float32),
        "r": np.array([[3, 0, 0], [2, 0, 0], [2 - gap, 0, 0], [0, 0, 0]], np.float32),
        "y": np.array([sums], np.float32),
        "w": np.ones((3, 1), np.float32),
    }


def test_what_cancels_is_judged_by_its_terms() -> None:
    chosen = np.array([[0, 1], [0, 1]])
    plain = judged(parse_moe(ROUTED), given((1, 2, 3)), {}, chosen)
    cancels = judged(parse_moe(ROUTED), given((1e4, 1, -1e4)), {}, chosen)
    assert plain.exact["sum"] == 6 and cancels.exact["sum"] == 1
    unit = 2.0**-24
    assert unit < plain.allowed["sum"] < 4 * 2 * 6 * unit
    assert 1e4 * unit < cancels.allowed["sum"] < 4 * 2 * 2e4 * unit
    assert cancels.allowed["counts"] == 0 and cancels.exact["counts"].tolist() == [2, 2, 0, 0]


def test_a_choice_is_the_best_up_to_roundings() -> None:
    """The experts that the weights stand for are those chosen, where two tie nearly; a worse one is refused."""
    module, first, other = parse_moe(ROUTED), np.array([[0, 1], [0, 1]]), np.array([[0, 2], [1, 0]])
    assert judged(module, given((1, 2, 3), 1e-7), {}, other).exact["experts"].tolist() == other.tolist()
    assert judged(module, given((1, 2, 3)), {}, first).exact["experts"].tolist() == first.tolist()
    with pytest.raises(AssertionError, match="experts, where logits are off by at most"):
        judged(module, given((1, 2, 3), 1e-5), {}, other)

"""Attributes of ``moe`` and ``gating`` in their plainest form, for tests to change."""

from __future__ import annotations

from typing import Any

from moec.ir.types import F32

ROUTING: dict[str, Any] = {
    "score": "softmax",
    "score_order": "before_topk",
    "groups": 1,
    "group_top_k": 1,
    "group_score": "none",
    "group_mask": "none",
    "renormalize": True,
    "renormalize_eps": 0.0,
    "scale": 1.0,
    "score_dtype": F32,
}
ACTIVATION: dict[str, Any] = {"activation": "silu", "glu": "chunked", "alpha": 1.0, "limit": None, "up_offset": 0.0}
DROPLESS: dict[str, Any] = {"capacity": None, "capacity_scope": "none", "dropped": "none"}

"""Forms of attention, routers, activations and loads of experts that the tests of gradients go through."""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ir.types import F32
from moec.ops import OPS

Array = np.ndarray

PLAIN: dict[str, Any] = {
    "scale": 0.3,
    "causal": False,
    "offset": 0,
    "window": None,
    "softcap": None,
    "empty_rows": "zero",
}


def attention_operands(
    rng: np.random.Generator,
    heads: int = 2,
    own: int = 2,
    rows: int = 3,
    keys: int = 4,
    width: int = 3,
    value: int = 2,
    mask: str = "",
    sinks: bool = False,
    rope: int = 0,
    rope_heads: int = 1,
    packed: tuple[int, ...] = (),
) -> list[Array | None]:
    """Random operands of attention."""
    made: list[Array | None] = [
        rng.standard_normal((2, heads, rows, width)),
        rng.standard_normal((2, own, keys, width)),
        rng.standard_normal((2, own, keys, value)),
        None,
        rng.standard_normal(heads) if sinks else None,
    ]
    if mask == "bool":
        made[3] = rng.random((2, 1, rows, keys)) < 0.6
    if mask == "add":
        made[3] = np.where(rng.random((rows, keys)) < 0.3, -np.inf, rng.standard_normal((rows, keys)))
    if rope:
        made += [rng.standard_normal((2, heads, rows, rope)), rng.standard_normal((2, rope_heads, keys, rope))]
    if packed:
        made += [*[None] * (7 - len(made)), np.array(packed, np.int32)]
    return made


FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "one of everything": ({}, {"heads": 1, "own": 1, "rows": 1, "keys": 1, "width": 1, "value": 1}),
    "causal": ({"causal": True}, {"rows": 4}),
    "causal, decoding": ({"causal": True, "offset": 3}, {"rows": 1}),
    "causal, rows before all keys": ({"causal": True, "offset": -2}, {"rows": 5}),
    "window": ({"causal": True, "window": 2}, {"rows": 5, "keys": 5}),
    "window without causal": ({"window": 1}, {"rows": 6, "keys": 3}),
    "softcap": ({"softcap": 0.8, "scale": 1.3}, {}),
    "mask of bools": ({}, {"mask": "bool"}),
    "additive mask and softcap": ({"softcap": 1.1}, {"mask": "add"}),
    "sinks": ({}, {"sinks": True}),
    "sinks, causal and window": ({"causal": True, "window": 2, "offset": -1}, {"sinks": True, "rows": 5}),
    "grouped heads": ({}, {"heads": 6, "own": 2}),
    "one key head": ({"causal": True}, {"heads": 3, "own": 1}),
    "packed sequences": ({"causal": True}, {"rows": 6, "keys": 6, "packed": (0, 2, 2, 5, 6)}),
    "packed sequences, both ways": ({}, {"rows": 5, "keys": 5, "packed": (0, 3, 5), "mask": "add", "rope": 2}),
    "values narrower than keys": ({"scale": 6**-0.5}, {"width": 6, "value": 4}),
    "values wider than keys": ({}, {"width": 2, "value": 5}),
    "a rotary key for all heads": ({"causal": True, "scale": 5**-0.5}, {"heads": 4, "own": 4, "rope": 2}),
    "a rotary key a head": ({}, {"heads": 4, "own": 2, "rope": 2, "rope_heads": 2}),
    "everything": (
        {"causal": True, "window": 3, "softcap": 0.9, "offset": 1},
        {"heads": 4, "own": 2, "mask": "bool", "sinks": True, "rope": 3, "width": 5, "value": 4},
    ),
}


def routing(score: str = "softmax", order: str = "before_topk", **changes: Any) -> dict[str, Any]:
    """Attributes of a router."""
    groups = changes.get("groups", 1)
    return {
        "top_k": 3,
        "score": score,
        "score_order": order,
        "groups": groups,
        "group_top_k": 2 if groups > 1 else 1,
        "group_score": "sum2" if groups > 1 else "none",
        "group_mask": "zero" if groups > 1 else "none",
        "renormalize": False,
        "renormalize_eps": 0.0,
        "scale": 1.0,
        "score_dtype": F32,
        "weights_dtype": F32,
    } | changes


ROUTERS: dict[str, tuple[dict[str, Any], bool]] = {
    f"{score}, {order}{', renormalised' if again else ''}": (
        routing(score, order, renormalize=again, scale=2.5 if again else 1.0, renormalize_eps=eps),
        biased,
    )
    for score in ("softmax", "sigmoid")
    for order in ("before_topk", "after_topk")
    for again, eps, biased in ((False, 0.0, False), (True, 1e-2, True))
} | {
    "groups by two best": (routing("sigmoid", groups=4, renormalize=True, scale=2.5), True),
    "groups by the best, masked with -inf": (
        routing(groups=2, group_top_k=1, group_score="max", group_mask="minus_inf"),
        False,
    ),
    "more chosen than the groups have": (routing(groups=4, group_top_k=1), False),
    "top 1": (routing(top_k=1, renormalize=True), False),
    "all": (routing("sigmoid", top_k=8), False),
}


ACTIVATIONS: dict[str, dict[str, Any]] = {
    f"{activation}, {glu}{', limited' if limit else ''}": {
        "activation": activation,
        "glu": glu,
        "alpha": 1.702 if limit else 1.0,
        "limit": limit,
        "up_offset": 1.0 if limit else 0.0,
    }
    for activation in ("silu", "gelu", "gelu_tanh", "relu", "sigmoid", "identity")
    for glu in ("none", "chunked", "interleaved")
    for limit in (None, 0.7)
}


COUNTS = {
    "all experts": [2, 1, 3, 1],
    "the first and the last are empty": [0, 5, 2, 0],
    "one has all": [0, 0, 7, 0],
    "one expert": [7],
    "one row": [0, 1],
    "no rows": [0, 0, 0],
}


def permutation(rng: np.random.Generator, tokens: int, k: int, experts: int) -> tuple[Array, Array, Array]:
    """Experts [T, K] of which some stay empty, their counts, and where each slot goes."""
    choice = rng.integers(0, max(1, experts - 1), (tokens, k)).astype(np.int32)
    counts = np.bincount(choice.ravel(), minlength=experts).astype(np.int32)
    return choice, counts, OPS["permute"].ref(np.zeros((tokens, 1)), choice, counts)[1]

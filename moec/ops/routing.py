"""Routing: which experts a token goes to and with what weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ir.graph import Node, Value
from moec.ir.symbol import Shape
from moec.ir.types import DType
from moec.ops.elementwise import sigmoid
from moec.ops.index import stable_argsort
from moec.ops.reduce import softmax
from moec.ops.registry import Types, op
from moec.ops.shapes import known
from moec.ops.tape import Gradients, Tape

Array = np.ndarray

ROUTING = (
    "top_k: int, score: str, score_order: str, groups: int, group_top_k: int, group_score: str, group_mask: str, "
    "renormalize: bool, renormalize_eps: float, scale: float, score_dtype: dtype, weights_dtype: dtype"
)
"""The attributes that say how tokens are routed, as they stand in signatures."""

CHOICES = {
    "score": ("softmax", "sigmoid"),
    "score_order": ("before_topk", "after_topk"),
    "group_score": ("none", "max", "sum2"),
    "group_mask": ("none", "zero", "minus_inf"),
}
"""What each named property of routing may be."""


def check_choices(attrs: dict[str, Any], choices: dict[str, tuple[str, ...]]) -> None:
    """ValueError for a named property outside ``choices``."""
    for name, allowed in choices.items():
        if attrs[name] not in allowed:
            raise ValueError(f"{name} '{attrs[name]}' is none of {', '.join(allowed)}")


def check_routing(attrs: dict[str, Any], experts: Any) -> None:
    """ValueError where the attributes of ``ROUTING`` contradict one another or the number of experts."""
    check_choices(attrs, CHOICES)
    grouped = attrs["groups"] > 1
    if any((attrs[n] != "none") != grouped for n in ("group_score", "group_mask")):
        raise ValueError("group_score and group_mask are 'none' exactly when groups is 1")
    if isinstance(experts, int) and not 1 <= attrs["top_k"] <= experts:
        raise ValueError(f"top_k {attrs['top_k']} of {experts} experts")
    if isinstance(experts, int) and (attrs["groups"] < 1 or experts % attrs["groups"]):
        raise ValueError(f"{experts} experts do not split into {attrs['groups']} groups")


def rounded(x: Array, dtype: DType) -> Array:
    """x rounded to ``dtype`` and back in the compute dtype; in fp64 mode x itself."""
    return x if x.dtype == np.float64 else x.astype(dtype.carrier).astype(x.dtype)


def _score(logits: Array, attrs: dict[str, Any]) -> Array:
    scores = softmax(logits, axis=-1) if attrs["score"] == "softmax" else sigmoid(logits)
    return rounded(scores, attrs["score_dtype"])


def _group_limited(choice: Array, groups: int, keep: int, how: str, mask: str) -> Array:
    """Scores in which only the ``keep`` best groups may be chosen; a group counts by its maximum or the sum of its
    two best.
    """
    tokens, experts = choice.shape
    split = choice.reshape(tokens, groups, experts // groups)
    best = -np.sort(-split, axis=-1)
    worth = best[..., 0] if how == "max" else best[..., :2].sum(-1)
    allowed = np.zeros((tokens, groups), bool)
    np.put_along_axis(allowed, stable_argsort(worth, 1, True)[:, :keep], True, axis=1)
    fill = choice.dtype.type(0 if mask == "zero" else -np.inf)
    return np.where(allowed[..., None], split, fill).reshape(tokens, experts)


def route(logits: Array, score_bias: Array | None, attrs: dict[str, Any]) -> tuple[Array, Array]:
    """Routing weights [T, K] and experts [T, K] (i32) of logits [T, E] under the attributes of ``ROUTING``.

    ``before_topk`` scores all experts and chooses by score (+ bias); ``after_topk`` chooses by logit (+ bias) and
    scores the chosen. Scores are rounded to ``score_dtype`` (f32: not beyond the compute dtype) before anything is
    done with them, so that two that round to the same number tie. The bias only steers the choice (DeepSeek-V3, arXiv
    2412.19437, eq. 16). Ties go to the lower expert.
    """
    before = attrs["score_order"] == "before_topk"
    scores = _score(logits, attrs) if before else logits
    choice = scores if score_bias is None else scores + score_bias
    if attrs["groups"] > 1:
        choice = _group_limited(
            choice, attrs["groups"], attrs["group_top_k"], attrs["group_score"], attrs["group_mask"]
        )
    experts = stable_argsort(choice, 1, True)[:, : attrs["top_k"]]
    weights = np.take_along_axis(scores, experts, axis=1)
    if not before:
        weights = _score(weights, attrs)
    if attrs["renormalize"]:
        weights = weights / (weights.sum(-1, keepdims=True) + weights.dtype.type(attrs["renormalize_eps"]))
    return weights * weights.dtype.type(attrs["scale"]), experts.astype(np.int32)


@op(f"gating(logits: [T, E], score_bias?: [E], *, {ROUTING}) -> (weights: any, experts: any, counts: any)")
class Gating:
    """Routing: weights [T, K] in weights_dtype, experts [T, K] i32 (ties to the lower), and tokens per expert [E] i32.

    scores = softmax or sigmoid of the logits, rounded to score_dtype; the top_k of scores + score_bias (within the best
    groups) are chosen; weights = scores (/ (their sum + renormalize_eps)) * scale.
    """

    dtype = ("=weights_dtype", "!i32", "!i32")
    cost = "vector"
    traits = ("index",)

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        tokens, experts = known(types)[0].dims
        check_routing(attrs, experts)
        chosen = (tokens, attrs["top_k"])
        return [chosen, chosen, (experts,)]

    @staticmethod
    def ref(logits: Array, score_bias: Array | None = None, **attrs: Any) -> tuple[Array, Array, Array]:
        weights, experts = route(logits, score_bias, attrs)
        return weights, experts, np.bincount(experts.ravel(), minlength=logits.shape[1]).astype(np.int32)

    @staticmethod
    def grad(t: Tape, node: Node, *dys: Value | None) -> Gradients:
        dlogits = None
        if dys[0] is not None and t.wanted(0):
            dlogits = t.narrow(t.gating_grad(node.operand(0), None, node.results[1], dys[0], **node.attrs), 0)
        return [dlogits, None][: len(node.operands)]

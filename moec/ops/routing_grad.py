"""The gradient of routing weights by the logits, for the experts that were chosen."""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ir.symbol import Shape
from moec.ops.elementwise import sigmoid
from moec.ops.reduce import softmax
from moec.ops.registry import Types, op
from moec.ops.routing import ROUTING, check_routing, rounded
from moec.ops.shapes import known
from moec.ops.tape import no_grad

Array = np.ndarray


def score_grad(scores: Array, dscores: Array, score: str) -> Array:
    """The gradient by the logits of softmax or sigmoid ``scores`` over the last dimension."""
    if score == "sigmoid":
        return dscores * scores * (1 - scores)
    return scores * (dscores - np.sum(dscores * scores, axis=-1, keepdims=True))


@op(f"gating_grad(logits: [T, E], score_bias?: [E], experts: [T, K], dweights: [T, K], *, {ROUTING}) -> [T, E]")
class GatingGrad:
    """dlogits of ``gating`` from the gradient of its weights; the choice of ``experts`` is not differentiated.

    s is the score of the logits (before_topk: of all; after_topk: of the chosen, and the others get exact zeros), w the
    chosen ones, dw = scale * dweights. With renormalize, n = sum of w + eps and p = w / n: dw becomes
    (dw - sum of dw * p) / n. Then softmax: dlogits = s * (ds - sum of ds * s); sigmoid: ds * s * (1 - s), ds being dw
    at the chosen experts and 0 elsewhere. The rounding to score_dtype counts as the identity. ``score_bias`` is not
    read: it steers the choice only, and has no gradient. In f32, rounded once to logits' dtype.
    """

    dtype = "logits"
    cost = "vector"
    grad = no_grad("second derivatives are not offered")

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        logits = known(types)[0]
        check_routing(attrs, logits.dims[1])
        experts = types[2]
        if experts is not None and experts.dims[1] != attrs["top_k"]:
            raise ValueError(f"experts are {experts}, expected {attrs['top_k']} a token")
        return [logits.dims]

    @staticmethod
    def ref(logits: Array, score_bias: Array | None, experts: Array, dweights: Array, **attrs: Any) -> Array:
        dw = dweights.astype(logits.dtype) * logits.dtype.type(attrs["scale"])
        before = attrs["score_order"] == "before_topk"
        z = logits if before else np.take_along_axis(logits, experts, axis=1)
        scores = softmax(z, axis=-1) if attrs["score"] == "softmax" else sigmoid(z)
        if attrs["renormalize"]:
            held = rounded(scores, attrs["score_dtype"])
            w = np.take_along_axis(held, experts, axis=1) if before else held
            total = w.sum(-1, keepdims=True) + w.dtype.type(attrs["renormalize_eps"])
            dw = (dw - np.sum(dw * (w / total), axis=-1, keepdims=True)) / total
        if before:
            return score_grad(scores, _spread(dw, experts, logits), attrs["score"])
        return _spread(score_grad(scores, dw, attrs["score"]), experts, logits)


def _spread(chosen: Array, experts: Array, like: Array) -> Array:
    """[T, E] with the chosen experts' numbers, and exact zeros for the others."""
    out = np.zeros_like(like)
    np.put_along_axis(out, experts.astype(np.int64), chosen, axis=1)
    return out

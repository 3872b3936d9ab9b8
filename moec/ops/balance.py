"""Auxiliary losses that keep experts evenly loaded."""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ir.graph import Node, Value
from moec.ir.symbol import Dim, Shape, dmax
from moec.ir.types import I64, DType
from moec.ops.elementwise import sigmoid
from moec.ops.reduce import softmax
from moec.ops.registry import Types, op
from moec.ops.routing import CHOICES as ROUTING_CHOICES
from moec.ops.routing import check_choices
from moec.ops.shapes import known
from moec.ops.tape import Gradients, Tape

Array = np.ndarray

CHOICES = {"form": ("load", "cv_squared"), "score": ROUTING_CHOICES["score"]}
"""What each named property of a balance loss may be."""


@op("balance_loss(logits: [T, E], counts?: [E], *, form: str, score: str, coefficient: float) -> []")
class BalanceLoss:
    """coefficient * E * sum over experts of f P ("load"), or of (P - 1/E)^2 ("cv_squared"), a scalar in f32.

    P_i is the mean over the T tokens of the score of expert i, softmax or sigmoid of the logits, divided by the token's
    sum of scores; f_i = counts_i / sum of counts is the share of token-slots that expert i was given, 1/E when
    balanced. "load" is the loss of Switch Transformers (arXiv 2101.03961, eq. 4-6), there for one choice a token
    and for top_k of them in Megatron-LM (``switch_load_balancing_loss_func``); GShard's (arXiv 2006.16668) is 1/E^2 of
    it. With sigmoid it is that of DeepSeek-V3 (arXiv 2412.19437, eq. 17-20), which takes each sequence by itself and
    counts the choices that the scores alone would make, where here the tokens at hand and the choices made (with the
    router's bias) count. ``counts`` may be summed over a group of ranks: f is then the group's while P stays the rank's
    own (arXiv 2501.11873). "cv_squared" is the squared coefficient of variation of P (variance over the experts by
    their mean's square; arXiv 1701.06538, eq. 6-7) and takes no counts; that paper takes the sum of the gates that are
    left after the choice for P. The loss of no tokens is 0. f is a choice of indices: the
    gradient goes through P alone.
    """

    dtype = "!f32"
    cost = "composite"

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        check_choices(attrs, CHOICES)
        counted = len(known(types)) > 1
        if counted != (attrs["form"] == "load"):
            raise ValueError(f"form '{attrs['form']}' takes {'no counts' if counted else 'the counts of the experts'}")
        return [()]

    @staticmethod
    def ref(logits: Array, counts: Array | None = None, *, form: str, score: str, coefficient: float) -> Array:
        tokens, experts = logits.shape
        if not tokens:
            return np.zeros((), logits.dtype)
        scores = softmax(logits, axis=-1) if score == "softmax" else sigmoid(logits)
        mean = np.mean(scores / scores.sum(-1, keepdims=True), axis=0)
        if counts is None:
            total = np.sum(np.square(mean - mean.dtype.type(1 / experts)))
        else:
            total = np.sum(counts / mean.dtype.type(max(int(counts.sum()), 1)) * mean)
        return np.asarray(total * mean.dtype.type(coefficient * experts), logits.dtype)

    @staticmethod
    def grad(t: Tape, node: Node, *dys: Value | None) -> Gradients:
        (dloss,), logits, a = dys, t.wide(node.operand(0)), node.attrs
        assert dloss is not None
        tokens, experts = logits.type.dims
        dtype = logits.type.dtype
        scores = t.softmax(logits, axis=1) if a["score"] == "softmax" else t.sigmoid(logits)
        total = None if a["score"] == "softmax" else t.reduce_sum(scores, axes=(1,), keepdims=True)
        shares = scores if total is None else t.div(scores, total)
        by_mean = _by_mean(t, node, shares)
        factor = t.scaled(t.div(t.cast_to(dloss, dtype), _size(t, dmax(tokens, 1), dtype)), a["coefficient"])
        row = t.reshaped(t.mul(by_mean, t.mul(factor, _size(t, experts, dtype))), (1, experts))
        inner = t.sub(row, t.reduce_sum(t.mul(row, shares), axes=(1,), keepdims=True))
        if total is None:
            found = t.mul(shares, inner)
        else:
            one = t.constant_of(1.0, dtype)
            found = t.mul(t.mul(t.div(inner, total), scores), t.sub(one, scores))
        return [t.narrow(found, 0), None][: len(node.operands)]


def _by_mean(t: Tape, node: Node, shares: Value) -> Value:
    """The derivative of the loss, without its factor, by the experts' mean shares: f, or 2 (P - 1/E)."""
    dtype, experts = shares.type.dtype, shares.type.dims[1]
    made: Value
    if node.attrs["form"] == "load":
        counts = t.cast_to(node.operand(1), I64)
        some = t.maximum(t.reduce_sum(counts, axes=(0,), keepdims=True), t.dims(values=(1,), scalar=False))
        made = t.div(t.cast(counts, to=dtype), t.cast(some, to=dtype))
    else:
        even = t.reciprocal(_size(t, experts, dtype))
        made = t.scaled(t.sub(t.reduce_mean(shares, axes=(0,), keepdims=False), even), 2.0)
    return made


def _size(t: Tape, dim: Dim, dtype: DType) -> Value:
    """A dimension as a number."""
    made: Value = t.cast(t.dims(values=(dim,), scalar=True), to=dtype)
    return made

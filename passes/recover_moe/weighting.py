"""How the routing weights follow from the choice: score, renormalisation, scale, and what they are rounded to."""

from __future__ import annotations

from typing import Any

from moec.ir.graph import Node, Value
from moec.ir.types import DType
from moec.ops.registry import opdef
from moec.passes.recover_moe.chain import NoRouter, constant_number, producer, uncast
from moec.passes.recover_moe.retold import epsilon_of
from moec.passes.recover_moe.router import Router, held_in
from moec.passes.recover_moe.static import Statics


def weighting(router: Router, weights: Value, statics: Statics, factor: Value | None) -> dict[str, Any]:
    """The attributes of how ``weights`` [T, K], times a token's ``factor`` if there is one, follow from the choice.

    Raises NoRouter where they do not as ``moe`` says.
    """
    value, narrow = uncast(weights)
    if router.told is not None:
        return _told(router, value, narrow, statics, factor)
    if router.one:
        return {**_best(router, value), "weights_dtype": narrow, "scale": 1.0, **_RAW}
    if router.topk.op == "gating":
        if value is not router.topk.results[0]:
            raise NoRouter("the routing weights are changed after they were made", value.producer)
        return {name: router.topk.attrs[name] for name in opdef("gating").attrs} | {"weights_dtype": narrow}
    found: dict[str, Any] = {"weights_dtype": narrow, "scale": 1.0, "renormalize": False, "renormalize_eps": 0.0}
    inner, score = _gathered(value, router.topk.results[1])
    value = inner if score is None else value
    scaled = producer(value, "mul")
    if scaled is not None:
        scale = constant_number(scaled.operand(1), statics)
        if scale is None:
            raise NoRouter("the routing weights are multiplied by something that is no constant", scaled)
        found["scale"] = scale
        value = uncast(scaled.operand(0))[0]
    divided = producer(value, "div")
    if divided is not None:
        value = uncast(divided.operand(0))[0]
        found["renormalize"] = True
        found["renormalize_eps"] = _eps(divided, value, statics)
    return {**found, **_base(router, value)}


_RAW: dict[str, Any] = {"renormalize": False, "renormalize_eps": 0.0}


def _best(router: Router, value: Value) -> dict[str, Any]:
    """The weight of the best expert: the largest score."""
    while (node := producer(value, "reshape", "cast")) is not None:
        value = node.operand(0)
    best = producer(value, "reduce_max")
    if best is None or uncast(best.operand(0))[0] is not uncast(router.scores)[0]:
        raise NoRouter("the routing weight is not the largest score", value.producer)
    return {"score": router.score, "score_order": "before_topk", "score_dtype": router.score_dtype}


def _told(router: Router, value: Value, narrow: DType, statics: Statics, factor: Value | None) -> dict[str, Any]:
    """Weights by an operator that was told the choice: chosen scores over their sum, an epsilon behind it."""
    assert router.told is not None
    inner, scores = router.told
    if value is not router.topk.results[0]:
        raise NoRouter("the routing weights are changed after they were made", value.producer)
    eps = None if factor is None else epsilon_of(factor, scores, statics)
    found = {
        "weights_dtype": narrow,
        "scale": router.topk.attrs["scale"],
        "renormalize": True,
        "renormalize_eps": eps or 0.0,
    }
    return {**found, **_base(inner, scores)}


def _eps(divided: Node, value: Value, statics: Statics) -> float:
    total = uncast(divided.operand(1))[0]
    eps = 0.0
    added = producer(total, "add")
    if added is not None:
        number = constant_number(added.operand(1), statics)
        if number is None:
            raise NoRouter("the sum of the routing weights has something added that is no constant", added)
        eps = number
        total = uncast(added.operand(0))[0]
    summed = producer(total, "reduce_sum")
    terms = None if summed is None else uncast(summed.operand(0))[0]
    magnitude = None if terms is None else producer(terms, "abs")
    terms = terms if magnitude is None else magnitude.operand(0)
    if summed is None or terms is not value or summed.attrs["axes"] != (terms.type.rank - 1,):
        raise NoRouter("the routing weights are divided by something else than their sum over the choices", divided)
    return eps


def _gathered(value: Value, indices: Value) -> tuple[Value, Node | None]:
    """What was put at the chosen experts, where ``value`` is spread over all of them; and the score taken after that.

    A score of chosen logits among minus infinities is the score of the chosen ones alone.
    """
    here, score = value, None
    while (node := producer(here, "reshape", "transpose", "softmax", "sigmoid", "cast")) is not None:
        if node.op in ("softmax", "sigmoid"):
            if score is not None:
                return value, None
            score = node
        here = node.operand(0)
    scattered = producer(here, "scatter_elements")
    if scattered is None or scattered.operand(1) is not indices:
        return value, None
    return uncast(scattered.operand(2))[0], score


def _base(router: Router, value: Value) -> dict[str, Any]:
    """Where the weights come from before they are normalised and scaled: scores of the chosen, or a score of what was
    chosen."""
    chosen, indices = router.topk.results
    value, score = _gathered(value, indices)
    if score is not None:
        if value is not chosen or router.score:
            raise NoRouter("the scores of the chosen logits are not of the chosen logits themselves", score)
        return {"score": score.op, "score_order": "after_topk", "score_dtype": held_in(score.result.type.dtype)}
    before = {"score": router.score, "score_order": "before_topk", "score_dtype": router.score_dtype}
    if value is chosen and router.groups["groups"] > 1:
        raise NoRouter("the routing weights are masked scores, not the scores themselves", router.topk)
    if value is chosen:
        if router.score_bias is not None:
            raise NoRouter("the routing weights keep the bias that should only steer the choice", router.topk)
        if not router.score:
            raise NoRouter("the routing weights are logits, without softmax or sigmoid", router.topk)
        return before
    gathered = producer(value, "gather_elements")
    last = indices.type.rank - 1
    if gathered is not None and gathered.attrs["axis"] == last and gathered.operand(1) is indices:
        if uncast(gathered.operand(0))[0] is uncast(router.scores)[0] and router.score:
            return before
        raise NoRouter("the routing weights are taken from other scores than the choice", gathered)
    scored = producer(value, "softmax", "sigmoid")
    if scored is not None and uncast(scored.operand(0))[0] is chosen and not router.score:
        if scored.op == "softmax" and scored.attrs["axis"] != last:
            raise NoRouter("the softmax of the chosen logits is not over the choices", scored)
        held = held_in(scored.result.type.dtype)
        return {"score": scored.op, "score_order": "after_topk", "score_dtype": held}
    raise NoRouter("the routing weights do not follow from the choice in a known way", value.producer)

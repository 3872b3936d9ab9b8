"""Routers told again to a fused operator that only knows softmax and its own top-k (onnxruntime-genai's builder).

The choice is made in the graph; the operator gets the logarithms of the chosen scores as logits, and a large negative
number for the other experts. Its softmax then gives score / sum of the chosen scores, and what the model renormalises
by besides, such as an epsilon, multiplies the sum over the experts behind it.
"""

from __future__ import annotations

import math

from moec.ir.graph import Node, Value
from moec.passes.recover_moe.chain import NoRouter, constant_number, producer, uncast
from moec.passes.recover_moe.static import Statics

UNDERFLOW = 104.0
"""exp(-x) is 0 in f32 from here on (the smallest subnormal is 2^-149 = exp(-103.3))."""

FLOOR = 1e-20
"""Chosen scores may be raised to this at most before the logarithm: what no score that matters is below."""


def told_scores(gating: Node, statics: Statics) -> tuple[Node, Value] | None:
    """The top-k whose choice ``gating``'s logits tell again, and the chosen scores [T, K]; None where they do not.

    Raises NoRouter where they nearly do.
    """
    a = gating.attrs
    scattered = producer(uncast(gating.operand(0))[0], "scatter_elements")
    if scattered is None or scattered.attrs["axis"] != 1 or scattered.attrs["reduction"] != "none":
        return None
    chosen = scattered.operand(1).producer
    told = producer(uncast(scattered.operand(2))[0], "log")
    if chosen is None or chosen.op != "topk" or scattered.operand(1) is not chosen.results[1] or told is None:
        return None
    scores, floor = told.operand(0), 0.0
    raised = producer(scores, "maximum")
    if raised is not None:
        scores, floor = raised.operand(0), constant_number(raised.operand(1), statics) or 0.0
    fill = constant_number(scattered.operand(0), statics)
    lowest = math.log(floor) if floor > 0 else -math.inf
    if fill is None or not 0 < floor <= FLOOR or fill > lowest - UNDERFLOW:
        raise NoRouter(
            f"experts that were not chosen get the logit {fill}, chosen ones {lowest:.4g} at least", scattered
        )
    plain = (a["score"], a["score_order"], a["groups"], a["renormalize_eps"]) == ("softmax", "before_topk", 1, 0.0)
    if not plain or gating.operands[1:] not in ([], [None]):
        raise NoRouter("the operator that is told the choice routes by more than a softmax", gating)
    if chosen.attrs["k"] != a["top_k"]:
        raise NoRouter(f"{chosen.attrs['k']} experts are chosen, the operator takes {a['top_k']}", gating)
    return chosen, uncast(scores)[0]


def epsilon_of(factor: Value, scores: Value, statics: Statics) -> float | None:
    """The epsilon of a sum times ``factor`` = total / (total + epsilon), total being the sum of the chosen scores.

    None where the factor is something else.
    """
    value = factor
    while (node := producer(value, "reshape", "cast")) is not None:
        value = node.operand(0)
    divided = producer(value, "div")
    added = None if divided is None else producer(uncast(divided.operand(1))[0], "add")
    if divided is not None and added is not None:
        total, again = uncast(divided.operand(0))[0], uncast(added.operand(0))[0]
        summed = producer(total, "reduce_sum")
        eps = constant_number(added.operand(1), statics)
        over_choices = summed is not None and summed.attrs["axes"] == (1,) and uncast(summed.operand(0))[0] is scores
        if over_choices and total is again and eps is not None:
            return eps
    return None

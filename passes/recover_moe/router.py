"""The router: how scores, choice and weights follow from the logits, read from the graph and from nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from moec.ir.graph import Node, Value
from moec.ir.symbol import Dim
from moec.ir.types import F32, DType
from moec.ops.registry import opdef
from moec.passes.recover_moe.groups import ungrouped
from moec.passes.recover_moe.static import Ref, Statics, changed, flipped


class NoRouter(Exception):
    """What a top-k chooses from is no router's scores, or not one that ``moe`` can express; the nodes to blame come
    second."""

    def __init__(self, reason: str, node: Node | None = None):
        super().__init__(reason)
        self.node = node


_UNGROUPED: dict[str, Any] = {"groups": 1, "group_top_k": 1, "group_score": "none", "group_mask": "none"}


@dataclass
class Router:
    """A router up to its choice. ``tokens`` is what it multiplies, ``weight`` [E, H]; ``score`` is empty where it
    chooses by logits."""

    topk: Node
    tokens: Value
    weight: Ref
    logits: Value
    scores: Value
    score: str
    score_dtype: DType
    bias: Ref | None = None
    score_bias: Ref | None = None
    groups: dict[str, Any] = field(default_factory=lambda: dict(_UNGROUPED))

    @property
    def top_k(self) -> int:
        return int(self.topk.attrs["k" if self.topk.op == "topk" else "top_k"])

    @property
    def expert_count(self) -> int:
        return self.weight.shape[0]


def producer(value: Value, *ops: str) -> Node | None:
    """The node that makes ``value`` if it is one of ``ops``."""
    node = value.producer
    return node if node is not None and node.op in ops else None


def uncast(value: Value) -> tuple[Value, DType]:
    """The value before casts between floats, and the narrowest dtype that it passed through."""
    narrow = value.type.dtype
    while (node := producer(value, "cast")) is not None and node.operand(0).type.dtype.is_float:
        value = node.operand(0)
        narrow = min(narrow, value.type.dtype, key=lambda d: d.bits)
    return value, narrow


def find_router(topk: Node, statics: Statics) -> Router | None:
    """The router that ``topk`` belongs to, None where it is none. Raises NoRouter for one that cannot be expressed."""
    if topk.op == "gating":
        return _fused(topk, statics)
    choice = topk.operand(0)
    if choice.type.shape is None or choice.type.rank < 2 or not topk.attrs["largest"]:
        return None
    last = choice.type.rank - 1
    if topk.attrs["axis"] != last:
        return None
    if not isinstance(topk.attrs["k"], int):
        return None
    score_bias = None
    limited = ungrouped(uncast(choice)[0], statics)
    groups = dict(_UNGROUPED)
    if limited is not None:
        choice, groups = limited
    value, narrow = uncast(choice)
    added = producer(value, "add")
    if added is not None and producer(uncast(added.operand(0))[0], "softmax", "sigmoid") is not None:
        score_bias = _vector(statics.ref(added.operand(1)), choice.type.dims[last])
        if score_bias is None:
            return None
        if narrow.bits < F32.bits:
            raise NoRouter(f"the choice is by scores plus bias rounded to {narrow}", added)
        value, narrow = uncast(added.operand(0))
    elif groups["group_score"] == "sum2" and narrow.bits < F32.bits:
        raise NoRouter(f"groups are chosen by sums rounded to {narrow}", topk)
    scored = producer(value, "softmax", "sigmoid")
    scores = added.operand(0) if added is not None and score_bias is not None else choice
    logits = value
    if scored is not None:
        if scored.op == "softmax" and scored.attrs["axis"] != last:
            return None
        logits = uncast(scored.operand(0))[0]
    found = _product(logits, statics)
    if found is None:
        _told_of_inputs(logits, scored)
        return None
    product, weight, bias = found
    return Router(
        topk,
        product.operand(0),
        weight,
        logits,
        scores,
        scored.op if scored is not None else "",
        _held(narrow),
        bias,
        score_bias,
        groups,
    )


def _told_of_inputs(logits: Value, scored: Node | None) -> None:
    """NoRouter where all is there but the router is an input of the graph, as in a training step's."""
    product = producer(logits, "matmul")
    router = None if product is None else product.operand(1)
    if scored is None or router is None or router.producer is not None or router.type.shape is None:
        return
    if router.type.rank == 2 and router.type.dtype.is_float:
        raise NoRouter(
            f"the router's weights are the input '{router.name}', as in a training step: its backward pass reads "
            "what the block computes on the way, so the block stays as it is",
            product,
        )


def _fused(gating: Node, statics: Statics) -> Router | None:
    """The router of a ``gating`` node: what it multiplies, and all else from the node's attributes."""
    found = _product(uncast(gating.operand(0))[0], statics)
    score_bias = None
    if len(gating.operands) > 1 and gating.operands[1] is not None:
        score_bias = statics.ref(gating.operand(1))
        if score_bias is None:
            return None
    if found is None:
        return None
    product, weight, bias = found
    a = gating.attrs
    logits = gating.operand(0)
    return Router(gating, product.operand(0), weight, logits, logits, a["score"], a["score_dtype"], bias, score_bias)


def _held(dtype: DType) -> DType:
    """What scores are rounded to: f32 where that is no less than what they are computed in."""
    return dtype if dtype.bits < F32.bits else F32


def _vector(ref: Ref | None, size: Dim) -> Ref | None:
    """A bias as [E], whatever axes of size 1 it has besides."""
    if ref is None or [d for d in ref.shape if d != 1] != [size]:
        return None
    return ref if len(ref.shape) == 1 else changed("reshape", ref, shape=(size,))


def _product(logits: Value, statics: Statics) -> tuple[Node, Ref, Ref | None] | None:
    """The matmul behind the logits, its weight as [E, H], and the bias."""
    bias = None
    added = producer(logits, "add")
    if added is not None:
        logits = uncast(added.operand(0))[0]
        bias = _vector(statics.ref(added.operand(1)), logits.type.dims[-1])
        if bias is None:
            return None
    node = producer(logits, "matmul")
    if node is None or node.attrs["transpose_a"]:
        return None
    stored = node.operand(1)
    cast = producer(stored, "cast")
    weight = statics.ref(cast.operand(0) if cast is not None else stored)
    if weight is None or len(weight.shape) != 2:
        return None
    return node, weight if node.attrs["transpose_b"] else flipped(weight), bias


def weighting(router: Router, weights: Value, statics: Statics) -> dict[str, Any]:
    """The attributes of how ``weights`` [T, K] follow from the choice. Raises NoRouter where they do not as ``moe``
    says."""
    value, narrow = uncast(weights)
    if router.topk.op == "gating":
        if value is not router.topk.results[0]:
            raise NoRouter("the routing weights are changed after they were made", value.producer)
        return {name: router.topk.attrs[name] for name in opdef("gating").attrs} | {"weights_dtype": narrow}
    found: dict[str, Any] = {"weights_dtype": narrow, "scale": 1.0, "renormalize": False, "renormalize_eps": 0.0}
    inner, score = _gathered(value, router.topk.results[1])
    value = inner if score is None else value
    scaled = producer(value, "mul")
    if scaled is not None:
        factor = _number(scaled.operand(1), statics)
        if factor is None:
            raise NoRouter("the routing weights are multiplied by something that is no constant", scaled)
        found["scale"] = factor
        value = uncast(scaled.operand(0))[0]
    divided = producer(value, "div")
    if divided is not None:
        value = uncast(divided.operand(0))[0]
        found["renormalize"] = True
        found["renormalize_eps"] = _eps(divided, value, statics)
    return {**found, **_base(router, value)}


def _number(value: Value, statics: Statics) -> float | None:
    meaning = statics.abstract(value)
    number = getattr(meaning.content, "value", None) if meaning is not None else None
    return float(number) if isinstance(number, int | float) else None


def _eps(divided: Node, value: Value, statics: Statics) -> float:
    total = uncast(divided.operand(1))[0]
    eps = 0.0
    added = producer(total, "add")
    if added is not None:
        number = _number(added.operand(1), statics)
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
        return {"score": score.op, "score_order": "after_topk", "score_dtype": _held(score.result.type.dtype)}
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
        held = _held(scored.result.type.dtype)
        return {"score": scored.op, "score_order": "after_topk", "score_dtype": held}
    raise NoRouter("the routing weights do not follow from the choice in a known way", value.producer)

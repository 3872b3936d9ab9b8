"""The router: how scores and choice follow from the logits, read from the graph and from nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from moec.ir.graph import Node, Value
from moec.ir.symbol import Dim
from moec.ir.types import F32, DType
from moec.passes.recover_moe.chain import NoRouter, producer, uncast
from moec.passes.recover_moe.groups import ungrouped
from moec.passes.recover_moe.retold import told_scores
from moec.passes.recover_moe.static import Ref, Statics, changed, flipped

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
    told: tuple[Router, Value] | None = None
    """Where ``topk`` is a ``gating`` that was told the choice: the router that made it and the chosen scores."""

    @property
    def top_k(self) -> int:
        return 1 if self.one else int(self.topk.attrs["k" if self.topk.op == "topk" else "top_k"])

    @property
    def one(self) -> bool:
        """Whether the choice is of the best one, with no axis of choices."""
        return self.topk.op == "argmax"

    @property
    def indices(self) -> Value:
        """The experts chosen."""
        return self.topk.results[0 if self.one else 1]

    @property
    def expert_count(self) -> int:
        return self.weight.shape[0]


def find_router(topk: Node, statics: Statics) -> Router | None:
    """The router that ``topk`` belongs to, None where it is none. Raises NoRouter for one that cannot be expressed."""
    if topk.op == "gating":
        return _fused(topk, statics)
    if topk.op == "argmax":
        return _top_one(topk, statics)
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
        _check_floats(logits, scored)
        return None
    product, weight, bias = found
    return Router(
        topk,
        product.operand(0),
        weight,
        logits,
        scores,
        scored.op if scored is not None else "",
        held_in(narrow),
        bias,
        score_bias,
        groups,
    )


def _check_floats(logits: Value, scored: Node | None) -> None:
    """NoRouter where the scores are of a product of integers, as quantised routers have it."""
    node = logits.producer if scored is not None else None
    while node is not None and node.op in ("add", "mul", "cast", "reshape"):
        node = node.operand(0).producer
    if node is not None and node.op == "matmul" and not node.result.type.dtype.is_float:
        raise NoRouter(
            "the router multiplies quantised integers: a product of floats would choose other experts near a tie", node
        )


def _spreads(index: Value) -> bool:
    """Whether a choice is compared with the numbers of experts, as a class that is only told is not."""
    for user in index.uses:
        if user.op in ("one_hot", "eq") or (user.op in ("reshape", "cast", "expand") and _spreads(user.result)):
            return True
    return False


def _top_one(argmax: Node, statics: Statics) -> Router | None:
    """The router of a choice of the best expert that is then spread as one-hot rows."""
    choice = argmax.operand(0)
    if choice.type.shape is None or choice.type.rank < 2 or argmax.attrs["last"] or argmax.attrs["keepdims"]:
        return None
    last = choice.type.rank - 1
    if argmax.attrs["axis"] != last or not _spreads(argmax.result):
        return None
    value, narrow = uncast(choice)
    scored = producer(value, "softmax", "sigmoid")
    if scored is None or (scored.op == "softmax" and scored.attrs["axis"] != last):
        return None
    logits = uncast(scored.operand(0))[0]
    found = _product(logits, statics)
    if found is None:
        return None
    product, weight, bias = found
    return Router(argmax, product.operand(0), weight, logits, choice, scored.op, held_in(narrow), bias)


def _fused(gating: Node, statics: Statics) -> Router | None:
    """The router of a ``gating`` node: what it multiplies, and all else from the node's attributes."""
    told = told_scores(gating, statics)
    if told is not None:
        inner = find_router(told[0], statics)
        return None if inner is None else replace(inner, topk=gating, told=(inner, told[1]))
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


def held_in(dtype: DType) -> DType:
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
    logits = _unflattened(logits)
    added = producer(logits, "add")
    if added is not None:
        logits = _unflattened(added.operand(0))
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


def _unflattened(value: Value) -> Value:
    """Before casts, and before reshapes that only join or part the axes of tokens."""
    value = uncast(value)[0]
    while (node := producer(value, "reshape")) is not None:
        inner = node.operand(0)
        if inner.type.shape is None or not inner.type.dims or inner.type.dims[-1:] != value.type.dims[-1:]:
            break
        value = uncast(inner)[0]
    return value

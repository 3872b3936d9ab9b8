"""Choice limited to groups of experts: the best groups by their best or two best scores, the others masked out
(DeepSeek)."""

from __future__ import annotations

from typing import Any

from moec.ir.graph import Node, Value
from moec.passes.recover_moe.static import Statics


def ungrouped(choice: Value, statics: Statics) -> tuple[Value, dict[str, Any]] | None:
    """The scores before the mask and the attributes of the limit; None where ``choice`` is no masked scores."""
    node = choice.producer
    if node is None or node.op != "select":
        return None
    cond, yes, no = (node.operand(j) for j in range(3))
    mask, inverted = _through(cond)
    scores, fill = (no, yes) if inverted else (yes, no)
    how = _fill(fill, statics)
    kept = mask.producer
    if how is None or kept is None or kept.op != "scatter_elements" or kept.attrs["axis"] != 1:
        return None
    groups = kept.result.type.dims[-1]
    base, ones = (statics.abstract(kept.operand(j)) for j in (0, 2))
    if not isinstance(groups, int) or base is None or ones is None or getattr(ones.content, "value", 0) != 1:
        return None
    best = kept.operand(1).producer
    if best is None or best.op != "topk" or kept.operand(1) is not best.results[1] or not best.attrs["largest"]:
        return None
    worth = _worth(best.operand(0))
    if worth is None or _base(worth[0]) is not _base(scores) or worth[0].type.rank != 3:
        return None
    if worth[0].type.dims[1] != groups or not isinstance(best.attrs["k"], int):
        return None
    attrs = {"groups": groups, "group_top_k": best.attrs["k"], "group_score": worth[1], "group_mask": how}
    return _base(scores), attrs


def _through(cond: Value) -> tuple[Value, bool]:
    """The group mask behind reshapes, expansion to the experts, casts and negations."""
    inverted = False
    node = cond.producer
    while node is not None and node.op in ("not", "cast", "reshape", "expand", "gt", "ne"):
        inverted ^= node.op == "not"
        cond = node.operand(0)
        node = cond.producer
    return cond, inverted


def _fill(value: Value, statics: Statics) -> str | None:
    meaning = statics.abstract(value)
    content = meaning.content if meaning is not None else None
    number = 0 if type(content).__name__ == "Zero" else getattr(content, "value", None)
    return "zero" if number == 0 else "minus_inf" if number == float("-inf") else None


def _worth(value: Value) -> tuple[Value, str] | None:
    """The scores split into groups [T, G, E/G], and whether a group counts by its best or its two best."""
    node = value.producer
    if node is None or node.attrs.get("axes") != (2,) or node.attrs["keepdims"]:
        return None
    if node.op == "reduce_max":
        return node.operand(0), "max"
    inner: Node | None = node.operand(0).producer
    if node.op != "reduce_sum" or inner is None or inner.op != "topk" or node.operand(0) is not inner.results[0]:
        return None
    if inner.attrs["k"] != 2 or inner.attrs["axis"] != 2 or not inner.attrs["largest"]:
        return None
    return inner.operand(0), "sum2"


def _base(value: Value) -> Value:
    """Before reshapes."""
    while value.producer is not None and value.producer.op == "reshape":
        value = value.producer.operand(0)
    return value

"""Blocks that compute every expert for every token, with a weight of zero where the token did not choose it.

The weights are spread over an axis of experts: a scatter of the chosen ones into zeros, or of chosen logits into minus
infinity before the score. Products with stacked weights [E, in, out] run over that axis, and so does the sum.
"""

from __future__ import annotations

from typing import Any

from moec.ir.graph import Node
from moec.passes.recover_moe.axes import Axes, Axis, broadcast_axes, feature
from moec.passes.recover_moe.contents import (
    Abstract,
    Chosen,
    Combined,
    Expert,
    Mask,
    Masked,
    Number,
    Part,
    Route,
    Row,
    Spread,
    Tree,
    Zero,
)
from moec.passes.recover_moe.interpret import Interpreter, Known
from moec.passes.recover_moe.static import Ref, flipped

MINUS_INFINITY = float("-inf")


def spread(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    """What each choice brings, put at its expert: along the choices' axis, which becomes one of experts."""
    base, index, updates = k
    axis = n.attrs["axis"]
    if not isinstance(index.content, Expert) or n.attrs["reduction"] != "none":
        return None
    if axis != len(index.axes) - 1 or index.axes[axis] != i.choices or n.result.type.dims[axis] != i.expert_count:
        return None
    fill = 0 if isinstance(base.content, Zero) else getattr(base.content, "value", None)
    axes = (*index.axes[:axis], i.experts)
    if isinstance(updates.content, Number) and updates.content.value == 1 and fill == 0:
        return Abstract(axes, Chosen())
    if isinstance(updates.content, Route) and not updates.content.per_token and fill in (0, MINUS_INFINITY):
        return Abstract(axes, Spread(n.result, fill == 0))
    return None


def scored(i: Interpreter, n: Node, meaning: Abstract) -> Abstract | None:
    """The score of logits that are minus infinity where an expert was not chosen is zero there."""
    content = meaning.content
    if not isinstance(content, Spread) or content.zero:
        return None
    if n.op == "softmax" and meaning.axes[n.attrs["axis"]] != i.experts:
        return None
    return Abstract(meaning.axes, Spread(n.result, True))


def products(i: Interpreter, x: Abstract, weight: Ref, flip: bool) -> Abstract | None:
    """Rows times the weights of every expert: a batch dimension of experts, where the rows may have one or not yet."""
    if len(weight.shape) != 3 or weight.shape[0] != i.expert_count or len(x.axes) < 2:
        return None
    lead: Axes | None = broadcast_axes([x.axes[:-2], (i.experts,)])
    if lead is None:
        return None
    stored = weight if flip else flipped(weight)
    tree = Tree("matmul", (x.content.tree, Tree("weight", (), ("stack", stored))))
    return Abstract((*lead, x.axes[-2], feature(stored.shape[1])), Row(tree))


def summed_over_experts(i: Interpreter, meaning: Abstract, axes: Any, kept: Axes) -> Abstract | None:
    """The sum over the axis of experts, per token."""
    over = tuple(a for j in axes for a in meaning.axes[j])
    if not isinstance(meaning.content, Row) or over != i.experts:
        return None
    if tuple(a for axis in kept[:-1] for a in axis) != i.tokens:
        return None
    return Abstract(kept, Combined({"all": meaning.content.tree}))


def masked(i: Interpreter, n: Node, k: Known, axes: Axes | None) -> Abstract | None:
    """One expert's weights of all tokens, its output times them, and the sum of such outputs."""
    if axes is None or len(k) != 2:
        return None
    for a, b in ((k[0].content, k[1].content), (k[1].content, k[0].content)):
        made = _masked(n.op, a, b)
        if made is not None:
            return Abstract(axes, made)
    return None


def _masked(op: str, a: Any, b: Any) -> Any:
    known = isinstance(a, Mask) and isinstance(a.expert, int) and a.limit is None
    if op == "mul" and known and isinstance(b, Route) and not b.per_token:
        return Masked(a.expert, b.value, False)
    if op == "mul" and isinstance(a, Row) and isinstance(b, Masked) and b.summed:
        return Part(b.expert, Tree("mul", (a.tree, Tree("route", (), b.value))))
    if op != "add" or not isinstance(a, Part):
        return None
    if isinstance(b, Zero):
        return Combined({a.expert: a.tree})
    if isinstance(b, Part) and a.expert != b.expert:
        return Combined({a.expert: a.tree, b.expert: b.tree})
    if isinstance(b, Combined) and a.expert not in b.parts and b.limit is None and b.factor is None:
        return Combined({**b.parts, a.expert: a.tree}, b.shared)
    return None


def selected(k: Known, axes: Axes | None) -> Abstract | None:
    """Routing weights where the slot's expert is a certain one, else zero."""
    cond, yes, no = (m.content for m in k)
    zero = isinstance(no, Zero) or no == Number(0)
    if axes is None or not zero or not isinstance(cond, Mask):
        return None
    made = _masked("mul", cond, yes)
    return None if made is None else Abstract(axes, made)


def summed_over_choices(i: Interpreter, meaning: Abstract, over: Axis, kept: Axes) -> Abstract | None:
    """One expert's weight of each token: it is at most once among the choices."""
    content = meaning.content
    if not isinstance(content, Masked) or content.summed or over != i.choices:
        return None
    return Abstract(kept, Masked(content.expert, content.value, True))


def one_of(i: Interpreter, meaning: Abstract, axis: int, expert: int) -> Abstract | None:
    """The weights of one expert, taken from those of all; the axis has size 1."""
    content = meaning.content
    if not isinstance(content, Spread) or not content.zero or meaning.axes[axis] != i.experts:
        return None
    return Abstract((*meaning.axes[:axis], (), *meaning.axes[axis + 1 :]), Masked(expert, content.value, True))

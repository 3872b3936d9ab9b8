"""Rows of floats: elementwise chains, products with weights, and the routing weights themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from moec.ir.graph import Node, Value
from moec.ir.types import BOOL
from moec.passes.recover_moe.axes import Axes, broadcast_axes, feature
from moec.passes.recover_moe.capacity import limited, weighed
from moec.passes.recover_moe.contents import (
    Abstract,
    BelowEdges,
    Chosen,
    Combined,
    Counts,
    Expert,
    Mask,
    Number,
    OfExpert,
    Offsets,
    OneHot,
    Opaque,
    Route,
    Row,
    Running,
    Spread,
    Taken,
    Tree,
    Truth,
    Within,
    Zero,
)
from moec.passes.recover_moe.dense_rules import masked, products, scored, summed_over_choices, summed_over_experts
from moec.passes.recover_moe.index_rules import (
    NON_NEGATIVE,
    index_add,
    index_div,
    index_mul,
    index_sub,
    summed,
    truncated,
)
from moec.passes.recover_moe.interpret import Interpreter, Known, rule
from moec.passes.recover_moe.static import Ref, changed, flipped
from moec.passes.recover_moe.table_rules import tabulated

ELEMENTWISE = ("silu", "sigmoid", "relu", "gelu", "tanh", "neg", "exp", "minimum", "maximum", "div", "sub")

_ON_INDICES = {"add": index_add, "mul": index_mul, "sub": index_sub, "div": index_div}


def leaf(i: Interpreter, value: Value, meaning: Abstract) -> Tree | None:
    """The operand of an elementwise op as a tree; None where it is no float row."""
    content = meaning.content
    if isinstance(content, Row):
        return content.tree
    if isinstance(content, Route):
        return None if content.per_token else Tree("route", (), content.value)
    if isinstance(content, Spread):
        return Tree("route", (), content.value) if content.zero else None
    if isinstance(content, Number):
        return Tree("number", (), content.value)
    ref = content if isinstance(content, Ref) else i.statics.ref(value)
    if ref is not None and ref.dtype.is_float:
        return Tree("weight", (), ("one", ref))
    return Tree("number", (), 0) if isinstance(content, Zero) else None


def routing(i: Interpreter, n: Node, k: Known, axes: Axes | None) -> Abstract | None:
    """An op on routing weights alone makes routing weights, or something of each token's."""
    contents = [m.content for m in k]
    if axes is None or not any(isinstance(c, Route) for c in contents):
        return None
    if not all(isinstance(c, Route | Number | Zero) for c in contents):
        return None
    if not all({a for axis in m.axes for a in axis} <= set(i.slots) for m in k):
        return None
    return Abstract(axes, Route(n.result, all(c.per_token for c in contents if isinstance(c, Route))))


@rule("add", "mul", *ELEMENTWISE)
def _elementwise(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    axes = broadcast_axes([m.axes for m in k])
    found = routing(i, n, k, axes) or combined(i, n, k) or tabulated(i, n, k) or truncated(i, n, k, axes)
    found = found or masked(i, n, k, axes) or weighed(i, n, k, axes)
    if found is None and n.op == "mul":
        found = limited(k, axes)
    if found is not None:
        return found
    if n.op == "sigmoid" and isinstance(k[0].content, Spread):
        return scored(i, n, k[0])
    if n.op in _ON_INDICES and not n.result.type.dtype.is_float:
        return _ON_INDICES[n.op](i, k)
    if n.op == "sub" and isinstance(k[0].content, Offsets):
        return index_sub(i, k)
    if axes is None or not any(isinstance(m.content, Row) for m in k):
        return None
    leaves = [leaf(i, n.operand(j), m) for j, m in enumerate(k)]
    if None in leaves:
        return None
    attrs = n.attrs.get("approximate")
    return Abstract(axes, Row(Tree(n.op, tuple(t for t in leaves if t is not None), attrs)))


def combined(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    """Sums of tokens' outputs: two of different experts, or one and zeros, or one and a shared expert's output."""
    if n.op != "add":
        return None
    for a, b in ((k[0], k[1]), (k[1], k[0])):
        if not isinstance(a.content, Combined):
            continue
        if isinstance(b.content, Zero):
            return a
        if isinstance(b.content, Combined) and a.axes == b.axes and _alike(a.content, b.content):
            both = a.content.parts.keys() & b.content.parts.keys()
            shared = a.content.shared if b.content.shared is None else b.content.shared
            if not both and None in (a.content.shared, b.content.shared):
                parts = {**a.content.parts, **b.content.parts}
                return Abstract(a.axes, replace(a.content, parts=parts, shared=shared))
        axes = broadcast_axes([a.axes, b.axes])
        if isinstance(b.content, Row) and axes == a.axes and a.content.shared is None:
            return Abstract(a.axes, replace(a.content, shared=b.content.tree))
    return None


def _alike(a: Combined, b: Combined) -> bool:
    """Whether the same slots are dropped from both, and nothing multiplies them."""
    return (a.limit, a.dropped, a.weighed, a.factor, b.factor) == (b.limit, b.dropped, b.weighed, None, None)


@rule("swiglu")
def _swiglu(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    if not isinstance(k[0].content, Row):
        return None
    axes = (*k[0].axes[:-1], feature(n.result.type.dims[-1]))
    return Abstract(axes, Row(Tree("swiglu", (k[0].content.tree,), n.attrs)))


@rule("abs", "floor", "ceil", "trunc", "round", "sign")
def _rounding(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    return tabulated(i, n, k) or routing(i, n, k, k[0].axes) or truncated(i, n, k, k[0].axes)


@rule("cast")
def _cast(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    if isinstance(k[0].content, OfExpert):
        return tabulated(i, n, k)
    content, to = k[0].content, n.attrs["to"]
    if isinstance(content, Row) and to.is_float:
        return Abstract(k[0].axes, Row(Tree("cast", (content.tree,), to)))
    if isinstance(content, Route) and to.is_float:
        wider = n.operand(0).type.dtype.is_float and to.bits >= n.operand(0).type.dtype.bits
        return k[0] if wider else Abstract(k[0].axes, Route(n.result, content.per_token))
    if isinstance(content, Spread) and to.is_float:
        return Abstract(k[0].axes, Spread(n.result, content.zero))
    if isinstance(content, Combined) and to.is_float:
        return k[0]
    if isinstance(content, Truth):
        return Abstract(k[0].axes, Number(int(content.value)))
    exact = (*NON_NEGATIVE, Expert, Mask, OneHot, Within, Running, Taken, Chosen, BelowEdges, Counts, Offsets)
    if isinstance(content, NON_NEGATIVE) and to is BOOL:
        return Abstract(k[0].axes, Opaque())
    if isinstance(content, exact) and (to.bits >= 32 or isinstance(content, Mask | OneHot | Within)):
        return k[0]
    return None


@rule("softmax")
def _softmax(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    if isinstance(k[0].content, Spread):
        return scored(i, n, k[0])
    return routing(i, n, k, k[0].axes) if k[0].axes[n.attrs["axis"]] == i.choices else None


@rule("reduce_sum", "reduce_max")
def _reduce(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    content, axes = k[0].content, n.attrs["axes"]
    kept = tuple(() if j in axes else a for j, a in enumerate(k[0].axes) if n.attrs["keepdims"] or j not in axes)
    over = tuple(a for j in axes for a in k[0].axes[j])
    if isinstance(content, Route) and over == i.choices:
        return Abstract(kept, Route(n.result, per_token=True))
    if n.op == "reduce_max":
        return None
    if isinstance(content, Row) and over == i.choices and kept and kept[0] == i.tokens:
        return Abstract(kept, Combined({"all": content.tree}))
    return summed_over_choices(i, k[0], over, kept) or summed_over_experts(i, k[0], axes, kept) or summed(i, n, k)


@rule("matmul")
def _matmul(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    a, b = k
    left, right = (n.operand(j) for j in (0, 1))
    flip_a, flip_b = n.attrs["transpose_a"], n.attrs["transpose_b"]
    weight = i.statics.ref(right)
    if isinstance(a.content, Row) and weight is not None and len(weight.shape) == 2 and not flip_a:
        stored = weight if flip_b else flipped(weight)
        return _product(a, Tree("weight", (), ("one", stored)), (*a.axes[:-1], feature(stored.shape[0])))
    if isinstance(a.content, Row) and weight is not None and not flip_a:
        return products(i, a, weight, flip_b)
    own = _one_weight(b.content)
    if isinstance(a.content, Row) and own is not None and len(own.shape) == 2 and not flip_a:
        stored = own if flip_b else flipped(own)
        return _product(a, Tree("weight", (), ("one", stored)), (*a.axes[:-1], feature(stored.shape[0])))
    if isinstance(a.content, Row) and isinstance(b.content, Row) and b.content.tree.attrs == "data" and not flip_a:
        return _product(a, b.content.tree, (*a.axes[:-1], b.axes[0 if flip_b else 1]))
    if not isinstance(a.content, Row) or not isinstance(b.content, Row) or left.type.rank != 3 or right.type.rank != 3:
        return None
    return _per_row(a, b, flip_a, flip_b)


def _one_weight(content: Any) -> Ref | None:
    """The weight of one expert that a value is."""
    if isinstance(content, Row) and content.tree.op == "weight" and content.tree.attrs[0] == "one":
        ref: Ref = content.tree.attrs[1]
        return ref
    return None


def _product(x: Abstract, weight: Tree, axes: Axes) -> Abstract:
    return Abstract(axes, Row(Tree("matmul", (x.content.tree, weight))))


def _per_row(a: Abstract, b: Abstract, flip_a: bool, flip_b: bool) -> Abstract | None:
    """A matrix for each row times that row: weights on the left of a column, or on the right of a row."""
    rows = broadcast_axes([a.axes[:1], b.axes[:1]])
    if rows is None:
        return None
    left, right = (_turned(m.axes, f) for m, f in ((a, flip_a), (b, flip_b)))
    if a.content.tree.op == "weight" and right[2] == ():
        stored = _stored(a.content.tree, turn=flip_a)
        return None if stored is None else _product(b, stored, (rows[0], left[1], ()))
    if b.content.tree.op == "weight" and left[1] == ():
        stored = _stored(b.content.tree, turn=not flip_b)
        return None if stored is None else _product(a, stored, (rows[0], (), right[2]))
    return None


def _turned(axes: Axes, flip: bool) -> Axes:
    return (axes[0], axes[2], axes[1]) if flip else axes


def _stored(tree: Tree, turn: bool) -> Tree | None:
    """The gathered matrices as [E, out, in]."""
    how, ref = tree.attrs
    if how != "stack":
        return None
    return Tree("weight", (), ("stack", flipped(ref) if turn else ref))


def sliced_features(n: Node, meaning: Abstract) -> Abstract | None:
    """A part of each row's features."""
    axis, a = n.attrs["axis"], n.attrs
    if axis != len(meaning.axes) - 1 or not isinstance(meaning.content, Row):
        return None
    axes = (*meaning.axes[:-1], feature(n.result.type.dims[axis]))
    width = n.operand(0).type.dims[axis]
    return Abstract(axes, Row(Tree("slice", (meaning.content.tree,), (a["start"], a["stop"], a["step"], width))))


def stacked(ref: Ref) -> Tree:
    """A weight of each row's own expert."""
    return Tree("weight", (), ("stack", ref))


def of_expert(ref: Ref, expert: int) -> Ref:
    """The part of a stacked weight that belongs to one expert."""
    part = changed("slice", ref, axis=0, start=expert, stop=expert + 1, step=1)
    return changed("reshape", part, shape=ref.shape[1:])

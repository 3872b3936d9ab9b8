"""Integer tensors: the choice of experts, one-hot masks and their coordinates, sorted orders, counts and offsets."""

from __future__ import annotations

import itertools
import math
from typing import Any

from moec.ir.graph import Node
from moec.passes.recover_moe.axes import Axes, Axis, broadcast_axes, feature
from moec.passes.recover_moe.capacity import hits, limited, running, within
from moec.passes.recover_moe.contents import (
    Abstract,
    Active,
    BelowEdges,
    Choice,
    Chosen,
    Counts,
    Expert,
    Iota,
    Mask,
    Number,
    Offsets,
    OneHot,
    Quotient,
    Range,
    Rank,
    Sign,
    Slot,
    Taken,
    Token,
    Truth,
    Zero,
    every_count,
)
from moec.passes.recover_moe.dense_rules import selected
from moec.passes.recover_moe.interpret import Interpreter, Known, rule
from moec.passes.recover_moe.static import Ref
from moec.passes.recover_moe.table_rules import tabulated

NON_NEGATIVE = (Expert, Token, Choice, Slot, Rank, Iota)
"""Contents that are never below 0."""


def positions(i: Interpreter, meaning: Abstract) -> Any:
    """The content with 0, 1, 2, ... read as what it counts: slots where it is as long as there are slots, tokens
    likewise."""
    if not isinstance(meaning.content, Iota):
        return meaning.content
    axis = counted_axis(meaning)
    size = axis[0].dim if len(axis) == 1 else 0
    if axis in (i.slots, i.tokens):
        return Slot() if axis == i.slots else Token()
    if size == i.slot_count and size != i.token_count:
        return Slot()
    return Token() if size == i.token_count else meaning.content


def counted_axis(meaning: Abstract) -> Axis:
    """The axis along which 0, 1, 2, ... counts, repetitions left out."""
    return next((found for a in meaning.axes if (found := _plain(a))), ())


def _plain(axis: Axis) -> Axis:
    return tuple(a for a in axis if a.kind != "repeat")


def index_axes(i: Interpreter, meaning: Abstract) -> Axes:
    """Its axes, with an axis of 0, 1, 2, ... over all slots or tokens named as such."""
    if not isinstance(meaning.content, Iota):
        return meaning.axes
    kind = positions(i, meaning)
    named: Axis = i.slots if isinstance(kind, Slot) else i.tokens if isinstance(kind, Token) else ()
    if not named:
        return meaning.axes
    return tuple((*(x for x in a if x.kind == "repeat"), *named) if _plain(a) else a for a in meaning.axes)


def one_hot_of(i: Interpreter, expert: Abstract, other: Abstract) -> Abstract | None:
    """Whether each slot's expert equals 0, 1, 2, ... along an axis of its own."""
    axis = [a for a in other.axes if a]
    if len(axis) != 1 or axis[0][0].dim != i.expert_count:
        return None
    axes = broadcast_axes([expert.axes, tuple(i.experts if a else a for a in other.axes)])
    return None if axes is None else Abstract(axes, OneHot())


@rule("one_hot")
def _one_hot(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    if not isinstance(k[0].content, Expert):
        return None
    depth, axis = n.attrs["depth"], n.attrs["axis"]
    if not isinstance(depth, int) or depth < i.expert_count:
        return None
    return Abstract((*k[0].axes[:axis], _expert_axis(i, depth), *k[0].axes[axis:]), OneHot())


def _expert_axis(i: Interpreter, depth: int) -> Axis:
    (atom,) = i.experts
    return (type(atom)(atom.kind, atom.key, depth),)


@rule("eq")
def _eq(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    found = tabulated(i, n, k)
    if found is not None:
        return found
    for a, b in ((k[0], k[1]), (k[1], k[0])):
        if isinstance(a.content, Expert) and isinstance(b.content, Iota):
            return one_hot_of(i, a, b)
        if isinstance(a.content, Truth) and isinstance(b.content, Number):
            return Abstract(a.axes, Truth(a.content.value == bool(b.content.value)))
        if isinstance(a.content, Truth) and isinstance(b.content, Zero):
            return Abstract(a.axes, Truth(not a.content.value))
    return None


@rule("ne", "gt", "lt", "le", "ge")
def _compare(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    found = tabulated(i, n, k)
    if found is not None:
        return found
    a, b = k
    axes = broadcast_axes([a.axes, b.axes])
    number = b.content.value if isinstance(b.content, Number) else 0 if isinstance(b.content, Zero) else None
    if isinstance(a.content, Mask | OneHot) and number == 0 and n.op in ("ne", "gt"):
        return a
    if isinstance(a.content, Counts | Taken) and number == 0 and n.op in ("ne", "gt"):
        return Abstract(a.axes, Active())
    limit = within(n.op, a.content, number)
    if limit is not None and axes is not None:
        return Abstract(axes, limit)
    if isinstance(a.content, NON_NEGATIVE) and number is not None and axes is not None:
        answer = _bounded(n.op, number)
        return None if answer is None else Abstract(axes, Truth(answer))
    if isinstance(a.content, Expert) and n.op == "lt" and isinstance(b.content, Ref) and b.content.data is not None:
        return _edges(a, b)
    return None


def _bounded(op: str, number: Any) -> bool | None:
    """What a comparison of something non-negative with a constant always gives."""
    if (op == "gt" and number < 0) or (op == "ge" and number <= 0):
        return True
    return False if (op == "lt" and number <= 0) or (op == "le" and number < 0) else None


def _edges(a: Abstract, b: Abstract) -> Abstract | None:
    """expert < edge for a column of edges: a whole number is below an edge when it is below the edge rounded up."""
    axes = broadcast_axes([a.axes, b.axes])
    if axes is None or sum(map(bool, b.axes)) != 1:
        return None
    edges = tuple(math.ceil(e) for e in b.content.data.numpy().ravel().tolist())
    return Abstract(axes, BelowEdges(edges))


@rule("and")
def _and(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    axes = broadcast_axes([k[0].axes, k[1].axes])
    if axes is None:
        return None
    for a, b in ((k[0], k[1]), (k[1], k[0])):
        if isinstance(a.content, Truth):
            return Abstract(axes, Truth(False) if not a.content.value else b.content)
    return limited(k, axes)


@rule("not")
def _not(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    return Abstract(k[0].axes, Truth(not k[0].content.value)) if isinstance(k[0].content, Truth) else None


@rule("is_nan", "is_inf")
def _is_nan(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    return Abstract(k[0].axes, Truth(False)) if isinstance(k[0].content, NON_NEGATIVE) else None


@rule("select")
def _select(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    cond, a, b = k
    if not isinstance(cond.content, Truth):
        return selected(k, broadcast_axes([m.axes for m in k]))
    chosen = a if cond.content.value else b
    axes = broadcast_axes([m.axes for m in k])
    return None if axes is None else Abstract(axes, chosen.content)


@rule("nonzero")
def _nonzero(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    mask = k[0].content
    if mask == Active():
        return Abstract(((), feature(n.attrs["count"])), Active(number=True))
    if not isinstance(mask, Mask):
        return None
    found = hits(i, n, k[0].axes, mask)
    return None if found is None else Abstract((feature(len(k[0].axes)), found[0]), found[1])


@rule("topk", "argsort")
def _sort(i: Interpreter, n: Node, k: Known) -> list[Abstract | None] | None:
    """A stable ascending sort of all slots by expert; of a sorted space's slots it is the inverse order."""
    content, axes = k[0].content, k[0].axes
    ascending = not n.attrs["largest"] if n.op == "topk" else not n.attrs["descending"]
    if not ascending or len(axes) != 1 or (n.op == "topk" and not n.attrs["sorted"]):
        return None
    if n.op == "topk" and n.attrs["k"] != n.operand(0).type.dims[0]:
        return None
    if isinstance(content, Expert) and axes[0] == i.slots:
        order = Abstract((i.rows(i.space("sorted", n), i.slot_count),), Slot())
        return [order] if n.op == "argsort" else [Abstract(order.axes, Expert()), order]
    if isinstance(content, Slot) and axes[0] and axes[0][0].kind == "rows" and axes[0][0].key.kind == "sorted":
        rank = Abstract((i.slots,), Rank(axes[0][0].key))
        return [rank] if n.op == "argsort" else [Abstract((i.slots,), Slot()), rank]
    return None


def index_div(i: Interpreter, k: Known) -> Abstract | None:
    """slot / K is the token."""
    by = k[1].content
    if not isinstance(by, Number) or by.value != i.top_k:
        return None
    axes = broadcast_axes([index_axes(i, k[0]), k[1].axes])
    return Abstract(axes, Token()) if axes is not None and isinstance(positions(i, k[0]), Slot) else None


@rule("mod")
def _mod(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    by = k[1].content
    axes = broadcast_axes([index_axes(i, k[0]), k[1].axes])
    if axes is None or not isinstance(by, Number) or by.value != i.top_k:
        return None
    return Abstract(axes, Choice()) if isinstance(positions(i, k[0]), Slot) else None


def index_mul(i: Interpreter, k: Known) -> Abstract | None:
    """token * K, the first half of a slot number."""
    for a, b in ((k[0], k[1]), (k[1], k[0])):
        content = positions(i, a)
        if content == Token() and isinstance(b.content, Number) and b.content.value == i.top_k:
            axes = broadcast_axes([index_axes(i, a), b.axes])
            return None if axes is None else Abstract(axes, Token(i.top_k))
    return None


def index_add(i: Interpreter, k: Known) -> Abstract | None:
    """token * K + choice is the slot number; anything + 0 is itself."""
    axes = broadcast_axes([k[0].axes, k[1].axes])
    for a, b in ((k[0], k[1]), (k[1], k[0])):
        if axes is not None and isinstance(b.content, Number | Zero) and getattr(b.content, "value", 0) == 0:
            return Abstract(axes, a.content)
        if axes is not None and a.content == Token(i.top_k) and isinstance(b.content, Choice):
            return Abstract(axes, Slot())
        joined = _joined_spans(a.content, b.content)
        if axes is not None and joined is not None:
            return Abstract(axes, joined)
    return None


def _joined_spans(a: Any, b: Any) -> Counts | None:
    """Counts of neighbouring experts, added."""
    if not isinstance(a, Counts) or not isinstance(b, Counts) or len(a.spans) != 1 or len(b.spans) != 1:
        return None
    (low, middle), (again, high) = a.spans[0], b.spans[0]
    return Counts(((low, high),)) if middle == again else None


def truncated(i: Interpreter, n: Node, k: Known, axes: Axes | None) -> Abstract | None:
    """Division of slot numbers as exporters spell a truncating one: floor(abs(slot / K)) * sign(slot / K)."""
    contents = [positions(i, m) if m.content != Sign() else m.content for m in k]
    if axes is None:
        return None
    found: Any = None
    if n.op == "div" and n.result.type.dtype.is_float and contents[1] == Number(i.top_k):
        axes = broadcast_axes([index_axes(i, k[0]), k[1].axes])
        found = Quotient() if isinstance(contents[0], Slot) else None
    elif n.op in ("abs", "floor", "trunc", "sign") and contents[0] == Quotient():
        found = {"abs": Quotient(), "sign": Sign()}.get(n.op, Token())
    elif n.op == "mul" and Sign() in contents and Token() in contents:
        found = Token()
    return None if found is None or axes is None else Abstract(axes, found)


@rule("cumsum")
def _cumsum(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    counts = k[0].content
    if isinstance(counts, OneHot):
        return running(i, n, k[0])
    if not isinstance(counts, Counts) or n.attrs["reverse"] or len(k[0].axes) != 1:
        return None
    spans = counts.spans
    if spans[0][0] != 0 or any(a[1] != b[0] for a, b in itertools.pairwise(spans)):
        return None
    edges = tuple(low if n.attrs["exclusive"] else high for low, high in spans)
    return Abstract(k[0].axes, Offsets(edges))


@rule("histogram")
def _histogram(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    bins = n.attrs["bins"]
    if not isinstance(k[0].content, Expert) or not isinstance(bins, int):
        return None
    return Abstract((feature(bins),), every_count(bins))


def index_sub(i: Interpreter, k: Known) -> Abstract | None:
    """Differences of offsets are counts; anything - 0 is itself."""
    a, b = k[0].content, k[1].content
    axes = broadcast_axes([k[0].axes, k[1].axes])
    if axes is None:
        return None
    if isinstance(a, Offsets) and isinstance(b, Offsets) and len(a.edges) == len(b.edges):
        spans = tuple(zip(b.edges, a.edges, strict=True))
        return Abstract(axes, Counts(spans)) if all(low <= high for low, high in spans) else None
    return Abstract(axes, a) if isinstance(b, Number | Zero) and getattr(b, "value", 0) == 0 else None


def summed(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    """How many slots are below each edge, or chose each expert."""
    axes = [axis for axis in n.attrs["axes"] if k[0].axes[axis]]
    rest = [a for j, a in enumerate(k[0].axes) if j not in n.attrs["axes"]]
    covered = tuple(x for j in axes for x in k[0].axes[j])
    if n.attrs["keepdims"] or len(rest) != 1:
        return None
    rows = i.tokens if isinstance(k[0].content, Chosen) else i.slots
    whole = sorted(map(str, covered)) == sorted(map(str, rows)) or (
        len(covered) == 1 and covered[0].kind == "rows" and covered[0].key.kind == "sorted"
    )
    if not whole:
        return None
    if isinstance(k[0].content, BelowEdges):
        return Abstract((feature(len(k[0].content.edges)),), Offsets(k[0].content.edges))
    if isinstance(k[0].content, OneHot) and k[0].content.limit is not None:
        return Abstract((feature(rest[0][0].dim),), Taken()) if rest[0] == i.experts else None
    if isinstance(k[0].content, OneHot | Chosen) and rest[0] == i.experts:
        count = rest[0][0].dim
        return Abstract((feature(count),), every_count(int(str(count))))
    return None


def _edge(content: Any) -> Any:
    """A count of all experts below one is where that one's rows start."""
    if isinstance(content, Counts) and len(content.spans) == 1 and content.spans[0][0] == 0:
        return Offsets((content.spans[0][1],))
    return content


@rule("range")
def _range(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    start, limit, step = (_edge(m.content) for m in k)
    if not isinstance(step, Number) or step.value != 1 or not isinstance(limit, Offsets):
        return None
    low = start.edges[0] if isinstance(start, Offsets) else 0 if isinstance(start, Number | Zero) else None
    if low is None or getattr(start, "value", 0) != 0:
        return None
    return Abstract((feature(n.attrs["count"]),), Range(low, limit.edges[0]))

"""Top-1 routing with a capacity, as Switch Transformers have it (Fedus et al., arXiv 2101.03961).

A running count of each expert's tokens, along a sequence or over all tokens, is compared with the capacity and cuts
the one-hot choice. Tokens that it leaves out keep what lay below: zeros, or the block's input where the experts'
outputs are written over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from moec.ir.graph import Node
from moec.passes.recover_moe.axes import Axes, Axis, feature
from moec.passes.recover_moe.contents import (
    Abstract,
    Choice,
    Columns,
    Combined,
    Coordinate,
    Lane,
    Limit,
    Mask,
    OneHot,
    Overlay,
    Route,
    Row,
    Running,
    Slot,
    Space,
    Token,
    Tree,
    Within,
    Zero,
)
from moec.passes.recover_moe.interpret import Interpreter, Known, Lost


def running(i: Interpreter, n: Node, meaning: Abstract) -> Abstract | None:
    """The running count of each expert's slots along all tokens or along each sequence."""
    content, axis = meaning.content, meaning.axes[n.attrs["axis"]]
    if content.limit is not None or n.attrs["reverse"]:
        return None
    if axis == i.slots:
        scope = "tokens"
    elif len(i.tokens) > 1 and axis == i.tokens[-1:] and i.top_k == 1:
        scope = "sequence"
    else:
        raise Lost("an expert's tokens are counted along something that is neither all tokens nor a sequence")
    return Abstract(meaning.axes, Running(scope, n.attrs["exclusive"]))


def within(op: str, count: Any, number: Any) -> Within | None:
    """Whether the running count is not above a constant: the capacity is how many slots pass."""
    if not isinstance(count, Running) or number is None or op not in ("lt", "le") or number != int(number):
        return None
    return Within(Limit(int(number) - (op == "lt") + count.exclusive, count.scope))


def limited(k: Known, axes: Axes | None) -> Abstract | None:
    """The one-hot choice where the count is within the capacity, or the count where the choice is."""
    for a, b in ((k[0].content, k[1].content), (k[1].content, k[0].content)):
        if axes is None or not isinstance(a, OneHot) or a.limit is not None:
            continue
        if isinstance(b, Within):
            return Abstract(axes, OneHot(b.limit))
        if isinstance(b, Running) and not b.exclusive:
            return Abstract(axes, b)
    return None


def hits(i: Interpreter, n: Node, axes: Axes, mask: Mask) -> tuple[Axis, Columns] | None:
    """The axis of a mask's non-zero elements and their coordinates.

    Where the mask is repeated along its last axis, they are elements: a lane each of every hit.
    """
    lanes: Axis = axes[-1] if axes and axes[-1] and axes[-1][0].kind == "repeat" else ()
    plain = axes[:-1] if lanes else axes
    columns = [coordinate(i, axis) for axis in plain]
    if None in columns:
        return None
    order = tuple(a for axis in plain for a in axis)
    space = i.space("hits", n, mask.expert, limit=mask.limit, order=order)
    return (*i.rows(space, n.attrs["count"]), *lanes), Columns((*columns, *([Lane()] if lanes else [])))


def coordinate(i: Interpreter, axis: Axis) -> Any:
    """What the position along an axis is."""
    kinds: list[tuple[Axis, Any]] = [(i.choices, Choice())] if i.choices else []
    kinds += [((), Zero()), (i.tokens, Token()), (i.slots, Slot())]
    kinds += [((atom,), Coordinate(j)) for j, atom in enumerate(i.tokens)]
    return next((content for known, content in kinds if axis == known), None)


def lead_of(i: Interpreter, columns: Sequence[Any]) -> Axes | None:
    """The axes along which index tuples name one token each; None where they do not."""
    if not all(c == Token() or isinstance(c, Zero | Coordinate) for c in columns):
        return None
    axes: list[Axis] = []
    for c in columns:
        axes.append(i.tokens if isinstance(c, Token) else (i.tokens[c.axis],) if isinstance(c, Coordinate) else ())
    return tuple(axes) if tuple(a for axis in axes for a in axis) == i.tokens else None


def addressed(i: Interpreter, columns: Sequence[Any], axes: Axes) -> bool:
    """Whether index tuples name one token each along ``axes``."""
    return lead_of(i, columns) == axes


def flattened(i: Interpreter, n: Node, meaning: Abstract) -> Abstract | None:
    """The hits' rows one after another, whatever size the tracer baked in for them.

    A reshape to a constant size runs only where data decides just that size, so it says no more than a reshape to all
    elements.
    """
    axes = [a for axis in meaning.axes for a in axis]
    if not isinstance(meaning.content, Row) or len(n.attrs["shape"]) != 1 or len(axes) != 2:
        return None
    if not _of_hits(axes[0].key) or axes[1].kind != "feature":
        return None
    x = n.operand(0)
    size = axes[0].dim * axes[1].dim
    if n.attrs["shape"] != (size,) or x.producer in i.unstated:
        i.unstated[n] = {"shape": (size,)}
    return Abstract((tuple(axes),), meaning.content)


def shortened(i: Interpreter, n: Node, meaning: Abstract) -> Abstract | None:
    """As many of the hits' elements as there are: where they are written to, their number is the same."""
    axis = meaning.axes[0]
    if (
        len(meaning.axes) != 1
        or len(axis) != 2
        or not _of_hits(axis[0].key)
        or n.attrs["start"]
        or n.attrs["step"] != 1
    ):
        return None
    if n.operand(0).producer in i.unstated:
        i.unstated[n] = {"stop": axis[0].dim * axis[1].dim}
    return meaning


def _of_hits(space: Any) -> bool:
    return isinstance(space, Space) and space.kind == "hits"


def overlaid(i: Interpreter, n: Node, base: Abstract, index: Abstract, updates: Abstract) -> Abstract | None:
    """The rows of one expert's tokens written over the block's input, element by element."""
    below, columns, rows = base.content, index.content, updates.axes[0]
    if isinstance(below, Row) and below.tree.op == "x":
        below = Overlay({}, None)
    if not isinstance(below, Overlay) or not isinstance(columns, Columns) or not isinstance(updates.content, Row):
        return None
    if columns.columns[-1:] != (Lane(),) or not addressed(i, columns.columns[:-1], base.axes[:-1]):
        return None
    at = index.axes[0]
    if n.attrs["reduction"] != "none" or len(updates.axes) != 1 or len(rows) != 2 or len(at) != 2:
        return None
    here, there = at[0].key, rows[0].key
    if not same_hits(here, there) or base.axes[-1] != feature(at[1].dim) or base.axes[-1] != (rows[1],):
        return None
    if there.expert in below.parts:
        raise Lost(f"expert {there.expert} is written twice")
    if below.parts and below.limit != there.limit:
        raise Lost("the experts have different capacities")
    return Abstract(base.axes, Overlay({**below.parts, there.expert: updates.content.tree}, there.limit))


def same_hits(a: Any, b: Any) -> bool:
    """Whether two spaces hold the same slots in the same order."""
    if not _of_hits(a) or not _of_hits(b):
        return False
    return bool(a.expert == b.expert and a.limit == b.limit and a.order == b.order)


def weighed(i: Interpreter, n: Node, k: Known, axes: Axes | None) -> Abstract | None:
    """A token's sum times its only routing weight, or times something else of the token."""
    if n.op != "mul":
        return None
    for a, b in ((k[0], k[1]), (k[1], k[0])):
        if not isinstance(b.content, Route) or axes != a.axes or not isinstance(a.content, Overlay | Combined):
            continue
        if not b.content.per_token and i.top_k == 1:
            route = Tree("route", (), b.content.value)
            parts = {e: Tree("mul", (tree, route)) for e, tree in a.content.parts.items()}
            if isinstance(a.content, Overlay):
                return Abstract(a.axes, Combined(parts, limit=a.content.limit, dropped="input", weighed=True))
            whole = a.content.shared is None and a.content.factor is None and not a.content.weighed
            return Abstract(a.axes, replace(a.content, parts=parts, weighed=True)) if whole else None
        if b.content.per_token and isinstance(a.content, Combined):
            whole = a.content.shared is None and a.content.factor is None
            return Abstract(a.axes, replace(a.content, factor=b.content.value)) if whole else None
    return None

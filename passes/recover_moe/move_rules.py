"""Ops that move elements: reshape, transpose, expand, slice, concat, gather and scatter, for all kinds of content."""

from __future__ import annotations

from typing import Any

from moec.ir.graph import Node
from moec.ir.symbol import Dim
from moec.passes.recover_moe.axes import Axes, Axis, feature, joined_axis, regrouped, repeated
from moec.passes.recover_moe.capacity import addressed, flattened, lead_of, overlaid, shortened
from moec.passes.recover_moe.contents import (
    Abstract,
    Active,
    Choice,
    Columns,
    Combined,
    Counts,
    Expert,
    Iota,
    Mask,
    Number,
    Offsets,
    OneHot,
    Overlay,
    Range,
    Rank,
    Route,
    Row,
    Slot,
    Space,
    Spread,
    Token,
    Tree,
    Zero,
    every_count,
)
from moec.passes.recover_moe.dense_rules import one_of, spread
from moec.passes.recover_moe.index_rules import index_axes, positions
from moec.passes.recover_moe.interpret import Interpreter, Known, Lost, rule
from moec.passes.recover_moe.merge import merged
from moec.passes.recover_moe.row_rules import of_expert, sliced_features, stacked
from moec.passes.recover_moe.static import Ref, changed


@rule("reshape")
def _reshape(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    if k[0].content == Active(number=True):
        return Abstract(tuple(feature(d) for d in n.attrs["shape"]), _numbers(n.attrs["shape"], i))
    flat = flattened(i, n, k[0])
    if flat is not None:
        return flat
    axes = regrouped(k[0].axes, n.operand(0).type.dims, n.attrs["shape"])
    return None if axes is None else Abstract(axes, _held(k[0].content, n, axes, i))


def _numbers(shape: tuple[Dim, ...], i: Interpreter) -> Any:
    """The numbers of the experts that got a token. A reshape to as many as there are experts runs only where all of
    them did, so that these are 0, 1, 2, ..."""
    size: Dim = 1
    for d in shape:
        size = size * d
    return Iota() if size == i.expert_count and size in shape else Active(number=True)


def _held(content: Any, n: Node, axes: Axes, i: Interpreter) -> Any:
    """Routing weights that lie as [T, K] again are the ones to read from now on."""
    if isinstance(content, Route) and not content.per_token and axes == (i.tokens, i.choices):
        return Route(n.result)
    return content


@rule("transpose")
def _transpose(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    content = k[0].content
    if isinstance(content, Row) and content.tree.op == "weight" and content.tree.attrs[0] == "one":
        content = Row(Tree("weight", (), ("one", changed("transpose", content.tree.attrs[1], perm=n.attrs["perm"]))))
    return Abstract(tuple(k[0].axes[p] for p in n.attrs["perm"]), content)


@rule("expand")
def _expand(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    if isinstance(k[0].content, Combined):
        return None
    old, new = n.operand(0).type.dims, n.attrs["shape"]
    lead = len(new) - len(old)
    axes: list[Axis] = [repeated(d) for d in new[:lead]]
    for axis, a, b in zip(k[0].axes, old, new[lead:], strict=True):
        axes.append(axis if a == b or axis else repeated(b))
    return Abstract(tuple(axes), k[0].content)


@rule("tile")
def _tile(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    """A repetition is a broadcast along an axis outside the one that is repeated."""
    axes = [(*repeated(count), *axis) for axis, count in zip(k[0].axes, n.attrs["repeats"], strict=True)]
    return None if isinstance(k[0].content, Combined) else Abstract(tuple(axes), k[0].content)


@rule("slice")
def _slice(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    content, axes, axis = k[0].content, k[0].axes, n.attrs["axis"]
    start, stop, step = (n.attrs[name] for name in ("start", "stop", "step"))
    if isinstance(content, Row):
        space = axes[axis][0].key if axes[axis] and axes[axis][0].kind == "rows" else None
        if isinstance(space, Space) and space.kind == "sorted":
            raise Lost(f"sorted rows are cut at {start} and {stop}, sizes that the tracer baked in where data decides")
        return shortened(i, n, k[0]) or sliced_features(n, k[0])
    if not isinstance(start, int) or not isinstance(stop, int):
        return None
    one = (*axes[:axis], (), *axes[axis + 1 :])
    if isinstance(content, Spread) and stop - start == 1:
        return one_of(i, k[0], axis, start)
    if isinstance(content, OneHot) and axes[axis] == i.experts and stop - start == 1:
        return Abstract(one, Mask(start, content.limit))
    if content == Active(number=True):
        return Abstract((*axes[:axis], feature(n.result.type.dims[axis]), *axes[axis + 1 :]), content)
    part: Any = None
    if isinstance(content, Iota) and step == 1 and stop - start == 1 and axes[axis]:
        return Abstract(one, Number(start))
    if isinstance(content, Columns) and axes[axis] == feature(len(content.columns)):
        columns = content.columns[start:stop:step]
        part = columns[0] if len(columns) == 1 else Columns(columns)
        return Abstract((*axes[:axis], feature(len(columns)), *axes[axis + 1 :]), part)
    if isinstance(content, Offsets) and len(axes) == 1:
        part = Offsets(content.edges[start:stop:step])
    if isinstance(content, Counts) and len(axes) == 1:
        part = Counts(content.spans[start:stop:step])
    return None if part is None else Abstract((feature(n.result.type.dims[0]),), part)


@rule("concat")
def _concat(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    axis = n.attrs["axis"]
    if all(isinstance(m.content, Token | Choice | Slot) and m.axes[axis] == () for m in k):
        axes = k[0].axes
        if any(m.axes != axes for m in k):
            return None
        columns = Columns(tuple(m.content for m in k))
        return Abstract((*axes[:axis], feature(len(k)), *axes[axis + 1 :]), columns)
    if all(isinstance(m.content, Counts) and len(m.axes) == 1 for m in k):
        spans = tuple(span for m in k for span in m.content.spans)
        return Abstract((feature(len(spans)),), Counts(spans))
    return _joined_pieces(i, n, k, axis)


def _joined_pieces(i: Interpreter, n: Node, k: Known, axis: int) -> Abstract | None:
    """The rows of expert 0, 1, 2, ... one after another are all rows in sorted order."""
    if axis != 0 or not all(isinstance(m.content, Row) for m in k):
        return None
    spaces = [_piece(m.axes[0]) for m in k]
    experts = [s.expert for s in spaces if s is not None]
    if len(experts) != len(k):
        return None
    if experts != list(range(i.expert_count)):
        missing = [e for e in range(i.expert_count) if e not in experts]
        raise Lost(
            f"the rows of experts {', '.join(map(str, experts))} are joined, where the router has {i.expert_count}"
            + (f"; missing {', '.join(map(str, missing))}" if missing else ", in order")
        )
    whole = spaces[0].whole if spaces[0] is not None else None
    tree = merged([m.content.tree for m in k])
    if tree is None or whole is None:
        raise Lost("the experts are not computed alike")
    return Abstract((i.rows(whole, n.result.type.dims[0]), *k[0].axes[1:]), Row(tree))


def _piece(axis: Axis) -> Space | None:
    found = axis[0].key if len(axis) == 1 and axis[0].kind == "rows" else None
    return found if isinstance(found, Space) and found.kind == "piece" else None


@rule("gather")
def _gather(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    return picked(i, n, k[0], k[1], n.attrs["axis"], k[1].axes)


@rule("gather_nd")
def _gather_nd(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    if n.attrs["batch_dims"]:
        return None
    lead, data = k[1].axes[:-1], k[0]
    columns = k[1].content.columns if isinstance(k[1].content, Columns) else (k[1].content,)
    if len(columns) == 1:
        return picked(i, n, data, k[1], 0, lead)
    if addressed(i, columns, data.axes[: len(columns)]):
        return Abstract((*lead, *data.axes[len(columns) :]), data.content)
    if columns == (Token(), Choice()) and data.axes[:2] == (i.tokens, i.choices):
        return Abstract((*lead, *data.axes[2:]), data.content)
    return None


def picked(i: Interpreter, n: Node, data: Abstract, index: Abstract, axis: int, rows: Axes) -> Abstract | None:
    """``data`` taken along ``axis`` at an index that ranges over ``rows``."""
    content = positions(i, index)
    if isinstance(index.content, Iota):
        rows = index_axes(i, index)[: len(rows)]
    at = data.axes[axis]
    axes = (*data.axes[:axis], *rows, *data.axes[axis + 1 :])
    ref = i.statics.ref(n.operand(0))
    if isinstance(content, Expert) and ref is not None and axis == 0 and ref.dtype.is_float:
        return Abstract(axes, Row(stacked(ref)))
    if content == Active(number=True) and not any(rows):
        return _at_data(i, n, data, ref, axis, axes)
    number = content.value if isinstance(content, Number) else 0 if isinstance(content, Zero) else None
    if number is not None and not any(rows):
        return _at_number(i, data, ref, int(number), axis, axes)
    matches = (content == Token() and at == i.tokens) or (isinstance(content, Slot) and at == i.slots)
    if isinstance(content, Rank) and len(at) == 1 and at[0].key is content.space:
        matches = True
    if matches:
        return Abstract(axes, data.content)
    if isinstance(content, Range) and len(at) == 1 and at[0].kind == "rows" and at[0].key.kind == "sorted":
        return _rows_of_expert(i, n, data, content, axis)
    return None


def _at_number(i: Interpreter, data: Abstract, ref: Ref | None, number: int, axis: int, axes: Axes) -> Abstract | None:
    """One entry along an axis, at a constant position."""
    content = data.content
    if content == Active(number=True):
        return Abstract(axes, content)
    if isinstance(content, Spread) and number >= 0:
        found = one_of(i, data, axis, number)
        return None if found is None else Abstract(axes, found.content)
    if isinstance(content, OneHot) and data.axes[axis] == i.experts and number >= 0:
        return Abstract(axes, Mask(number, content.limit))
    if isinstance(content, Columns) and data.axes[axis] == feature(len(content.columns)):
        return Abstract(axes, content.columns[number])
    if isinstance(content, Iota) and data.axes[axis] and number >= 0:
        return Abstract(axes, Number(number))
    if isinstance(content, Number):
        return Abstract(axes, content)
    if isinstance(content, Counts) and len(data.axes) == 1:
        return Abstract(axes, Counts(content.spans[number : number + 1 or None]))
    if isinstance(content, Offsets) and len(data.axes) == 1:
        return Abstract(axes, Offsets(content.edges[number : number + 1 or None]))
    if ref is not None and axis == 0 and ref.dtype.is_float:
        return Abstract(axes, Row(Tree("weight", (), ("one", of_expert(ref, number)))))
    return None


def _at_data(i: Interpreter, n: Node, data: Abstract, ref: Ref | None, axis: int, axes: Axes) -> Abstract | None:
    """The mask or the weights of an expert whose number is data."""
    if isinstance(data.content, OneHot) and data.axes[axis][:1] == i.experts:
        return Abstract(axes, Mask(n.operand(1), data.content.limit))
    if ref is not None and axis == 0 and ref.dtype.is_float:
        return Abstract(axes, Row(Tree("weight", (), "data")))
    return None


def _rows_of_expert(i: Interpreter, n: Node, data: Abstract, span: Range, axis: int) -> Abstract | None:
    """The sorted rows between two offsets: those of one expert."""
    if span.high != span.low + 1:
        between = ", ".join(map(str, range(span.low, span.high)))
        raise Lost(f"the rows of experts {between} are taken together, so that all but one of these have no body")
    whole = data.axes[axis][0].key
    space = i.space("piece", n, span.low, whole)
    rows = i.rows(space, n.operand(1).type.dims[0])
    return Abstract((*data.axes[:axis], rows, *data.axes[axis + 1 :]), data.content)


@rule("scatter_nd")
def _scatter_nd(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    base, index, updates = k
    content = positions(i, index)
    if isinstance(content, Slot) and n.attrs["reduction"] == "none" and positions(i, updates) == Slot():
        at = index.axes[0]
        if len(at) == 1 and at[0].kind == "rows" and at[0].key.kind == "sorted":
            return Abstract((i.slots,), Rank(at[0].key))
    if isinstance(base.content, Row | Overlay):
        found = overlaid(i, n, base, index, updates)
        if found is not None:
            return found
    columns = content.columns if isinstance(content, Columns) else (content,)
    lead = lead_of(i, columns)
    if lead is None or len(index.axes) != 2 or index.axes[:1] != updates.axes[:1]:
        return None
    if index.axes[1] != feature(len(columns)):
        return None
    return _added(i, n, base, updates, lead)


@rule("scatter_elements")
def _scatter_elements(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    base, index, updates = k
    if isinstance(index.content, Expert):
        return spread(i, n, k) or _counted(i, n, base, index, updates)
    if positions(i, index) != Token() or n.attrs["axis"] != 0 or len(index.axes) != 2:
        return None
    rows, width = index_axes(i, index)
    if width != repeated(n.operand(1).type.dims[1]) or joined_axis(rows, updates.axes[0]) != updates.axes[0]:
        return None
    return _added(i, n, base, updates, (i.tokens,))


@rule("gather_elements")
def _gather_elements(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    """Rows of tokens by an index that is the same all along a row."""
    data, index = k
    if positions(i, index) != Token() or n.attrs["axis"] != 0 or len(index.axes) != 2 or data.axes[0] != i.tokens:
        return None
    rows, width = index_axes(i, index)
    if width != repeated(n.operand(1).type.dims[1]) or n.operand(1).type.dims[1] != n.operand(0).type.dims[1]:
        return None
    return Abstract((rows, data.axes[1]), data.content)


def _counted(i: Interpreter, n: Node, base: Abstract, index: Abstract, updates: Abstract) -> Abstract | None:
    """Ones added at the expert of every slot: the number of slots of each expert."""
    axis = index.axes[0]
    every = axis == i.slots or (len(axis) == 1 and axis[0].kind == "rows" and axis[0].key.kind == "sorted")
    ones = isinstance(updates.content, Number) and updates.content.value == 1
    bins = n.result.type.dims[0]
    if not every or not ones or not isinstance(base.content, Zero) or n.attrs["reduction"] != "add":
        return None
    if len(index.axes) != 1 or not isinstance(bins, int):
        return None
    return Abstract((feature(bins),), every_count(bins))


def _sizes(axes: Axes) -> tuple[Dim, ...]:
    sizes: list[Dim] = []
    for axis in axes:
        size: Dim = 1
        for atom in axis:
            size = size * atom.dim
        sizes.append(size)
    return tuple(sizes)


def _added(i: Interpreter, n: Node, base: Abstract, updates: Abstract, lead: Axes) -> Abstract | None:
    """Rows added to their tokens, which stand as ``lead``. Without a reduction that needs zeros below and each token
    at most once, as the slots of one expert have it."""
    rows, reduction = updates.axes[0], n.attrs["reduction"]
    if not isinstance(updates.content, Row) or reduction not in ("add", "none") or len(rows) == 0:
        return None
    axes = (*lead, *updates.axes[1:])
    space = rows[0].key if len(rows) == 1 and rows[0].kind == "rows" else None
    of_one = isinstance(space, Space) and space.kind in ("hits", "piece")
    if reduction == "none" and not (of_one and isinstance(base.content, Zero)):
        raise Lost("rows of one token overwrite each other: a scatter without reduction where a sum is meant")
    if not isinstance(base.content, Zero | Combined | Row) or n.result.type.dims[: len(lead)] != _sizes(lead):
        return None
    key = space.expert if isinstance(space, Space) and of_one else "all"
    every = rows in (i.slots, (*i.experts, *i.tokens)) or (isinstance(space, Space) and space.kind == "sorted")
    if key == "all" and not every:
        return None
    before = Combined({}, base.content.tree if isinstance(base.content, Row) else None)
    before = base.content if isinstance(base.content, Combined) else before
    if key in before.parts:
        raise Lost(f"expert {key} is added twice")
    limit = space.limit if isinstance(space, Space) and of_one else None
    if before.factor is not None or (before.parts and before.limit != limit):
        raise Lost("experts are added to a sum of other slots")
    return Abstract(axes, Combined({**before.parts, key: updates.content.tree}, before.shared, limit))

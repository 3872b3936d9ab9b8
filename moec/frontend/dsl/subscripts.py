"""Lowering of subscripts: ``x[i, a:b, ...]`` of tensors as slices, and elements of lists such as ``x.shape``."""

from __future__ import annotations

from moec.frontend.dsl import tree as t
from moec.frontend.dsl.expr import EVALUATE, emit, tensor_or_number
from moec.frontend.dsl.scope import Scope
from moec.frontend.dsl.values import UNKNOWN, Item, is_dim, kind_of
from moec.ir.graph import Value
from moec.ir.symbol import Dim, bounds


def _subscript(expr: t.Subscript, scope: Scope) -> Item:
    base = tensor_or_number(expr.base, scope)
    if base is UNKNOWN:
        return UNKNOWN
    if isinstance(base, tuple):
        return _element(base, expr, scope)
    if not isinstance(base, Value) or base.type.shape is None:
        return scope.wrong(expr.at, f"{kind_of(base)} has no elements to take")
    rests = sum(isinstance(i, t.Rest) for i in expr.items)
    given = len(expr.items) - rests
    if rests > 1 or given > base.type.rank:
        return scope.wrong(expr.at, f"{given} subscripts and {rests} '...' of {scope.show(base)}")
    item: Item = base
    dropped: list[int] = []
    axis = 0
    for part in expr.items:
        if isinstance(part, t.Rest):
            axis += base.type.rank - given
            continue
        item = _part(item, axis, part, dropped, scope)
        if item is UNKNOWN:
            return UNKNOWN
        axis += 1
    if dropped:
        kept = tuple(d for i, d in enumerate(item.type.dims) if i not in dropped)
        item = emit("reshape", [item], {"shape": kept}, expr.at, scope)
    return item


def _element(base: tuple[Item, ...], expr: t.Subscript, scope: Scope) -> Item:
    index = tensor_or_number(expr.items[0], scope) if not isinstance(expr.items[0], (t.Part, t.Rest)) else None
    if (
        len(expr.items) != 1
        or not isinstance(index, int)
        or isinstance(index, bool)
        or not -len(base) <= index < len(base)
    ):
        return scope.wrong(
            expr.at, f"a list of {len(base)} is indexed by one integer from {-len(base)} to {len(base) - 1}"
        )
    return base[index]


def _part(item: Value, axis: int, part: t.Expr | t.Part, dropped: list[int], scope: Scope) -> Item:
    """One subscript of one axis: a slice node, or the same tensor for ``:``. Integers keep a dimension of 1, noted in
    ``dropped``.
    """
    size = item.type.dims[axis]
    if isinstance(part, t.Part):
        start = _bound(part.start, 0, size, scope)
        stop = _bound(part.stop, size, size, scope)
        step = 1 if part.step is None else tensor_or_number(part.step, scope)
        if start is None or stop is None or step is UNKNOWN:
            return UNKNOWN
        if (start, stop, step) == (0, size, 1):
            return item
    else:
        start = _bound(part, 0, size, scope)
        if start is None:
            return UNKNOWN
        stop, step = start + 1, 1
        dropped.append(axis)
    return emit("slice", [item], {"axis": axis, "start": start, "stop": stop, "step": step}, part.at, scope)


def _bound(expr: t.Expr | None, absent: Dim, size: Dim, scope: Scope) -> Dim | None:
    """A bound of a slice, a negative number counting from the end; None where it is no dimension."""
    if expr is None:
        return absent
    item = tensor_or_number(expr, scope)
    if not is_dim(item):
        if item is not UNKNOWN:
            todo = "gather(x, indices, axis = ...) takes tensors of indices" if isinstance(item, Value) else ""
            scope.wrong(expr.at, f"a subscript is a dimension, not {kind_of(item)}", todo)
        return None
    bound: Dim = size + item if isinstance(item, int) and item < 0 else item
    low = bounds(bound, scope.program.module.symbols)[0]
    if low < 0:
        scope.wrong(expr.at, f"this subscript is {bound}, which can be {low}", "raise the lower bound of its symbols")
        return None
    return bound


EVALUATE[t.Subscript] = _subscript

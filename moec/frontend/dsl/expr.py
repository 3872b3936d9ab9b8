"""Lowering of expressions: names, literals, operators and members."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moec.diagnostics import suggest
from moec.frontend.dsl import tree as t
from moec.frontend.dsl.literal import scalar
from moec.frontend.dsl.report import Span
from moec.frontend.dsl.scope import MAX_DEPTH, Scope, article
from moec.frontend.dsl.shared import among_shared
from moec.frontend.dsl.values import (
    MAX_DIM_TEXT,
    UNKNOWN,
    Item,
    Record,
    Results,
    arithmetic,
    is_number,
    kind_of,
)
from moec.ir.graph import Node, Value
from moec.ir.group import Group
from moec.ir.symbol import Expr
from moec.ir.types import DTYPES, DType
from moec.ops.build import make_node
from moec.ops.registry import OPS

INFIX = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    "%": "mod",
    "**": "pow",
    "@": "matmul",
    "&": "and",
    "|": "or",
    "^": "xor",
    "==": "eq",
    "!=": "ne",
    "<": "lt",
    "<=": "le",
    ">": "gt",
    ">=": "ge",
}
"""The op that each operator means between tensors."""

_MEMBERS = ("T", "shape", "dtype")


def evaluate(expr: t.Expr, scope: Scope) -> Item:
    """What an expression stands for. Problems are reported; ``UNKNOWN`` then stands for the result."""
    program = scope.program
    if program.depth >= MAX_DEPTH:
        return scope.wrong(expr.at, f"calls and expressions are nested deeper than {MAX_DEPTH}", "flatten them")
    program.depth += 1
    try:
        return EVALUATE[type(expr)](expr, scope)
    finally:
        program.depth -= 1


def tensor_or_number(expr: t.Expr, scope: Scope) -> Item:
    """As ``evaluate``, where one tensor or one plain value is wanted: several results at once are refused, and a group
    is its size.
    """
    item = evaluate(expr, scope)
    if isinstance(item, Group):
        return item.size
    if isinstance(item, Results):
        names = ", ".join(n or "_" for n in item.names) if any(item.names) else "a, b"
        return scope.wrong(expr.at, f"{item.fn} has {len(item.values)} results", f"name them: {names} = {item.fn}(...)")
    return item


def emit(op: str, operands: list[Value | None], attrs: dict[str, Any], at: Span, scope: Scope) -> Item:
    """Append a node; its result, or its results where it has several. What does not fit is reported."""
    while operands and operands[-1] is None:
        operands.pop()
    try:
        node = make_node(op, operands, attrs, scope.origin(at, op))
    except ValueError as error:
        return _misfit(op, operands, str(error), at, scope)
    return _appended(node, at, scope)


def _appended(node: Node, at: Span, scope: Scope) -> Item:
    sizes = [d for v in node.results for d in v.type.shape or ()]
    if any(isinstance(d, Expr) and len(str(d)) > MAX_DIM_TEXT for d in sizes):
        detach(node)
        return scope.wrong(at, f"a dimension of the result is longer than {MAX_DIM_TEXT} characters")
    scope.graph.insert(node, None)
    if len(node.results) == 1:
        return node.result
    names = tuple(r.name for r in OPS[node.op].signature.results)
    return Results(node.op, tuple(node.results), names)


def detach(node: Node) -> None:
    """Take a node that stands in no graph off its operands' lists of users."""
    for i in range(len(node.operands)):
        node.set_operand(i, None)


def _misfit(op: str, operands: list[Value | None], reason: str, at: Span, scope: Scope) -> Item:
    names = [o.name for o in OPS[op].signature.operands]
    shown = []
    for i, v in enumerate(operands):
        if v is not None:
            label = names[i] if i < len(names) and not OPS[op].signature.variadic else f"operand {i + 1}"
            shown.append(scope.show(v) if v.name == label else f"{label} is {scope.show(v)}")
    reason = reason if reason.startswith(op) else f"{op}: {reason}"
    dtypes = dict.fromkeys(v.type.dtype for v in operands if v is not None)
    todo = ""
    if len(dtypes) > 1 and "dtype" in reason:
        first = next(v for v in operands if v is not None)
        other = next(v for v in operands if v is not None and v.type.dtype is not first.type.dtype)
        todo = f"write cast({other.name or '...'}, to = {first.type.dtype})"
    return scope.wrong(at, reason + (f" ({'; '.join(shown)})" if shown else ""), todo)


def _name(expr: t.Name, scope: Scope) -> Item:
    found = scope.find(expr.text)
    if found is None:
        if expr.text in DTYPES:
            return DTYPES[expr.text]
        if expr.text in OPS or expr.text in scope.unit.functions:
            return scope.wrong(expr.at, f"'{expr.text}' is a function", f"call it: {expr.text}(...)")
        return scope.wrong(
            expr.at, f"unknown name '{expr.text}'", among_shared(expr.text) or suggest(expr.text, scope.visible())
        )
    found.read = True
    if isinstance(found.item, Value) and expr.text not in scope.names:
        type_ = scope.program.spelling.declared.get(found.item, str(found.item.type))
        todo = f"give it to the function as a parameter: {expr.text}: {type_}"
        return scope.wrong(
            expr.at, f"'{expr.text}' is {article(found.what)} of the file; a function sees only its parameters", todo
        )
    return found.item


def argument(expr: t.Expr, scope: Scope) -> Item:
    """As ``tensor_or_number``; the bare name of a group stands for the group rather than for its size."""
    if isinstance(expr, t.Name):
        found = scope.find(expr.text)
        if found is not None and isinstance(found.item, Group):
            found.read = True
            return found.item
    return tensor_or_number(expr, scope)


def _literal(expr: t.Literal, scope: Scope) -> Item:
    return expr.value


def _items(expr: t.Items, scope: Scope) -> Item:
    items = tuple(tensor_or_number(e, scope) for e in expr.items)
    return UNKNOWN if UNKNOWN in items else items


def _fields(expr: t.Fields, scope: Scope) -> Item:
    fields: dict[str, Item] = {}
    for name, value in expr.fields:
        if name.text in fields:
            scope.wrong(name.at, f"attribute '{name.text}' is given twice", "leave one out")
        fields[name.text] = tensor_or_number(value, scope)
    return Record(fields)


def _unary(expr: t.Unary, scope: Scope) -> Item:
    item = tensor_or_number(expr.operand, scope)
    if item is UNKNOWN:
        return UNKNOWN
    if isinstance(item, Value):
        return emit("neg" if expr.op == "-" else "not", [item], {}, expr.at, scope)
    if expr.op == "-" and is_number(item):
        return -item
    return scope.wrong(expr.at, f"'{expr.op}' of {kind_of(item)} means nothing")


def _binary(expr: t.Binary, scope: Scope) -> Item:
    spine: list[t.Binary] = []
    left: t.Expr = expr
    while isinstance(left, t.Binary):
        spine.append(left)
        left = left.left
    item = tensor_or_number(left, scope)
    for node in reversed(spine):
        item = _apply(node, item, scope)
    return item


def _apply(expr: t.Binary, left: Item, scope: Scope) -> Item:
    if expr.op == "@" and isinstance(expr.right, t.Member) and expr.right.name == "T":
        right = tensor_or_number(expr.right.base, scope)
        if isinstance(left, Value) and isinstance(right, Value):
            return emit("matmul", [left, right], {"transpose_b": True}, expr.at, scope)
        right = _member_of(right, expr.right, scope)
    else:
        right = tensor_or_number(expr.right, scope)
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    if not isinstance(left, Value) and not isinstance(right, Value):
        try:
            return arithmetic(expr.op, left, right, scope.program.module.symbols)
        except ValueError as error:
            return scope.wrong(expr.at, str(error))
    if expr.op not in INFIX:
        return scope.wrong(expr.at, f"there is no '{expr.op}' of tensors", "write floor(a / b)")
    op = INFIX[expr.op]
    if "elementwise" in OPS[op].traits:
        like = left if isinstance(left, Value) else right
        left, right = (
            as_tensor(left, like.type.dtype, expr.at, scope),
            as_tensor(right, like.type.dtype, expr.at, scope),
        )
    if not isinstance(left, Value) or not isinstance(right, Value):
        bad = right if isinstance(left, Value) else left
        return UNKNOWN if bad is UNKNOWN else scope.wrong(expr.at, f"{op} of a tensor and {kind_of(bad)} means nothing")
    return emit(op, [left, right], {"fmod": False} if op == "mod" else {}, expr.at, scope)


def as_tensor(item: Item, dtype: DType, at: Span, scope: Scope) -> Item:
    """A number beside a tensor of ``dtype`` as a scalar tensor (see ``literal.py``); a tensor itself."""
    if isinstance(item, Value) or item is UNKNOWN:
        return item
    if isinstance(item, Expr):
        sizes = emit("dims", [], {"values": (item,), "scalar": True}, at, scope)
        return sizes if dtype is DTYPES["i64"] else emit("cast", [sizes], {"to": dtype}, at, scope)
    try:
        return emit("constant", [], {"value": scalar(item, dtype)}, at, scope)
    except ValueError as error:
        return scope.wrong(
            at, f"beside a tensor of dtype {dtype}: {error}", "a number takes the dtype of the tensor beside it"
        )


def _member(expr: t.Member, scope: Scope) -> Item:
    return _member_of(tensor_or_number(expr.base, scope), expr, scope)


def _member_of(item: Item, expr: t.Member, scope: Scope) -> Item:
    if item is UNKNOWN:
        return UNKNOWN
    if expr.name not in _MEMBERS:
        return scope.wrong(
            expr.at, f"a tensor has no '.{expr.name}'", suggest(expr.name, _MEMBERS) or "it has .T, .shape and .dtype"
        )
    if not isinstance(item, Value):
        return scope.wrong(expr.at, f"{kind_of(item)} has no '.{expr.name}'; tensors have")
    if expr.name == "dtype":
        return item.type.dtype
    if item.type.shape is None:
        return scope.wrong(expr.at, f"the shape of {scope.show(item)} is unknown")
    if expr.name == "shape":
        return item.type.shape
    rank = item.type.rank
    if rank < 2:
        return scope.wrong(expr.at, f"'.T' of {scope.show(item)}: there are no two dimensions to swap")
    return emit("transpose", [item], {"perm": (*range(rank - 2), rank - 1, rank - 2)}, expr.at, scope)


EVALUATE: dict[type, Callable[..., Item]] = {
    t.Name: _name,
    t.Literal: _literal,
    t.Items: _items,
    t.Fields: _fields,
    t.Unary: _unary,
    t.Binary: _binary,
    t.Member: _member,
}
"""How each kind of expression is lowered; ``calls.py`` and ``subscripts.py``, which need this module, add theirs."""

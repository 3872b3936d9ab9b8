"""Lowering of calls: ops by their declarations, functions of the file, and the built-in functions.

Nothing about any op is repeated here: operand order, operand and attribute names, attribute kinds and result names are
the registry's.
"""

from __future__ import annotations

from typing import Any

from moec.diagnostics import suggest
from moec.frontend.dsl import tree as t
from moec.frontend.dsl.attributes import attribute
from moec.frontend.dsl.builtins import call_builtin_function
from moec.frontend.dsl.expr import EVALUATE, argument, as_tensor, emit, tensor_or_number
from moec.frontend.dsl.functions import Arguments, call_function
from moec.frontend.dsl.layers import call_layer
from moec.frontend.dsl.report import Span
from moec.frontend.dsl.scope import Scope
from moec.frontend.dsl.shared import among_shared
from moec.frontend.dsl.values import BUILTINS, UNKNOWN, Item, Record, counted, kind_of
from moec.ir.graph import Value
from moec.ir.group import Group
from moec.ir.types import BOOL, DType
from moec.ops.registry import OPS, OpDef
from moec.ops.signature import MISSING


def call(expr: t.Call, scope: Scope) -> Item:
    """The result, or results, of a call; every problem with its arguments is reported."""
    functions = scope.unit.functions
    if expr.fn not in OPS and expr.fn not in functions and expr.fn not in BUILTINS:
        known = [*OPS, *functions, *BUILTINS]
        arguments(expr, scope)
        return scope.wrong(
            expr.at, f"unknown op or function '{expr.fn}'", among_shared(expr.fn) or suggest(expr.fn, known)
        )
    given = arguments(expr, scope)
    if expr.fn in functions:
        fn = functions[expr.fn]
        return call_function(fn, expr, given, scope) if fn.stored is None else call_layer(fn, expr, given, scope)
    if expr.instances:
        return scope.wrong(expr.at, f"'{expr.fn}' is no layer, so there are no several of it", f"write {expr.fn}(...)")
    if expr.fn in OPS:
        return _call_op(OPS[expr.fn], expr, given, scope)
    return call_builtin_function(expr, given, scope)


EVALUATE[t.Call] = call


def arguments(expr: t.Call, scope: Scope) -> Arguments:
    """The evaluated arguments of a call, records spread into keywords."""
    given = Arguments([(a.at, argument(a, scope)) for a in expr.args], {})
    for spread in expr.spreads:
        record = tensor_or_number(spread, scope)
        if isinstance(record, Record):
            for name, item in record.fields.items():
                _keyword(given, name, spread.at, item, scope)
        elif record is UNKNOWN:
            given.incomplete = True
        else:
            scope.wrong(
                spread.at,
                f"'**' spreads a record, not {kind_of(record)}",
                "write name = {attribute = value, ...} and spread name",
            )
            given.incomplete = True
    for keyword, value in expr.keywords:
        _keyword(given, keyword.text, keyword.at, argument(value, scope), scope)
    return given


def _keyword(given: Arguments, name: str, at: Span, item: Item, scope: Scope) -> None:
    if name in given.keywords:
        scope.wrong(at, f"'{name}' is given twice", "leave one out")
    given.keywords[name] = (at, item)


_OTHERWISE = {
    "weight": "declare it: weight NAME: DTYPE[DIMS]",
    "constant": "write tensor([numbers], DTYPE)",
    "call": "call the function by its name",
    "host": "write a block: host { statements }",
    "bind_size": "write NAME = size(TENSOR, at_most = DIMENSION)",
    "device_size": "write NAME = size(to_host(TENSOR), at_most = DIMENSION); the sync-removal pass takes out the read",
    "fused": "write the function; the fuse-vector pass makes kernels",
}
"""Ops that stand for parts of the program rather than computations have forms of their own."""


def _call_op(op: OpDef, expr: t.Call, given: Arguments, scope: Scope) -> Item:
    if op.name in _OTHERWISE:
        return scope.wrong(expr.at, f"{op.name} is not called", _OTHERWISE[op.name])
    problems = len(scope.program.report.problems)
    operands = _operands(op, expr, given, scope)
    attrs = _attributes(op, expr, given, operands, scope)
    if len(scope.program.report.problems) > problems or given.incomplete or given.has_unknown():
        return UNKNOWN
    tensors = _tensors(op, operands, expr, scope)
    return UNKNOWN if tensors is None else emit(op.name, tensors, attrs, expr.at, scope)


def _operands(op: OpDef, expr: t.Call, given: Arguments, scope: Scope) -> list[Item]:
    """The operands in declared order, given by place or by name; None where absent."""
    declared = op.signature.operands
    if op.signature.variadic:
        return [item for _, item in given.places]
    names = [o.name for o in declared]
    if len(given.places) > len(declared):
        wanted = ", ".join(names) or "none"
        at = given.places[len(declared)][0]
        scope.wrong(
            at,
            f"{op.name} takes {counted(len(declared), 'operand')} ({wanted}), {len(given.places)} given",
            _attribute_hint(op),
        )
    operands: list[Item] = [item for _, item in given.places[: len(declared)]]
    missing = []
    for operand in declared[len(operands) :]:
        _, item = given.keywords.get(operand.name, (expr.at, None))
        if item is None and not operand.optional:
            missing.append(operand.name)
        operands.append(item)
    if missing and not given.incomplete:
        what = f"operand '{missing[0]}' is" if len(missing) == 1 else f"operands {', '.join(missing)} are"
        scope.wrong(expr.at, f"{op.name}: {what} missing", f"operands are: {', '.join(names)}")
    for name in names[: len(given.places)]:
        if name in given.keywords:
            scope.wrong(given.keywords[name][0], f"{op.name}: operand '{name}' is given twice", "leave one out")
    return operands


def _attribute_hint(op: OpDef) -> str:
    return f"attributes are given by name: {', '.join(f'{a} = ...' for a in op.attrs)}" if op.attrs else ""


def _attributes(op: OpDef, expr: t.Call, given: Arguments, operands: list[Item], scope: Scope) -> dict[str, Any]:
    names = [] if op.signature.variadic else [o.name for o in op.signature.operands]
    attrs: dict[str, Any] = {}
    meant = ""
    for name, (at, item) in given.keywords.items():
        if name in op.attrs:
            if item is not UNKNOWN:
                try:
                    attrs[name] = attribute(op, op.attrs[name], item, operands)
                except ValueError as error:
                    scope.wrong(at, f"{op.name}: attribute '{name}' {error}")
        elif name not in names:
            hint = suggest(name, [*op.attrs, *names])
            meant += hint
            scope.wrong(at, f"{op.name} has no operand or attribute '{name}'", hint or _known(op))
    absent = [
        n for n, a in op.attrs.items() if a.default is MISSING and n not in given.keywords and f"'{n}'" not in meant
    ]
    if absent and not given.incomplete:
        what = f"{op.name}: {counted(len(absent), 'attribute')} missing: {', '.join(absent)}"
        scope.wrong(expr.at, what, "every attribute is given; none has a silent default")
    return attrs


def _known(op: OpDef) -> str:
    return f"attributes are: {', '.join(op.attrs)}" if op.attrs else f"{op.name} has no attributes"


def _tensors(op: OpDef, operands: list[Item], expr: t.Call, scope: Scope) -> list[Any] | None:
    """Operands as tensors. Elementwise ops take numbers too, as tensors of the dtype that their (non-bool) tensors
    have.
    """
    tensors = [o for o in operands if isinstance(o, Value)]
    like = next((v for v in tensors if v.type.dtype is not BOOL), tensors[0] if tensors else None)
    result: list[Item] = []
    for i, operand in enumerate(o.size if isinstance(o, Group) else o for o in operands):
        if isinstance(operand, (Value, type(None))):
            result.append(operand)
        elif like is not None and "elementwise" in op.traits:
            result.append(as_tensor(operand, like.type.dtype, _place(expr, i), scope))
        else:
            todo = "write tensor(NUMBERS, DTYPE)" if not isinstance(operand, (str, DType, Record)) else ""
            result.append(
                scope.wrong(_place(expr, i), f"{op.name}: an operand is a tensor, not {kind_of(operand)}", todo)
            )
    return None if UNKNOWN in result else result


def _place(expr: t.Call, index: int) -> Span:
    return expr.args[index].at if index < len(expr.args) else expr.at

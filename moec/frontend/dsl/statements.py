"""Lowering of statements, in ``main`` and in the bodies of functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from moec.frontend.dsl import tree as t
from moec.frontend.dsl.expr import emit, evaluate, tensor_or_number
from moec.frontend.dsl.report import Span
from moec.frontend.dsl.scope import Scope
from moec.frontend.dsl.types import note_spelling, resolve
from moec.frontend.dsl.values import UNKNOWN, Item, Record, Results, counted, kind_of
from moec.ir.graph import Value
from moec.ir.symbol import sym
from moec.ir.types import DTYPES


def run_main(statements: Sequence[t.Statement], scope: Scope) -> None:
    """Lower the statements of the file; the outputs become the return of ``main``."""
    outputs: dict[str, Value] = {}
    for statement in statements:
        if isinstance(statement, t.Output):
            _output(statement, outputs, scope)
        elif isinstance(statement, t.Return):
            scope.wrong(statement.at, "'return' stands outside a function", "write output NAME")
        elif not isinstance(statement, t.Fn):
            _STATEMENTS[type(statement)](statement, scope)
    if not outputs and not scope.program.report.problems:
        scope.wrong(Span(len(scope.program.report.lines), 1), "the file has no output", "write output NAME")
    scope.graph.set_outputs(list(outputs.values()), list(outputs))


def run_body(fn: t.Fn, scope: Scope) -> bool:
    """Lower the body of a function whose parameters ``scope`` knows; whether all that it returns is known."""
    for statement in fn.body[:-1]:
        if isinstance(statement, t.Return):
            scope.wrong(statement.at, "statements follow this 'return'", "return in the last statement")
            return False
        _in_body(statement, scope)
    if not fn.body or not isinstance(fn.body[-1], (t.Return, t.Broken)):
        if fn.body:
            _in_body(fn.body[-1], scope)
        scope.wrong(fn.at, f"function '{fn.name}' returns nothing", "end it with return VALUE")
        return False
    whole = isinstance(fn.body[-1], t.Return) and _return(fn, fn.body[-1], scope)
    warn_unread(scope)
    return whole


def _in_body(statement: t.Statement, scope: Scope) -> None:
    if isinstance(statement, (t.Assign, t.Broken)):
        _STATEMENTS[type(statement)](statement, scope)
    else:
        word = type(statement).__name__.lower()
        scope.wrong(
            statement.at,
            f"'{word}' stands inside a function",
            "declare it at the top of the file and pass it as an argument",
        )


def _return(fn: t.Fn, statement: t.Return, scope: Scope) -> bool:
    values = [_tensor(e, scope) for e in statement.values]
    if fn.results is not None:
        if len(fn.results) != len(values):
            scope.wrong(
                statement.at, f"{fn.name} returns {counted(len(values), 'value')}, its head says {len(fn.results)}"
            )
            return False
        for type_, value in zip(fn.results, values, strict=True):
            declared = resolve(type_, scope)
            if declared is not None and value is not None and declared != value.type:
                scope.wrong(
                    type_.at,
                    f"{fn.name} returns {scope.show(value)}, its head says {scope.program.spelling.type(declared)}",
                )
    known = [v for v in values if v is not None]
    names = [v.name or f"r{i}" for i, v in enumerate(known)]
    scope.graph.set_outputs(known, names if len(set(names)) == len(names) else [f"r{i}" for i in range(len(known))])
    return len(known) == len(values)


def _tensor(expr: t.Expr, scope: Scope) -> Value | None:
    item = tensor_or_number(expr, scope)
    if isinstance(item, Value):
        return item
    if item is not UNKNOWN:
        scope.wrong(expr.at, f"a tensor is wanted, not {kind_of(item)}", "write tensor(NUMBER, DTYPE)")
    return None


def _output(statement: t.Output, outputs: dict[str, Value], scope: Scope) -> None:
    for name, expr in statement.items:
        value = _tensor(name if expr is None else expr, scope)
        if expr is not None:
            scope.define(name, UNKNOWN if value is None else value, "result")
            scope.names[name.text].read = True
        if name.text in outputs:
            scope.wrong(name.at, f"output '{name.text}' stands twice", "leave one out")
        elif value is not None:
            outputs[name.text] = value


def _dim(statement: t.Dim, scope: Scope) -> None:
    at, name = statement.at, statement.name
    low, high = _integer(statement.low, scope), _integer(statement.high, scope)
    tune = None if statement.tune is None else _integer(statement.tune, scope)
    if low is not None and high is not None:
        if not 0 <= low <= high < 2**31:
            scope.wrong(at, f"[{low}, {high}] are no bounds of {name}", "give 0 <= low <= high < 2**31")
        elif tune is not None and not low <= tune <= high:
            scope.wrong(at, f"{name} = {tune} is outside its bounds [{low}, {high}]", "give a size within them")
        scope.program.module.symbols.setdefault(name, (low, high))
    if tune is not None:
        scope.program.tune.setdefault(name, tune)
    scope.define(t.Name(at, name), sym(name), "dimension")


def _integer(expr: t.Expr, scope: Scope) -> int | None:
    item = tensor_or_number(expr, scope)
    if isinstance(item, int) and not isinstance(item, bool):
        return item
    if item is not UNKNOWN:
        scope.wrong(expr.at, f"an integer is wanted, not {kind_of(item)}")
    return None


def _input(statement: t.Input, scope: Scope) -> None:
    for declared in statement.items:
        type_ = resolve(declared.type, scope)
        value: Item = UNKNOWN
        if type_ is not None:
            value = scope.graph.add_input(declared.name, type_)
            note_spelling(declared.type, value, scope)
        scope.define(t.Name(declared.at, declared.name), value, "input")


def _weight(statement: t.Weight, scope: Scope) -> None:
    for declared in statement.items:
        type_ = resolve(declared.type, scope)
        value: Item = UNKNOWN
        if type_ is not None and type_.shape is not None:
            attrs = {"name": declared.stored, "dtype": type_.dtype, "shape": type_.shape}
            value = emit("weight", [], attrs, declared.at, scope)
            if isinstance(value, Value):
                note_spelling(declared.type, value, scope)
        scope.define(t.Name(declared.at, declared.name), value, "weight")


def _assign(statement: t.Assign, scope: Scope) -> None:
    item = evaluate(statement.value, scope)
    targets = statement.targets
    if len(targets) == 1:
        if isinstance(item, Results):
            names = ", ".join(n or "_" for n in item.names) if any(item.names) else ", ".join("_" * len(item.values))
            item = scope.wrong(
                targets[0].at,
                f"{item.fn} has {len(item.values)} results",
                f"name each, or write _: {names} = {item.fn}(...)",
            )
        _define(targets[0], item, scope)
        return
    parts: Sequence[Item] = item.values if isinstance(item, Results) else item if isinstance(item, tuple) else ()
    if len(parts) != len(targets):
        if item is not UNKNOWN:
            has = f"{len(parts)} results" if parts else f"one value ({kind_of(item)})"
            scope.wrong(
                targets[0].at,
                f"{len(targets)} names, but the right side has {has}",
                "give as many names; _ drops a result",
            )
        parts = [UNKNOWN] * len(targets)
    for name, part in zip(targets, parts, strict=True):
        _define(name, part, scope)


def _define(name: t.Name, item: Item, scope: Scope) -> None:
    if isinstance(item, (Value, type(UNKNOWN))):
        scope.define(name, item, "result")
        return
    scope.define(name, item, "record" if isinstance(item, Record) else "constant")
    if scope.outer is None:
        scope.program.spelling.note(item, name.text)


def _broken(statement: t.Broken, scope: Scope) -> None:
    for name in statement.names:
        if scope.find(name) is None and name not in DTYPES:
            scope.define(t.Name(statement.at, name), UNKNOWN, "result")


_STATEMENTS: dict[type, Callable[[Any, Scope], None]] = {
    t.Dim: _dim,
    t.Input: _input,
    t.Weight: _weight,
    t.Assign: _assign,
    t.Broken: _broken,
}


def warn_unread(scope: Scope) -> None:
    """Warn of names that nothing reads."""
    for name, binding in scope.names.items():
        if not binding.read and not name.startswith("_"):
            scope.program.report.warn(binding.at, f"{binding.what} '{name}' is never used", "use it or leave it out")

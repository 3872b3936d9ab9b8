"""Lowering of statements, in ``main`` and in the bodies of functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from moec.frontend.dsl import declare
from moec.frontend.dsl import tree as t
from moec.frontend.dsl.expr import evaluate, tensor_or_number
from moec.frontend.dsl.report import Span
from moec.frontend.dsl.scope import Scope
from moec.frontend.dsl.types import resolve
from moec.frontend.dsl.use import use
from moec.frontend.dsl.values import UNKNOWN, Item, Record, Results, counted, kind_of
from moec.ir.graph import Value
from moec.ir.types import DTYPES


def run_main(statements: Sequence[t.Statement], scope: Scope) -> None:
    """Lower the statements of the file; the outputs become the return of ``main``."""
    outputs: dict[str, Value] = {}
    for i, statement in enumerate(statements):
        if isinstance(statement, t.Output):
            _output(statement, outputs, scope)
        elif isinstance(statement, t.Return):
            scope.wrong(statement.at, "'return' stands outside a function", "write output NAME")
        elif not isinstance(statement, t.Fn):
            run_statement(statement, scope, statements[i + 1 :])
    if not outputs and not scope.program.report.problems:
        scope.wrong(Span(len(scope.program.report.lines), 1), "the file has no output", "write output NAME")
    scope.graph.set_outputs(list(outputs.values()), list(outputs))


def run_body(fn: t.Fn, scope: Scope) -> bool:
    """Lower the body of a function whose parameters ``scope`` knows; whether all that it returns is known."""
    for i, statement in enumerate(fn.body[:-1]):
        if isinstance(statement, t.Return):
            scope.wrong(statement.at, "statements follow this 'return'", "return in the last statement")
            return False
        run_statement(statement, scope, fn.body[i + 1 :])
    if not fn.body or not isinstance(fn.body[-1], (t.Return, t.Broken)):
        if fn.body:
            run_statement(fn.body[-1], scope, ())
        scope.wrong(fn.at, f"{fn.word} '{fn.name}' returns nothing", "end it with return VALUE")
        return False
    whole = isinstance(fn.body[-1], t.Return) and _return(fn, fn.body[-1], scope)
    warn_unread(scope)
    return whole


_MAY_STAND: dict[str, tuple[str, tuple[type, ...], str]] = {
    "function": (
        "a function",
        (t.Assign, t.Broken, t.For, t.Host),
        "declare it at the top of the file and pass it as an argument",
    ),
    "layer": ("a layer", (t.Assign, t.Broken, t.For, t.Host, t.Weight), "declare it at the top of the file"),
    "host": ("a host block", (t.Assign, t.Broken, t.For), "put it before or after the block"),
}
"""What each block but the whole file is called, which statements may stand in it, and what to do with others."""


def run_statement(statement: t.Statement, scope: Scope, later: Sequence[t.Statement]) -> None:
    """Lower one statement where it may stand. ``later`` are those after it in the same block."""
    what, allowed, todo = _MAY_STAND.get(scope.kind, ("", (), ""))
    if what and not isinstance(statement, allowed):
        word = type(statement).__name__.lower()
        todo += ", or make this a layer" if isinstance(statement, t.Weight) and scope.kind == "function" else ""
        scope.wrong(statement.at, f"'{word}' stands inside {what}", todo)
        return
    if type(statement) in BLOCKS:
        BLOCKS[type(statement)](statement, scope, later)
    else:
        STATEMENTS[type(statement)](statement, scope)


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


BLOCKS: dict[type, Callable[[Any, Scope, Sequence[t.Statement]], None]] = {}
"""How statements with a block are lowered; ``blocks.py``, which needs this module, fills it."""

STATEMENTS: dict[type, Callable[[Any, Scope], None]] = {
    t.Use: use,
    t.Dim: declare.dim,
    t.Group: declare.group,
    t.Input: declare.input_,
    t.Weight: declare.weight,
    t.Assign: _assign,
    t.Broken: _broken,
}


def warn_unread(scope: Scope) -> None:
    """Warn of names that nothing reads."""
    for name, binding in scope.names.items():
        if not binding.read and not name.startswith("_"):
            scope.unit.report.warn(binding.at, f"{binding.what} '{name}' is never used", "use it or leave it out")

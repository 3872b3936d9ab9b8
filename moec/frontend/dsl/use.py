"""Lowering of ``use``: what a file takes from the shared layers."""

from __future__ import annotations

from collections.abc import Sequence

from moec.diagnostics import suggest
from moec.frontend.dsl import tree as t
from moec.frontend.dsl.expr import evaluate
from moec.frontend.dsl.report import Report
from moec.frontend.dsl.scope import Binding, Program, Scope, Unit, article
from moec.frontend.dsl.shared import FILE, shared_layers
from moec.ir.graph import Graph


def open_shared(program: Program) -> None:
    """Let the file's statements use the shared layers."""
    text, statements = shared_layers()
    unit = Unit(Report(text, FILE, program.report), {s.name: s for s in statements if isinstance(s, t.Fn)})
    program.shared = Scope(program, Graph("shared"), unit=unit)
    for statement in statements:
        if isinstance(statement, t.Assign):
            (target,) = statement.targets
            item = evaluate(statement.value, program.shared)
            program.shared.names[target.text] = Binding(item, "record", target.at, read=True)


def take_functions(statement: t.Use, scope: Scope) -> None:
    """Take the functions and layers that ``use`` names; what is none of the shared ones is reported."""
    taken_from = scope.program.shared
    assert taken_from is not None
    for name in statement.names:
        found = taken_from.unit.functions.get(name.text)
        if found is None and name.text not in taken_from.names:
            known = [*taken_from.unit.functions, *taken_from.names]
            todo = suggest(name.text, known) or f"it has: {', '.join(known)}"
            scope.wrong(name.at, f"the shared layers have no '{name.text}'", todo)
        elif name.text in scope.unit.functions:
            scope.wrong(name.at, f"'{name.text}' is taken twice", "leave one out")
        elif found is not None:
            scope.unit.functions[name.text] = found


def use(statement: t.Use, scope: Scope) -> None:
    """``use silu_glu``: take the records that it names."""
    taken_from = scope.program.shared
    assert taken_from is not None
    for name in statement.names:
        if name.text in taken_from.names:
            scope.define(name, taken_from.names[name.text].item, "record")


def warn_unused(statements: Sequence[t.Statement], scope: Scope) -> None:
    """Warn of functions and layers that are taken and never called."""
    for name in [n for s in statements if isinstance(s, t.Use) for n in s.names]:
        fn = scope.unit.functions.get(name.text)
        if fn is not None and fn.shared and fn.key not in scope.program.called:
            scope.unit.report.warn(
                name.at, f"{article(fn.word)} '{name.text}' is taken and never called", "leave it out"
            )

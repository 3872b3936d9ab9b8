"""Checking of functions that nothing calls."""

from __future__ import annotations

from typing import Any

from moec.frontend.dsl import tree as t
from moec.frontend.dsl.functions import instance
from moec.frontend.dsl.scope import Scope
from moec.frontend.dsl.types import resolve
from moec.frontend.dsl.values import Item
from moec.ir.graph import Graph


def check_uncalled(fn: t.Fn, scope: Scope) -> bool:
    """Report what is wrong in a function that nothing calls, if its head says the type of every parameter; whether it
    does. Nothing is kept of it.
    """
    program = scope.program
    if fn.key in program.called:
        return True
    if fn.dims or not all(_is_whole(p.type) for p in fn.params):
        return False
    tables: tuple[dict[Any, Any], ...] = (program.module.functions, program.module.symbols, program.instances)
    before = [set(table) for table in tables]
    warnings = dict(program.report.warnings)
    graph = Graph("unused")
    items: dict[str, Item] = {}
    for p in fn.params:
        type_ = None if p.type is None else resolve(p.type, scope)
        if type_ is None:
            return True
        items[p.name] = graph.add_input(p.name, type_)
    instance(fn, t.Call(fn.at, fn.name, (), (), (), 1), items, scope)
    for table, names in zip(tables, before, strict=True):
        for name in [n for n in table if n not in names]:
            del table[name]
    program.report.warnings.clear()
    program.report.warnings.update(warnings)
    return True


def _is_whole(type_: t.Type | None) -> bool:
    return type_ is not None and type_.dtype != "any" and not any(isinstance(d, t.Rest) for d in type_.dims)

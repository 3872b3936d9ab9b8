"""Functions of a file: each becomes one IR function for every set of argument types and compile-time arguments it is
called with. Layers are functions too; see ``layers.py`` for their weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moec.diagnostics import suggest
from moec.frontend.dsl import tree as t
from moec.frontend.dsl.attributes import KIND_TEXT, converted
from moec.frontend.dsl.report import Span
from moec.frontend.dsl.scope import MAX_INSTANCES, Binding, Instance, Scope
from moec.frontend.dsl.statements import run_body
from moec.frontend.dsl.types import pattern
from moec.frontend.dsl.values import UNKNOWN, Item, Results, kind_of
from moec.ir.attrs import print_attr
from moec.ir.graph import Graph, Node, Value
from moec.ir.symbol import sym
from moec.ops.build import call_types
from moec.ops.signature import MISSING, Attr, match_shape, pattern_text


@dataclass
class Arguments:
    """Evaluated arguments: by place and by name, each with where it stands; ``incomplete`` where some are not known."""

    places: list[tuple[Span, Item]]
    keywords: dict[str, tuple[Span, Item]]
    incomplete: bool = False

    def has_unknown(self) -> bool:
        return any(item is UNKNOWN for _, item in [*self.places, *self.keywords.values()])


def call_function(fn: t.Fn, expr: t.Call, given: Arguments, scope: Scope) -> Item:
    """Lower the function for these arguments, unless it has been, and call it."""
    if expr.instances:
        return scope.wrong(
            expr.at, f"'{fn.name}' is a function, which has no weights to tell several of it apart", "make it a layer"
        )
    items = placed_arguments(fn, expr, given, scope)
    made = None if items is None else instance(fn, expr, items, scope)
    return UNKNOWN if items is None or made is None else insert_call(made, expr, items, [], scope)


def placed_arguments(fn: t.Fn, expr: t.Call, given: Arguments, scope: Scope) -> dict[str, Item] | None:
    """Each parameter's argument; None where they do not fit the parameters or are not all known."""
    program = scope.program
    program.called[fn.key] = None
    problems = len(program.report.problems)
    if fn.key in program.active:
        path = " -> ".join([*program.active[program.active.index(fn.key) :], fn.name])
        scope.wrong(
            expr.at, f"{fn.word} '{fn.name}' calls itself ({path})", "recursion has no end here; write the steps out"
        )
    elif len(program.instances) >= MAX_INSTANCES:
        scope.wrong(
            expr.at,
            f"the calls of this file become more than {MAX_INSTANCES} functions",
            "call with fewer different types",
        )
    if len(program.report.problems) > problems:
        return None
    items = _placed(fn, expr, given, scope)
    if len(program.report.problems) > problems or given.incomplete or any(i is UNKNOWN for i in items.values()):
        return None
    return items


def instance(fn: t.Fn, expr: t.Call, items: dict[str, Item], scope: Scope) -> Instance | None:
    """What the function became for these arguments; None where it could not be made (which has been reported)."""
    program = scope.program
    key = (fn.key, tuple(_key(i) for i in items.values()))
    if key not in program.instances:
        program.instances[key] = _instance(fn, expr, items, scope)
    return program.instances[key]


def _placed(fn: t.Fn, expr: t.Call, given: Arguments, scope: Scope) -> dict[str, Item]:
    """Each parameter's argument, by place or by name."""
    names = [p.name for p in fn.params]
    if len(given.places) > len(names):
        scope.wrong(
            given.places[len(names)][0],
            f"{fn.name} takes {len(names)} arguments ({', '.join(names) or 'none'}), {len(given.places)} given",
        )
    items = {name: item for name, (_, item) in zip(names, given.places, strict=False)}
    for name, (at, item) in given.keywords.items():
        if name not in names:
            scope.wrong(
                at, f"{fn.name} has no parameter '{name}'", suggest(name, names) or f"it has: {', '.join(names)}"
            )
        elif name in items:
            scope.wrong(at, f"{fn.name}: '{name}' is given twice", "leave one out")
        items[name] = item
    missing = [n for n in names if n not in items]
    if missing and not given.incomplete:
        scope.wrong(
            expr.at, f"{fn.name}: no argument for {', '.join(missing)}", f"its parameters are: {', '.join(names)}"
        )
    return {n: _converted(p, items[n], expr, fn, scope) for n, p in zip(names, fn.params, strict=True) if n in items}


def _converted(param: t.Param, item: Item, expr: t.Call, fn: t.Fn, scope: Scope) -> Item:
    if item is UNKNOWN:
        return UNKNOWN
    if param.kind == "tensor":
        if isinstance(item, Value):
            return item
        return scope.wrong(
            expr.at, f"{fn.name}: '{param.name}' is a tensor, not {kind_of(item)}", "write tensor(NUMBERS, DTYPE)"
        )
    if param.kind not in KIND_TEXT:
        known = ["tensor", *KIND_TEXT]
        return scope.wrong(
            param.at,
            f"unknown kind of parameter '{param.kind}'",
            suggest(param.kind, known) or f"kinds are: {', '.join(known)}",
        )
    try:
        return converted(Attr(param.name, param.kind, True, MISSING), item)
    except ValueError as error:
        return scope.wrong(expr.at, f"{fn.name}: '{param.name}' {error}")


def _key(item: Item) -> object:
    if isinstance(item, Value):
        return item.type
    return type(item).__name__, print_attr(item)


def _instance(fn: t.Fn, expr: t.Call, items: dict[str, Item], scope: Scope) -> Instance | None:
    program = scope.program
    problems = len(program.report.problems)
    graph = Graph(unique_name(fn.name, program.module.functions))
    called = f", called on line {expr.at.line}" if expr.at != fn.at else ""
    home = program.shared if fn.shared else scope.file
    inner = Scope(program, graph, home, f" (in {fn.name}{called})", fn.word)
    _bind(fn, expr, items, inner, scope)
    if len(program.report.problems) > problems:
        return None
    program.module.add(graph)
    program.active.append(fn.key)
    program.depth += 2
    try:
        whole = run_body(fn, inner)
    finally:
        program.depth -= 2
        program.active.pop()
    done = whole and len(program.report.problems) == problems
    return Instance(graph, tuple(inner.weights)) if done else None


def unique_name(name: str, taken: Mapping[str, Graph]) -> str:
    """``name``, or ``name.N`` with the first number that nothing of ``taken`` is called."""
    unique, suffix = name, 0
    while unique in taken:
        suffix += 1
        unique = f"{name}.{suffix}"
    return unique


def _bind(fn: t.Fn, expr: t.Call, items: dict[str, Item], inner: Scope, scope: Scope) -> None:
    """Give the parameters and the function's dimensions their meaning; what does not fit is reported at the call."""
    for dim in fn.dims:
        inner.names[dim.text] = Binding(sym(dim.text), "dimension", dim.at)
    for param in fn.params:
        if not isinstance(items[param.name], Value):
            inner.define(t.Name(param.at, param.name), items[param.name], "parameter")
    bound: dict[str, Any] = {s: sym(s) for s in inner.program.module.symbols if s not in inner.names}
    for param in fn.params:
        item = items[param.name]
        if isinstance(item, Value):
            if param.type is not None:
                expected = _misfit(param, item, bound, inner)
                if expected:
                    scope.wrong(expr.at, f"{fn.name}: '{param.name}' is {scope.show(item)}, expected {expected}")
            value = inner.graph.add_input(param.name, item.type)
            inner.define(t.Name(param.at, param.name), value, "parameter")
    for dim in fn.dims:
        if dim.text in bound:
            inner.names[dim.text] = Binding(bound[dim.text], "dimension", dim.at, read=True)
        elif not inner.program.report.problems:
            inner.wrong(
                dim.at, f"no parameter's shape says what '{dim.text}' is", "use it alone as a dimension of a parameter"
            )


def _misfit(param: t.Param, item: Value, bound: dict[str, Any], inner: Scope) -> str:
    """What was expected of an argument that does not fit its parameter's type; "" where it does (``bound`` grows)."""
    assert param.type is not None
    dtype, shape = pattern(param.type, inner)
    before = dict(bound)
    if shape is None:
        return ""
    if dtype in (None, item.type.dtype) and (item.type.shape is None or match_shape(shape, item.type.shape, bound)):
        return ""
    symbols = inner.program.module.symbols
    known = ", ".join(f"{k} = {v}" for k, v in before.items() if k not in symbols and not k.startswith("*"))
    return f"{dtype or 'any'}{pattern_text(shape)}" + (f" with {known}" if known else "")


def insert_call(made: Instance, expr: t.Call, items: dict[str, Item], weights: list[Value], scope: Scope) -> Item:
    """Append the call; its result, or its results where it has several."""
    operands = [*(i for i in items.values() if isinstance(i, Value)), *weights]
    attrs = {"fn": made.graph.name}
    try:
        types = call_types([v.type for v in operands], attrs, scope.program.module)
    except ValueError as error:
        return scope.wrong(expr.at, str(error))
    node = scope.graph.insert(Node("call", operands, attrs, types, scope.origin(expr.at, expr.fn)), None)
    if len(node.results) == 1:
        return node.result
    return Results(expr.fn, tuple(node.results), tuple("" for _ in node.results))

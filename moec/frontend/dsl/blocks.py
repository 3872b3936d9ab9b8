"""Lowering of blocks: statements repeated for each number, and steps that run on the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from moec.frontend.dsl import statements as s
from moec.frontend.dsl import tree as t
from moec.frontend.dsl.expr import tensor_or_number
from moec.frontend.dsl.functions import unique_name
from moec.frontend.dsl.scope import HostScope, Scope
from moec.frontend.dsl.values import UNKNOWN, is_dim, kind_of
from moec.ir.graph import Graph, Node, Value


def run_for(statement: t.For, scope: Scope, later: Sequence[t.Statement]) -> None:
    """The statements of a loop once for each number; its name is a constant in them."""
    start, stop = (tensor_or_number(e, scope) for e in (statement.start, statement.stop))
    if not isinstance(start, int) or not isinstance(stop, int):
        for expr, item in ((statement.start, start), (statement.stop, stop)):
            if item is not UNKNOWN and not isinstance(item, int):
                todo = "an open size is known only when it runs" if is_dim(item) else ""
                scope.wrong(expr.at, f"a loop runs over integers, not {kind_of(item)}", todo)
        start, stop = 0, 1
    if scope.names.get(statement.name.text) is not None:
        scope.define(statement.name, start, "loop")
        return
    for i in range(start, stop):
        if not scope.counted(statement.at):
            break
        scope.define(statement.name, i, "loop")
        binding = scope.names.get(statement.name.text)
        if binding is None and statement.name.text != "_":
            return
        if binding is not None:
            binding.read = True
        for number, inner in enumerate(statement.body):
            if not scope.counted(inner.at):
                break
            if isinstance(inner, t.Output | t.Return | t.Fn | t.Use | t.Input | t.Weight | t.Dim | t.Group):
                word = "fn" if isinstance(inner, t.Fn) else type(inner).__name__.lower()
                scope.wrong(inner.at, f"'{word}' stands inside a loop", "put it outside; only results are repeated")
            else:
                s.run_statement(inner, scope, [*statement.body[number + 1 :], *statement.body[:number], *later])
        scope.names.pop(statement.name.text, None)


def run_host(statement: t.Host, scope: Scope, later: Sequence[t.Statement]) -> None:
    """The statements as a function that runs on the host: what they read from around are its operands, what is read
    later its results.
    """
    program = scope.program
    graph = Graph(unique_name("host", program.module.functions))
    inner = HostScope(scope, graph)
    problems = len(program.report.problems)
    for number, each in enumerate(statement.body):
        s.run_statement(each, inner, statement.body[number + 1 :])
    if not statement.body:
        scope.wrong(statement.at, "this host block does nothing", "leave it out")
    wanted = dict.fromkeys(_names(later))
    made = {n: b.item for n, b in inner.names.items() if not (isinstance(b.item, Value) and b.item in graph.inputs)}
    results = {n: i for n, i in made.items() if n in wanted and isinstance(i, Value)}
    for name, item in made.items():
        if not isinstance(item, Value) and name not in results:
            scope.define(t.Name(inner.names[name].at, name), item, inner.names[name].what)
        elif isinstance(item, Value):
            inner.names[name].read |= name in wanted
    s.warn_unread(inner)
    if len(program.report.problems) > problems:
        for name in results:
            scope.define(t.Name(inner.names[name].at, name), UNKNOWN, "result")
        return
    graph.set_outputs(list(results.values()), list(results))
    program.module.add(graph)
    types = [v.type for v in results.values()]
    node = Node("host", inner.captures, {"fn": graph.name}, types, scope.origin(statement.at, "host"))
    scope.graph.insert(node, None)
    for name, value in zip(results, node.results, strict=True):
        scope.define(t.Name(inner.names[name].at, name), value, "result")


def _names(node: Any) -> Iterator[str]:
    """Every name that stands in a part of the syntax tree."""
    stack = [node]
    while stack:
        part = stack.pop()
        if isinstance(part, t.Name):
            yield part.text
        elif isinstance(part, list | tuple) and not hasattr(part, "line"):
            stack.extend(part)
        elif hasattr(part, "__dataclass_fields__"):
            stack.extend(getattr(part, f) for f in part.__dataclass_fields__)


s.BLOCKS[t.For] = run_for
s.BLOCKS[t.Host] = run_host

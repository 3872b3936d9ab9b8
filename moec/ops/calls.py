"""Functions of a module: the sizes that a node and what it runs name; calls, of which none is of the function itself,
and taken apart they come to a bounded number of nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from moec.diagnostics import Problem, Where
from moec.ir.graph import Graph, Module, Node
from moec.ir.symbol import Expr, symbols_of
from moec.ops.registry import OPS

MAX_DEPTH = 100
"""Functions that call one another in a row; evaluation and inlining recurse, so this bounds the stack."""

MAX_NODES = 20_000_000
"""Nodes that a module has once each call is replaced by what it calls: a hundred models of 150,000 nodes."""


def names_in(node: Node, module: Module) -> Iterator[str]:
    """The symbols that a node names: in its attributes and results, and in the functions that it runs."""
    for v in node.results:
        for d in v.type.shape or ():
            yield from symbols_of(d)
    for value in node.attrs.values():
        yield from _symbols(value)
    for name in _called(node):
        body = module.functions.get(name)
        if body is not None and node.op != "call":
            for inner in body:
                yield from names_in(inner, module)


def _symbols(value: Any) -> Iterator[str]:
    if isinstance(value, Expr):
        yield from symbols_of(value)
    elif isinstance(value, tuple):
        for each in value:
            yield from _symbols(each)


def _called(node: Node) -> list[str]:
    definition = OPS.get(node.op)
    return [] if definition is None else definition.functions(node.attrs)


def call_problems(module: Module) -> list[Problem]:
    """What is wrong with the calls, one problem at most: a function that calls itself, too deep calls, too many."""
    calls = {name: _callees(graph, module) for name, graph in module.functions.items()}
    done: dict[str, tuple[int, int]] = {}
    """By function: its nodes with those of what it calls, and how deep its calls go."""
    active: dict[str, list[str]] = {}
    """The functions being counted, outermost first, each with those that it calls and that are still to be counted."""
    for outermost in module.functions:
        if outermost in done:
            continue
        active[outermost] = list(calls[outermost])
        while active:
            name, callees = next(reversed(active.items()))
            if not callees:
                problem = _count(name, len(module.functions[name]), [done[c] for c in calls[name]], done)
                if problem is not None:
                    return [problem]
                del active[name]
            elif callees[-1] in active:
                path = " -> ".join([*list(active)[list(active).index(callees[-1]) :], callees[-1]])
                return [_wrong(callees[-1], f"the function calls itself ({path})", "write the steps out")]
            elif callees[-1] in done:
                callees.pop()
            else:
                active[callees[-1]] = list(calls[callees[-1]])
    return []


def _callees(graph: Graph, module: Module) -> list[str]:
    """The functions that ``graph`` calls, once for each call; unknown ones are left out."""
    found: list[str] = []
    for node in graph:
        found += [node.attrs[name] for name in _function_attrs(node.op)]
    return [name for name in found if name in module.functions]


@cache
def _function_attrs(op: str) -> tuple[str, ...]:
    """The attributes of an op that name functions of the module."""
    return tuple(n for n, a in OPS[op].attrs.items() if a.kind == "fn") if op in OPS else ()


def _count(name: str, own: int, called: list[tuple[int, int]], done: dict[str, tuple[int, int]]) -> Problem | None:
    """Note the nodes and the depth of a function of ``own`` nodes; what is wrong with them."""
    nodes, depth = own + sum(n for n, _ in called), 1 + max((d for _, d in called), default=0)
    done[name] = nodes, depth
    if depth > MAX_DEPTH:
        return _wrong(name, f"its calls are nested deeper than {MAX_DEPTH}", "call fewer functions within one another")
    if nodes > MAX_NODES:
        return _wrong(name, f"its calls come to more than {MAX_NODES:,} nodes", "call what is inside less often")
    return None


def _wrong(name: str, what: str, todo: str) -> Problem:
    return Problem(what, Where(node=f"function {name}"), todo)

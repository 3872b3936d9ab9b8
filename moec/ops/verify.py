"""The IR verifier: definitions before uses, exact def-use lists, declared ops, attributes and result types."""

from __future__ import annotations

from moec.diagnostics import CheckFailed, Problem, Where, suggest
from moec.ir.graph import Graph, Module, Node, Value
from moec.ir.symbol import symbols_of
from moec.ir.types import TensorType
from moec.ops.build import call_types
from moec.ops.registry import OPS


def verify(module: Module, after: str = "") -> None:
    """Raise CheckFailed with every violation found; ``after`` names the pass to blame."""
    problems: list[Problem] = []
    for graph in module.functions.values():
        problems += verify_graph(graph, module)
    if problems:
        blame = f"after {after}: " if after else ""
        raise CheckFailed([Problem(blame + p.what, p.where, p.todo) for p in problems])


def verify_graph(graph: Graph, module: Module) -> list[Problem]:
    """The violations in one function."""
    problems: list[Problem] = []
    defined: set[Value] = set(graph.inputs)
    bound = {s for v in graph.inputs for s in _symbols(v.type)} | set(module.symbols)
    for index, node in enumerate([*graph, graph.ret]):

        def wrong(what: str, node: Node = node, index: int = index) -> None:
            place = f"{graph.name}, node {index} ({node.op})" + (f" from {node.origin}" if node.origin.sources else "")
            problems.append(Problem(what, Where(node=place)))

        if node.graph is not graph:
            wrong("the node does not know its graph")
        for v in dict.fromkeys(node.operands):
            if v is None:
                continue
            if v not in defined:
                wrong(f"%{v.name or '?'} is used before it is defined")
            if v.uses.get(node) != node.operands.count(v):
                wrong(f"the def-use list of %{v.name or '?'} is wrong")
        if node is graph.ret:
            continue
        _check_declared(node, module, wrong)
        for v in node.results:
            if v.producer is not node:
                wrong("a result does not know its producer")
            for user in v.uses:
                if user.graph is not graph:
                    wrong(f"%{v.name or '?'} is used by a node that is not in the graph")
            bound.update(_symbols(v.type))
            defined.add(v)
    return problems


def _symbols(type_: TensorType) -> list[str]:
    return [s for d in type_.shape or () for s in symbols_of(d)]


def _check_declared(node: Node, module: Module, wrong: object) -> None:
    assert callable(wrong)
    definition = OPS.get(node.op)
    if definition is None:
        wrong(f"unknown op '{node.op}' {suggest(node.op, OPS)}".strip())
        return
    try:
        full = definition.complete(node.attrs)
        if list(full) != list(node.attrs):
            wrong("attributes are not complete or not in declared order")
        if "declared" in definition.traits:
            _check_bodies(node, module)
            return
        operands = [None if v is None else v.type for v in node.operands]
        expected = (
            call_types(operands, full, module) if "call" in definition.traits else definition.infer(operands, full)
        )
    except ValueError as error:
        wrong(str(error))
        return
    actual = [v.type for v in node.results]
    if expected != actual:
        wrong(f"results are {actual}, the declaration says {expected}")


def _check_bodies(node: Node, module: Module) -> None:
    """ValueError where a branch or loop names a function that is not there, or one with another number of operands."""
    captures = len(node.operands) - 1 if node.op == "if" else len(node.operands)
    for name in OPS[node.op].functions(node.attrs):
        fn = module.functions.get(name)
        if fn is None:
            raise ValueError(f"unknown function '{name}'")
        if len(fn.inputs) != captures:
            raise ValueError(f"function {name} takes {len(fn.inputs)} operands, {captures} given")

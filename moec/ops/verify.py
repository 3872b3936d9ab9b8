"""The IR verifier: definitions before uses, exact def-use lists, declared ops, attributes and result types."""

from __future__ import annotations

from collections import Counter

from moec.diagnostics import CheckFailed, Problem, Where, suggest
from moec.ir.graph import Graph, Module, Node, Value
from moec.ops.build import call_types
from moec.ops.calls import call_problems
from moec.ops.places import misplaced
from moec.ops.registry import OPS


def verify(module: Module, after: str = "") -> None:
    """Raise CheckFailed with every violation found; ``after`` names the pass to blame."""
    problems: list[Problem] = []
    for graph in module.functions.values():
        problems += verify_graph(graph, module)
    if not problems and len(module.functions) > 1:
        problems += call_problems(module)
    if not problems:
        for graph, node, what in misplaced(module):
            problems.append(Problem(what, Where(node=f"{graph.name}, {node.op} from {node.origin}")))
    if problems:
        blame = f"after {after}: " if after else ""
        raise CheckFailed([Problem(blame + p.what, p.where, p.todo) for p in problems])


def verify_graph(graph: Graph, module: Module) -> list[Problem]:
    """The violations in one function."""
    checker = _Checker(graph, module)
    for node in graph:
        checker.visit(node)
    checker.operands(graph.ret)
    return checker.problems


class _Checker:
    """One walk over a function."""

    def __init__(self, graph: Graph, module: Module):
        self.graph, self.module = graph, module
        self.problems: list[Problem] = []
        self.defined: set[Value] = set(graph.inputs)
        self.index = 0

    def wrong(self, what: str, node: Node) -> None:
        origin = f" from {node.origin}" if node.origin.sources else ""
        self.problems.append(Problem(what, Where(node=f"{self.graph.name}, node {self.index} ({node.op}){origin}")))

    def visit(self, node: Node) -> None:
        graph = self.graph
        if node.graph is not graph:
            self.wrong("the node does not know its graph", node)
        self.operands(node)
        if not _proved(node):
            self.declaration(node)
        for v in node.results:
            if v.producer is not node:
                self.wrong("a result does not know its producer", node)
            for user in v.uses:
                if user.graph is not graph:
                    self.wrong(f"%{v.name or '?'} is used by a node that is not in the graph", node)
            self.defined.add(v)
        self.index += 1

    def operands(self, node: Node) -> None:
        operands = node.operands
        counts = Counter(operands) if len(operands) > 8 else None  # the return of a training graph has thousands
        for v in operands:
            if v is None:
                continue
            if v not in self.defined:
                self.wrong(f"%{v.name or '?'} is used before it is defined", node)
            if v.uses.get(node) != (operands.count(v) if counts is None else counts[v]):
                self.wrong(f"the def-use list of %{v.name or '?'} is wrong", node)

    def declaration(self, node: Node) -> None:
        definition = OPS.get(node.op)
        if definition is None:
            self.wrong(f"unknown op '{node.op}' {suggest(node.op, OPS)}".strip(), node)
            return
        operands = [None if v is None else v.type for v in node.operands]
        try:
            full = definition.complete(node.attrs)
            if list(full) != list(node.attrs):
                self.wrong("attributes are not complete or not in declared order", node)
            if "declared" in definition.traits:
                _check_bodies(node, self.module)
                return
            if "call" in definition.traits:
                expected = call_types(operands, full, self.module)
            else:
                expected = definition.infer(operands, full)
        except ValueError as error:
            self.wrong(str(error), node)
            return
        actual = [v.type for v in node.results]
        if expected != actual:
            self.wrong(f"results are {actual}, the declaration says {expected}", node)
        elif not definition.functions(full):
            node.proof = (node.op, dict(full), operands, actual)


def _proved(node: Node) -> bool:
    """Whether nothing about the node has changed since it was last found right: op, attributes, types around it."""
    proof = node.proof
    if proof is None:
        return False
    op, attrs, operands, results = proof
    if op != node.op or len(operands) != len(node.operands) or len(results) != len(node.results):
        return False
    for t, v in zip(operands, node.operands):  # noqa: B905 - lengths were compared; this runs for every node and pass
        if t is not (None if v is None else v.type):
            return False
    for t, r in zip(results, node.results):  # noqa: B905
        if t is not r.type:
            return False
    return bool(attrs == node.attrs)


def _check_bodies(node: Node, module: Module) -> None:
    """ValueError where a branch or loop names a function that is not there, or one with another number of operands."""
    captures = len(node.operands) - 1 if node.op == "if" else len(node.operands)
    for name in OPS[node.op].functions(node.attrs):
        fn = module.functions.get(name)
        if fn is None:
            raise ValueError(f"unknown function '{name}'")
        if len(fn.inputs) != captures:
            raise ValueError(f"function {name} takes {len(fn.inputs)} operands, {captures} given")

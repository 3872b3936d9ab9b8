"""A pass that consists of rules: applies them to every function until none applies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from moec.ir.graph import Graph, Module
from moec.passes.base import Context, Pass, Result
from moec.rewrite.engine import Prover, rewrite
from moec.rewrite.prove import Witness
from moec.rewrite.rule import Rule


def run_rules(
    rules: Iterable[Rule], graph: Graph, context: Context, result: Result, prover: Prover | None = None
) -> bool:
    """Apply ``rules`` to one function and add what was done to ``result``; whether anything was.

    Where the context asks for checks, each distinct match is evaluated on witnesses before it is committed; a
    ``prover`` of the caller's own takes the place of that.
    """
    outcome = rewrite(graph, rules, prover or witness_prover(context), context.gate)
    for rule, origin in outcome.applied:
        result.apply(rule.name, origin, graph)
    for missed in outcome.missed:
        result.miss(missed.rule.name, missed.reason, missed.nodes, graph)
    return bool(outcome.applied)


def witness_prover(context: Context) -> Prover | None:
    """What evaluates matches before they are committed, where the context asks for checks."""
    return Witness() if context.witness is not None else None


@dataclass(frozen=True)
class RulePass(Pass):
    """Base of passes that are a set of rules: ``rules`` says which."""

    @classmethod
    def rules(cls) -> list[Rule]:
        """The rules, in the order in which they are tried at a node."""
        raise NotImplementedError(f"pass {cls.name} must list its rules")

    @classmethod
    def documentation(cls) -> str:
        return super().documentation() + "\nrules\n\n" + "\n\n".join(r.text() for r in cls.rules()) + "\n"

    def run(self, module: Module, context: Context) -> Result:
        return self.apply(self.rules(), module, context)

    @staticmethod
    def apply(rules: list[Rule], module: Module, context: Context) -> Result:
        """Apply ``rules`` to every function of the module."""
        result = Result()
        for graph in module.functions.values():
            run_rules(rules, graph, context, result)
        return result

"""Finding the first rule application that changes what a layer computes.

First the pass: the pipeline runs pass by pass, and the layer is evaluated after each. Then, within that pass, the
application: it runs again with a gate that closes after so many applications, halving the interval each time. A pass
that is no set of rules is blamed as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from moec.ir.graph import Module
from moec.passes.base import Context, Gate, Pass, Result
from moec.passes.result import Application
from moec.repro import Failure, Snapshot, attempt
from moec.witness import Witness


@dataclass(frozen=True)
class Culprit:
    """Pass number ``number`` (from 1) is the first after which a check fails, with its application number ``index`` of
    ``total`` where it consists of rules; ``applications`` are that one, or all that the pass recorded.
    """

    number: int
    spec: str
    index: int | None
    total: int
    applications: tuple[Application, ...]
    failure: Failure


def bisect(
    module: Module,
    passes: Sequence[Pass],
    source: Path | None = None,
    context: Context | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Culprit | None:
    """The first pass, and in it the first application of a rule, after which the layer no longer gives the numbers of
    the import (or those stored beside ``source``); None where every pass keeps them.

    ``module`` is changed in place. Refusal where the layer cannot be evaluated.
    """
    context = replace(context or Context(), witness=None)
    witness = Witness.of(module, source)
    for number, each in enumerate(passes, 1):
        progress(f"pass {number} ({each.spec})")
        before = Snapshot.of(module)
        gate = Gate()
        results, wrong = attempt(module, [each], replace(context, gate=gate), witness)
        if wrong:
            return _Search(number, each, before, witness, context, progress).run(gate.passed, results, wrong)
    return None


@dataclass(frozen=True)
class _Search:
    """The search within one pass that is known to fail."""

    number: int
    each: Pass
    before: Snapshot
    witness: Witness
    context: Context
    progress: Callable[[str], None]

    def run(self, total: int, results: list[Result], reason: str) -> Culprit:
        if not total or self.attempt(0)[1]:  # no rules, or what it does besides them fails by itself
            return self.culprit(None, 0, _applications(results), reason)
        low, high = 0, total
        while high - low > 1:
            middle = (low + high) // 2
            self.progress(f"pass {self.number} ({self.each.spec}): {middle} of {total} applications")
            tried, wrong = self.attempt(middle)
            if wrong:
                high, results, reason = middle, tried, wrong
            else:
                low = middle
        return self.culprit(high, total, _applications(results)[high - 1 : high], reason)

    def attempt(self, limit: int) -> tuple[list[Result], str]:
        context = replace(self.context, gate=Gate(limit))
        return attempt(self.before.module(), [self.each], context, self.witness)

    def culprit(self, index: int | None, total: int, made: tuple[Application, ...], reason: str) -> Culprit:
        cases, weights = tuple(self.witness.cases), self.witness.weights
        failure = Failure(self.before, self.each.spec, index, cases, weights, reason)
        return Culprit(self.number, self.each.spec, index, total, made, failure)


def _applications(results: list[Result]) -> tuple[Application, ...]:
    return tuple(a for r in results for a in r.applied)

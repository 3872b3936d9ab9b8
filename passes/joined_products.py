"""Gate and up as products of their own: one product of the weights put together, and its gated activation.

x is then read once, and one kernel is launched for two. Each column of a product is a sum of its own, so none changes.
The weights are put together at compile time by ``fold``, wherefore the rules hold only for weights whose contents are
at hand and that nothing else reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moec.ir.graph import Module, Value
from moec.ir.types import DType
from moec.passes.base import Context
from moec.passes.fold import readable
from moec.passes.price import PriceProver
from moec.passes.rules_nn import ACTIVATIONS
from moec.rewrite.engine import Prover
from moec.rewrite.match import Match
from moec.rewrite.rule import Rule, miss, near, rule
from moec.rewrite.term import NoMatch, T, Term, require

WEIGHTS = ("gate", "up")
"""The operands that are put together."""


def _joined(activation: str) -> Rule:
    act = ACTIVATIONS[activation]
    flags = "ta = false; tb = true; to = none"

    @rule(
        f"{activation}-glu-of-products",
        exactness="reassociated",
        why="each column of a product is a sum of its own; the activation is rounded once",
        operands={"x": "any", "gate": "any", "up": "any"},
        cases=[
            f"x: [3, 8]; gate: [4, 8]; up: [4, 8]; {flags}",
            "x: [2, 3, 8]; gate: [8, 5]; up: [8, 5]; ta = false; tb = false; to = none",
        ],
        near=[
            near("the weights are", f"x: [2, 3, 8]; gate: [2, 4, 8]; up: [2, 4, 8]; {flags}"),
            near("x is transposed", "x: [8, 3]; gate: [4, 8]; up: [4, 8]; ta = true; tb = true; to = none"),
            near("the weights are", "x: [3, 8]; gate: [4, 8]; up: [1, 8]; ta = false; tb = true; to = none"),
        ],
        escape="refuse",
    )
    def joined(x: Term, gate: Term, up: Term, *, ta: bool, tb: bool, to: DType | None) -> Iterator[Any]:
        flags = {"transpose_a": ta, "transpose_b": tb, "to": to}
        yield act(T.matmul(x, gate, **flags)) * T.matmul(x, up, **flags)
        alike = gate.rank == 2 and gate.type == up.type
        require(alike, f"the weights are {gate.type} and {up.type}, not two matrices alike", gate, up)
        require(not ta, "x is transposed", x)
        h = T.matmul(x, T.concat(gate, up, axis=0 if tb else 1), **flags)
        yield T.swiglu(h, activation=activation, glu="chunked", alpha=1.0, limit=None, up_offset=0.0)
        yield miss("gate and up are of two inputs", act(T.matmul(x, gate, **flags)) * T.matmul(-x, up, **flags))

    return joined


JOINED_RULES = [_joined(activation) for activation in ACTIVATIONS]
"""One rule an activation."""


class JoinedWeights:
    """A prover that refuses to put weights together at run time, then asks for prices without that copy."""

    def __init__(self, module: Module, context: Context, then: Prover | None, weights: bool):
        self.weights = weights
        self.given = _given(module)
        self.price = PriceProver(context, then, laid_out=WEIGHTS)

    def __call__(self, match: Match) -> str:
        if match.rule in JOINED_RULES:
            if not self.weights:
                raise NoMatch("the weights stay apart, since gradients are given for each of them by name")
            for name in WEIGHTS:
                if reason := self.at_run_time(match.operands[name]):
                    raise NoMatch(f"{name} {reason}: it would be copied at run time to stand beside the other")
        return self.price(match)

    def at_run_time(self, value: Value) -> str:
        """Why ``value`` cannot be laid out at compile time; the empty string where it can."""
        found = [value] if value.producer is not None else self.given.get(value, [])
        if len(value.uses) > 1 or any(len(v.uses) > 1 for v in found):
            return "is read elsewhere too"
        nodes = [v.producer for v in found]
        if not nodes or any(n is None or n.op != "weight" for n in nodes):
            return "is no weight"
        if not all(n is not None and readable(n.attrs["data"]) for n in nodes):
            return "has no contents yet"
        return ""


def _given(module: Module) -> dict[Value, list[Value]]:
    """What each parameter of a function is given at its calls; nothing where a call leaves it out."""
    found: dict[Value, list[Value]] = {}
    for node in module.nodes():
        if node.op == "call":
            for parameter, value in zip(module.functions[node.attrs["fn"]].inputs, node.operands, strict=True):
                if value is not None:
                    found.setdefault(parameter, []).append(value)
    return found

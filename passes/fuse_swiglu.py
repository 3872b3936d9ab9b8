"""Gated activations written in primitive ops, forward and backward, as ``swiglu`` and ``swiglu_grad``.

A backward graph reads what forward computed of the gate (its sigmoid, its activation), so that neither can be gathered
by rules that keep what others read. Here the gradient is gathered first, which reads h and dy alone; then nobody but
forward reads the parts, and forward is gathered too. Both are one kernel that reads its tensors once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from moec.ir.graph import Module
from moec.ir.symbol import Dim
from moec.passes.base import Context, Result, register_pass
from moec.passes.joined_products import JOINED_RULES, JoinedWeights
from moec.passes.price import PricedRulePass
from moec.passes.rule_pass import run_rules, witness_prover
from moec.passes.rules_nn import GATED, ROUNDED_ONCE, silu
from moec.rewrite.rule import Rule, miss, near, rule
from moec.rewrite.term import T, Term, require, splat

Slope = Callable[[Term, Term, Term], Term]
"""``(gradient of the activation, gate, sigmoid of gate) -> gradient of the gate``."""

_SLOPES: dict[str, Slope] = {
    "torch": lambda g, x, s: (g * s) * (x * (splat(1.0, x) - s) + splat(1.0, x)),
    "outer": lambda g, x, s: g * (s * (x * (splat(1.0, x) - s) + splat(1.0, x))),
    "product": lambda g, x, s: g * (s + (x * s) * (splat(1.0, x) - s)),
}
"""Spellings of g * d(x sigmoid(x))/dx: as torch decomposes it, with the slope in one factor, and as s + x s (1 - s)."""


def _grad(spelling: str) -> Rule:
    """The gradient of silu(gate) * up by both halves of h."""
    slope = _SLOPES[spelling]
    own = {"axis": "1", "mid": "3", "cut": "3", "end": "6"}

    def of(h: str = "[4, 6]", dy: str = "[4, 3]", **changed: str) -> str:
        return f"h: {h}; dy: {dy}; " + "; ".join(f"{n} = {changed.get(n, v)}" for n, v in own.items())

    @rule(
        f"silu-glu-grad-{spelling}",
        exactness="reassociated",
        why=ROUNDED_ONCE,
        operands={"h": "any", "dy": "any"},
        cases=[of(), of(h="[2, 4, 6]", dy="[2, 4, 3]", axis="2")],
        near=[
            near("dimension 0 of 2", of(h="[6, 4]", dy="[3, 4]", axis="0")),
            near("[0:3] and [4:7] of 7", of(h="[4, 7]", mid="4", end="7")),
            near("[0:3] and [2:5] of 6", of(mid="2", end="5")),
        ],
    )
    def silu_glu_grad(h: Term, dy: Term, *, axis: int, mid: Dim, cut: Dim, end: Dim) -> Iterator[Any]:
        gate = T.slice(h, axis=axis, start=0, stop=cut, step=1)
        up = T.slice(h, axis=axis, start=mid, stop=end, step=1)
        s = T.sigmoid(gate)
        yield T.concat(slope(dy * up, gate, s), dy * (gate * s), axis=axis)
        require(axis == h.rank - 1, f"gate and up lie along dimension {axis} of {h.rank}", h)
        width = h.shape[axis]
        require(
            cut == mid and end == width and mid + mid == width, f"they are [0:{cut}] and [{mid}:{end}] of {width}", h
        )
        yield T.swiglu_grad(h, dy, activation="silu", glu="chunked", alpha=1.0, limit=None, up_offset=0.0)
        yield miss("up stands before gate", T.concat(dy * (gate * s), slope(dy * up, gate, s), axis=axis))

    return silu_glu_grad


SWIGLU_GRAD_RULES = [_grad(spelling) for spelling in _SLOPES]
"""Rules on gradients, in the order in which they are tried."""


@register_pass
class FuseSwiGLU(PricedRulePass):
    """Gather gated activations into ``swiglu`` and their gradients into ``swiglu_grad``, each one kernel.

    Where gate and up are two products of one input, they become one product of both weights, which are put together at
    compile time; with ``weights=false`` they stay two.
    """

    name = "fuse-swiglu"
    weights: bool = True

    @classmethod
    def rules(cls) -> list[Rule]:
        return [*SWIGLU_GRAD_RULES, silu, *GATED, *JOINED_RULES]

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        prover = JoinedWeights(module, context, witness_prover(context), self.weights)
        for graph in module.functions.values():
            run_rules(self.rules(), graph, context, result, prover)
        return result

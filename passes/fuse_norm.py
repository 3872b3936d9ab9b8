"""Norms as one kernel each: forward with everything that backward keeps of it, and backward up to the gradient.

``fuse-vector`` grows groups along the graph as far as they go, and cuts them where they read or write too much; in a
training graph that is often in the middle of a norm, whose rows are then read twice. Here the norms are gathered first:
from each reciprocal root of a row's mean square back to the row, and on to what is scaled by it; backward, from each
row sum that such a root scales on to the gradient. All else is left to ``fuse-vector``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moec.ir.graph import Module
from moec.passes.base import Context, Result, register_pass
from moec.passes.norm_groups import device_functions, outline_norms
from moec.passes.rule_pass import RulePass, run_rules
from moec.passes.rules_rows import NORM_ROW_RULES
from moec.rewrite.rule import Rule, near, rule
from moec.rewrite.term import T, Term, require, splat


@rule(
    "cube-by-products",
    exactness="reassociated",
    why="row-wise kernels multiply; they have no power of any exponent",
    cases=["x: [3, 8] in 0.25..2; n = 3.0"],
    near=[near("to the power 2.5", "x: [3, 8] in 0.25..2; n = 2.5")],
)
def cube_by_products(x: Term, *, n: float) -> Iterator[Any]:
    yield T.pow(x, splat(n, x))
    require(n == 3.0, f"x is raised to the power {n}", x)
    yield x * x * x


@register_pass
class FuseNorm(RulePass):
    """Make one kernel of each norm, forward with what backward keeps of it, and one of its gradient."""

    name = "fuse-norm"

    @classmethod
    def rules(cls) -> list[Rule]:
        return [cube_by_products, *NORM_ROW_RULES]

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        for graph in device_functions(module):
            run_rules(self.rules(), graph, context, result)
            outline_norms(graph, module, self.name, False, result)
        return result

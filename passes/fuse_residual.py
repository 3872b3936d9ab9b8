"""A residual sum and the norm that reads it as one kernel with both results: the sum is not read back to be normed."""

from __future__ import annotations

from moec.ir.graph import Module
from moec.passes.base import Context, Result, register_pass
from moec.passes.norm_groups import device_functions, outline_norms
from moec.passes.rule_pass import RulePass, run_rules
from moec.passes.rules_rows import NORM_ROW_RULES
from moec.rewrite.rule import Rule


@register_pass
class FuseResidual(RulePass):
    """Make one kernel of each residual sum and the norm of it; it gives the sum and the normed rows."""

    name = "fuse-residual"

    @classmethod
    def rules(cls) -> list[Rule]:
        return list(NORM_ROW_RULES)

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        for graph in device_functions(module):
            run_rules(self.rules(), graph, context, result)
            outline_norms(graph, module, self.name, True, result)
        return result

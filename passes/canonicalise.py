"""One spelling for what exporters spell in many ways, so that later passes need to know one."""

from __future__ import annotations

from moec.ir.graph import Graph, Module, Node, merged_origin
from moec.ops.registry import opdef
from moec.passes.base import Context, Result, register_pass
from moec.passes.rule_pass import RulePass
from moec.passes.rules_arith import ARITH_RULES
from moec.passes.rules_nn import NN_RULES
from moec.passes.rules_norm import NORM_RULES
from moec.passes.rules_shape import SHAPE_RULES
from moec.rewrite.rule import Rule


@register_pass
class Canonicalise(RulePass):
    """Local equivalences to a fixpoint: identities, compositions, activations, norms, gated activations, transposed
    products.

    Then the constant of a commutative op stands second. With ``exact_only`` only rules whose results are bit-identical.
    """

    name = "canonicalise"
    exact_only: bool = False

    @classmethod
    def rules(cls) -> list[Rule]:
        return [*SHAPE_RULES, *ARITH_RULES, *NN_RULES, *NORM_RULES]

    def run(self, module: Module, context: Context) -> Result:
        chosen = [r for r in self.rules() if r.exactness == "exact" or not self.exact_only]
        result = self.apply(chosen, module, context)
        for graph in module.functions.values():
            for node in graph:
                if _constant_first(node):
                    order_operands(node, graph, result)
        return result


def _constant_first(node: Node) -> bool:
    if "commutative" not in opdef(node.op).traits or len(node.operands) != 2:
        return False
    first, second = (v is not None and v.producer is not None and v.producer.op == "constant" for v in node.operands)
    return first and not second


def order_operands(node: Node, graph: Graph, result: Result) -> None:
    """Swap the two operands of a commutative node."""
    a, b = node.operands
    node.set_operand(0, b)
    node.set_operand(1, a)
    node.origin = merged_origin([node], "constant-second")
    result.apply("constant-second", node.origin, graph)

"""Routing weights before the down-projection, so that the experts' outputs are not saved for backward.

Without an output bias, sum over k of w W2 a = sum over k of W2 (w a). Weighting the outputs needs them in backward
(dw = <dy, W2 a>); weighting the activations a does not: dw = <W2^T dy, a>, and a is there for dW2 anyway. The outputs
are the widest rows of a block (Megatron calls this memory-efficient permutation, arXiv 2603.07685).

Forward: ``prob-placement`` moves the weights; the product is taken in f32 and rounded once, autodiff does the rest. In
the joint graph ``prob-placement-product`` makes that product again rather than save it. A joint graph of outputs that
are weighted is placed in backward alone: ``prob-placement-weights`` takes the weights' gradient from the activations,
``prob-placement-input`` moves the weights behind the gradient by the down-projection, which the first wants unweighted.
Where rows are moved between the product and the sum, as from rank to rank, the weights go their way backwards.
"""

from __future__ import annotations

from collections.abc import Hashable

from moec.ir.graph import Graph, Module, Node
from moec.passes.base import Context, Result, register_pass
from moec.passes.cse import attr_key
from moec.passes.price import price
from moec.passes.prob_placement_rows import path_of, place
from moec.passes.prob_placement_rules import BACKWARD_WEIGHTS, PRODUCTS, backward_input, forward
from moec.passes.rule_pass import RulePass, run_rules, witness_prover
from moec.rewrite.engine import Prover
from moec.rewrite.match import Match
from moec.rewrite.prove import module_of
from moec.rewrite.rule import Rule
from moec.rewrite.term import NoMatch


@register_pass
class ProbPlacement(RulePass):
    """Apply routing weights before the down-projection instead of behind it, so that the experts' outputs need not be
    saved: in forward, or in the backward of a joint graph. Where a target is given, only if this adds less time than
    computing the outputs again in backward would take, the other way not to save them.

    A layer that a joint graph calls as a function is placed before it is differentiated.
    """

    name = "prob-placement"

    @classmethod
    def rules(cls) -> list[Rule]:
        return [forward, *BACKWARD_WEIGHTS, backward_input, *PRODUCTS]

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        prover = _Cheaper(context, witness_prover(context))
        for graph in module.functions.values():
            joint = any(n.op == "save" for n in graph)
            placed = run_rules(BACKWARD_WEIGHTS if joint else [forward], graph, context, result, prover)
            if placed and joint:
                run_rules([backward_input], graph, context, result)
            if joint:
                placed |= run_rules(PRODUCTS, graph, context, result, prover)
            if placed:
                _merge(graph)
            for node in [n for n in graph if n.op == "unpermute"]:
                try:
                    if not joint:
                        place(module, graph, node, context, result)
                    elif (path := path_of(node)) is not None and path.moves:
                        raise NoMatch("rows are moved before they are summed: place the weights before autodiff")
                except NoMatch as reason:
                    result.miss(forward.name, str(reason), [node], graph)
        return result


class _Cheaper:
    """Refuses matches that add more time than the grouped product in them takes (of the outputs, or that reads the
    weighted activations), and those in forward whose outputs others read, so that they would be computed twice; then
    asks ``then``.

    What the after side writes down again of the before side counts nothing, since it is merged with it; neither does
    the gradient by the down-projection, which ``prob-placement-input`` shares.
    """

    def __init__(self, context: Context, then: Prover | None):
        self.context, self.then = context, then

    def __call__(self, match: Match) -> str:
        product = [n for n in match.nodes if n.op == "grouped_matmul"] or [match.root]
        others = [u.op for n in product for u in n.result.uses if u is not match.root]
        if match.rule is forward and others:
            raise NoMatch(f"the outputs are also read by {', '.join(dict.fromkeys(others))}")
        after = module_of(match.instance.after, {name: v.type for name, v in match.operands.items()}).main
        shared = [n for n in after if n.op == "permute" and n.operand(0) is after.inputs[0]]
        if match.rule in BACKWARD_WEIGHTS:
            shared += [n for n in after if n.op == "grouped_matmul"]
        old = price([n for n in match.nodes if n.op != "permute"], self.context)
        new = price([n for n in after if n not in shared], self.context)
        again = price(product, self.context)
        if old is not None and new is not None and again is not None and new - old > again:
            raise NoMatch(
                f"on {self.context.target.name} it would add {new - old:.1f} us, and the grouped product, which could "
                f"be computed again in backward, takes {again:.1f} us"
            )
        return self.then(match) if self.then is not None else ""


_MERGED = ("cast", "constant", "grouped_matmul", "permute", "reshape", "save", "unpermute_grad")
"""Ops that the rules write down again."""


def _merge(graph: Graph) -> None:
    """Let what the rules wrote down again be the node that was there, put saves right behind what they save, and erase
    what nobody reads any more.
    """
    seen: dict[Hashable, Node] = {}
    for node in list(graph):
        if node.op not in _MERGED:
            continue
        first = seen.setdefault(_key(node), node)
        if not any(r.startswith(ProbPlacement.name) for r in node.origin.rewrites):
            continue
        if first is not node:
            for old, new in zip(node.results, first.results, strict=True):
                old.replace_with(new)
            graph.erase(node)
        elif node.op == "save":
            producer = node.operand(0).producer
            if producer is not None:
                graph.move(node, producer.next)
            node.result.name = node.attrs["name"]
    for node in reversed(graph):
        if node.op in _MERGED and not any(v.uses for v in node.results):
            graph.erase(node)


def _key(node: Node) -> Hashable:
    """What equal nodes have in common; a value is saved once, whatever the save is called."""
    attrs = () if node.op == "save" else tuple((k, attr_key(v)) for k, v in node.attrs.items())
    return node.op, tuple(node.operands), attrs

"""The small index and copy operators of a dispatch, in the form that moves each row once and sorts once.

``permute`` is folded into the rows that the first grouped product reads by a pass of its own, ``gather-rows``, where
that is faster. *Unpermute behind the second grouped product* is not offered: the copy that leaves the accumulator
(fixpipe) scales by tensor or by channel, never by row, so the routing weights cannot be applied on the way out; and the
K rows of a token come out of different tiles at different times, so that they could only be added by atomics, whose
order, and with it the rounding, changes from run to run. It would need a mixed cube-vector kernel with a fixed order of
summation.
"""

from __future__ import annotations

from moec.ir.graph import Module
from moec.ir.types import TensorType
from moec.passes.base import Context, Result, register_pass
from moec.passes.permute_fusion_counts import COUNT_RULES
from moec.passes.permute_fusion_facts import below, nonnegative, permutation
from moec.passes.permute_fusion_index import INDEX_RULES
from moec.passes.permute_fusion_mask import sort_for_masks
from moec.passes.permute_fusion_rows import ROW_RULES
from moec.passes.price import PricedRulePass, PriceProver
from moec.passes.rule_pass import run_rules
from moec.rewrite.match import Match
from moec.rewrite.prove import Arrays, Witness, draw
from moec.rewrite.rule import Rule
from moec.rewrite.term import NoMatch

SPELLINGS = ("sort-by-topk", "rows-by-gather-nd", "floor-div-of-index", "inverse-by-scatter-nd")
"""Rules that only give sorts, row gathers, quotients and inverses the one spelling that the others read."""


@register_pass
class PermuteFusion(PricedRulePass):
    """Sort once, move indices instead of rows, and each row once: the dispatch of tokens to experts.

    A second sort becomes a scatter of 0, 1, ...; a gather of repeated tokens, of gathered rows, or a scatter by a
    permutation becomes one gather; one-hot and running sums become a histogram and its prefix sum; rows gathered,
    weighted and summed become ``unpermute``; positions of a routing map's true elements become the choices sorted.
    Rules whose result depends on it are applied only to indices that cannot be negative, or are a permutation.

    Not offered: ``unpermute`` folded behind the second product, whose accumulator leaves without a factor for each row
    and in no order of summation. ``permute`` is folded into the first by ``gather-rows``.
    """

    name = "permute-fusion"

    @classmethod
    def rules(cls) -> list[Rule]:
        return [*INDEX_RULES, *ROW_RULES, *COUNT_RULES]

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        sort_for_masks(module, result)
        prover = Facts(context)
        for graph in module.functions.values():
            run_rules(self.rules(), graph, context, result, prover)
        return result


class Facts:
    """A prover that refuses matches whose indices may lie outside of what the rule holds for, then asks for prices
    where the rule is more than a spelling (``SPELLINGS``), and evaluates where that is asked for.
    """

    def __init__(self, context: Context):
        self.witness = InRange() if context.witness is not None else None
        self.price = PriceProver(context, self.witness)

    def __call__(self, match: Match) -> str:
        name = match.rule.name
        if name.startswith("unpermute-of-"):
            if not permutation(match.operands["i"]):
                raise NoMatch("the rows may not be gathered once each, which unpermute and its gradient rely on")
        elif name == "gather-of-repeat":
            _require_nonnegative(match, "i")
        elif name == "floor-div-of-index":
            _require_nonnegative(match, "x")
        elif name == "histogram-of-one-hot" or name.startswith("rank-in-expert"):
            _require_nonnegative(match, "e")
            depth = match.attrs["depth"]
            if name.startswith("rank-in-expert") and not below(match.operands["e"], depth):
                raise NoMatch(f"indices may lie beyond {depth}")
        if name in SPELLINGS:
            return self.witness(match) if self.witness is not None else ""
        return self.price(match)


def _require_nonnegative(match: Match, operand: str) -> None:
    if not nonnegative(match.operands[operand]):
        raise NoMatch("indices may be negative, which count from the end")


class InRange(Witness):
    """Evaluates matches on indices that are within what they index, as those are that the rules are applied to."""

    def operands(self, match: Match, types: dict[str, TensorType]) -> Arrays:
        return draw(types, self.seed, False, {name: (0, high) for name, high in _highest(match, types).items()})


def _highest(match: Match, types: dict[str, TensorType]) -> dict[str, int]:
    """The largest index by operand, for rules that rely on it."""
    name = match.rule.name
    sizes = {n: [d if isinstance(d, int) else 0 for d in t.dims] for n, t in types.items()}
    if name.startswith("unpermute-of-"):
        return {"i": sizes["rows"][0] - 1}
    if name == "gather-of-repeat":
        times = match.attrs["many"][1]
        return {"i": sizes["x"][0] * times - 1}
    if name == "floor-div-of-index":
        return {"x": 20}
    if name == "histogram-of-one-hot" or name.startswith("rank-in-expert"):
        depth = match.attrs["depth"]
        return {"e": depth - 1 if isinstance(depth, int) else 2}
    return {}

"""Rows that are added up where an index says, which is the gradient of rows that were taken several times.

A scatter that adds reads and writes its row again for every row that comes to it, one after the other where two may be
the same. Sorted by their index, the rows that belong together stand together: each sum is taken at once, in the order
of the rows, in f32, and written once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from moec.ir.graph import Module
from moec.ir.symbol import Dim
from moec.ir.types import TensorType
from moec.passes.base import Context, Result, register_pass
from moec.passes.permute_fusion_facts import nonnegative
from moec.passes.price import PricedRulePass, PriceProver
from moec.passes.rule_pass import run_rules
from moec.rewrite.match import Match
from moec.rewrite.prove import Arrays, Witness, draw
from moec.rewrite.rule import Rule, miss, near, rule
from moec.rewrite.term import NoMatch, T, Term, require, splat

_ROWS = "i: {i}[6] in 0..{last}; rows: [6, 3]; zero = 0; shape = [{n}, 3]; tuples = [6, 1]"
_FIRST = _ROWS.format(i="i64", n=4, last=3)


@rule(
    "sum-of-sorted-rows",
    exactness="reassociated",
    why="rows of one sum stand together once they are sorted by it: each sum is accumulated in f32, written once",
    dtypes=("f32", "f16", "bf16"),
    operands={"i": "[S]", "rows": "[S, H]"},
    cases=[
        _FIRST,
        _ROWS.format(i="i32", n=4, last=3),
        _ROWS.format(i="i64", n=9, last=1),
        _ROWS.format(i="i32", n=1, last=0),
    ],
    near=[near("added to 1", _FIRST.replace("zero = 0", "zero = 1"))],
)
def sum_of_sorted_rows(
    i: Term, rows: Term, *, zero: float, shape: Sequence[Dim], tuples: Sequence[Dim]
) -> Iterator[Any]:
    nothing = T.expand(splat(zero, rows), shape=shape)
    yield T.scatter_nd(nothing, T.reshape(i, shape=tuples), rows, reduction="add")
    require(zero == 0, f"the rows are added to {zero}", rows)
    order = T.argsort(i, axis=0, descending=False)
    yield T.segment_sum(T.gather(rows, order, axis=0), T.histogram(i, bins=shape[0]), to=None)
    yield miss("the last row stays", T.scatter_nd(nothing, T.reshape(i, shape=tuples), rows, reduction="none"))


@register_pass
class SumRows(PricedRulePass):
    """Sort rows that are added up by an index and sum those that then stand together, where the target says that this
    is no slower.

    Only by an index that cannot be negative, since such a one counts from the end.
    """

    name = "sum-rows"

    @classmethod
    def rules(cls) -> list[Rule]:
        return [sum_of_sorted_rows]

    def run_priced(self, module: Module, context: Context, result: Result) -> None:
        prover = _InRange(context)
        for graph in module.functions.values():
            run_rules(self.rules(), graph, context, result, prover)


class _InRange:
    """Refuses matches whose index may be negative, then asks for prices, and evaluates where that is asked for."""

    def __init__(self, context: Context):
        self.price = PriceProver(context, _Drawn() if context.witness is not None else None)

    def __call__(self, match: Match) -> str:
        if not nonnegative(match.operands["i"]):
            raise NoMatch("indices may be negative, which count from the end")
        return self.price(match)


class _Drawn(Witness):
    """Evaluates matches on indices of rows that are there."""

    def operands(self, match: Match, types: dict[str, TensorType]) -> Arrays:
        count = match.attrs["shape"][0]
        return draw(types, self.seed, False, {"i": (0, count - 1 if isinstance(count, int) else 0)})

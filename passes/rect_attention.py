"""Attention whose values are narrower than its keys: the values go in as they are, not padded to the keys' width.

A kernel that wants one width has V padded and the output cut again. Every output column is a sum over one column of V
alone, so neither is needed. Backward likewise: the padded columns of dy are zero, so they add nothing to the gradient
of the scores, and the gradient of V is wanted only where V is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from moec.ir.graph import Module
from moec.ir.symbol import Dim
from moec.passes.base import Context, Result, register_pass
from moec.passes.cse import merge
from moec.passes.effects import effectful_functions
from moec.passes.price import PricedRulePass, PriceProver
from moec.passes.rope_concat_forms import ATTRS, SET, VARIANTS, name_of, placed
from moec.passes.rule_pass import run_rules, witness_prover
from moec.rewrite.engine import Prover
from moec.rewrite.match import Match
from moec.rewrite.rule import Near, Rule, miss, near, rule
from moec.rewrite.term import NoMatch, T, Term, require

PADDED = {"before": "[0, 0, 0, 0]", "after": "[0, 0, 0, 3]", "value": "0.5"}
"""Values of 4 columns padded to 7."""
DY = {"ahead": "[0, 0, 0, 0]", "behind": "[0, 0, 0, 3]", "zero": "0.0"}
"""The gradient of the output padded likewise."""
CUT = {"axis": "3", "start": "0", "stop": "4"}
"""The output, or the gradient of V, cut back."""


def _operands(mask: bool, sinks: bool, backward: bool) -> dict[str, str]:
    found = {"q": "[2, 4, 5, 7]", "k": "[2, 2, 6, 7]", "v": "[2, 2, 6, 4]"}
    found |= (
        {"y": "[2, 4, 5, 7]", "top": "f32[2, 4, 5] in 2..4", "total": "f32[2, 4, 5] in 1..2", "dy": "[2, 4, 5, 4]"}
        if backward
        else {}
    )
    return found | ({"mask": "[2, 1, 5, 6]"} if mask else {}) | ({"sinks": "[4]"} if sinks else {})


def _case(given: dict[str, str], own: dict[str, str], **changed: str) -> str:
    parts = [f"{n}: {shape}" for n, shape in given.items()]
    return "; ".join([*parts, *(f"{n} = {changed.get(n, v)}" for n, v in own.items()), SET])


def _near(given: dict[str, str], own: dict[str, str]) -> list[Near]:
    front = {"before": "[0, 0, 0, 3]", "after": "[0, 0, 0, 0]"}
    return [
        near("padded by [0, 0, 0, 3] before", _case(given, own, **front)),
        near("[0:5] of dimension 3", _case(given, own, stop="5")),
    ]


def _check(v: Term, before: Sequence[Dim], after: Sequence[Dim], axis: int, start: Dim, stop: Dim) -> None:
    behind = not any([*before, *after[:3]])
    require(behind, f"the values are padded by {_text(before)} before and {_text(after)} after", v)
    back = (axis, start, stop) == (3, 0, v.shape[3])
    require(back, f"it is cut to [{start}:{stop}] of dimension {axis}, the values have {v.shape[3]} columns", v)


def _forward(op: str, turned: bool, mask: bool, sinks: bool) -> Rule:
    given = _operands(mask, sinks, backward=False)
    own = PADDED | CUT | ({"perm": "[0, 2, 1, 3]"} if turned else {})
    refused = _near(given, own)
    if turned:
        refused.append(near("turned by [0, 1, 3, 2]", _case(given, own, perm="[0, 1, 3, 2]")))
    name = {"attention": "rect-attention", "attention_stats": "rect-attention-stats"}[op]

    @rule(
        name_of(name + ("-turned" if turned else ""), False, mask, sinks),
        exactness="reassociated",
        why="each output column is a sum over one column of the values alone",
        operands=dict.fromkeys(given, "any"),
        cases=[_case(given, own)],
        near=refused,
        more_attrs=(*own, *ATTRS),
    )
    def forward(q: Term, k: Term, v: Term, *rest: Term, **more: Any) -> Iterator[Any]:
        before, after, value = (more.pop(n) for n in PADDED)
        cut = {n: more.pop(n) for n in CUT}
        perm = more.pop("perm", None)
        extra = [*placed(rest, mask, sinks), None, None]

        def outputs(values: Term, cut_back: bool) -> tuple[Term, ...]:
            made = getattr(T, op)(q, k, values, *extra, **more)
            y, *saved = made if isinstance(made, tuple) else (made,)
            y = T.transpose(y, perm=perm) if turned else y
            return (T.slice(y, step=1, **cut) if cut_back else y, *saved)

        yield outputs(T.pad(v, before=before, after=after, value=value), True)
        if turned:
            require(perm[3] == 3, f"the output is turned by {list(perm)}", v)
        _check(v, before, after, **cut)
        yield outputs(v, False)
        yield miss(
            "the values are as wide as the keys",
            *outputs(T.concat(v, T.slice(v, axis=3, start=0, stop=3, step=1), axis=3), True),
        )

    return forward


def _backward(mask: bool, sinks: bool) -> Rule:
    given = _operands(mask, sinks, backward=True)
    own = PADDED | DY | CUT

    @rule(
        name_of("rect-attention-grad", False, mask, sinks),
        exactness="reassociated",
        why="columns where dy is zero add nothing to the gradient of the scores",
        operands=dict.fromkeys(given, "any"),
        cases=[_case(given, own)],
        near=[
            *_near(given, own),
            near(
                "padded by [0, 0, 0, 1] before and [0, 0, 0, 2]",
                _case(given, own, ahead="[0, 0, 0, 1]", behind="[0, 0, 0, 2]"),
            ),
            near("padded with 1.0", _case(given, own, zero="1.0")),
        ],
        more_attrs=(*own, *ATTRS),
    )
    def backward(
        q: Term, k: Term, v: Term, y: Term, top: Term, total: Term, dy: Term, *rest: Term, **more: Any
    ) -> Iterator[Any]:
        before, after, value = (more.pop(n) for n in PADDED)
        ahead, behind, zero = (more.pop(n) for n in DY)
        cut = {n: more.pop(n) for n in CUT}
        extra = [*placed(rest, mask, sinks), None, None]
        wide = T.pad(dy, before=ahead, after=behind, value=zero)
        padded = T.pad(v, before=before, after=after, value=value)
        dq, dk, dv, dsinks, *_ = T.attention_grad(q, k, padded, y, top, total, wide, *extra, **more)
        yield (T.slice(dv, step=1, **cut), dq, dk, dsinks)[: 3 + sinks]
        _check(v, before, after, **cut)
        alike = (tuple(ahead), tuple(behind)) == (tuple(before), tuple(after))
        require(alike, f"dy is padded by {_text(ahead)} before and {_text(behind)} after, unlike the values", dy)
        require(zero == 0, f"dy is padded with {zero}", dy)
        narrow = T.slice(y, axis=3, start=0, stop=v.shape[3], step=1)
        dq, dk, dv, dsinks, *_ = T.attention_grad(q, k, v, narrow, top, total, dy, *extra, **more)
        yield (dv, dq, dk, dsinks)[: 3 + sinks]

    return backward


def _text(dims: Sequence[Dim]) -> str:
    return "[" + ", ".join(map(str, dims)) + "]"


RECT_RULES = [
    *(_backward(*variant) for variant in VARIANTS),
    *(
        _forward(op, turned, *variant)
        for op in ("attention", "attention_stats")
        for turned in (False, True)
        for variant in VARIANTS
    ),
]
"""Rules on padded values, in the order in which they are tried."""


@register_pass
class RectAttention(PricedRulePass):
    """Keep values of another width than keys as they are: no pad of V, no cut of the output, forward and backward."""

    name = "rect-attention"

    @classmethod
    def rules(cls) -> list[Rule]:
        return RECT_RULES

    def run(self, module: Module, context: Context) -> Result:
        """The gradient first: what it then reads of the output is the cut that forward makes."""
        result = Result()
        prover = _Sole(PriceProver(context, witness_prover(context)))
        for _ in range(2):
            changed = [run_rules(self.rules(), graph, context, result, prover) for graph in module.functions.values()]
            if not any(changed):
                break
            effects = effectful_functions(module)
            for graph in module.functions.values():
                merge(graph, effects, result)
        return result


class _Sole:
    """A prover that refuses matches of which more than pads would stay for other readers, then asks ``then``: what
    stays would be computed twice.
    """

    def __init__(self, then: Prover):
        self.then = then

    def __call__(self, match: Match) -> str:
        inside = set(match.nodes)
        for node in match.nodes:
            others = [u for v in node.results if v not in match.outputs for u in v.uses if u not in inside]
            if others and node.op != "pad":
                raise NoMatch(f"{node.op} inside the pattern is also read by {others[0].op}")
        return self.then(match)

"""Routers that are written in primitive ops, gathered into one ``gating`` node step by step.

First the choice (score, optional bias, top-k), then each rule takes one more step of the chain into the node:
renormalisation, scale, a narrowing cast of the weights, and the counts per expert. Scores that are rounded to 16 bit
before the choice keep that rounding as ``score_dtype``, for it makes ties; a bias added in 16 bit is refused, since
``gating`` does not round the biased scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from moec.ir.graph import Module
from moec.ir.symbol import Dim
from moec.ir.types import F32, I32, I64, DType
from moec.passes.base import Context, Result, register_pass
from moec.passes.gating_groups import gather_groups
from moec.passes.rule_pass import RulePass
from moec.rewrite.rule import Body, Rule, miss, near, rule
from moec.rewrite.term import T, Term, require, splat

_PLAIN = {
    "groups": 1,
    "group_top_k": 1,
    "group_score": "none",
    "group_mask": "none",
    "renormalize": False,
    "renormalize_eps": 0.0,
    "scale": 1.0,
}
_CHOICE = (
    'top_k = 2; score = "sigmoid"; score_order = "before_topk"; groups = 1; group_top_k = 1; group_score = "none"; '
)
_CHOICE += 'group_mask = "none"; score_dtype = !bf16'
_GROUPED = (
    'top_k = 2; score = "softmax"; score_order = "before_topk"; groups = 2; group_top_k = 1; group_score = "sum2"; '
)
_GROUPED += 'group_mask = "zero"; score_dtype = !f32'
_SIZES = "logits: f32[5, 8]"


def _score(kind: str, x: Term) -> Term:
    found: Term = T.softmax(x, axis=1) if kind == "softmax" else T.sigmoid(x)
    return found


def _chosen(logits: Term, bias: Term | None, kind: str, order: str, k: Dim, dtype: DType) -> tuple[Term, Term]:
    require(isinstance(k, int), f"the number of experts chosen, {k}, is not a number", logits)
    attrs = {**_PLAIN, "top_k": k, "score": kind, "score_order": order, "score_dtype": dtype, "weights_dtype": dtype}
    weights, experts, _ = T.gating(logits, bias, **attrs)
    return weights, T.cast(experts, to=I64)


def _check_topk(logits: Term, axis: int, largest: bool) -> None:
    require(axis == 1, f"the choice is along dimension {axis}, not over the experts", logits)
    require(largest, "the smallest scores are chosen", logits)


def _in_f32(logits: Term) -> None:
    require(
        logits.dtype is F32,
        f"biased scores in {logits.dtype} may tie where f32 ones do not, so the choice could differ",
        logits,
    )


def _topk_of_scores(kind: str) -> Rule:
    @rule(
        f"gating-{kind}-topk",
        exactness="exact",
        why="that is what gating computes",
        operands={"logits": "[T, E]"},
        cases=[
            f"{_SIZES}; k = 2; axis = 1; largest = true; ordered = true",
            "logits: bf16[5, 8]; k = 2; axis = 1; largest = true; ordered = true",
        ],
        near=[
            near("the smallest scores", f"{_SIZES}; k = 2; axis = 1; largest = false; ordered = true"),
            near("not over the experts", f"{_SIZES}; k = 2; axis = 0; largest = true; ordered = true"),
            near("K, is not a number", f"{_SIZES}; k = K; axis = 1; largest = true; ordered = true"),
            near("expected [T, E]", "logits: f32[5, 8, 3]; k = 2; axis = 1; largest = true; ordered = true"),
        ],
    )
    def topk_of_scores(logits: Term, *, k: Dim, axis: int, largest: bool, ordered: bool) -> Iterator[Any]:
        yield T.topk(_score(kind, logits), k=k, axis=axis, largest=largest, sorted=ordered)
        _check_topk(logits, axis, largest)
        yield _chosen(logits, None, kind, "before_topk", k, logits.dtype)

    return topk_of_scores


def _topk_of_biased(kind: str) -> Rule:
    square = "logits: f32[8, 8]"

    @rule(
        f"gating-{kind}-bias-topk",
        exactness="exact",
        why="the bias steers the choice and the weights are the scores without it",
        operands={"logits": "[T, E]", "bias": "[E]"},
        cases=[f"{_SIZES}; bias: f32[8]; k = 2; axis = 1; largest = true; ordered = false; at = 1"],
        near=[
            near("not over", f"{square}; bias: f32[8]; k = 8; axis = 0; largest = true; ordered = true; at = 1"),
            near("smallest", f"{_SIZES}; bias: f32[8]; k = 2; axis = 1; largest = false; ordered = true; at = 1"),
            near("not a number", f"{_SIZES}; bias: f32[8]; k = K; axis = 1; largest = true; ordered = true; at = 1"),
            near("along 0", f"{_SIZES}; bias: f32[8]; k = 2; axis = 1; largest = true; ordered = true; at = 0"),
            near("may tie", "logits: f16[5, 8]; bias: f16[8]; k = 2; axis = 1; largest = true; ordered = true; at = 1"),
        ],
    )
    def topk_of_biased(
        logits: Term, bias: Term, *, k: Dim, axis: int, largest: bool, ordered: bool, at: int
    ) -> Iterator[Any]:
        scores = _score(kind, logits)
        values, experts = T.topk(scores + bias, k=k, axis=axis, largest=largest, sorted=ordered)
        yield T.gather_elements(scores, experts, axis=at), experts
        _check_topk(logits, axis, largest)
        _in_f32(logits)
        require(at == 1, f"the weights are gathered along {at}", logits)
        yield _chosen(logits, bias, kind, "before_topk", k, F32)
        yield miss("the weights keep the bias", T.gather_elements(scores + bias, experts, axis=at), experts)
        yield miss("the weights are the biased values", values, experts)

    return topk_of_biased


def _score_of_topk(kind: str) -> Rule:
    @rule(
        f"gating-topk-{kind}",
        exactness="reassociated",
        why="gating rounds the weights once; the choice is by the same logits",
        operands={"logits": "[T, E]"},
        cases=["logits: [5, 8]; k = 2; axis = 1; largest = true; ordered = true"],
        near=[
            near("the smallest scores", f"{_SIZES}; k = 2; axis = 1; largest = false; ordered = true"),
            near("not over the experts", f"{_SIZES}; k = 2; axis = 0; largest = true; ordered = true"),
            near("K, is not a number", f"{_SIZES}; k = K; axis = 1; largest = true; ordered = true"),
        ],
        escape="refuse",
    )
    def score_of_topk(logits: Term, *, k: Dim, axis: int, largest: bool, ordered: bool) -> Iterator[Any]:
        values, experts = T.topk(logits, k=k, axis=axis, largest=largest, sorted=ordered)
        yield _score(kind, values), experts
        _check_topk(logits, axis, largest)
        yield _chosen(logits, None, kind, "after_topk", k, logits.dtype)

    return score_of_topk


_STEP_ATTRS = ("top_k", "score", "score_order", "groups", "group_top_k", "group_score", "group_mask", "score_dtype")
"""The attributes of a gating node that every step keeps."""


def _step(
    name: str, biased: bool, why: str, end: str, wrong: Sequence[tuple[str, str]], exactness: str, kept: str
) -> Callable[[Body], Rule]:
    """Declare a rule that takes one more step into a gating node, with or without a score bias.

    ``end`` spells the step's own attributes for the cases, ``wrong`` near-misses as (reason, spelling), ``kept``
    further gating attributes that stay as they are.
    """
    operands = {"logits": "[T, E]", **({"bias": "[E]"} if biased else {})}
    inputs = f"{_SIZES}; bias: f32[8]" if biased else _SIZES
    routings = (_CHOICE, _GROUPED)
    return rule(
        name + ("-biased" if biased else ""),
        exactness=exactness,
        why=why,
        operands=operands,
        cases=[f"{inputs}; {routing}; {end}" for routing in routings],
        near=[near(reason, f"{inputs}; {_CHOICE}; {spelt}") for reason, spelt in wrong],
        escape="refuse",
        more_attrs=(*_STEP_ATTRS, *kept.split()),
    )


def _bias(rest: tuple[Term, ...]) -> Term | None:
    return rest[0] if rest else None


def _renormalise(biased: bool) -> Rule:
    why = "gating divides by the same sum before it rounds"
    end, wrong = "axes = [1]; weights_dtype = !f32", "axes = [0]; weights_dtype = !f32"

    @_step("gating-renormalise", biased, why, end, [("the sum is over [0]", wrong)], "reassociated", "weights_dtype")
    def renormalise(logits: Term, *bias: Term, axes: Sequence[int], **kept: Any) -> Iterator[Any]:
        w, experts, counts = T.gating(logits, _bias(bias), renormalize=False, renormalize_eps=0.0, scale=1.0, **kept)
        yield w / T.reduce_sum(w, axes=axes, keepdims=True), experts, counts
        require(tuple(axes) == (1,), f"the sum is over {list(axes)}, not over the chosen experts", w)
        yield T.gating(logits, _bias(bias), renormalize=True, renormalize_eps=0.0, scale=1.0, **kept)

    return renormalise


def _renormalise_eps(biased: bool) -> Rule:
    why = "gating divides by the same sum, eps added, before it rounds"
    end, wrong = "axes = [1]; eps = 0.001; weights_dtype = !f32", "axes = [0]; eps = 0.001; weights_dtype = !f32"

    @_step(
        "gating-renormalise-eps", biased, why, end, [("the sum is over [0]", wrong)], "reassociated", "weights_dtype"
    )
    def renormalise_eps(logits: Term, *bias: Term, axes: Sequence[int], eps: float, **kept: Any) -> Iterator[Any]:
        w, experts, counts = T.gating(logits, _bias(bias), renormalize=False, renormalize_eps=0.0, scale=1.0, **kept)
        yield w / (T.reduce_sum(w, axes=axes, keepdims=True) + splat(eps, w)), experts, counts
        require(tuple(axes) == (1,), f"the sum is over {list(axes)}, not over the chosen experts", w)
        yield T.gating(logits, _bias(bias), renormalize=True, renormalize_eps=eps, scale=1.0, **kept)

    return renormalise_eps


def _scale(biased: bool) -> Rule:
    why = "gating scales its weights last"
    end = "c = 2.5; renormalize = true; renormalize_eps = 0.0; weights_dtype = !f32"
    kept = "renormalize renormalize_eps weights_dtype"

    @_step("gating-scale", biased, why, end, [], "reassociated", kept)
    def scale(logits: Term, *bias: Term, c: float, **kept: Any) -> Iterator[Any]:
        w, experts, counts = T.gating(logits, _bias(bias), scale=1.0, **kept)
        yield w * splat(c, w), experts, counts
        yield T.gating(logits, _bias(bias), scale=float(c), **kept)
        yield miss("another scale already", T.gating(logits, _bias(bias), scale=2.0, **kept)[0] * 3.0, experts, counts)

    return scale


def _narrow(biased: bool) -> Rule:
    why = "gating rounds its weights once, to the dtype that is asked for"
    end = "to = !bf16; weights_dtype = !f32; renormalize = true; renormalize_eps = 0.0; scale = 2.5"
    wrong = [
        ("weights in bf16", end.replace("!f32", "!bf16").replace("to = !bf16", "to = !f32")),
        ("not to a float", end.replace("to = !bf16", "to = !i32")),
    ]

    @_step("gating-narrow", biased, why, end, wrong, "exact", "renormalize renormalize_eps scale")
    def narrow(logits: Term, *bias: Term, to: DType, weights_dtype: DType, **kept: Any) -> Iterator[Any]:
        w, experts, counts = T.gating(logits, _bias(bias), weights_dtype=weights_dtype, **kept)
        yield T.cast(w, to=to), experts, counts
        require(weights_dtype is F32, f"the weights in {weights_dtype} are rounded already", w)
        require(to.is_float and to.bits <= 32, f"the cast goes to {to}, not to a float of at most 32 bits", w)
        yield T.gating(logits, _bias(bias), weights_dtype=to, **kept)

    return narrow


Counted = Callable[[Term, Dim, dict[str, Any]], Term]
_COUNTED: dict[str, tuple[Counted, str]] = {
    "": (lambda e, bins, own: T.histogram(e, bins=bins), ""),
    "-i64": (lambda e, bins, own: T.histogram(T.cast(e, to=I64), bins=bins), ""),
    "-flat": (lambda e, bins, own: T.histogram(T.reshape(e, **own), bins=bins), "shape = [10]"),
    "-flat-i64": (lambda e, bins, own: T.histogram(T.reshape(T.cast(e, to=I64), **own), bins=bins), "shape = [10]"),
    "-one-hot": (
        lambda e, bins, own: T.reduce_sum(
            T.one_hot(T.cast(e, to=I64), depth=bins, axis=2, **own), axes=(0, 1), keepdims=False
        ),
        "dtype = !i64",
    ),
}
"""Ways to count the tokens of each expert, and the attributes of their own (as in a case)."""


def _counts(form: str, biased: bool) -> Rule:
    counted, own_case = _COUNTED[form]
    own_names = [own_case.split(" = ")[0]] if own_case else []
    end = "renormalize = true; renormalize_eps = 0.0; scale = 1.0; weights_dtype = !f32; bins = 8; " + own_case
    wrong = [("7 bins for 8", end.replace("bins = 8", "bins = 7"))]
    if form == "-one-hot":
        wrong.append(("may not hold", end.replace("!i64", "!bf16")))
    kept = " ".join(["renormalize renormalize_eps scale weights_dtype", *own_names])
    why = "gating counts the tokens of each expert itself"

    @_step(f"gating-counts{form}", biased, why, end, wrong, "exact", kept)
    def counts_rule(logits: Term, *bias: Term, bins: Dim, **kept: Any) -> Iterator[Any]:
        own = {name: kept.pop(name) for name in own_names}
        w, experts, counts = T.gating(logits, _bias(bias), **kept)
        count = counted(experts, bins, own)
        yield count, w, experts, counts
        require(bins == logits.shape[1], f"{bins} bins for {logits.shape[1]} experts", logits)
        if form == "-one-hot":
            require(count.dtype.name in ("i32", "i64", "f32"), f"{count.dtype} may not hold the counts", count)
        w, experts, counts = T.gating(logits, _bias(bias), **kept)
        yield counts if count.dtype is I32 else T.cast(counts, to=count.dtype), w, experts, counts

    return counts_rule


STEPS: list[Callable[[bool], Rule]] = [_renormalise, _renormalise_eps, _scale, _narrow]
GATING_RULES = [
    *(make(kind) for kind in ("softmax", "sigmoid") for make in (_topk_of_biased, _topk_of_scores, _score_of_topk)),
    *(step(biased) for step in STEPS for biased in (False, True)),
    *(_counts(form, biased) for form in _COUNTED for biased in (False, True)),
]


@register_pass
class FuseGating(RulePass):
    """Gather a router written as softmax or sigmoid, top-k, renormalisation, scale and counts into one ``gating``
    node; one that chooses among groups of experts first too.
    """

    name = "fuse-gating"

    @classmethod
    def rules(cls) -> list[Rule]:
        return GATING_RULES

    def run(self, module: Module, context: Context) -> Result:
        found = Result()
        gather_groups(module, context, found)
        result = super().run(module, context)
        return Result(
            [*found.applied, *result.applied],
            [*found.near_misses, *result.near_misses],
            found.changed or result.changed,
        )

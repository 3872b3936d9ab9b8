"""Attention over queries and keys that were put together out of a plain and a rotary part: the parts go in as they are.

The score of concatenated halves is the sum of the halves' scores, so the concatenations, and the copies of a rotary key
that all heads share, need not be made: ``attention`` takes the rotary parts as operands of their own and accumulates
both products in one tile. In a backward graph the gradients come out in parts too, so that slices of them disappear,
and the sum over heads of the shared key's gradient moves into the op.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moec.ir.graph import Module, Value
from moec.ir.symbol import Dim
from moec.passes.base import Context, Result, register_pass
from moec.passes.price import PricedRulePass, PriceProver, cut_readers
from moec.passes.rope_concat_forms import (
    ATTRS,
    VARIANTS,
    case,
    check_joined,
    check_shared,
    joined,
    joined_axes,
    joined_near,
    name_of,
    placed,
    sizes,
)
from moec.passes.rope_concat_products import PRODUCT_RULES, product_with_concat
from moec.passes.rule_pass import run_rules, witness_prover
from moec.passes.rules_shape import reshape_reshape, slice_of_concat_first, slice_of_concat_second
from moec.rewrite.engine import Prover
from moec.rewrite.match import Match
from moec.rewrite.rule import Rule, miss, near, rule
from moec.rewrite.term import NoMatch, T, Term, require

WHY = "the score of concatenated halves is the sum of the halves' scores"
FORWARD = {"attention": "rope-concat", "attention_stats": "rope-concat-stats"}
"""The ops of a forward graph and what their rules are called."""


def _forward(op: str, first: bool, mask: bool, sinks: bool) -> Rule:
    given = sizes(mask, sinks, first, backward=False)

    @rule(
        name_of(FORWARD[op], first, mask, sinks),
        exactness="reassociated",
        why=WHY,
        operands=dict.fromkeys(given, "any"),
        cases=[case(given, joined_axes(first))],
        near=joined_near(given, first),
        more_attrs=(*joined_axes(first), *ATTRS),
    )
    def forward(qn: Term, qr: Term, kn: Term, kr: Term, v: Term, *rest: Term, **more: Any) -> Iterator[Any]:
        axes, wide = (more.pop("qaxis"), more.pop("kaxis")), more.pop("wide", None)
        more_terms = placed(rest, mask, sinks)
        q, k = joined(first, qn, qr, kn, kr, axes, wide)
        build = getattr(T, op)
        yield build(q, k, v, *more_terms, None, None, **more)
        check_joined(first, qn, qr, kn, kr, axes)
        yield build(qn, kn, v, *more_terms, qr, kr, **more)
        turned = T.concat(qn, qr, axis=3) if first else T.concat(qr, qn, axis=3)
        other = build(turned, k, v, *more_terms, None, None, **more)
        yield miss("the parts stand in another order", *(other if isinstance(other, tuple) else (other,)))

    return forward


def _forward_shared(op: str, mask: bool, sinks: bool) -> Rule:
    given = sizes(mask, sinks, True, backward=False)

    @rule(
        name_of(FORWARD[op] + "-shared", False, mask, sinks),
        exactness="reassociated",
        why="attention reads the one rotary key of all heads as it is",
        operands=dict.fromkeys(given, "any"),
        cases=[case(given, {"wide": "[2, 2, 4, 2]"})],
        near=[near("is not one head for all", case(given, {"wide": "[2, 2, 4, 2]"}, kr="[1, 2, 4, 2]"))],
        more_attrs=("wide", *ATTRS),
    )
    def shared(qn: Term, qr: Term, kn: Term, kr: Term, v: Term, *rest: Term, **more: Any) -> Iterator[Any]:
        wide, more_terms, build = more.pop("wide"), placed(rest, mask, sinks), getattr(T, op)
        yield build(qn, kn, v, *more_terms, qr, T.expand(kr, shape=wide), **more)
        check_shared(kn, kr)
        yield build(qn, kn, v, *more_terms, qr, kr, **more)

    return shared


def _backward(first: bool, mask: bool, sinks: bool) -> Rule:
    given = sizes(mask, sinks, first, backward=True)

    @rule(
        name_of("rope-concat-grad", first, mask, sinks),
        exactness="reassociated",
        why=WHY + ", so each part has a gradient of its own",
        operands=dict.fromkeys(given, "any"),
        cases=[case(given, joined_axes(first))],
        near=joined_near(given, first),
        more_attrs=(*joined_axes(first), *ATTRS),
    )
    def backward(
        qn: Term,
        qr: Term,
        kn: Term,
        kr: Term,
        v: Term,
        y: Term,
        top: Term,
        total: Term,
        dy: Term,
        *rest: Term,
        **more: Any,
    ) -> Iterator[Any]:
        axes, wide = (more.pop("qaxis"), more.pop("kaxis")), more.pop("wide", None)
        more_terms = placed(rest, mask, sinks)
        q, k = joined(first, qn, qr, kn, kr, axes, wide)
        yield T.attention_grad(q, k, v, y, top, total, dy, *more_terms, None, None, **more)[: 3 + sinks]
        check_joined(first, qn, qr, kn, kr, axes)
        key = T.expand(kr, shape=wide) if first else kr
        dqn, dkn, dv, dsinks, dqr, dkr = T.attention_grad(qn, kn, v, y, top, total, dy, *more_terms, qr, key, **more)
        whole = [T.concat(*((r, n) if first else (n, r)), axis=3) for n, r in ((dqn, dqr), (dkn, dkr))]
        yield (*whole, dv, dsinks)[: 3 + sinks]
        turned = T.concat(qn, qr, axis=3) if first else T.concat(qr, qn, axis=3)
        other = T.attention_grad(turned, k, v, y, top, total, dy, *more_terms, None, None, **more)[: 3 + sinks]
        yield miss("the parts stand in another order", *other)

    return backward


def _backward_shared(mask: bool, sinks: bool) -> Rule:
    given = sizes(mask, sinks, True, backward=True)
    own = {"wide": "[2, 2, 4, 2]", "axes": "[1]", "keepdims": "true"}

    @rule(
        name_of("rope-concat-grad-shared", False, mask, sinks),
        exactness="reassociated",
        why="the gradient of a key that all heads share is summed over the heads where it is made",
        operands=dict.fromkeys(given, "any"),
        cases=[case(given, own), case(given, own, keepdims="false")],
        near=[
            near("is not one head for all", case(given, own, kr="[1, 2, 4, 2]")),
            near("summed over [0]", case(given, own, axes="[0]")),
        ],
        escape="refuse",
        more_attrs=("wide", "axes", "keepdims", *ATTRS),
    )
    def shared(
        qn: Term,
        qr: Term,
        kn: Term,
        kr: Term,
        v: Term,
        y: Term,
        top: Term,
        total: Term,
        dy: Term,
        *rest: Term,
        **more: Any,
    ) -> Iterator[Any]:
        wide, axes, keepdims = (more.pop(name) for name in ("wide", "axes", "keepdims"))
        operands = (qn, kn, v, y, top, total, dy, *placed(rest, mask, sinks), qr)
        *others, dqr, each = T.attention_grad(*operands, T.expand(kr, shape=wide), **more)
        summed = T.reduce_sum(each, axes=axes, keepdims=keepdims)
        yield (summed, dqr, *others[: 3 + sinks])
        check_shared(kn, kr)
        require(tuple(axes) == (1,), f"the gradient is summed over {list(axes)}", each)
        *others, dqr, one = T.attention_grad(*operands, kr, **more)
        yield (one if keepdims else T.reshape(one, shape=_without_heads(one)), dqr, *others[: 3 + sinks])

    return shared


def _without_heads(x: Term) -> tuple[Dim, ...]:
    return (x.shape[0], *x.shape[2:])


ROPE_CONCAT_RULES = [
    *(_forward(op, first, *variant) for op in FORWARD for first in (True, False) for variant in VARIANTS),
    *(_forward_shared(op, *variant) for op in FORWARD for variant in VARIANTS),
    *(_backward(first, *variant) for first in (True, False) for variant in VARIANTS),
    *(_backward_shared(*variant) for variant in VARIANTS),
]
"""Rules on attention and its gradient, in the order in which they are tried."""


@register_pass
class RopeConcatElim(PricedRulePass):
    """Give attention the plain and the rotary parts of queries and keys apart, instead of putting them together.

    The copies of a rotary key that all heads share disappear too. In a backward graph the gradients come in parts, and
    the sum over heads is done where they are made. The same on the primitive products.
    """

    name = "rope-concat-elim"

    @classmethod
    def rules(cls) -> list[Rule]:
        return [*ROPE_CONCAT_RULES, *PRODUCT_RULES, slice_of_concat_first, slice_of_concat_second, reshape_reshape]

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        prover = _Cut(PriceProver(context, witness_prover(context)))
        for graph in module.functions.values():
            run_rules(self.rules(), graph, context, result, prover)
        return result


class _Cut:
    """A prover that refuses to take a product apart that nobody cuts into those parts, and queries and keys of whose
    heads a part was rotated, which ``fuse-rope`` does where they lie; then asks ``then``.
    """

    def __init__(self, then: Prover):
        self.then = then

    def __call__(self, match: Match) -> str:
        if match.rule is product_with_concat and not cut_readers(match.outputs[0], match.instance.after[0]):
            raise NoMatch("the product is not cut into the parts of the factor")
        given = match.operands
        if "qn" in given and all(_rotated_part(given[f"{name}n"], given[f"{name}r"]) for name in "qk"):
            raise NoMatch("queries and keys are heads of which a part is rotated: one rotation does that")
        return self.then(match)


def _rotated_part(turned: Value, kept: Value) -> bool:
    """Whether ``turned`` is the rotation of a slice of the tensor that ``kept`` is a slice of."""
    rope, rest = turned.producer, kept.producer
    if rope is None or rest is None or rope.op != "rope" or rest.op != "slice":
        return False
    cut = rope.operand(0).producer
    return cut is not None and cut.op == "slice" and cut.operands[0] is rest.operands[0]

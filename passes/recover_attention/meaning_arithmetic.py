"""Masks: arithmetic, comparisons and choices."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from moec.ir.graph import Node
from moec.passes.recover_attention.conditions import (
    Affine,
    AtMostZero,
    Case,
    Meaning,
    both,
    chosen,
    condition,
    either,
    is_condition,
    moved,
    negated,
)
from moec.passes.recover_attention.meanings import RULES, Rule, affine, rule


@rule("not")
def _not(node: Node, known: list[Meaning]) -> Meaning:
    return negated(condition(known[0]))


@rule("cast")
def _cast(node: Node, known: list[Meaning]) -> Meaning | None:
    m, to = known[0], node.attrs["to"]
    if to.kind == "bool":
        return m if is_condition(m) else _leaves(m, lambda x: None if isinstance(x, Affine) else x != 0)
    if is_condition(m):
        return chosen(condition(m), 1.0, 0.0)
    if to.is_int:
        return _leaves(m, lambda x: x if isinstance(x, Affine) or not math.isfinite(x) else float(math.trunc(x)))
    return m


def _leaves(m: Meaning, fn: Callable[[float | Affine], Meaning | None]) -> Meaning | None:
    """``fn`` of the number at each index; conditions come together, numbers stay by case."""
    if isinstance(m, Case):
        yes, no = _leaves(m.yes, fn), _leaves(m.no, fn)
        return None if yes is None or no is None else chosen(m.when, yes, no)
    return fn(m) if isinstance(m, float | Affine) and not isinstance(m, bool) else None


@rule("select")
def _select(node: Node, known: list[Meaning]) -> Meaning | None:
    when, yes, no = _aligned(node, known)
    return chosen(condition(when), yes, no)


def _aligned(node: Node, known: list[Meaning]) -> list[Meaning]:
    """Operands' meanings by the axes of the result."""
    rank = node.result.type.rank
    found: list[Meaning] = []
    for m, v in zip(known, node.operands, strict=True):
        assert v is not None
        lead = rank - v.type.rank
        shifted = moved(m, lead.__add__)
        assert shifted is not None
        found.append(shifted)
    return found


def _paired(pair: list[Meaning], fn: Callable[[float | Affine, float | Affine], Meaning | None]) -> Meaning | None:
    a, b = pair
    return _leaves(a, lambda x: _leaves(b, lambda y: fn(x, y)))


def _numeric(op: Callable[[float, float], float], on_affine: Callable[[Affine, Affine], Affine | None]) -> Rule:
    def leaf(x: float | Affine, y: float | Affine) -> Meaning | None:
        if isinstance(x, float) and isinstance(y, float):
            with np.errstate(all="ignore"):
                z = op(x, y)
            return None if math.isnan(z) else z
        p, q = affine(x), affine(y)
        return None if p is None or q is None else on_affine(p, q)

    return lambda node, known: _paired(_aligned(node, known), leaf)


def _product(p: Affine, q: Affine) -> Affine | None:
    for a, b in ((p, q), (q, p)):
        if not a.steps and isinstance(a.const, int):
            return b.scaled(a.const)
    return None


RULES["add"] = _numeric(lambda x, y: x + y, lambda p, q: p.plus(q))
RULES["sub"] = _numeric(lambda x, y: x - y, lambda p, q: p.plus(q, -1))
RULES["mul"] = _numeric(lambda x, y: x * y, _product)


@rule("neg")
def _neg(node: Node, known: list[Meaning]) -> Meaning | None:
    return _leaves(known[0], lambda x: x.scaled(-1) if isinstance(x, Affine) else -x)


def _at_most(x: float | Affine, y: float | Affine, plus: int = 0) -> Meaning | None:
    """x + plus <= y, in integers where either is affine."""
    if isinstance(x, float) and isinstance(y, float):
        return x <= y if not plus else x < y
    p, q = affine(x), affine(y)
    if p is None or q is None:
        return None
    over = p.plus(q, -1).plus(Affine(plus))
    return over.const <= 0 if isinstance(over.const, int) and not over.steps else AtMostZero(over)


def _comparison(fn: Callable[[float | Affine, float | Affine], Meaning | None]) -> Rule:
    return lambda node, known: None if any(map(is_condition, known)) else _paired(_aligned(node, known), fn)


def _equal(x: float | Affine, y: float | Affine) -> Meaning | None:
    if isinstance(x, float) and isinstance(y, float):
        return x == y
    a, b = _at_most(x, y), _at_most(y, x)
    return None if a is None or b is None else both(condition(a), condition(b))


def _unequal(x: float | Affine, y: float | Affine) -> Meaning | None:
    same = _equal(x, y)
    return None if same is None else negated(condition(same))


RULES["le"] = _comparison(_at_most)
RULES["lt"] = _comparison(lambda x, y: _at_most(x, y, 1))
RULES["ge"] = _comparison(lambda x, y: _at_most(y, x))
RULES["gt"] = _comparison(lambda x, y: _at_most(y, x, 1))
RULES["eq"] = _comparison(_equal)
RULES["ne"] = _comparison(_unequal)


@rule("and")
def _and(node: Node, known: list[Meaning]) -> Meaning:
    a, b = _aligned(node, known)
    return both(condition(a), condition(b))


@rule("or")
def _or(node: Node, known: list[Meaning]) -> Meaning:
    a, b = _aligned(node, known)
    return either(condition(a), condition(b))

"""Conditions on positions: comparisons of affine expressions in a tensor's indices, and numbers by condition.

What a condition says of query and key positions can be read off as attributes of ``attention`` where it is causal or a
window.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from moec.ir.symbol import Bounds, Dim, bounds, evaluate

BLOCKED = -1e4
"""A score that had this or less added takes no part in a softmax that has any other score."""


@dataclass(frozen=True)
class Affine:
    """``const`` plus, for each ``(axis, step)``, step times the index along that axis."""

    const: Dim
    steps: tuple[tuple[int, int], ...] = ()

    def scaled(self, by: int) -> Affine:
        return Affine(self.const * by, tuple((a, s * by) for a, s in self.steps if s * by))

    def plus(self, other: Affine, sign: int = 1) -> Affine:
        total = dict(self.steps)
        for a, s in other.steps:
            total[a] = total.get(a, 0) + sign * s
        return Affine(self.const + other.const * sign, tuple(sorted((a, s) for a, s in total.items() if s)))


@dataclass(frozen=True)
class AtMostZero:
    """True where ``affine`` is at most 0."""

    affine: Affine


@dataclass(frozen=True)
class Both:
    a: Condition
    b: Condition


@dataclass(frozen=True)
class Not:
    a: Condition


Condition = bool | AtMostZero | Both | Not


@dataclass(frozen=True)
class Case:
    """``yes`` where ``when``, else ``no``."""

    when: Condition
    yes: Number
    no: Number


Number = float | Affine | Case
Meaning = Number | Condition


def negated(c: Condition) -> Condition:
    """Its opposite."""
    if isinstance(c, bool):
        return not c
    if isinstance(c, Not):
        return c.a
    return AtMostZero(Affine(1).plus(c.affine, -1)) if isinstance(c, AtMostZero) else Not(c)


def both(a: Condition, b: Condition) -> Condition:
    """Their conjunction."""
    if isinstance(a, bool):
        return b if a else False
    if isinstance(b, bool):
        return a if b else False
    if a == b:
        return a
    return False if negated(a) == b else Both(a, b)


def either(a: Condition, b: Condition) -> Condition:
    """Their disjunction."""
    return negated(both(negated(a), negated(b)))


def is_condition(m: Meaning) -> bool:
    """Whether a meaning is of a bool value."""
    return isinstance(m, bool | AtMostZero | Both | Not)


def condition(m: Meaning) -> Condition:
    """A meaning that is known to be of a bool value."""
    assert isinstance(m, bool | AtMostZero | Both | Not)
    return m


def number(m: Meaning) -> Number:
    """A meaning that is known to be of a number."""
    assert not isinstance(m, bool) and isinstance(m, float | Affine | Case)
    return m


def parts(m: Meaning) -> int:
    """How many comparisons and numbers a meaning is made of."""
    if isinstance(m, Case):
        return parts(m.when) + parts(m.yes) + parts(m.no)
    if isinstance(m, Both):
        return parts(m.a) + parts(m.b)
    return parts(m.a) if isinstance(m, Not) else 1


def chosen(when: Condition, yes: Meaning, no: Meaning) -> Meaning | None:
    if isinstance(when, bool):
        return yes if when else no
    if is_condition(yes) != is_condition(no):
        return None
    if is_condition(yes):
        return either(both(when, condition(yes)), both(negated(when), condition(no)))
    return yes if yes == no else Case(when, number(yes), number(no))


def with_affine(m: Meaning, fn: Callable[[Affine], Affine | None]) -> Meaning | None:
    """The meaning with each affine expression in it replaced; None where one cannot be."""
    if isinstance(m, bool | float):
        return m
    if isinstance(m, Affine):
        return fn(m)
    if isinstance(m, AtMostZero):
        affine = fn(m.affine)
        return None if affine is None else AtMostZero(affine)
    inner = (m.a,) if isinstance(m, Not) else (m.a, m.b) if isinstance(m, Both) else (m.when, m.yes, m.no)
    found = [x for part in inner if (x := with_affine(part, fn)) is not None]
    if len(found) < len(inner):
        return None
    if isinstance(m, Not):
        return negated(condition(found[0]))
    if isinstance(m, Both):
        return Both(condition(found[0]), condition(found[1]))
    return Case(condition(found[0]), number(found[1]), number(found[2]))


def moved(m: Meaning, to: Callable[[int], int | None]) -> Meaning | None:
    """The meaning with its axes renamed; None where one that matters goes."""

    def renamed(affine: Affine) -> Affine | None:
        steps = tuple((axis, s) for a, s in affine.steps if (axis := to(a)) is not None)
        return Affine(affine.const, steps) if len(steps) == len(affine.steps) else None

    return with_affine(m, renamed)


def evaluated(m: Meaning, index: np.ndarray, env: Mapping[str, int]) -> Any:
    """The numbers or truths that ``m`` means at ``index``, one array an axis."""
    if isinstance(m, bool | float):
        return np.asarray(m)
    if isinstance(m, Affine):
        return sum((index[a] * s for a, s in m.steps), np.asarray(evaluate(m.const, env)))
    if isinstance(m, AtMostZero):
        return evaluated(m.affine, index, env) <= 0
    if isinstance(m, Not):
        return ~evaluated(m.a, index, env)
    if isinstance(m, Both):
        return evaluated(m.a, index, env) & evaluated(m.b, index, env)
    return np.where(*(evaluated(p, index, env) for p in (m.when, m.yes, m.no)))


def triangle(upper: bool, k: Dim, rank: int) -> Condition:
    """Key at least (at most) query + k, the last two of ``rank`` axes being query and key."""
    across = Affine(0, ((rank - 2, -1), (rank - 1, 1))).plus(Affine(k), -1)
    return AtMostZero(across.scaled(-1) if upper else across)


def attended(m: Number) -> Condition | None:
    """Where something added to scores leaves them as they are; None where it does not either that or block them."""
    if isinstance(m, Case):
        yes, no = attended(m.yes), attended(m.no)
        return None if yes is None or no is None else either(both(m.when, yes), both(negated(m.when), no))
    if isinstance(m, Affine):
        return True if m == Affine(0) else None
    return True if m == 0 else False if m <= BLOCKED else None


@dataclass(frozen=True)
class Reach:
    """Keys up to query + ``offset`` if ``causal``, and of those within ``window`` before and with it."""

    causal: bool = False
    offset: Dim = 0
    window: int | None = None


def reach(c: Condition, rank: int, rows: Dim, keys: Dim, symbols: Mapping[str, Bounds]) -> Reach | None:
    """The attributes that say exactly ``c`` on [.., rows, keys]; None where none do."""
    upper: list[Dim] = []
    lower: list[Dim] = []
    single: list[Dim] = []
    for part in _conjuncts(c):
        if part is True:
            continue
        if not isinstance(part, AtMostZero):
            return None
        steps, const = dict(part.affine.steps), part.affine.const
        row, key = steps.pop(rank - 2, 0), steps.pop(rank - 1, 0)
        if steps:
            return None
        if (row, key) == (-1, 1):
            upper.append(0 - const)
        elif (row, key) == (1, -1):
            lower.append(const)
        elif _always(const, row, key, rows, keys, symbols):
            continue
        elif rows == 1 and (row, key) == (0, -1):
            single.append(const)
        else:
            return None
    causal = bool(upper)
    if single and not upper and not lower:
        upper, lower, causal = [keys - 1], single, False
    elif single:
        return None
    if any(u != upper[0] for u in upper[1:]) or any(u != lower[0] for u in lower[1:]):
        return None
    offset = upper[0] if upper else 0
    window = offset + 1 - lower[0] if lower else None
    if window is not None and (not isinstance(window, int) or window < 1):
        return None
    return Reach(causal, offset, window)


def _conjuncts(c: Condition) -> list[Condition]:
    if isinstance(c, Both):
        return _conjuncts(c.a) + _conjuncts(c.b)
    return [c]


def _always(const: Dim, row: int, key: int, rows: Dim, keys: Dim, symbols: Mapping[str, Bounds]) -> bool:
    """Whether const + row * i + key * j is never above 0."""
    most = const + max(row, 0) * (rows - 1) + max(key, 0) * (keys - 1)
    return bounds(most, symbols)[1] <= 0


def never_empty(r: Reach, rows: Dim, keys: Dim, symbols: Mapping[str, Bounds]) -> bool:
    """Whether every query has a key within reach."""
    if not r.causal and r.window is None:
        return True
    return bounds(r.offset, symbols)[0] >= 0 and bounds(keys - rows - r.offset, symbols)[0] >= 0

"""Masks of one attention: those that are causal or a window as attributes, the others as one operand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from moec.ir.data import ArrayData
from moec.ir.graph import Value
from moec.ir.symbol import Bounds, Dim
from moec.ir.types import F32, DType
from moec.ops.build import Builder
from moec.passes.recover_attention.conditions import (
    Case,
    Condition,
    Meaning,
    Reach,
    attended,
    condition,
    is_condition,
    negated,
    never_empty,
    number,
    reach,
)
from moec.passes.recover_attention.masks import Masks
from moec.passes.recover_attention.numbers import scalar
from moec.passes.recover_attention.scores import NearMiss, Term

UNIFORM = -1e30
"""A fill at most this makes a row in which it is everywhere uniform, as adding it to scores does."""


def said(
    terms: Sequence[Term], masks: Masks, rows: Dim, keys: Dim, symbols: Mapping[str, Bounds], found: Reach
) -> tuple[Reach, list[Term]]:
    """What masks say as attributes besides ``found``, and the masks that stay operands."""
    rest = []
    for term in map(_as_bool, terms):
        own = _reached(term, masks, rows, keys, symbols)
        joined = None if own is None else _joined(found, own)
        if joined is None:
            if term.fill is not None and term.fill > UNIFORM:
                raise NearMiss(
                    f"masked scores become {term.fill}, so a query without keys attends by scores", term.value.producer
                )
            rest.append(term)
        else:
            found = joined
    return found, rest


def _reached(term: Term, masks: Masks, rows: Dim, keys: Dim, symbols: Mapping[str, Bounds]) -> Reach | None:
    meaning = masks.of(term.value)
    if meaning is None:
        return None
    when: Condition | None
    fill = term.fill
    if fill is not None:
        if not is_condition(meaning):
            return None
        when = condition(meaning) if term.keeps else negated(condition(meaning))
    else:
        when = attended(number(meaning))
        fill = _lowest(meaning)
    found = None if when is None else reach(when, term.value.type.rank, rows, keys, symbols)
    if found is None or (fill != -math.inf and not never_empty(found, rows, keys, symbols)):
        return None
    return found


def given(terms: Sequence[Term], rest: Sequence[Term], masks: Masks) -> dict[Value, Meaning]:
    """The masks among ``terms`` that are inputs of the function and were said by attributes, with what they mean."""
    left = [t.value for t in rest]
    found = [v for t in map(_as_bool, terms) for v in masks.parameters(t.value) if t.value not in left]
    return {v: m for v in found if (m := masks.of(v)) is not None}


def _lowest(meaning: Any) -> float:
    """The greatest number that blocks, of an additive mask."""
    if isinstance(meaning, Case):
        return max(_lowest(meaning.yes), _lowest(meaning.no))
    return meaning if isinstance(meaning, float) and meaning < 0 else -math.inf


def _joined(a: Reach, b: Reach) -> Reach | None:
    """Both at once; None where they count from different positions."""
    if a == Reach():
        return b
    if b == Reach():
        return a
    if a.offset != b.offset or (a.window is not None and b.window is not None and a.window != b.window):
        return None
    return Reach(a.causal or b.causal, a.offset, a.window if a.window is not None else b.window)


def _as_bool(term: Term) -> Term:
    """An additive mask of 0 and minus infinity by a bool, as that bool."""
    node = term.value.producer
    if (
        term.fill is not None
        or node is None
        or node.op != "select"
        or term.value.type.dims != node.operand(0).type.dims
    ):
        return term
    yes, no = scalar(node.operand(1)), scalar(node.operand(2))
    if (yes, no) not in ((0.0, -math.inf), (-math.inf, 0.0)):
        return term
    return Term(node.operand(0), term.batch, 1.0, -math.inf, yes == 0.0)


def placed(b: Builder, value: Value, term: Term, lead: tuple[Dim, Dim]) -> Value:
    """The mask so that it broadcasts against [batch, heads, queries, keys]."""
    own = value.type.dims
    batch = (*(1,) * (len(term.batch) + 2 - len(own)), *own[:-2])
    if all(d == 1 for d in batch):
        shape = own[-2:] if len(own) > 4 else own
    elif len(batch) == 2 and term.batch == lead:
        shape = own
    elif batch == term.batch:
        shape = (*lead, *own[-2:])
    elif len(batch) > 2 and term.batch[0] == lead[0] and all(d == 1 for d in batch[1:]):
        shape = (batch[0], 1, *own[-2:])
    else:
        value = b.expand(value, shape=(*term.batch, *own[-2:]))
        shape = (*lead, *own[-2:])
    return value if shape == own else b.reshape(value, shape=shape)


def joined_mask(b: Builder, terms: Sequence[tuple[Term, Value]]) -> Value | None:
    """All masks as one: bool where all are and block by minus infinity, else additive."""
    if not terms:
        return None
    hard = [(t, v) for t, v in terms if t.fill == -math.inf]
    soft = [(t, v) for t, v in terms if t.fill != -math.inf]
    keep: Value | None = None
    for term, value in hard:
        own = value if term.keeps else b.__getattr__("not")(value)
        keep = own if keep is None else b.__getattr__("and")(keep, own)
    added: Value | None = None
    for term, value in soft:
        own = value
        if term.fill is not None:
            yes, no = (0.0, term.fill) if term.keeps else (term.fill, 0.0)
            own = b.select(value, _number(b, yes, F32), _number(b, no, F32))
        elif term.factor != 1.0:
            own = b.mul(value, _number(b, term.factor, value.type.dtype))
        added = own if added is None else b.add(added, own)
    if keep is None or added is None:
        return keep if added is None else added
    made: Value = b.select(keep, added, _number(b, -math.inf, added.type.dtype))
    return made


def _number(b: Builder, x: float, dtype: DType) -> Value:
    made: Value = b.constant(value=ArrayData(np.array(x, dtype.carrier), dtype))
    return made

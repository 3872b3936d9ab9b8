"""From what was found around a softmax to the canonical node: every attribute bound, every operand in place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from moec.ir.graph import Node, Value
from moec.ir.symbol import Bounds, Dim
from moec.ir.types import BOOL
from moec.ops.build import Builder
from moec.passes.recover_attention.conditions import Meaning, Reach, evaluated
from moec.passes.recover_attention.mask_terms import given, joined_mask, placed, said
from moec.passes.recover_attention.masks import Masks
from moec.passes.recover_attention.operands import Operands, find_operands, given_operands
from moec.passes.recover_attention.scores import NearMiss, Term, find_scores, find_weighted
from moec.passes.recover_attention.views import BATCH, Axis, Spot, trail, whole
from moec.passes.region import Array, Draw, Env


@dataclass
class Attention:
    """An attention that was found: ``build`` makes it of what stands for ``inputs``, in the place of ``output``."""

    output: Value
    operands: Operands
    masks: list[Term]
    sinks: Value | None
    attrs: dict[str, Any]
    known: dict[Value, Meaning] = field(default_factory=dict)
    """Inputs of the function whose meaning the attributes say."""

    @property
    def inputs(self) -> dict[Value, Draw]:
        """The values it reads, each with how to draw it at random."""
        o = self.operands
        found: dict[Value, Draw] = {x.spot.value: _normal for x in (o.q, o.k, o.v)}
        for term in self.masks:
            found[term.value] = _bools if term.value.type.dtype is BOOL else _additive
        if self.sinks is not None:
            found[self.sinks] = _normal
        for value, meaning in self.known.items():
            found[value] = _meant(meaning)
        return found

    def build(self, b: Builder, inputs: dict[Value, Value]) -> Value:
        """The ``attention`` node with what it needs before and behind it."""
        o = self.operands
        q, k, v = (x.build(b, inputs[x.spot.value]) for x in (o.q, o.k, o.v))
        lead = (o.batch, o.heads)
        mask = joined_mask(b, [(t, placed(b, inputs[t.value], t, lead)) for t in self.masks])
        sinks = None
        if self.sinks is not None:
            sinks = inputs[self.sinks]
            sinks = sinks if sinks.type.dims == (o.heads,) else b.reshape(sinks, shape=(o.heads,))
        made: Value = b.attention(q, k, v, mask, sinks, **self.attrs)
        return made if made.type.dims == self.output.type.dims else b.reshape(made, shape=self.output.type.dims)


def _normal(rng: np.random.Generator, shape: tuple[int, ...], env: Env) -> Array:
    return rng.standard_normal(shape)


def _bools(rng: np.random.Generator, shape: tuple[int, ...], env: Env) -> Array:
    """Some keys blocked, and for the first query all."""
    keep = np.asarray(rng.random(shape) < 0.7)
    if len(shape) > 1 and shape[-2] > 1:
        keep[..., 0, :] = False
    return keep


def _additive(rng: np.random.Generator, shape: tuple[int, ...], env: Env) -> Array:
    return np.where(_bools(rng, shape, env), rng.standard_normal(shape), -np.inf)


def _meant(meaning: Meaning) -> Draw:
    return lambda rng, shape, env: np.broadcast_to(evaluated(meaning, np.indices(shape), env), shape)


def assembled(softmax: Node, masks: Masks, symbols: Mapping[str, Bounds]) -> Attention:
    """The attention around a softmax. Raises NotAttention or NearMiss."""
    try:
        weighted = find_weighted(softmax)
    except NearMiss:
        find_scores(softmax)  # where these are no scores, that is no news
        raise
    scores = find_scores(softmax)
    if weighted.cut != (scores.sinks is not None):
        raise NearMiss(
            "a last column is cut off the probabilities but none stands beside the scores, or only that", softmax
        )
    between = [n.result.type.dims for n in (*scores.nodes, *weighted.nodes)]
    operands = find_operands(scores.product, weighted.product, [softmax.result.type.dims, *between])
    for operand in (operands.q, operands.k, operands.v):
        if operand.spot.value.type.dtype is not weighted.product.result.type.dtype:
            raise NearMiss(
                f"operands are {operand.spot.value.type.dtype}, the result {weighted.product.result.type.dtype}",
                weighted.product,
            )
    if operands.v.spot.factor != 1.0:
        raise NearMiss(f"values are multiplied by {operands.v.spot.factor}", weighted.product)
    rows, keys = scores.product.result.type.dims[-2:]
    found, rest = said(scores.terms, masks, rows, keys, symbols, Reach())
    scale = scores.scale * operands.q.spot.factor * operands.k.spot.factor
    if not math.isfinite(scale):
        raise NearMiss(f"scores are scaled by {scale}", scores.product)
    attrs: dict[str, Any] = {
        "scale": scale,
        "causal": found.causal,
        "offset": found.offset,
        "window": found.window,
        "softcap": scores.softcap,
        "empty_rows": weighted.empty_rows,
    }
    sinks = None if scores.sinks is None else _per_head(scores.sinks, operands, rows)
    known = given(scores.terms, rest, masks)
    return Attention(weighted.product.result, operands, rest, sinks, attrs, known)


def refined(node: Node, masks: Masks, symbols: Mapping[str, Bounds]) -> Attention | None:
    """An ``attention`` node with a mask that attributes can say, or keys and values repeated over heads, without."""
    mask = node.operands[3] if len(node.operands) > 3 else None
    sinks = node.operands[4] if len(node.operands) > 4 else None
    operands = given_operands(node)
    shared = any(x.spot.value is not v for x, v in zip((operands.k, operands.v), node.operands[1:3], strict=True))
    attrs, terms, rest = dict(node.attrs), [], []
    if mask is not None:
        fill = -math.inf if mask.type.dtype is BOOL else None
        terms = rest = [Term(mask, (operands.batch, operands.heads), 1.0, fill)]
        rows, keys = operands.q.shape[2], operands.k.shape[2]
        before = Reach(attrs["causal"], attrs["offset"], attrs["window"])
        found, rest = said(terms, masks, rows, keys, symbols, before)
        attrs |= {"causal": found.causal, "offset": found.offset, "window": found.window}
    if not shared and (mask is None or (rest and rest[0].value is mask)):
        return None
    return Attention(node.result, operands, rest, sinks, attrs, given(terms, rest, masks))


def _per_head(column: Value, operands: Operands, rows: Dim) -> Value:
    """The value with one number a head that the column [batch, heads, queries, 1] repeats."""
    dims = column.type.dims
    axes: list[Axis] = []
    stride: Dim = 1
    lead = operands.batch * operands.heads
    for d in reversed(dims[:-2]):
        axes.insert(0, whole(BATCH, d, stride))
        stride = stride * d
    if stride != lead:
        raise NearMiss(f"sinks {column.type} do not give each head one", column.producer)
    spots = trail(column, (*axes, whole("row", dims[-2]), ()))
    wanted = [(BATCH, 1, operands.heads)]
    plain = [s.value for s in spots if s.factor == 1.0 and _pieces(s) == wanted]
    if plain:
        return min(plain, key=lambda v: v.type.rank)
    raise NearMiss("sinks are not one number a head", column.producer)


def _pieces(spot: Spot) -> list[tuple[str, Dim, Dim]]:
    return [(p.role, p.stride, p.size) for axis in spot.axes for p in axis]

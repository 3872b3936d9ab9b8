"""A match evaluated before it is committed: the matched nodes and the canonical node on the same random tokens, in
fp64."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from moec.ir.graph import Node, Value
from moec.ir.symbol import Bounds, symbols_of
from moec.ops.build import Builder
from moec.passes.recover_moe.assemble import Block
from moec.passes.recover_moe.static import stand_in
from moec.passes.region import Array, Env, Mismatch, NotEvaluated, check_same, copied, sizes_for

__all__ = ["Mismatch", "check", "region"]

COST_LIMIT = 1 << 28
"""Weights of more elements than this are not evaluated: they would be read from disk."""


def region(
    outputs: list[Value], x: Value, order: Mapping[Node, int], parameters: Set[Value] = frozenset()
) -> list[Node]:
    """The nodes that compute ``outputs`` from ``x``, in execution order. Raises Mismatch where something else is
    needed."""
    found: set[Node] = set()
    stack = list(outputs)
    while stack:
        value = stack.pop()
        if value is x or value in parameters:
            continue
        node = value.producer
        if node is None:
            raise Mismatch(f"the block depends on input '{value.name}' besides its tokens")
        if node not in found:
            found.add(node)
            stack.extend(v for v in node.operands if v is not None)
    return sorted(found, key=order.__getitem__)


def check(
    nodes: list[Node],
    y: Value,
    x: Value,
    block: Block,
    symbols: dict[str, Bounds],
    changed: Mapping[Node, dict[str, Any]],
) -> bool:
    """Raise Mismatch where ``block`` on ``x`` is not what ``nodes``, with attributes ``changed``, compute for ``y``.

    False where it is too large to evaluate.
    """
    if sum(r.data.size for r in block.operands.values() if r.data is not None) > COST_LIMIT:
        return False

    def matched(b: Builder, inputs: dict[Value, Value]) -> Value:
        given = dict(inputs)
        for v in (v for node in nodes for v in node.operands):
            if v is not None and v.producer is None and v not in given:
                given[v] = b.weight(name=stand_in(v), dtype=v.type.dtype, shape=v.type.dims, data=None)
        return copied(nodes, y, changed)(b, given)

    def canonical(b: Builder, inputs: dict[Value, Value]) -> Value:
        made: Value = block.build(b, inputs[x], "w").results[0]
        return made if made.type.dims == y.type.dims else b.reshape(made, shape=y.type.dims)

    differs = "on random tokens it differs from the canonical block"
    try:
        same = check_same(matched, canonical, {x: _tokens}, sizes_for([x]), symbols, differs, DRAWS)
    except NotEvaluated:
        many = _many(x, block)
        if many is None:
            raise
        same = check_same(matched, canonical, {x: _tokens}, many, symbols, differs, DRAWS)
    crowd = _crowd(x, block.attrs["capacity"])
    if crowd is not None:
        same &= check_same(matched, canonical, {x: _crowded}, crowd, symbols, differs, DRAWS)
    return same


def _tokens(rng: np.random.Generator, shape: tuple[int, ...], env: Env) -> Array:
    return rng.standard_normal(shape)


DRAWS = 32
"""Draws of tokens before a match that runs on some only is given up: experts unrolled as a tracer hit them ask that
each of them gets a token."""

KINDS = 3
"""How many different tokens a crowd is of: of KINDS * (capacity + 1) of them, one kind is above the capacity."""


def _many(x: Value, block: Block) -> Env | None:
    """Sizes of symbols with tokens for every expert; None where sizes are numbers."""
    env = sizes_for([x])
    free = [s for d in x.type.dims[:-1] for s in symbols_of(d)]
    if not free:
        return None
    return {**env, free[-1]: 4 * block.operands["router"].shape[0]}


def _crowd(x: Value, capacity: int | None) -> Env | None:
    """Sizes of symbols with enough tokens in a sequence that a capacity binds; None where there is none, or sizes are
    numbers."""
    free = list(symbols_of(x.type.dims[-2])) if x.type.rank > 1 else []
    if capacity is None or not free:
        return None
    return {**sizes_for([x]), free[0]: (KINDS + 1) * (capacity + 1)}


def _crowded(rng: np.random.Generator, shape: tuple[int, ...], env: Env) -> Array:
    """Every fourth token of its own, the others of KINDS, so that some expert gets more than its capacity."""
    x = rng.standard_normal(shape)
    many = np.arange(shape[-2]) % (KINDS + 1) > 0
    kinds = rng.standard_normal((KINDS, shape[-1]))
    x[..., many, :] = kinds[rng.integers(0, KINDS, (*shape[:-2], int(many.sum())))]
    return x

"""A match evaluated before it is committed: the matched nodes and the canonical node on the same random tokens, in
fp64."""

from __future__ import annotations

from collections.abc import Mapping, Set

import numpy as np

from moec.diagnostics import Diagnosis
from moec.eval import error_between, run
from moec.ir.graph import Graph, Module, Node, Value
from moec.ir.symbol import Bounds, evaluate, symbols_of
from moec.ops.build import Builder
from moec.passes.recover_moe.assemble import Block
from moec.passes.recover_moe.static import stand_in

SIZES = (3, 5, 2, 7)
"""Sizes given to the symbols of the tokens' shape, in turn."""

TOLERANCE = 1e-6
"""Largest error allowed, relative to the largest output. In fp64 nothing is rounded, so what is left is the
constants' own f32 rounding."""

COST_LIMIT = 1 << 28
"""Weights of more elements than this are not evaluated: they would be read from disk."""


class Mismatch(Exception):
    """The match and the canonical node disagree, or one of them cannot be evaluated."""


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


def check(nodes: list[Node], y: Value, x: Value, block: Block, symbols: dict[str, Bounds]) -> bool:
    """Raise Mismatch where ``block`` on ``x`` is not what ``nodes`` compute for ``y``. False where it is too large to
    evaluate."""
    if sum(r.data.size for r in block.operands.values() if r.data is not None) > COST_LIMIT:
        return False
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal(_sizes(x))}
    try:
        matched, canonical = _matched(nodes, y, x, symbols), _canonical(y, x, block, symbols)
        weights = _missing_weights(matched, rng)
        before, after = (run(m, feeds, weights, fp64=True)["y"] for m in (matched, canonical))
        _, relative = error_between(after, before)
    except (ValueError, Diagnosis) as error:
        raise Mismatch(f"it cannot be evaluated: {error}") from error
    if not relative <= TOLERANCE:
        raise Mismatch(f"on random tokens it differs from the canonical block by {relative:.2g} of the largest output")
    return True


def _sizes(x: Value) -> tuple[int, ...]:
    free = list(dict.fromkeys(s for d in x.type.dims for s in symbols_of(d)))
    env = {s: SIZES[j % len(SIZES)] for j, s in enumerate(free)}
    return tuple(evaluate(d, env) for d in x.type.dims)


def _module(x: Value, symbols: dict[str, Bounds]) -> tuple[Module, Graph, Value]:
    module = Module()
    module.symbols = dict(symbols)
    graph = module.add(Graph("main"))
    return module, graph, graph.add_input("x", x.type)


def _matched(nodes: list[Node], y: Value, x: Value, symbols: dict[str, Bounds]) -> Module:
    module, graph, tokens = _module(x, symbols)
    copies: dict[Value, Value] = {x: tokens}
    b = Builder(graph)
    for node in nodes:
        for v in node.operands:
            if v is not None and v not in copies and v.producer is None:
                copies[v] = b.weight(name=stand_in(v), dtype=v.type.dtype, shape=v.type.dims, data=None)
        operands = [None if v is None else copies[v] for v in node.operands]
        made = graph.append(node.op, operands, node.attrs, [v.type for v in node.results], node.origin)
        copies.update(zip(node.results, made.results, strict=True))
    graph.set_outputs([copies[y]], ["y"])
    return module


def _canonical(y: Value, x: Value, block: Block, symbols: dict[str, Bounds]) -> Module:
    module, graph, tokens = _module(x, symbols)
    b = Builder(graph)
    made: Value = block.build(b, tokens, "w").results[0]
    if made.type.dims != y.type.dims:
        made = b.reshape(made, shape=y.type.dims)
    graph.set_outputs([made], ["y"])
    return module


def _missing_weights(module: Module, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random contents for weights that have none."""
    return {
        n.attrs["name"]: rng.standard_normal(n.attrs["shape"]) * 0.3
        for n in module.nodes()
        if n.op == "weight" and n.attrs["data"] is None
    }

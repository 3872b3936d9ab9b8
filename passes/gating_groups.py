"""Routers that choose among groups of experts first, gathered into ``gating`` where recovery left them.

The mask of the groups is too long a chain for a rule of two terms; it is read as ``recover-moe`` reads it, and what was
found is evaluated on random logits before it takes the place of the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from moec.ir.graph import Graph, Module, Node, Value, merged_origin
from moec.ir.types import F32, I64
from moec.ops.build import Builder
from moec.passes.base import Context, Result
from moec.passes.recover_moe.chain import NoRouter, uncast
from moec.passes.recover_moe.router import Router, find_router
from moec.passes.recover_moe.static import Statics, weight_parameters
from moec.passes.region import Array, Draw, Env, Mismatch, between, check_same, copied, erase_dead, sizes_for

NAME = "gating-of-groups"

Gating = Callable[[Builder, dict[Value, Value]], tuple[Value, Value]]
"""``(builder, what stands for logits and bias) -> weights and experts``."""


def gather_groups(module: Module, context: Context, result: Result) -> None:
    """Put ``gating`` in the place of each choice among groups whose logits are f32, and of the scores that it gathers;
    a near miss says why not.
    """
    parameters = weight_parameters(module)
    for graph in module.functions.values():
        for topk in [n for n in graph if n.op == "topk"]:
            if topk.graph is not graph or not context.gate.open:
                continue
            try:
                router = find_router(topk, Statics(parameters))
            except NoRouter:
                continue  # recover-moe has told why
            if router is None or router.groups["groups"] == 1 or not router.score:
                continue
            try:
                _gather(router, graph, module, result)
            except _Left as reason:
                result.miss(NAME, str(reason), [topk], graph)
            else:
                context.gate.count()


class _Left(Exception):
    """Why a router stays as it is."""


def _gather(router: Router, graph: Graph, module: Module, result: Result) -> None:
    topk, logits = router.topk, router.logits
    if logits.type.rank != 2 or logits.type.dtype is not F32 or router.scores.type.dtype is not F32:
        raise _Left(f"the scores are {router.scores.type} of logits {logits.type}, not of f32[T, E]")
    values, indices = topk.results
    if values.uses:
        raise _Left("the chosen scores are read with the bias and the mask of the groups in them")
    bias = _bias(router)
    given = {logits: _normal, **({bias: _normal} if bias is not None else {})}
    gathered = [n for n in indices.uses if n.op == "gather_elements" and n.operand(0) is router.scores]
    attrs = {
        "top_k": router.top_k,
        "score": router.score,
        "score_order": "before_topk",
        **router.groups,
        "renormalize": False,
        "renormalize_eps": 0.0,
        "scale": 1.0,
        "score_dtype": F32,
        "weights_dtype": F32,
    }

    def gating(b: Builder, inputs: dict[Value, Value]) -> tuple[Value, Value]:
        added = None if bias is None else inputs[bias]
        if added is not None and added.type.rank != 1:
            added = b.reshape(added, shape=(router.expert_count,))
        weights, experts, _ = b.gating(inputs[logits], added, **attrs)
        return weights, b.cast(experts, to=I64)

    nodes = _proved([indices, *(n.result for n in gathered)], gating, given, module)
    origin = merged_origin([*nodes, topk], NAME)
    weights, experts = gating(Builder(graph, topk, origin), {v: v for v in given})
    for node in gathered:
        node.result.replace_with(weights)
    indices.replace_with(experts)
    for node in (*gathered, topk):
        erase_dead(graph, node)
    result.apply(NAME, origin, graph)


def _bias(router: Router) -> Value | None:
    """What is added to the scores for the choice, as it stands."""
    if router.score_bias is None:
        return None
    adds = [n for n in router.scores.uses if n.op == "add"]
    found = [n.operand(1) for n in adds if uncast(n.operand(0))[0] is uncast(router.scores)[0]]
    if len(found) != 1 or [d for d in found[0].type.dims if d != 1] != [router.expert_count]:
        raise _Left("the scores' bias is no vector over the experts")
    return found[0]


def _proved(outputs: list[Value], gating: Gating, given: Mapping[Value, Draw], module: Module) -> list[Node]:
    """The nodes that ``gating`` stands for. Raises _Left where it chooses or weighs otherwise on random logits."""
    try:
        nodes = between(outputs, list(given))
        env = sizes_for([*given, *(v for n in nodes for v in n.results)])
        for i, old in enumerate(outputs):
            new = partial(_result, gating, 0 if i else 1)
            check_same(copied(nodes, old), new, given, env, module.symbols)
    except Mismatch as reason:
        raise _Left(str(reason)) from reason
    return nodes


def _result(gating: Gating, index: int, b: Builder, inputs: dict[Value, Value]) -> Value:
    return gating(b, inputs)[index]


def _normal(rng: np.random.Generator, shape: tuple[int, ...], env: Env) -> Array:
    return rng.standard_normal(shape)

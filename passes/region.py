"""A part of a graph evaluated by itself: what a recovery matched against what it would put there, on the same inputs.

In fp64 nothing is rounded, so two spellings of one computation agree up to the f32 rounding of their constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from moec.diagnostics import Diagnosis
from moec.eval import error_between, run
from moec.ir.graph import Graph, Module, Node, Value
from moec.ir.symbol import Bounds, Expr, evaluate, symbols_of
from moec.ir.types import I64, TensorType
from moec.ops.build import Builder
from moec.ops.registry import opdef
from moec.passes.effects import EFFECT_TRAITS

Array = np.ndarray
Env = dict[str, int]

SIZES = (3, 5, 2, 7)
"""Sizes given to symbols, in turn."""

TOLERANCE = 1e-6
"""Largest error allowed, relative to the largest output: what is left in fp64 is the constants' own f32 rounding."""

LIMIT = 1 << 24
"""A tensor of more elements than this is not evaluated here; the check of the whole module covers it."""


class Mismatch(Exception):
    """Two computations disagree, or one of them cannot be evaluated."""


def between(outputs: Sequence[Value], inputs: Sequence[Value], limit: int = 4096) -> list[Node]:
    """The nodes that compute ``outputs`` from ``inputs`` and constants, each behind what it reads.

    Raises Mismatch where a graph input is needed besides, or more than ``limit`` nodes.
    """
    found: dict[Node, None] = {}
    given = set(inputs)
    stack: list[tuple[Node, bool]] = [(v.producer, False) for v in outputs if v.producer is not None]
    entered: set[Node] = set()
    while stack:
        node, done = stack.pop()
        if done:
            found[node] = None
            continue
        if node in entered:
            continue
        entered.add(node)
        if len(entered) > limit:
            raise Mismatch(f"more than {limit} nodes compute it")
        stack.append((node, True))
        for v in node.operands:
            if v is not None and v not in given:
                if v.producer is None:
                    raise Mismatch(f"it depends on input '{v.name}' besides its operands")
                stack.append((v.producer, False))
    return list(found)


def sizes_for(values: Sequence[Value]) -> Env:
    """A size for each symbol in the types of ``values``: that of a tensor it is used with, where a tracer left one."""
    free = dict.fromkeys(s for v in values for d in v.type.shape or () for s in symbols_of(d))
    env = {s: SIZES[j % len(SIZES)] for j, s in enumerate(free)}
    for v in values:
        node = v.producer
        if node is None or node.op in ("reshape", "transpose", "slice", "concat", "expand", "tile", "gather"):
            continue
        for operand in node.operands:
            if operand is not None and operand.type.shape is not None and v.type.shape is not None:
                _bake(operand.type.shape, v.type.shape, env)
        if node.op == "matmul":
            _bake_inner(node, env)
    return env


def _bake(shape: Sequence[object], result: Sequence[object], env: Env) -> None:
    """A symbol that stands where the other operand has a number must be that number."""
    for d, r in zip(reversed(shape), reversed(result), strict=False):
        if isinstance(d, Expr) and isinstance(r, int) and str(d) in env:
            env[str(d)] = r


def _bake_inner(node: Node, env: Env) -> None:
    a, b = (node.operand(i).type.dims for i in (0, 1))
    if min(len(a), len(b)) < 2:
        return
    inner = a[-2 if node.attrs["transpose_a"] else -1], b[-1 if node.attrs["transpose_b"] else -2]
    _bake((inner[0],), (inner[1],), env)
    _bake((inner[1],), (inner[0],), env)


Build = Callable[[Builder, dict[Value, Value]], Value]
"""``(builder, what stands for each input) -> the value``."""


def copied(nodes: Sequence[Node], output: Value, changed: Mapping[Node, dict[str, Any]] | None = None) -> Build:
    """A builder of ``output`` that copies ``nodes``, some of them with attributes ``changed``."""

    def build(b: Builder, inputs: dict[Value, Value]) -> Value:
        copies = dict(inputs)
        for node in nodes:
            operands = [None if v is None else copies[v] for v in node.operands]
            if changed is not None and node in changed:
                made = b.node(node.op, *operands, **{**node.attrs, **changed[node]})
            else:
                made = b.graph.append(node.op, operands, node.attrs, [v.type for v in node.results], node.origin)
            copies.update(zip(node.results, made.results, strict=True))
        return copies[output]

    return build


Draw = Callable[[np.random.Generator, tuple[int, ...], Env], Array]
"""``(generator, shape, sizes of symbols) -> contents``."""


def check_same(
    before: Build,
    after: Build,
    inputs: Mapping[Value, Draw],
    env: Env,
    symbols: Mapping[str, Bounds],
    differs: str = "on random inputs it differs from the canonical form",
    draws: int = 1,
) -> bool:
    """Raise Mismatch where the two do not compute the same from ``inputs``, each drawn by its function.

    False where they are too large to evaluate. What runs on some inputs only, as sizes that a tracer baked in ask of
    it, gets up to ``draws`` of them.
    """
    for seed in range(draws - 1):
        try:
            return _check_same(before, after, inputs, env, symbols, differs, seed)
        except NotEvaluated:
            continue
    return _check_same(before, after, inputs, env, symbols, differs, draws - 1)


class NotEvaluated(Mismatch):
    """A computation does not run on these inputs."""


def _check_same(
    before: Build,
    after: Build,
    inputs: Mapping[Value, Draw],
    env: Env,
    symbols: Mapping[str, Bounds],
    differs: str,
    seed: int,
) -> bool:
    rng = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    try:
        for i, (v, draw) in enumerate(inputs.items()):
            shape = tuple(evaluate(d, env) for d in v.type.dims)
            if np.prod(shape, dtype=float) > LIMIT:
                return False
            feeds[f"x{i}"] = draw(rng, shape, env)
        for name, size in env.items():
            feeds[f"size.{name}"] = np.zeros(size, np.int64)
        modules = [_module(build, list(inputs), env, symbols) for build in (before, after)]
        if any(_elements(v, env) > LIMIT for m in modules for n in m.nodes() for v in n.results):
            return False
        weights = _missing_weights(modules, rng)
        with np.errstate(all="ignore"):
            old, new = (run(m, feeds, weights, fp64=True)["y"] for m in modules)
        _, relative = error_between(new, old)
    except (ValueError, KeyError, Diagnosis) as error:
        raise NotEvaluated(f"it cannot be evaluated: {error}") from error
    if not relative <= TOLERANCE:
        raise Mismatch(f"{differs} by {relative:.2g} of the largest output")
    return True


def _missing_weights(modules: Sequence[Module], rng: np.random.Generator) -> dict[str, Array]:
    """Random contents for weights that have none."""
    weights = [n for m in modules for n in m.nodes() if n.op == "weight" and n.attrs["data"] is None]
    return {n.attrs["name"]: rng.standard_normal(n.attrs["shape"]) * 0.3 for n in weights}


def _module(build: Build, inputs: Sequence[Value], env: Env, symbols: Mapping[str, Bounds]) -> Module:
    module = Module()
    module.symbols = dict(symbols)
    graph = module.add(Graph("main"))
    given = {v: graph.add_input(f"x{i}", v.type) for i, v in enumerate(inputs)}
    for name in env:
        graph.add_input(f"size.{name}", TensorType(I64, (_symbol(name),)))
    graph.set_outputs([build(Builder(graph), given)], ["y"])
    return module


def _symbol(name: str) -> Expr:
    return Expr((((name,), 1),))


def _elements(v: Value, env: Env) -> float:
    try:
        return float(np.prod([evaluate(d, env) for d in v.type.shape or ()], dtype=float))
    except KeyError:
        return 0.0


def standing(nodes: Sequence[Node], replaced: Value) -> list[Node]:
    """The nodes among ``nodes`` (in order) that others still need where nothing reads ``replaced`` any more."""
    gone: set[Node] = set()
    for node in reversed(nodes):
        if all(v is replaced or gone.issuperset(v.uses) for v in node.results):
            gone.add(node)
    return [n for n in nodes if n not in gone]


def erase_dead(graph: Graph, start: Node) -> None:
    """Take out ``start`` and what only it needed."""
    stack = [start]
    while stack:
        node = stack.pop()
        effects = opdef(node.op).traits & EFFECT_TRAITS
        if node.graph is graph and not effects and not any(v.uses for v in node.results):
            producers = [v.producer for v in node.operands if v is not None and v.producer is not None]
            graph.erase(node)
            stack.extend(reversed(producers))

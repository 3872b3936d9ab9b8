"""Sizes that data decides, under a balanced load: every expert gets an equal share of the token-slots.

Counts are small integers that a few ops add up, exchange and compare. They are evaluated here on numbers: ``gating``
deals shuffled experts to the tokens, all of them before any again, every rank has the same, and whatever follows from
them is computed by the ops' own references. What the numbers do not tell keeps its upper bound, or what is assumed for
sizes without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from moec.eval.binding import Env, bind, concrete
from moec.ir.graph import Graph, Module, Node, Value
from moec.ir.group import Group
from moec.ir.symbol import DEFAULT_BOUND, evaluate, symbols_of
from moec.ir.types import TensorType
from moec.ops.registry import OPS
from moec.sizes import ASSUMED

Array = np.ndarray
Known = dict[Value, Array | None]

LIMIT = 1 << 20
"""Elements of a tensor that is still evaluated."""


def balanced_sizes(module: Module, sizes: Mapping[str, int]) -> dict[str, int]:
    """``sizes`` with a number for each symbol that data decides in ``main`` or in what it calls."""
    env: Env = dict(sizes)
    known: Known = dict.fromkeys(module.main.inputs)
    _function(module, module.main, known, env)
    for name in module.symbols:
        env.setdefault(name, _most(module, name))
    return env


def _most(module: Module, name: str) -> int:
    """A symbol's upper bound where it has one of its own."""
    high = module.symbols.get(name, DEFAULT_BOUND)[1]
    return high if high < DEFAULT_BOUND[1] else ASSUMED


def _function(module: Module, graph: Graph, known: Known, env: Env) -> list[Array | None]:
    for node in graph:
        operands = [None if v is None else known.get(v) for v in node.operands]
        results = _node(module, node, operands, env)
        known.update(zip(node.results, results, strict=True))
    return [known.get(v) for v in graph.outputs]


def _node(module: Module, node: Node, operands: list[Array | None], env: Env) -> list[Array | None]:
    unknown: list[Array | None] = [None] * len(node.results)
    definition = OPS.get(node.op)
    if definition is None:
        return unknown
    if node.op == "gating":
        return [None, *_choices(node, env)]
    if node.op in ("call", "host"):
        callee = module.functions[node.attrs["fn"]]
        given: Known = dict(zip(callee.inputs, operands, strict=True))
        return _function(module, callee, given, env)
    complete = all(v is None or a is not None for v, a in zip(node.operands, operands, strict=True))
    if definition.binds:
        name = str(node.attrs[definition.binds])
        if complete and operands[0] is not None:
            env.setdefault(name, int(operands[0]))
        else:
            env.setdefault(name, _most(module, name))
        return operands[:1]
    skip = definition.traits & {"call", "control", "declared", "opaque"} or node.op in ("weight", "moe")
    if not complete or skip or not all(_small(v.type, env) for v in node.results):
        return unknown
    try:
        return _evaluated(node, operands, env)
    except ValueError:  # sizes that a tracer baked in do not fit those of a balanced load
        return unknown


def _evaluated(node: Node, operands: list[Array | None], env: Env) -> list[Array | None]:
    """The results by the op's reference; collectives among ranks that all have the same."""
    definition = OPS[node.op]
    attrs: dict[str, Any] = {k: concrete(v, env) for k, v in node.attrs.items()}
    if "collective" in definition.traits:
        group = attrs["group"]
        assert isinstance(group, Group) and isinstance(group.size, int)
        if node.op == "all_to_all_v":
            return [_sent_to_first(operands, group.size)]
        raw: Any = definition.ref(*[[a] * group.size for a in operands], **attrs)[0]
    elif "ranked" in definition.traits:
        raw = definition.ref(*operands, **attrs, rank=0)
    else:
        raw = definition.ref(*operands, **attrs)
    found = list(raw) if isinstance(raw, tuple) else [raw]
    for v, a in zip(node.results, found, strict=True):
        bind(v.type, np.asarray(a).shape, env)
    return [np.asarray(a).astype(v.type.dtype.carrier) for v, a in zip(node.results, found, strict=True)]


def _sent_to_first(operands: list[Array | None], ranks: int) -> Array | None:
    """What the first of ranks that all send the same gets: the same rows from each."""
    x, send = operands[:2]
    return None if x is None or send is None else np.concatenate([x[: int(send[0])]] * ranks)


def _choices(node: Node, env: Env) -> list[Array | None]:
    """Experts [T, K] and counts [E] of a balanced load."""
    (tokens, top_k), (experts,) = node.results[1].type.dims, node.results[2].type.dims
    if any(s not in env for d in (tokens, experts) for s in symbols_of(d)):
        return [None, None]
    shape, among = (evaluate(tokens, env), evaluate(top_k, env)), evaluate(experts, env)
    rng = np.random.default_rng(0)
    deals = [rng.permutation(among) for _ in range(-(-shape[0] * shape[1] // max(1, among)))]
    chosen = np.concatenate([*deals, np.zeros(0)])[: shape[0] * shape[1]].astype(np.int32)
    counts = np.bincount(chosen, minlength=among).astype(np.int32)
    return [chosen.reshape(shape), counts]


def _small(type_: TensorType, env: Env) -> bool:
    """Whether a tensor's size is known and small, and its elements are integers (as counts and indices are)."""
    if type_.shape is None or not (type_.dtype.is_int or type_.dtype.kind == "bool"):
        return False
    if any(s not in env for d in type_.shape for s in symbols_of(d)):
        return False
    return int(np.prod([evaluate(d, env) for d in type_.shape], dtype=float)) <= LIMIT

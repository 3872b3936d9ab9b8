"""The MoE level in primitive ops: the bodies of the functions that export writes.

Each body is a graph of layer IR with the same inputs and outputs as the op and the same roundings: everything in f32,
each result rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from moec.ir.data import ArrayData
from moec.ir.graph import Graph, Node, Value
from moec.ir.symbol import Dim
from moec.ir.types import F32, F64, I32, I64, DType
from moec.ops.build import Builder

Inputs = dict[str, Value]
Body = Callable[[Builder, Inputs, dict[str, Any]], tuple[Value, ...]]
"""``(builder, operands by name, attributes) -> results``."""

BODIES: dict[str, Body] = {}


def body_graph(node: Node, operand_names: list[str]) -> Graph:
    """A function with the operands that ``node`` has as inputs, that computes its results."""
    graph = Graph(node.op)
    inputs = {}
    for name, v in zip(operand_names, node.operands, strict=False):
        if v is not None:
            inputs[name] = graph.add_input(name, v.type)
    results = BODIES[node.op](Builder(graph), inputs, node.attrs)
    graph.set_outputs(results, [f"result{i}" for i in range(len(results))])
    return graph


def _body(name: str) -> Callable[[Body], Body]:
    def register(fn: Body) -> Body:
        BODIES[name] = fn
        return fn

    return register


def cast_to(b: Builder, x: Value, dtype: DType) -> Value:
    """x in ``dtype``; itself where it has it already."""
    return x if x.type.dtype is dtype else b.cast(x, to=dtype)


def widened(b: Builder, x: Value) -> Value:
    """x in the dtype that sums are taken in: f32, or f64 where it has that."""
    return x if x.type.dtype is F64 else cast_to(b, x, F32)


def _number(b: Builder, value: float, like: Value) -> Value:
    dtype = like.type.dtype
    made: Value = b.constant(value=ArrayData(np.array(value, dtype.carrier), dtype))
    return made


def score(b: Builder, x: Value, a: dict[str, Any]) -> Value:
    """The score of logits; rounded where it is held in fewer bits than it is computed in."""
    made: Value = b.softmax(x, axis=1) if a["score"] == "softmax" else b.sigmoid(x)
    narrow = a["score_dtype"].bits < 32
    return cast_to(b, cast_to(b, made, a["score_dtype"]), x.type.dtype) if narrow else made


@_body("gating")
def _gating(b: Builder, x: Inputs, a: dict[str, Any]) -> tuple[Value, ...]:
    logits = widened(b, x["logits"])
    before = a["score_order"] == "before_topk"
    scores = score(b, logits, a) if before else logits
    choice = b.add(scores, widened(b, x["score_bias"])) if "score_bias" in x else scores
    if a["groups"] > 1:
        choice = _group_limited(b, choice, a)
    _, chosen = b.topk(choice, k=a["top_k"], axis=1, largest=True, sorted=True)
    weights = b.gather_elements(scores, chosen, axis=1)
    if not before:
        weights = score(b, weights, a)
    if a["renormalize"]:
        total = b.reduce_sum(weights, axes=(1,), keepdims=True)
        if a["renormalize_eps"]:
            total = b.add(total, _number(b, a["renormalize_eps"], total))
        weights = b.div(weights, total)
    if a["scale"] != 1.0:
        weights = b.mul(weights, _number(b, a["scale"], weights))
    experts = b.cast(chosen, to=I32)
    return cast_to(b, weights, a["weights_dtype"]), experts, b.histogram(experts, bins=logits.type.dims[1])


def _group_limited(b: Builder, choice: Value, a: dict[str, Any]) -> Value:
    tokens, experts = choice.type.dims
    groups = a["groups"]
    split = b.reshape(choice, shape=(tokens, groups, experts // groups))
    if a["group_score"] == "max":
        worth = b.reduce_max(split, axes=(2,), keepdims=False)
    else:
        best, _ = b.topk(split, k=experts // groups if experts // groups == 1 else 2, axis=2, largest=True, sorted=True)
        worth = b.reduce_sum(best, axes=(2,), keepdims=False)
    _, kept = b.topk(worth, k=a["group_top_k"], axis=1, largest=True, sorted=True)
    zeros = b.expand(_number(b, 0, choice), shape=(tokens, groups))
    ones = b.expand(_number(b, 1, choice), shape=kept.type.dims)
    mask = b.scatter_elements(zeros, kept, ones, axis=1, reduction="none")
    allowed = b.gt(b.reshape(mask, shape=(tokens, groups, 1)), _number(b, 0, choice))
    fill = _number(b, 0.0 if a["group_mask"] == "zero" else -np.inf, choice)
    made: Value = b.reshape(b.select(allowed, split, fill), shape=(tokens, experts))
    return made


@_body("permute")
def _permute(b: Builder, x: Inputs, a: dict[str, Any]) -> tuple[Value, ...]:
    tokens, k = x["experts"].type.dims
    slots: Dim = tokens * k
    order = b.argsort(b.cast(b.reshape(x["experts"], shape=(slots,)), to=I64), axis=0, descending=False)
    token = b.div(order, b.dims(values=(k,), scalar=True))
    positions = b.cast(b.reshape(b.argsort(order, axis=0, descending=False), shape=(tokens, k)), to=I32)
    return b.gather(x["x"], token, axis=0), positions


@_body("cross_entropy")
def _cross_entropy(b: Builder, x: Inputs, a: dict[str, Any]) -> tuple[Value, ...]:
    logits, labels = widened(b, x["logits"]), b.cast(x["labels"], to=I64)
    axis, shape = logits.type.rank - 1, labels.type.dims
    zero = b.constant(value=ArrayData(np.array(0, np.int64), I64))
    counted = None
    if a["ignore"] is not None:
        counted = b.ne(labels, b.constant(value=ArrayData(np.array(a["ignore"], np.int64), I64)))
        labels = b.select(counted, labels, zero)
    scores = b.log_softmax(logits, axis=axis)
    picked = b.reshape(b.gather_elements(scores, b.reshape(labels, shape=(*shape, 1)), axis=axis), shape=shape)
    loss = b.neg(picked)
    return (loss if counted is None else b.select(counted, loss, _number(b, 0.0, loss)),)


@_body("swiglu")
def _swiglu(b: Builder, x: Inputs, a: dict[str, Any]) -> tuple[Value, ...]:
    h = widened(b, x["h"])
    return (cast_to(b, _activated(b, h, a), x["h"].type.dtype),)


def _activated(b: Builder, h: Value, a: dict[str, Any]) -> Value:
    axis, width = h.type.rank - 1, h.type.dims[-1]
    gate, up = h, None
    if a["glu"] == "chunked":
        gate = b.slice(h, axis=axis, start=0, stop=width // 2, step=1)
        up = b.slice(h, axis=axis, start=width // 2, stop=width, step=1)
    elif a["glu"] == "interleaved":
        gate = b.slice(h, axis=axis, start=0, stop=width, step=2)
        up = b.slice(h, axis=axis, start=1, stop=width, step=2)
    if a["limit"] is not None:
        limit = _number(b, a["limit"], h)
        gate = b.minimum(gate, limit)
        up = None if up is None else b.minimum(b.maximum(up, _number(b, -a["limit"], h)), limit)
    y = _act(b, gate, a)
    if up is None:
        return y
    if a["up_offset"]:
        up = b.add(up, _number(b, a["up_offset"], h))
    made: Value = b.mul(y, up)
    return made


def _act(b: Builder, gate: Value, a: dict[str, Any]) -> Value:
    kind = a["activation"]
    made: Value
    if kind == "silu" and a["alpha"] != 1.0:
        made = b.mul(gate, b.sigmoid(b.mul(gate, _number(b, a["alpha"], gate))))
    elif kind in ("gelu", "gelu_tanh"):
        made = b.gelu(gate, approximate="tanh" if kind == "gelu_tanh" else "none")
    else:
        made = gate if kind == "identity" else getattr(b, kind)(gate)
    return made


@_body("unpermute")
def _unpermute(b: Builder, x: Inputs, a: dict[str, Any]) -> tuple[Value, ...]:
    rows = widened(b, x["rows"])
    picked = b.gather(rows, x["positions"], axis=0)
    if "weights" in x:
        tokens, k = x["weights"].type.dims
        picked = b.mul(picked, b.reshape(cast_to(b, x["weights"], rows.type.dtype), shape=(tokens, k, 1)))
    return (cast_to(b, b.reduce_sum(picked, axes=(1,), keepdims=False), x["rows"].type.dtype),)


@_body("rms_norm")
def _rms_norm(b: Builder, x: Inputs, a: dict[str, Any]) -> tuple[Value, ...]:
    wide = widened(b, x["x"])
    mean = b.reduce_mean(b.mul(wide, wide), axes=(wide.type.rank - 1,), keepdims=True)
    y = b.div(wide, b.sqrt(b.add(mean, _number(b, a["eps"], mean))))
    if "weight" in x:
        y = b.mul(y, widened(b, x["weight"]))
    return (cast_to(b, y, x["x"].type.dtype),)

"""Attention and rotary embedding as functions of standard operators, in f32, each result rounded once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from moec.frontend.onnx_export.bodies import BODIES, Inputs, cast_to, widened
from moec.ir.data import ArrayData
from moec.ir.graph import Value
from moec.ir.symbol import Dim, exact_div
from moec.ir.types import BOOL, F32, F64, I64
from moec.ops.build import Builder


def number(b: Builder, value: float, like: Value) -> Value:
    """A constant of rank 0 in the dtype of ``like``."""
    dtype = like.type.dtype
    made: Value = b.constant(value=ArrayData(np.array(value, dtype.carrier), dtype))
    return made


def repeated(b: Builder, x: Value, heads: Dim) -> Value:
    """Keys or values [B, M, T, D] with each head repeated for the query heads that share it: [B, N, T, D]."""
    batch, own, length, width = x.type.dims
    if own == heads:
        return x
    group = exact_div(heads, own)
    if group is None:
        raise ValueError(f"{heads} query heads do not share {own} key heads evenly")
    apart = b.reshape(x, shape=(batch, own, 1, length, width))
    repeated = b.expand(apart, shape=(batch, own, group, length, width))
    made: Value = b.reshape(repeated, shape=(batch, heads, length, width))
    return made


def _within_reach(b: Builder, rows: Dim, keys: Dim, a: dict[str, Any]) -> Value | None:
    """Which keys each query may attend by position, bool [S, T]; None for all."""
    if not a["causal"] and a["window"] is None:
        return None
    key = b.reshape(b.iota(size=keys, dtype=I64), shape=(1, keys))
    position = b.reshape(b.iota(size=rows, dtype=I64), shape=(rows, 1))
    if a["offset"] != 0:
        position = b.add(position, b.dims(values=(a["offset"],), scalar=True))
    found: Value | None = b.le(key, position) if a["causal"] else None
    if a["window"] is not None:
        near = b.gt(key, b.sub(position, b.dims(values=(a["window"],), scalar=True)))
        found = near if found is None else b.node("and", found, near).result
    return found


def _of_one_sequence(b: Builder, starts: Value, keys: Dim) -> Value:
    """Which keys stand in the sequence of each query, bool [S, T]: as many sequences have started by either."""
    begun = b.le(b.reshape(cast_to(b, starts, I64), shape=(1, starts.type.dims[0])),
                 b.reshape(b.iota(size=keys, dtype=I64), shape=(keys, 1)))  # fmt: skip
    number = b.reduce_sum(b.cast(begun, to=I64), axes=(1,), keepdims=True)
    found: Value = b.eq(number, b.reshape(number, shape=(1, keys)))
    return found


def attention_scores(b: Builder, x: Inputs, a: dict[str, Any]) -> tuple[Value, Value, bool]:
    """Scores [B, N, S, T] before and after masking, and whether a row may have nothing to attend."""
    q = widened(b, x["q"])
    heads, rows, keys = q.type.dims[1], q.type.dims[2], x["k"].type.dims[2]
    scores = b.matmul(q, repeated(b, widened(b, x["k"]), heads), transpose_a=False, transpose_b=True)
    if "q_rope" in x:
        turned = repeated(b, widened(b, x["k_rope"]), heads)
        scores = b.add(scores, b.matmul(widened(b, x["q_rope"]), turned, transpose_a=False, transpose_b=True))
    scores = b.mul(scores, number(b, a["scale"], scores))
    if a["softcap"] is not None:
        cap = number(b, a["softcap"], scores)
        scores = b.mul(b.tanh(b.div(scores, cap)), cap)
    masked, may, mask = scores, _within_reach(b, rows, keys, a), x.get("mask")
    if "cu_seqlens" in x:
        own = _of_one_sequence(b, x["cu_seqlens"], keys)
        may = own if may is None else b.node("and", may, own).result
    if mask is not None and mask.type.dtype is BOOL:
        may = mask if may is None else b.node("and", may, mask).result
    elif mask is not None:
        masked = b.add(scores, cast_to(b, mask, scores.type.dtype))
    if may is not None:
        masked = b.select(may, masked, number(b, -math.inf, masked))
    return scores, masked, may is not None or mask is not None


def _attended(b: Builder, x: Inputs, a: dict[str, Any]) -> tuple[Value, Value, bool]:
    """The output, the scores that the softmax is taken of, and whether a row may have nothing to attend."""
    batch, heads, rows, _ = x["q"].type.dims
    keys = x["k"].type.dims[2]
    _, scores, may_be_empty = attention_scores(b, x, a)
    sinks = x.get("sinks")
    if sinks is not None:
        column = b.reshape(cast_to(b, sinks, scores.type.dtype), shape=(1, heads, 1, 1))
        scores = b.concat(scores, b.expand(column, shape=(batch, heads, rows, 1)), axis=3)
        may_be_empty = False
    weights = b.softmax(scores, axis=3)
    if sinks is not None:
        weights = b.slice(weights, axis=3, start=0, stop=keys, step=1)
    elif a["empty_rows"] == "zero" and may_be_empty:
        empty = b.eq(b.reduce_max(scores, axes=(3,), keepdims=True), number(b, -math.inf, scores))
        weights = b.select(empty, number(b, 0.0, weights), weights)
    v = repeated(b, widened(b, x["v"]), heads)
    y = cast_to(b, b.matmul(weights, v, transpose_a=False, transpose_b=False), x["q"].type.dtype)
    return y, scores, may_be_empty


def _attention(b: Builder, x: Inputs, a: dict[str, Any]) -> tuple[Value, ...]:
    return _attended(b, x, a)[:1]


def _attention_stats(b: Builder, x: Inputs, a: dict[str, Any]) -> tuple[Value, ...]:
    y, scores, may_be_empty = _attended(b, x, a)
    top = b.reduce_max(scores, axes=(3,), keepdims=True)
    total = b.reduce_sum(b.exp(b.sub(scores, top)), axes=(3,), keepdims=True)
    if may_be_empty:
        total = b.select(b.eq(top, number(b, -math.inf, top)), number(b, 0.0, total), total)
    dtype = F64 if scores.type.dtype is F64 else F32
    return y, *(b.reshape(cast_to(b, z, dtype), shape=y.type.dims[:3]) for z in (top, total))


def _halves(b: Builder, x: Value, width: int, interleaved: bool) -> list[Value]:
    """The first and the second elements of the pairs among the first ``width``."""
    axis, half = x.type.rank - 1, width // 2
    if interleaved:
        return [b.slice(x, axis=axis, start=i, stop=width, step=2) for i in (0, 1)]
    return [b.slice(x, axis=axis, start=i, stop=i + half, step=1) for i in (0, half)]


def _rope(b: Builder, x: Inputs, a: dict[str, Any]) -> tuple[Value, ...]:
    wide, width = widened(b, x["x"]), a["rotary_dim"]
    axis = wide.type.rank - 1
    first, second = _halves(b, wide, width, a["layout"].startswith("interleaved"))
    tables = []
    for name in ("cos", "sin"):
        table = widened(b, x[name])
        tables.append(_halves(b, table, width, False) if table.type.dims[-1] == width else [table, table])
    (cos_a, cos_b), (sin_a, sin_b) = tables
    one = b.sub(b.mul(first, cos_a), b.mul(second, sin_a))
    two = b.add(b.mul(second, cos_b), b.mul(first, sin_b))
    if a["layout"] in ("interleaved", "half_to_interleaved"):
        lead = one.type.dims[:-1]
        apart = [b.reshape(y, shape=(*lead, width // 2, 1)) for y in (one, two)]
        turned = b.reshape(b.concat(*apart, axis=axis + 1), shape=(*lead, width))
    else:
        turned = b.concat(one, two, axis=axis)
    total = wide.type.dims[-1]
    if total != width:
        turned = b.concat(turned, b.slice(wide, axis=axis, start=width, stop=total, step=1), axis=axis)
    return (cast_to(b, turned, x["x"].type.dtype),)


BODIES["attention"] = _attention
BODIES["attention_stats"] = _attention_stats
BODIES["rope"] = _rope

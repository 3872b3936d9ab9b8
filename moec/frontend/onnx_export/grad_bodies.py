"""Losses and gradients of the MoE level as functions of standard operators, in f32, each result rounded once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from moec.frontend.onnx_export.attention_body import attention_scores, number, repeated
from moec.frontend.onnx_export.bodies import BODIES, Inputs, cast_to, score, widened
from moec.ir.data import ArrayData
from moec.ir.graph import Value
from moec.ir.symbol import Dim, exact_div
from moec.ir.types import F32, I64
from moec.ops.build import Builder


def _attention_grad(b: Builder, x: Inputs, a: dict[str, Any]) -> tuple[Value, ...]:
    heads = x["q"].type.dims[1]
    capped, p, delta, ds = _by_scores(b, x, a)
    if a["softcap"] is not None:
        ratio = b.div(capped, number(b, a["softcap"], capped))
        ds = b.mul(ds, b.sub(number(b, 1.0, ratio), b.mul(ratio, ratio)))
    ds = b.mul(ds, number(b, a["scale"], ds))
    dsinks: Value = b.constant(value=ArrayData(np.zeros(0, np.float32), F32))
    if "sinks" in x:
        top, total = _statistics(b, x)
        sink = b.div(b.exp(b.sub(b.reshape(widened(b, x["sinks"]), shape=(1, heads, 1, 1)), top)), total)
        dsinks = b.neg(b.reduce_sum(b.mul(sink, delta), axes=(0, 2, 3), keepdims=False))
        dsinks = cast_to(b, dsinks, x["sinks"].type.dtype)
    dq_rope = b.slice(x["q"], axis=3, start=0, stop=0, step=1)
    dk_rope = b.slice(x["k"], axis=3, start=0, stop=0, step=1)
    if "q_rope" in x:
        dq_rope = _by_keys(b, ds, x["k_rope"], heads, x["q_rope"])
        dk_rope = _by_queries(b, ds, x["q_rope"], x["k_rope"])
    return (
        _by_keys(b, ds, x["k"], heads, x["q"]),
        _by_queries(b, ds, x["q"], x["k"]),
        _by_queries(b, p, x["dy"], x["v"]),
        dsinks,
        dq_rope,
        dk_rope,
    )


def _statistics(b: Builder, x: Inputs) -> tuple[Value, Value]:
    """The saved maximum and sum of each row [B, N, S, 1], in the dtype that scores are computed in."""
    dtype, dims = widened(b, x["q"]).type.dtype, (*x["q"].type.dims[:3], 1)
    top, total = (b.reshape(cast_to(b, x[n], dtype), shape=dims) for n in ("softmax_max", "softmax_sum"))
    return top, total


def _by_scores(b: Builder, x: Inputs, a: dict[str, Any]) -> tuple[Value, Value, Value, Value]:
    """Scores before masking, the softmax, the sum of dy * y, the gradient by the masked scores."""
    v, dy = widened(b, x["v"]), widened(b, x["dy"])
    heads = x["q"].type.dims[1]
    capped, scores, _ = attention_scores(b, x, a)
    top, total = _statistics(b, x)
    if a["empty_rows"] == "zero":
        empty = b.eq(top, number(b, -math.inf, top))
        top, total = b.select(empty, number(b, 0.0, top), top), b.select(empty, number(b, 1.0, total), total)
    p = b.div(b.exp(b.sub(scores, top)), total)
    delta = b.reduce_sum(b.mul(dy, widened(b, x["y"])), axes=(3,), keepdims=True)
    ds = b.mul(p, b.sub(b.matmul(dy, repeated(b, v, heads), transpose_b=True), delta))
    return capped, p, delta, ds


def _attention_mask_grad(b: Builder, x: Inputs, a: dict[str, Any]) -> tuple[Value, ...]:
    ds, mask = _by_scores(b, x, a)[3], x["mask"].type
    lead = 4 - mask.rank
    axes = (*range(lead), *(i for i, d in enumerate(mask.dims, lead) if d == 1))
    if axes:
        ds = b.reduce_sum(ds, axes=axes, keepdims=True)
    return (cast_to(b, b.reshape(ds, shape=mask.dims), mask.dtype),)


def _by_keys(b: Builder, ds: Value, keys: Value, heads: Dim, like: Value) -> Value:
    """ds keys, in the dtype of ``like``."""
    return cast_to(b, b.matmul(ds, repeated(b, widened(b, keys), heads)), like.type.dtype)


def _by_queries(b: Builder, ds: Value, queries: Value, like: Value) -> Value:
    """ds^T queries summed over the query heads that share a head of ``like``, in its dtype."""
    product = b.matmul(ds, widened(b, queries), transpose_a=True)
    batch, heads, length, width = product.type.dims
    own = like.type.dims[1]
    if own != heads:
        group = exact_div(heads, own)
        if group is None:
            raise ValueError(f"{heads} query heads do not share {own} heads evenly")
        apart = b.reshape(product, shape=(batch, own, group, length, width))
        product = b.reduce_sum(apart, axes=(2,), keepdims=False)
    return cast_to(b, product, like.type.dtype)


def _swiglu_grad(b: Builder, x: Inputs, a: dict[str, Any]) -> tuple[Value, ...]:
    h, dy = widened(b, x["h"]), widened(b, x["dy"])
    axis, width = h.type.rank - 1, h.type.dims[-1]
    if a["glu"] == "none":
        gate, up = h, None
    elif a["glu"] == "chunked":
        gate, up = (b.slice(h, axis=axis, start=s, stop=e, step=1) for s, e in ((0, width // 2), (width // 2, width)))
    else:
        gate, up = (b.slice(h, axis=axis, start=i, stop=width, step=2) for i in (0, 1))
    clamped, inside = gate, None
    if a["limit"] is not None:
        limit = number(b, a["limit"], h)
        clamped, inside = b.minimum(gate, limit), b.le(gate, limit)
    value, slope = _value_and_slope(b, clamped, a)
    dgate, dup = b.mul(dy, slope), b.mul(dy, value)
    if up is not None:
        held = up
        if a["limit"] is not None:
            held = b.minimum(b.maximum(up, b.neg(limit)), limit)
            dup = b.select(b.le(b.abs(up), limit), dup, number(b, 0.0, dup))
        dgate = b.mul(dgate, b.add(held, number(b, a["up_offset"], held)))
    if inside is not None:
        dgate = b.select(inside, dgate, number(b, 0.0, dgate))
    if up is None:
        dh = dgate
    elif a["glu"] == "chunked":
        dh = b.concat(dgate, dup, axis=axis)
    else:
        lead, inner = gate.type.dims[:-1], gate.type.dims[-1]
        apart = [b.reshape(g, shape=(*lead, inner, 1)) for g in (dgate, dup)]
        dh = b.reshape(b.concat(*apart, axis=axis + 1), shape=h.type.dims)
    return (cast_to(b, dh, x["h"].type.dtype),)


def _value_and_slope(b: Builder, g: Value, a: dict[str, Any]) -> tuple[Value, Value]:
    """The activation of g and its derivative there."""
    kind, one, half = a["activation"], number(b, 1.0, g), number(b, 0.5, g)
    if kind == "identity":
        return g, one
    if kind == "relu":
        return b.relu(g), b.select(b.gt(g, number(b, 0.0, g)), one, number(b, 0.0, g))
    if kind == "sigmoid":
        s = b.sigmoid(g)
        return s, b.mul(s, b.sub(one, s))
    if kind == "silu":
        scaled = b.mul(g, number(b, a["alpha"], g))
        s = b.sigmoid(scaled)
        return b.mul(g, s), b.mul(s, b.add(one, b.mul(scaled, b.sub(one, s))))
    square = b.mul(g, g)
    if kind == "gelu":
        density = b.mul(b.exp(b.mul(square, number(b, -0.5, g))), number(b, 1 / math.sqrt(2 * math.pi), g))
        phi = b.mul(half, b.add(one, b.erf(b.mul(g, number(b, math.sqrt(0.5), g)))))
        return b.mul(g, phi), b.add(phi, b.mul(g, density))
    root, cubic = number(b, math.sqrt(2 / math.pi), g), number(b, 0.044715, g)
    t = b.tanh(b.mul(root, b.add(g, b.mul(cubic, b.mul(square, g)))))
    inner = b.mul(root, b.add(one, b.mul(number(b, 3 * 0.044715, g), square)))
    bend = b.mul(b.mul(g, b.sub(one, b.mul(t, t))), inner)
    return b.mul(half, b.mul(g, b.add(one, t))), b.mul(half, b.add(b.add(one, t), bend))


def _gating_grad(b: Builder, x: Inputs, a: dict[str, Any]) -> tuple[Value, ...]:
    logits, experts = widened(b, x["logits"]), cast_to(b, x["experts"], I64)
    dw = b.mul(cast_to(b, x["dweights"], logits.type.dtype), number(b, a["scale"], logits))
    before = a["score_order"] == "before_topk"
    z = logits if before else b.gather_elements(logits, experts, axis=1)
    scores = b.softmax(z, axis=1) if a["score"] == "softmax" else b.sigmoid(z)
    if a["renormalize"]:
        held = score(b, z, a)
        w = b.gather_elements(held, experts, axis=1) if before else held
        total = b.reduce_sum(w, axes=(1,), keepdims=True)
        total = b.add(total, number(b, a["renormalize_eps"], total))
        mean = b.reduce_sum(b.mul(dw, b.div(w, total)), axes=(1,), keepdims=True)
        dw = b.div(b.sub(dw, mean), total)
    if before:
        dlogits = _score_grad(b, scores, _spread(b, dw, experts, logits), a["score"])
    else:
        dlogits = _spread(b, _score_grad(b, scores, dw, a["score"]), experts, logits)
    return (cast_to(b, dlogits, x["logits"].type.dtype),)


def _score_grad(b: Builder, scores: Value, ds: Value, kind: str) -> Value:
    made: Value
    if kind == "sigmoid":
        made = b.mul(b.mul(ds, scores), b.sub(number(b, 1.0, scores), scores))
    else:
        made = b.mul(scores, b.sub(ds, b.reduce_sum(b.mul(ds, scores), axes=(1,), keepdims=True)))
    return made


def _spread(b: Builder, chosen: Value, experts: Value, like: Value) -> Value:
    zeros = b.expand(number(b, 0.0, like), shape=like.type.dims)
    made: Value = b.scatter_elements(zeros, experts, chosen, axis=1, reduction="none")
    return made


def _unpermute_grad(b: Builder, x: Inputs, a: dict[str, Any]) -> tuple[Value, ...]:
    dy, positions = widened(b, x["dy"]), cast_to(b, x["positions"], I64)
    tokens, k = positions.type.dims
    slots: Dim = tokens * k
    order = b.argsort(b.reshape(positions, shape=(slots,)), axis=0, descending=False)
    drows = b.gather(dy, b.div(order, b.dims(values=(k,), scalar=True)), axis=0)
    weights = x.get("weights")
    if weights is not None:
        flat = b.reshape(cast_to(b, weights, dy.type.dtype), shape=(slots,))
        drows = b.mul(drows, b.reshape(b.gather(flat, order, axis=0), shape=(slots, 1)))
    dtype = F32 if weights is None else weights.type.dtype
    if "rows" not in x:
        nothing = b.slice(dy, axis=1, start=0, stop=0, step=1)
        return cast_to(b, drows, x["dy"].type.dtype), cast_to(b, nothing, dtype)
    picked = b.gather(cast_to(b, x["rows"], dy.type.dtype), positions, axis=0)
    products = b.mul(picked, b.reshape(dy, shape=(tokens, 1, dy.type.dims[1])))
    dweights = b.reduce_sum(products, axes=(2,), keepdims=False)
    return cast_to(b, drows, x["dy"].type.dtype), cast_to(b, dweights, dtype)


def _balance_loss(b: Builder, x: Inputs, a: dict[str, Any]) -> tuple[Value, ...]:
    logits = widened(b, x["logits"])
    tokens, experts = logits.type.dims
    scores = b.softmax(logits, axis=1) if a["score"] == "softmax" else b.sigmoid(logits)
    shares = b.div(scores, b.reduce_sum(scores, axes=(1,), keepdims=True))
    some = b.maximum(b.dims(values=(tokens,), scalar=True), b.constant(value=ArrayData(np.array(1, np.int64), I64)))
    mean = b.div(b.reduce_sum(shares, axes=(0,), keepdims=False), cast_to(b, some, shares.type.dtype))
    size = b.cast(b.dims(values=(experts,), scalar=True), to=mean.type.dtype)
    if "counts" in x:
        counts = cast_to(b, x["counts"], mean.type.dtype)
        given = b.maximum(b.reduce_sum(counts, axes=(0,), keepdims=False), number(b, 1.0, counts))
        each = b.mul(b.div(counts, given), mean)
    else:
        apart = b.sub(mean, b.reciprocal(size))
        each = b.mul(apart, apart)
    total = b.reduce_sum(each, axes=(0,), keepdims=False)
    return (cast_to(b, b.mul(total, b.mul(size, number(b, a["coefficient"], size))), F32),)


BODIES["balance_loss"] = _balance_loss
BODIES["attention_grad"] = _attention_grad
BODIES["attention_mask_grad"] = _attention_mask_grad
BODIES["swiglu_grad"] = _swiglu_grad
BODIES["gating_grad"] = _gating_grad
BODIES["unpermute_grad"] = _unpermute_grad

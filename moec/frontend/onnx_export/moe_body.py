"""The whole block as a function: routing, sorting rows by expert, two grouped products around the activation, and the
weighted sum back.
"""

from __future__ import annotations

from typing import Any

from moec.frontend.onnx_export.bodies import BODIES, Inputs, cast_to, widened
from moec.ir.graph import Value
from moec.ir.symbol import Dim, Shape
from moec.ir.types import I32, I64
from moec.ops.build import Builder
from moec.ops.registry import opdef


def _attrs_of(op: str, attrs: dict[str, Any]) -> dict[str, Any]:
    """The attributes among ``attrs`` that ``op`` declares."""
    return {k: v for k, v in attrs.items() if k in opdef(op).attrs}


def _moe(b: Builder, x: Inputs, a: dict[str, Any]) -> tuple[Value, ...]:
    shape = x["x"].type.dims
    count: Dim = 1
    for d in shape[:-1]:
        count = count * d
    w = {name: widened(b, v) for name, v in x.items()}
    tokens = b.reshape(w["x"], shape=(count, shape[-1]))
    logits = b.matmul(tokens, w["router"], transpose_b=True)
    if "router_bias" in w:
        logits = b.add(logits, w["router_bias"])
    logits = cast_to(b, logits, a["router_dtype"])
    weights, experts, counts = b.gating(logits, w.get("score_bias"), **_attrs_of("gating", a))
    rows, positions = b.permute(tokens, experts, counts)
    weights = widened(b, weights)
    slot_weights = _sorted_weights(b, weights, positions) if a["weights_on"] != "output" else None
    if a["weights_on"] == "input":
        rows = b.mul(rows, slot_weights)
    h = b.grouped_matmul(rows, w["gate_up"], counts, w.get("gate_up_bias"))
    h = b.swiglu(h, **_attrs_of("swiglu", a))
    if a["weights_on"] == "activation":
        h = b.mul(h, slot_weights)
    rows = b.grouped_matmul(h, w["down"], counts, w.get("down_bias"))
    applied = weights if a["weights_on"] == "output" else None
    if a["capacity"] is not None:
        kept = cast_to(b, _kept(b, experts, counts.type.dims[0], a, shape), weights.type.dtype)
        applied = kept if applied is None else b.mul(applied, kept)
    y = b.unpermute(rows, positions, applied)
    if a["dropped"] == "input":
        lost = b.reduce_sum(b.sub(weights, b.mul(weights, kept)), axes=(1,), keepdims=True)
        y = b.add(y, b.mul(tokens, lost))
    if "shared_gate_up" in w:
        y = b.add(y, _shared(b, tokens, w, a))
    return cast_to(b, b.reshape(y, shape=shape), x["x"].type.dtype), logits


def _shared(b: Builder, tokens: Value, w: Inputs, a: dict[str, Any]) -> Value:
    h = b.swiglu(b.matmul(tokens, w["shared_gate_up"], transpose_b=True), **_attrs_of("swiglu", a))
    s: Value = b.matmul(h, w["shared_down"], transpose_b=True)
    if "shared_gate" in w:
        s = b.mul(s, b.sigmoid(b.matmul(tokens, w["shared_gate"], transpose_b=True)))
    return s


def _kept(b: Builder, experts: Value, number: Dim, a: dict[str, Any], shape: Shape) -> Value:
    """Whether a slot is among the first ``capacity`` of its expert in the tokens, or its sequence, that it is of."""
    tokens, k = experts.type.dims
    length = tokens if a["capacity_scope"] == "tokens" else shape[-2]
    groups: Dim = 1
    for d in () if a["capacity_scope"] == "tokens" else shape[:-2]:
        groups = groups * d
    flat = b.cast(b.reshape(experts, shape=(groups, length * k)), to=I64)
    chosen = b.one_hot(flat, depth=number, axis=2, dtype=I64)
    rank = b.mul(chosen, b.cumsum(chosen, axis=1, exclusive=False, reverse=False))
    rank = b.reshape(b.reduce_sum(rank, axes=(2,), keepdims=False), shape=(tokens, k))
    made: Value = b.cast(b.le(rank, b.dims(values=(a["capacity"],), scalar=True)), to=I32)
    return made


def _sorted_weights(b: Builder, weights: Value, positions: Value) -> Value:
    """The weight of each row in sorted order, as a column."""
    tokens, k = weights.type.dims
    slots: Dim = tokens * k
    order = b.argsort(b.cast(b.reshape(positions, shape=(slots,)), to=I64), axis=0, descending=False)
    flat = b.gather(b.reshape(weights, shape=(slots,)), order, axis=0)
    made: Value = b.reshape(flat, shape=(slots, 1))
    return made


BODIES["moe"] = _moe

"""The canonical ``moe`` as the steps that kernels exist for.

::

    router matmul -> gating -> permute -> grouped_matmul -> swiglu -> grouped_matmul -> unpermute (+ shared expert)

Leading dimensions are flattened to tokens and restored. The router's product is taken in ``router_dtype`` where x and
the router have that dtype, else in f32 and rounded to it. Routing weights that apply to the input or the activation are
sorted by the same permutation and multiplied in f32. With a capacity all slots are computed, so that every size is
known before the run and nothing is read back, and those above it are left out of the sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ir.data import ArrayData
from moec.ir.graph import Graph, Module, Node, Value, merged_origin
from moec.ir.symbol import Dim
from moec.ir.types import F32, I32, DType
from moec.ops.build import Builder
from moec.ops.registry import opdef
from moec.passes.base import Context, Pass, Result, register_pass


@register_pass
class ExpandMoE(Pass):
    """Expand each ``moe`` into router, gating, permute, grouped products, activation, unpermute and the shared
    expert.
    """

    name = "expand-moe"

    def run(self, module: Module, context: Context) -> Result:
        found = [(graph, n) for graph in module.functions.values() for n in graph if n.op == "moe"]
        result = Result()
        for graph, node in found:
            origin = merged_origin([node], self.name)
            expand(node, graph, Builder(graph, node, origin))
            result.apply(self.name, origin, graph)
        return result


def expand(node: Node, graph: Graph, b: Builder) -> None:
    """Put the steps in the place of one ``moe`` node."""
    operands = dict(opdef("moe").pairs(node.operands))
    given = {operand.name: value for operand, value in operands.items()}
    x = node.operand(0)
    hidden = x.type.dims[-1]
    flat: tuple[Dim, ...] = (node.results[1].type.dims[0], hidden)
    tokens = x if x.type.dims == flat else b.reshape(x, shape=flat)
    logits = _router(b, tokens, given, node.attrs["router_dtype"])
    y = _experts(b, tokens, logits, given, node.attrs, x.type.dims[:-1])
    shared = _shared(b, tokens, given, node.attrs)
    if shared is not None:
        y = b.add(y, shared)
    if y.type.dims != x.type.dims:
        y = b.reshape(y, shape=x.type.dims)
    for old, new in zip(node.results, (y, logits), strict=True):
        new.name = old.name
        old.replace_with(new)
    graph.erase(node)


def _cast(b: Builder, value: Value, to: DType) -> Value:
    if value.type.dtype is to:
        return value
    made: Value = b.cast(value, to=to)
    return made


def _router(b: Builder, tokens: Value, given: dict[str, Any], dtype: DType) -> Value:
    """Logits [T, E] in the router's dtype."""
    router, bias = given["router"], given["router_bias"]
    computed = dtype if dtype is tokens.type.dtype and dtype is router.type.dtype else F32
    logits = b.matmul(_cast(b, tokens, computed), _cast(b, router, computed), transpose_b=True)
    if bias is not None:
        logits = b.add(logits, _cast(b, bias, computed))
    return _cast(b, logits, dtype)


def _experts(
    b: Builder, tokens: Value, logits: Value, given: dict[str, Any], attrs: dict[str, Any], lead: tuple[Dim, ...]
) -> Value:
    """The routed experts' sum [T, H] of tokens that stand as ``lead`` in x."""
    routing = {name: attrs[name] for name in opdef("gating").attrs}
    weights, experts, counts = b.gating(logits, given["score_bias"], **routing)
    rows, positions = b.permute(tokens, experts, counts)
    where = attrs["weights_on"]
    if where == "input":
        rows = _weighted(b, rows, _row_weights(b, weights, experts, counts))
    h = b.grouped_matmul(rows, given["gate_up"], counts, given["gate_up_bias"])
    h = _activation(b, h, attrs)
    if where == "activation":
        h = _weighted(b, h, _row_weights(b, weights, experts, counts))
    h = b.grouped_matmul(h, given["down"], counts, given["down_bias"])
    applied = weights if where == "output" else None
    if attrs["capacity"] is None:
        made: Value = b.unpermute(h, positions, applied)
        return made
    kept = _kept(b, experts, counts, positions, attrs, lead)
    return _limited(b, h, tokens, positions, weights, kept, attrs)


def _limited(
    b: Builder, h: Value, tokens: Value, positions: Value, weights: Value, kept: Value, attrs: dict[str, Any]
) -> Value:
    """The sum over the slots that are ``kept`` (bool [T, K]) and what the attributes say of the others."""
    zero = _number(b, 0.0, weights.type.dtype)
    applied = weights if attrs["weights_on"] == "output" else _number(b, 1.0, weights.type.dtype)
    y: Value = b.unpermute(h, positions, b.select(kept, applied, zero))
    if attrs["dropped"] == "input":
        lost = b.reduce_sum(_cast(b, b.select(kept, zero, weights), F32), axes=(1,), keepdims=True)
        y = b.add(y, _weighted(b, tokens, lost))
    return y


def _kept(
    b: Builder, experts: Value, counts: Value, positions: Value, attrs: dict[str, Any], lead: tuple[Dim, ...]
) -> Value:
    """Whether each slot is among the first ``capacity`` of its expert, bool [T, K].

    Of all tokens, or of the only sequence: a slot's place among its expert's rows is its place among the sorted rows
    less the rows of lower experts, counted in f32 (exact up to 2^24 slots). Of a sequence: the running count of its
    expert along the sequence.
    """
    tokens, k = experts.type.dims
    numbers = _numbers(b, counts.type.dims[0])
    batch: Dim = 1
    for d in lead[:-1]:
        batch = batch * d
    if attrs["capacity_scope"] == "tokens" or batch == 1:
        slots = (tokens * k, 1)
        lower = b.cast(b.lt(numbers, b.reshape(experts, shape=slots)), to=F32)
        start = b.reduce_sum(b.mul(lower, _cast(b, counts, F32)), axes=(1,), keepdims=True)
        rank = b.sub(_cast(b, b.reshape(positions, shape=slots), F32), start)
        kept = b.lt(rank, _size(b, attrs["capacity"], F32))
    else:
        chosen = b.cast(b.eq(b.reshape(experts, shape=(batch, lead[-1] * k, 1)), numbers), to=I32)
        so_far = b.mul(chosen, b.cumsum(chosen, axis=1, exclusive=False, reverse=False))
        kept = b.le(b.reduce_sum(so_far, axes=(2,), keepdims=True), _size(b, attrs["capacity"], I32))
    made: Value = b.reshape(kept, shape=(tokens, k))
    return made


def _numbers(b: Builder, count: Dim) -> Value:
    """0, 1, 2, ... as a row."""
    made: Value
    if isinstance(count, int):
        made = b.constant(value=ArrayData(np.arange(count, dtype=np.int32).reshape(1, count), I32))
    else:
        made = b.reshape(b.iota(size=count, dtype=I32), shape=(1, count))
    return made


def _number(b: Builder, value: float, dtype: DType) -> Value:
    made: Value = b.constant(value=ArrayData(np.array(value, dtype.carrier), dtype))
    return made


def _size(b: Builder, value: Dim, dtype: DType) -> Value:
    """A size as a number."""
    if isinstance(value, int):
        return _number(b, value, dtype)
    return _cast(b, b.dims(values=(value,), scalar=True), dtype)


def _activation(b: Builder, h: Value, attrs: dict[str, Any]) -> Value:
    made: Value = b.swiglu(h, **{name: attrs[name] for name in opdef("swiglu").attrs})
    return made


def _weighted(b: Builder, rows: Value, weights: Value) -> Value:
    """Sorted rows times their routing weights, multiplied in f32 and rounded once."""
    made: Value = b.mul(_cast(b, rows, F32), weights)
    return _cast(b, made, rows.type.dtype)


def _row_weights(b: Builder, weights: Value, experts: Value, counts: Value) -> Value:
    """The routing weights in the order of the sorted rows, f32[T*K, 1]: each slot is permuted as a token of its own."""
    tokens, k = weights.type.dims
    slots = (tokens * k, 1)
    rows, _ = b.permute(b.reshape(weights, shape=slots), b.reshape(experts, shape=slots), counts)
    return _cast(b, rows, F32)


def _shared(b: Builder, tokens: Value, given: dict[str, Any], attrs: dict[str, Any]) -> Value | None:
    """The shared expert's output [T, H], gated if it has a gate; None without a shared expert."""
    up, down, gate = given["shared_gate_up"], given["shared_down"], given["shared_gate"]
    if up is None or down is None:
        return None
    h = _activation(b, b.matmul(tokens, up, transpose_b=True), attrs)
    y: Value = b.matmul(h, down, transpose_b=True)
    if gate is not None:
        y = b.mul(y, b.sigmoid(b.matmul(tokens, gate, transpose_b=True)))
    return y

"""The canonical ``moe`` as the steps that kernels exist for.

::

    router matmul -> gating -> permute -> grouped_matmul -> swiglu -> grouped_matmul -> unpermute (+ shared expert)

Leading dimensions are flattened to tokens and restored. The router's product is taken in ``router_dtype`` where x and
the router have that dtype, else in f32 and rounded to it. Routing weights that apply to the input or the activation are
sorted by the same permutation and multiplied in f32. A block with a capacity is refused: no kernel drops tokens yet.
"""

from __future__ import annotations

from typing import Any

from moec.diagnostics import Problem, Refusal, Where
from moec.ir.graph import Graph, Module, Node, Value, merged_origin
from moec.ir.symbol import Dim
from moec.ir.types import F32, DType
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
        refused = [_capacity(node) for _, node in found if node.attrs["capacity"] is not None]
        if refused:
            raise Refusal(refused)
        result = Result()
        for graph, node in found:
            origin = merged_origin([node], self.name)
            expand(node, graph, Builder(graph, node, origin))
            result.apply(self.name, origin, graph)
        return result


def _capacity(node: Node) -> Problem:
    return Problem(
        f"a block with capacity {node.attrs['capacity']} cannot be expanded: no kernel drops the tokens above it",
        Where(node=str(node.origin)),
        "give capacity = none (dropless), or leave out expand-moe",
    )


def expand(node: Node, graph: Graph, b: Builder) -> None:
    """Put the steps in the place of one ``moe`` node."""
    operands = dict(opdef("moe").pairs(node.operands))
    given = {operand.name: value for operand, value in operands.items()}
    x = node.operand(0)
    hidden = x.type.dims[-1]
    flat: tuple[Dim, ...] = (node.results[1].type.dims[0], hidden)
    tokens = x if x.type.dims == flat else b.reshape(x, shape=flat)
    logits = _router(b, tokens, given, node.attrs["router_dtype"])
    y = _experts(b, tokens, logits, given, node.attrs)
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


def _experts(b: Builder, tokens: Value, logits: Value, given: dict[str, Any], attrs: dict[str, Any]) -> Value:
    """The routed experts' sum [T, H]."""
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
    made: Value = b.unpermute(h, positions, weights if where == "output" else None)
    return made


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

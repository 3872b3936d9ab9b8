"""Which number format each part of an MoE layer computes in, put down in one place.

The router computes in f32, since nearly equal scores must not change places; the experts, where nearly all products
are, in 16 bit with f32 accumulation; what ranks exchange travels in 16 bit, apart from what is named. Casts are put in
where the parts meet. What the experts add up for weights' gradients stays as wide as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from moec.diagnostics import Problem, Refusal, Usage
from moec.eval.errors import error_between
from moec.ir.graph import Graph, Module, Node, Value, merged_origin
from moec.ir.types import DTYPES, F32, DType
from moec.ops.build import Builder, make_node
from moec.ops.registry import opdef
from moec.passes.base import Context, Pass, Result, register_pass
from moec.passes.region import erase_dead

ROUTER, EXPERTS, COLLECTIVES = "router-in-f32", "experts-narrow", "collective-narrow"
"""What the applications are called."""

EXPERT_OPERANDS: Mapping[str, tuple[int, ...]] = {
    "permute": (0,),
    "grouped_matmul": (0, 1, 3),
    "unpermute": (0,),
    "grouped_matmul_dw": (0, 1),
    "unpermute_grad": (0, 1),
    "segment_sum": (0,),
}
"""The ops of the experts' side and which of their operands are narrowed."""

ACTIVATIONS: Mapping[str, tuple[int, ...]] = {"swiglu": (0,), "swiglu_grad": (0, 1)}
"""Ops that belong to the experts where they stand between ops that do."""


@register_pass
class PrecisionPolicy(Pass):
    """Compute the router in f32 and the experts in 16 bit, and exchange 16-bit numbers; casts are put in between.

    ``experts``: bf16, f16, or none for as they are. ``router``: f32 or none. ``collectives``: bf16, f16 or none;
    ``keep`` names those that stay as they are, joined by "+": an op, or a part of where it came from. Where the
    compilation checks on witness inputs, the largest absolute and relative error of each output that this makes is
    reported. Blocks must be expanded.
    """

    name = "precision-policy"
    experts: str = "bf16"
    router: str = "f32"
    collectives: str = "bf16"
    keep: str = ""

    def run(self, module: Module, context: Context) -> Result:
        narrow = _narrow("experts", self.experts)
        sent = _narrow("collectives", self.collectives)
        if self.router not in ("f32", "none"):
            raise Usage(f"a router computes in f32 or as it is (none), not in '{self.router}'")
        kept = [part for part in (p.strip() for p in self.keep.split("+")) if part]
        _require_known(kept, module)
        if any(n.op == "moe" for n in module.nodes()):
            raise Refusal("blocks must be expanded before their parts get number formats", todo="run expand-moe first")
        before = None if context.witness is None else dict(context.witness(module))
        result = Result()
        for graph in module.functions.values():
            if self.router == "f32":
                _widen_routers(graph, result)
            if narrow is not None:
                _narrow_experts(graph, narrow, result)
            if sent is not None:
                _narrow_collectives(graph, sent, kept, result)
            for node in [n for n in graph if n.op == "cast"]:
                erase_dead(graph, node)
        if before is not None and context.witness is not None and result.changed:
            after = context.witness(module)
            result.errors = {name: error_between(after[name], old) for name, old in before.items() if _is_float(old)}
        return result


def _is_float(array: np.ndarray) -> bool:
    return array.dtype.kind not in "iub"


def _narrow(option: str, name: str) -> DType | None:
    if name not in ("bf16", "f16", "none"):
        raise Usage(f"option '{option}' of precision-policy is bf16, f16 or none, not '{name}'")
    return None if name == "none" else DTYPES[name]


def _require_known(kept: Sequence[str], module: Module) -> None:
    """Refusal with every name in ``kept`` that no collective has."""
    found = [n for n in module.nodes() if _is_collective(n)]
    unknown = [name for name in kept if not any(_called(n, name) for n in found)]
    if unknown:
        ops = ", ".join(dict.fromkeys(n.op for n in found)) or "there are none"
        raise Refusal([Problem(f"no collective is called '{name}'", todo=f"collectives: {ops}") for name in unknown])


def _is_collective(node: Node) -> bool:
    return "collective" in opdef(node.op).traits


def _called(node: Node, name: str) -> bool:
    """Whether ``name`` is the node's op, or a part of a result's name or of where it came from."""
    return node.op == name or name in str(node.origin) or any(name in v.name for v in node.results)


def _cast(value: Value, dtype: DType, before: Node, graph: Graph, rule: str) -> Value:
    """``value`` in ``dtype``, before a node: what it is a widened copy of where that has the dtype."""
    if value.type.dtype is dtype:
        return value
    source = value.producer.operand(0) if value.producer is not None and value.producer.op == "cast" else None
    if source is not None and source.type.dtype is dtype and dtype.bits < value.type.dtype.bits:
        return source
    origin = merged_origin([before], rule)
    made: Value = Builder(graph, before, origin).cast(value, to=dtype)
    return made


def _rebuild(node: Node, operands: Sequence[Value | None], attrs: dict[str, Any], graph: Graph, rule: str) -> Node:
    """The node on other operands, in its place; results that get another dtype are cast back for who reads them."""
    new = graph.insert(make_node(node.op, list(operands), attrs, merged_origin([node], rule)), node)
    for old, made in zip(node.results, new.results, strict=True):
        made.name = old.name
        if old.uses:
            old.replace_with(_cast(made, old.type.dtype, node, graph, rule))
    graph.erase(node)
    return new


def _wide_float(value: Value | None, narrow: DType) -> bool:
    """Whether a value is a float of more bits than ``narrow``."""
    return value is not None and value.type.dtype.is_float and value.type.dtype.bits > narrow.bits


def _narrow_experts(graph: Graph, narrow: DType, result: Result) -> None:
    """Give the experts' ops narrow operands, in order, so that each reads what the one before made."""
    for node in list(graph):
        places = EXPERT_OPERANDS.get(node.op)
        if places is None and node.op in ACTIVATIONS and _between_experts(node):
            places = ACTIVATIONS[node.op]
        if places is None:
            continue
        given = [*node.operands]
        if not any(i < len(given) and _wide_float(given[i], narrow) for i in places):
            continue
        for i in places:
            v = given[i] if i < len(given) else None
            if v is not None and _wide_float(v, narrow):
                given[i] = _cast(v, narrow, node, graph, EXPERTS)
        attrs = dict(node.attrs)
        if "to" in attrs and attrs["to"] is None:
            attrs["to"] = node.result.type.dtype
        made = _rebuild(node, given, attrs, graph, EXPERTS)
        result.apply(EXPERTS, made.origin, graph)


def _between_experts(node: Node) -> bool:
    """Whether an activation reads what an expert's product made, or its result is read by one."""
    makers = [_behind_casts(v).producer for v in node.operands if v is not None]
    readers = [u for v in node.results for u in v.uses]
    readers += [w for u in readers if u.op in ("cast", "save") for w in u.result.uses]
    return any(n is not None and n.op in EXPERT_OPERANDS for n in [*makers, *readers])


def _behind_casts(value: Value) -> Value:
    while value.producer is not None and value.producer.op in ("cast", "save"):
        value = value.producer.operand(0)
    return value


def _widen_routers(graph: Graph, result: Result) -> None:
    """Let each router's product keep its f32 sums, and choose by them."""
    for node in list(graph):
        if node.op != "gating" or node.operand(0).type.dtype is F32:
            continue
        logits = node.operand(0)
        wide = _widened(logits, node, graph)
        given = [wide, *(None if v is None else _cast(v, F32, node, graph, ROUTER) for v in node.operands[1:])]
        made = _rebuild(node, given, {**node.attrs, "score_dtype": F32}, graph, ROUTER)
        if logits.producer is not None:
            erase_dead(graph, logits.producer)
        result.apply(ROUTER, made.origin, graph)


def _widened(logits: Value, before: Node, graph: Graph) -> Value:
    """Logits of 16-bit products in f32, not rounded on the way; rounded logits in f32 where something else made
    them.
    """
    node = logits.producer
    if node is not None and node.op == "matmul" and node.attrs["to"] in (None, node.result.type.dtype):
        b = Builder(graph, before, merged_origin([node], ROUTER))
        made: Value = b.matmul(*node.operands, **{**node.attrs, "to": F32})
        return made
    if node is not None and node.op == "reshape":
        inner = _widened(node.operand(0), before, graph)
        view: Value = Builder(graph, before, merged_origin([node], ROUTER)).reshape(inner, **node.attrs)
        return view
    if node is not None and node.op == "add":
        parts = [_widened(v, before, graph) for v in node.operands if v is not None]
        total: Value = Builder(graph, before, merged_origin([node], ROUTER)).add(*parts)
        return total
    return _cast(logits, F32, before, graph, ROUTER)


def _narrow_collectives(graph: Graph, narrow: DType, kept: Sequence[str], result: Result) -> None:
    """Send narrow numbers, and cast back what arrives."""
    for node in list(graph):
        if not _is_collective(node) or not any(_wide_float(v, narrow) for v in node.operands):
            continue
        if any(_called(node, name) for name in kept):
            result.miss(COLLECTIVES, f"kept in {node.operand(0).type.dtype}", [node], graph)
            continue
        given = [
            _cast(v, narrow, node, graph, COLLECTIVES) if v is not None and _wide_float(v, narrow) else v
            for v in node.operands
        ]
        made = _rebuild(node, given, dict(node.attrs), graph, COLLECTIVES)
        result.apply(COLLECTIVES, made.origin, graph)

"""Tensors that are filled slice by slice, ``k[..., :n] = a; k[..., n:] = b``, as the concatenation that they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from moec.ir.graph import Graph, Module, Node, Value, merged_origin
from moec.ir.symbol import Dim
from moec.ops.build import Builder
from moec.passes.base import Result
from moec.passes.recover_attention.conditions import Affine
from moec.passes.recover_attention.masks import Masks
from moec.passes.recover_attention.numbers import contents
from moec.passes.region import Array, Env, Mismatch, between, check_same, copied, erase_dead, sizes_for

RULE = "filled-by-slices"
SLICES = 8
"""More slices than this are not put together."""


@dataclass(frozen=True)
class Assignment:
    """``value`` written to ``start`` and what follows along ``axis``, over the whole of the other axes."""

    axis: int
    start: int
    value: Value

    @property
    def stop(self) -> Dim:
        return self.value.type.dims[self.axis] + self.start


def join_slices(module: Module, masks: Masks, result: Result) -> None:
    """Put a ``concat`` in the place of each tensor that slice assignments fill."""
    for graph in module.functions.values():
        for node in [n for n in graph if n.op == "scatter_nd"]:
            if node.graph is graph:
                _join(node, graph, module, masks, result)


def _join(node: Node, graph: Graph, module: Module, masks: Masks, result: Result) -> None:
    found: list[Assignment] = []
    at: Node | None = node
    parts: list[Assignment] | None = None
    while at is not None and at.op == "scatter_nd" and len(found) < SLICES and parts is None:
        own = _assignment(at, masks)
        if own is None or any(own.axis != a.axis for a in found):
            return
        found.append(own)
        below = at.operand(0)
        parts = _in_order(found, node.result.type.dims[own.axis])
        at = below.producer
    if parts is None:
        return

    def build(b: Builder, inputs: dict[Value, Value]) -> Value:
        return _concatenated(b, parts, inputs)

    inputs = dict.fromkeys([below, *(p.value for p in parts)], _normal)
    try:
        nodes = between([node.result], list(inputs))
        env = sizes_for([*inputs, *(v for n in nodes for v in n.results)])
        check_same(copied(nodes, node.result), build, inputs, env, module.symbols)
    except Mismatch as reason:
        result.miss(RULE, str(reason), [node], graph)
        return
    origin = merged_origin([n for n in nodes if n.op == "scatter_nd"], RULE)
    node.result.replace_with(build(Builder(graph, node, origin), {v: v for v in inputs}))
    erase_dead(graph, node)
    result.apply(RULE, origin, graph)


def _normal(rng: np.random.Generator, shape: tuple[int, ...], env: Env) -> Array:
    return rng.standard_normal(shape)


def _in_order(found: list[Assignment], size: Dim) -> list[Assignment] | None:
    """The assignments side by side, where they fill ``size`` without a gap and without meeting twice."""
    ordered = sorted(found, key=lambda a: a.start)
    at: Dim = 0
    for a in ordered:
        if a.start != at:
            return None
        at = a.stop
    return ordered if at == size else None


def _concatenated(b: Builder, parts: list[Assignment], inputs: dict[Value, Value]) -> Value:
    """Side by side; transposes that all parts have are done once, behind."""
    values = [inputs[p.value] for p in parts]
    axis = parts[0].axis
    if len(values) == 1:
        return values[0]
    moves = [v.producer for v in values]
    perms = {n.attrs["perm"] for n in moves if n is not None and n.op == "transpose"}
    if len(perms) == 1 and all(n is not None and n.op == "transpose" for n in moves):
        (perm,) = perms
        whole: Value = b.concat(*(n.operand(0) for n in moves if n is not None), axis=perm[axis])
        moved: Value = b.transpose(whole, perm=perm)
        return moved
    made: Value = b.concat(*values, axis=axis)
    return made


def _assignment(node: Node, masks: Masks) -> Assignment | None:
    """What the node writes, if that is one slice in order."""
    data, indices, updates = (node.operand(i) for i in range(3))
    if node.attrs["reduction"] != "none" or not data.type.dtype.is_float or updates.type.rank != data.type.rank:
        return None
    depth = indices.type.dims[-1]
    if not isinstance(depth, int) or indices.type.dims[:-1] != updates.type.dims[:depth]:
        return None
    starts = _starts(indices, depth, masks)
    if starts is None:
        return None
    sizes = zip(updates.type.dims, data.type.dims, strict=True)
    short = [i for i, (a, b) in enumerate(sizes) if a != b]
    short = short or [0]
    if len(short) != 1 or short[0] >= depth or any(s and i != short[0] for i, s in enumerate(starts)):
        return None
    return Assignment(short[0], starts[short[0]], updates)


def _starts(indices: Value, depth: int, masks: Masks) -> list[int] | None:
    """For each axis where its index starts, if it then goes up by one along that axis and along no other."""
    data = contents(indices)
    if data is not None:
        array = data.numpy()
        counted = np.moveaxis(np.indices(array.shape[:-1]), 0, -1)[..., :depth]
        first = array.reshape(-1, depth)[0] if array.size else np.zeros(depth, np.int64)
        return [int(i) for i in first] if np.array_equal(array, counted + first) else None
    node = indices.producer
    columns = [indices]
    if node is not None and node.op == "concat" and node.attrs["axis"] == indices.type.rank - 1:
        columns = [v for v in node.operands if v is not None]
    if len(columns) != depth:
        return None
    found: list[int] = []
    for axis, column in enumerate(columns):
        meaning = masks.of(column)
        at = Affine(int(meaning)) if isinstance(meaning, float) else meaning
        steps = ((axis, 1),) if indices.type.dims[axis] != 1 else ()
        if not isinstance(at, Affine) or at.steps != steps or not isinstance(at.const, int):
            return None
        found.append(at.const)
    return found

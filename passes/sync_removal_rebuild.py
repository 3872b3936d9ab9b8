"""What dispatchers are rebuilt from: a found one's inputs and expert steps, index arithmetic, sums by token."""

from __future__ import annotations

import numpy as np

from moec.ir.data import ArrayData
from moec.ir.graph import Graph, Module, Value, merged_origin
from moec.ir.symbol import Dim, bounds, sym
from moec.ir.types import F32, I32, I64
from moec.ops.build import Builder
from moec.ops.calls import names_in
from moec.ops.registry import OPS
from moec.passes.sync_removal_dispatch import Dispatcher
from moec.passes.sync_removal_reads import sweep


class Rebuilt:
    """Builds another dispatcher in front of the old one's sum."""

    def __init__(self, module: Module, graph: Graph, found: Dispatcher, rewrite: str):
        self.module, self.found = module, found
        self.b = Builder(graph, found.unpermute, merged_origin([found.out, found.home], rewrite))
        self.x, self.experts = found.permute.operand(0), found.permute.operand(1)
        self.weights = found.unpermute.operand(2)
        self.tokens, self.chosen = self.experts.type.dims
        self.slots = self.tokens * self.chosen
        self.group, self.ranks, self.local = found.group, found.group.size, found.local

    def number(self, value: Dim, like: Value) -> Value:
        """A scalar of ``like``'s dtype."""
        made: Value
        if isinstance(value, int):
            made = self.b.constant(value=ArrayData(np.array(value, like.type.dtype.carrier)))
            return made
        made = self.b.dims(values=(value,), scalar=True)
        return made if like.type.dtype is I64 else self.b.cast(made, to=like.type.dtype)

    def chosen_of(self, where: Value, indices: Value, otherwise: Value) -> Value:
        """``indices`` where ``where`` holds, else the number ``otherwise``. By arithmetic: the device's select takes no
        integers.
        """
        b = self.b
        taken = b.mul(b.sub(indices, otherwise), b.cast(where, to=I32))
        made: Value = b.add(taken, otherwise)
        return made

    def symbol(self, at_most: Dim, base: str) -> str:
        """A name like ``base`` for a size of 0 to ``at_most``."""
        name, number = base, 0
        while name in self.module.symbols:
            number += 1
            name = f"{base}{number}"
        self.module.symbols[name] = 0, bounds(at_most, self.module.symbols)[1]
        return name

    def size(self, count: Value, at_most: Dim, base: str = "arrived") -> Dim:
        """A size that the device knows to be ``count``, under a name like ``base``."""
        name = self.symbol(at_most, base)
        self.b.device_size(count, value=sym(name), at_most=at_most)
        return sym(name)

    def experts_of(self, rows: Value, counts: Value) -> Value:
        """The old dispatcher's expert steps on other rows."""
        made: dict[Value, Value] = {self.found.sort.result: rows, self.found.groups: counts}
        last = rows
        for node in self.found.experts_nodes:
            operands = [None if v is None else made.get(v, v) for v in node.operands]
            if node.op == "fused":
                (last,) = self.b.call(self.module, node.attrs["fn"], *operands, op="fused")
            else:
                last = self.b.node(node.op, *operands, **node.attrs).results[0]
            made[node.results[0]] = last
        return last

    def within(self, here: Value, count: Dim) -> Value:
        """Whether an expert's number lies from 0 to ``count`` - 1."""
        low = self.b.ge(here, self.number(0, here))
        made: Value = self.b.node("and", low, self.b.lt(here, self.number(count, here))).result
        return made

    def summed(self, rows: Value, taken: Value, mine: Value, weights: Value | None) -> Value:
        """What rows add to each token: ``taken`` are their slots (token * K + choice), ``mine`` [tokens, K] says which
        slots have a row. Weighted and summed in f32, in the order of the slots, and rounded once.
        """
        b = self.b
        home = b.argsort(taken, axis=0, descending=False)
        by_token = b.gather(rows, home, axis=0)
        if weights is not None:
            flat = b.reshape(weights, shape=(weights.type.numel(),))
            weight = b.reshape(b.gather(flat, b.gather(taken, home, axis=0), axis=0), shape=(taken.type.dims[0], 1))
            by_token = b.mul(as_f32(b, by_token), as_f32(b, weight))
        each = b.reduce_sum(b.cast(mine, to=I32), axes=(1,), keepdims=False)
        made: Value = b.segment_sum(by_token, each, to=rows.type.dtype)
        return made


def as_f32(b: Builder, value: Value) -> Value:
    """``value`` in f32."""
    made: Value = value if value.type.dtype is F32 else b.cast(value, to=F32)
    return made


def drop_dead(module: Module, graph: Graph) -> None:
    """Take out collectives and sizes that nothing needs any more: they are dead on every rank alike."""
    changed = True
    while changed:
        changed = False
        sweep(module, graph)
        named = _named(module)
        for node in reversed(graph):
            dead = not any(v.uses for v in node.results)
            if node.op == "bind_size" and named.get(str(node.attrs["value"]), 0) <= 1:
                module.symbols.pop(str(node.attrs["value"]), None)
            elif not (dead and "collective" in OPS[node.op].traits):
                continue
            if dead:
                graph.erase(node)
                changed = True


def _named(module: Module) -> dict[str, int]:
    """How many nodes name each symbol in attributes or results."""
    found: dict[str, int] = {}
    for graph in module.functions.values():
        for node in graph:
            for s in dict.fromkeys(names_in(node, module)):
                found[s] = found.get(s, 0) + 1
    return found

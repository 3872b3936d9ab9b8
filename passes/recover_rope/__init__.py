"""Rotary position embedding in whatever spelling an exporter gave it, recovered as one ``rope`` node.

From each tensor that is taken apart along its last axis, what every element of later tensors is made of is followed
through slices, concatenations, transposes, products with tables and sums (``lanes``). Where all elements are pairs
rotated by tables, or such pairs beside elements that are kept, the layout, the width and the tables are read off
(``rotation``, ``tables``). The whole is evaluated on random tensors before it takes the place of the nodes; a rotation
of another kind is left as it is and reported.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from moec.ir.graph import Graph, Module, Node, Value, merged_origin
from moec.ops.build import Builder
from moec.passes.base import Context, Pass, Result, register_pass
from moec.passes.recover_rope.lanes import WIDTH, Base, Follower, trailing_size
from moec.passes.recover_rope.plan import Plan, planned
from moec.passes.recover_rope.rotation import NoRotation, looks_rotated
from moec.passes.region import Array, Env, Mismatch, between, check_same, copied, erase_dead, sizes_for


@register_pass
class RecoverRope(Pass):
    """Recover rotary position embeddings as one ``rope`` node each, whatever way they are spelt."""

    name = "recover-rope"

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        for graph in module.functions.values():
            order = {n: i for i, n in enumerate(graph)}
            attempt = _Attempt(module, graph, order, result)
            tried: set[Value] = set()
            for node in list(graph):
                if node.graph is graph and node.operands and node.operands[0] not in tried:
                    for base in _bases(node):
                        tried.add(base.value)
                        attempt.recover(base)
            attempt.report()
        return result


def _bases(node: Node) -> list[Base]:
    """The tensor that ``node`` takes apart along its last axis, with the axes whose elements may be pairs."""
    if node.op not in ("slice", "gather", "reshape", "transpose"):
        return []
    value = node.operand(0)
    if value.type.shape is None or value.type.rank < 2 or not value.type.dtype.is_float:
        return []
    last, width = value.type.rank - 1, value.type.dims[-1]
    trails = [1]
    if node.op == "reshape":
        after = node.result.type.dims
        if len(after) != value.type.rank + 1 or after[:last] != value.type.dims[:last] or 2 not in after[last:]:
            return []
    elif node.op == "transpose":
        swapped = (*range(last - 1), last, last - 1)
        if node.attrs["perm"] != swapped or 2 not in value.type.dims[-2:]:
            return []
        trails = [2]
    elif node.attrs["axis"] != last:
        return []
    elif width == 2 and last > 1 and value.producer is not None and value.producer.op == "reshape":
        trails = [2, 1]
    sizes = [(t, trailing_size(value, t)) for t in trails]
    return [Base(value, t) for t, size in sizes if size is not None and 2 <= size <= WIDTH]


class _Attempt:
    """The recovery of the rotations of one function."""

    def __init__(self, module: Module, graph: Graph, order: Mapping[Node, int], result: Result):
        self.module, self.graph, self.order, self.result = module, graph, order, result
        self.missed: dict[Node, str] = {}

    def recover(self, base: Base) -> None:
        """Put ``rope`` in the place of rotations of ``base``, the largest first."""
        follower = Follower(base, self.order)
        follower.run()
        for value, lanes in reversed(list(follower.lanes.items())):
            node = value.producer
            if value is base.value or node is None or node.graph is not self.graph or not value.uses:
                continue
            try:
                plan = planned(follower, value)
                if plan is not None:
                    self.commit(plan, value)
            except (NoRotation, Mismatch) as reason:
                if isinstance(reason, Mismatch) or looks_rotated(list(lanes.ravel())):
                    self.missed.setdefault(node, str(reason))

    def commit(self, plan: Plan, value: Value) -> None:
        """Replace ``value``. Raises Mismatch where the plan does not compute the same."""
        nodes = between([value], plan.inputs)
        env = sizes_for([*plan.inputs, *(v for n in nodes for v in n.results)])
        check_same(copied(nodes, value), plan.build, dict.fromkeys(plan.inputs, _normal), env, self.module.symbols)
        assert value.producer is not None
        origin = merged_origin(nodes, RecoverRope.name)
        new = plan.build(Builder(self.graph, value.producer, origin), {v: v for v in plan.inputs})
        new.name = value.name
        value.replace_with(new)
        erase_dead(self.graph, value.producer)
        self.result.apply(RecoverRope.name, origin, self.graph)

    def report(self) -> None:
        """Tell of what looked like a rotation and is still there."""
        for node, reason in self.missed.items():
            if node.graph is self.graph:
                self.result.miss(RecoverRope.name, reason, [node], self.graph)


def _normal(rng: np.random.Generator, shape: tuple[int, ...], env: Env) -> Array:
    return rng.standard_normal(shape)

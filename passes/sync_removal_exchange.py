"""Dispatchers that need no lists on the host, in the place of one that exchanges rows by ``all_to_all_v``.

``all-gather``: every rank gets every token with its choices, takes the slots of its own experts, and the ranks' partial
sums come home by ``reduce_scatter``. All ranks must hold equally many tokens. Sums are reassociated: each rank adds up
the slots that it computed, then the ranks' sums are added.

``capacity``: every rank sends every other one a block of C = ceil(factor * T*K / P) rows, whose first ones are in use;
more rows than that for one rank are refused. Results are bit-identical where nothing is refused.

How many rows came is known to the device alone (``device_size``).
"""

from __future__ import annotations

from fractions import Fraction

from moec.ir.graph import Graph, Module, Value, merged_origin
from moec.ir.symbol import Dim, ceildiv
from moec.ir.types import I32
from moec.passes.base import Result
from moec.passes.sync_removal_dispatch import Dispatcher, find
from moec.passes.sync_removal_rebuild import Rebuilt, drop_dead
from moec.rewrite.term import NoMatch

NAME = "sync-removal"


def exchange_otherwise(module: Module, graph: Graph, how: str, factor: float, result: Result) -> None:
    """Replace each dispatcher of a function by one that needs no lists; ``how`` is all-gather or capacity."""
    for out in [n for n in graph if n.op == "all_to_all_v"]:
        if out.graph is not graph:
            continue
        try:
            found = find(module, graph, out)
        except NoMatch as reason:
            result.miss(NAME, f"no dispatcher that counts={how} knows: {reason}", [out], graph)
            continue
        made = [found.out, found.home, found.permute, found.unpermute]
        build = Exchange(module, graph, found, Fraction(factor).limit_denominator(1000))
        y = build.all_gather() if how == "all-gather" else build.capacity()
        y.name = found.unpermute.result.name
        found.unpermute.result.replace_with(y)
        result.apply(f"dispatcher by {how}", merged_origin(made, NAME), graph)
        drop_dead(module, graph)


class Exchange(Rebuilt):
    """Builds a dispatcher without lists."""

    def __init__(self, module: Module, graph: Graph, found: Dispatcher, factor: Fraction):
        super().__init__(module, graph, found, NAME)
        self.factor = factor

    def rank(self) -> Value:
        made: Value = self.b.cast(self.b.group_rank(group=self.group), to=I32)
        return made

    def scaled(self, dim: Dim) -> Dim:
        """ceil(factor * dim)."""
        return ceildiv(dim * self.factor.numerator, self.factor.denominator)

    def all_gather(self) -> Value:
        b = self.b
        everything = b.all_gather(self.x, group=self.group, axis=0)
        experts = b.all_gather(self.experts, group=self.group, axis=0)
        weights = b.all_gather(self.weights, group=self.group, axis=0)
        first = b.mul(self.rank(), self.number(self.local, experts))
        here = b.sub(experts, first)
        mine = self.within(here, self.local)
        slot = self.chosen_of(mine, here, self.number(self.local, experts))
        flat = b.reshape(slot, shape=(self.ranks * self.slots,))
        counts = b.slice(b.histogram(flat, bins=self.local + 1), axis=0, start=0, stop=self.local, step=1)
        total = b.reduce_sum(counts, axes=(0,), keepdims=False)
        room = self.ranks * self.slots if self.factor < 1 else self.scaled(self.slots)
        arrived = self.size(total, room)
        order = b.argsort(flat, axis=0, descending=False)
        taken = b.slice(order, axis=0, start=0, stop=arrived, step=1)
        rows = b.gather(everything, b.div(taken, self.number(self.chosen, taken)), axis=0)
        y = self.summed(self.experts_of(rows, counts), taken, mine, weights)
        made: Value = b.reduce_scatter(y, group=self.group, axis=0, reduction="sum")
        return made

    def capacity(self) -> Value:
        b, counts = self.b, self.found.gating.results[2]
        block = ceildiv(self.scaled(self.slots), self.ranks)
        by_expert = b.reshape(counts, shape=(1, self.ranks, self.local))
        send = b.reduce_sum(by_expert, axes=(0, 2), keepdims=False)
        self.size(b.reduce_max(send, axes=(0,), keepdims=False), block, "most")
        everyone = b.all_gather(by_expert, group=self.group, axis=0)
        mine = b.gather(everyone, b.group_rank(group=self.group), axis=1)
        # out: slot (r, j) holds the j-th row for rank r, or some row that nobody looks at
        ends = b.cumsum(send, axis=0, exclusive=False, reverse=False)
        starts = b.sub(ends, send)
        j = b.reshape(b.iota(size=block, dtype=I32), shape=(1, block))
        used = b.lt(j, b.reshape(send, shape=(self.ranks, 1)))
        there = b.add(j, b.reshape(starts, shape=(self.ranks, 1)))
        source = self.chosen_of(used, there, self.number(0, send))
        flat = (self.ranks * block,)
        sent = b.gather(self.found.permute.results[0], b.reshape(source, shape=flat), axis=0)
        came = b.all_to_all(sent, group=self.group, split_axis=0, concat_axis=0)
        # here: slot (p, j) is for the expert whose rows of rank p end behind j
        last = b.reshape(b.cumsum(mine, axis=1, exclusive=False, reverse=False), shape=(self.ranks, 1, self.local))
        passed = b.cast(b.ge(b.reshape(j, shape=(1, block, 1)), last), to=I32)
        expert = b.reshape(b.reduce_sum(passed, axes=(2,), keepdims=False), shape=flat)
        order = b.argsort(expert, axis=0, descending=False)
        groups = b.reduce_sum(mine, axes=(0,), keepdims=False)
        arrived = self.size(b.reduce_sum(groups, axes=(0,), keepdims=False), self.ranks * block)
        taken = b.slice(order, axis=0, start=0, stop=arrived, step=1)
        done = self.experts_of(b.gather(came, taken, axis=0), groups)
        slots = b.scatter_nd(came, b.reshape(taken, shape=(arrived, 1)), done, reduction="none")
        back = b.all_to_all(slots, group=self.group, split_axis=0, concat_axis=0)
        # home: row i, the (i - starts[r])-th of rank r, stands in slot (r, i - starts[r])
        i = b.reshape(b.iota(size=self.slots, dtype=I32), shape=(self.slots, 1))
        over = b.cast(b.ge(i, b.reshape(ends, shape=(1, self.ranks))), to=I32)
        to = b.reduce_sum(over, axes=(1,), keepdims=False)
        within = b.sub(b.reshape(i, shape=(self.slots,)), b.gather(starts, to, axis=0))
        place = b.add(b.mul(to, self.number(block, to)), within)
        made: Value = b.unpermute(b.gather(back, place, axis=0), self.found.permute.results[1], self.weights)
        return made

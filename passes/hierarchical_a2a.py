"""Expert-parallel exchanges in two tiers, so that fewer copies of a token cross from node to node.

A flat all-to-all sends a token once for each of its K experts, K (N-1)/N times to other nodes where N nodes hold equal
shares of the experts. Instead:

- ``all-gather``: ranks of the same place in each node gather their tokens (N-1 copies each); every rank sorts those
  slots whose experts its node holds, and ranks of a node exchange rows;
- ``dedup``: a token goes once to each node that holds one of its experts, by an exchange of rows between ranks of the
  same place; then as above. At most N-1 copies, on average (N-1) (1 - C(E - E/N, K) / C(E, K)) where all choices are
  equally likely.

On the way back each node's sum of a token's rows crosses, not the rows. Sums are reassociated: first within a node,
rounded, then over nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import comb

from moec.ir.graph import Graph, Module, Value, merged_origin
from moec.ir.group import Group
from moec.ir.symbol import Dim, evaluate, exact_div, substitute, sym
from moec.ir.types import I32
from moec.passes.base import Context, Pass, Result, register_pass
from moec.passes.sync_removal_choices import copy_module, host_time
from moec.passes.sync_removal_dispatch import Dispatcher, find
from moec.passes.sync_removal_rebuild import Rebuilt, drop_dead
from moec.passes.sync_removal_steps import remove_reads, static_sizes
from moec.rewrite.term import NoMatch

FORMS = ("all-gather", "dedup")
NAME = "hierarchical-a2a"


@register_pass
class HierarchicalAllToAll(Pass):
    """Let an expert-parallel exchange over nodes become one between nodes and one within, where the target says that
    this takes no longer.

    ``form``: ``all-gather`` (tokens are gathered between nodes) or ``dedup`` (each token goes once to each node that
    needs it). ``ranks_per_node`` is how many ranks a node has. ``force`` applies it also where it takes longer.
    """

    name = NAME
    form: str = "all-gather"
    ranks_per_node: int = 8
    force: bool = False

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        for graph in list(module.functions.values()):
            for out in [n for n in graph if n.op == "all_to_all_v"]:
                if out.graph is graph:
                    self._exchange(module, graph, out.attrs["group"], context, result)
        return result

    def _exchange(self, module: Module, graph: Graph, group: Group, context: Context, result: Result) -> None:
        """Replace the next dispatcher over ``group`` of a function."""
        try:
            if self.form not in FORMS:
                raise NoMatch(f"form '{self.form}' is none of {', '.join(FORMS)}")
            tried = copy_module(module)
            self._replace(tried, tried.functions[graph.name], group, context, Result())
            if context.target is not None and not self.force:
                _not_slower(module, tried, context)
            self._replace(module, graph, group, context, result)
        except NoMatch as reason:
            outs = [n for n in graph if n.op == "all_to_all_v"][:1]
            result.miss(self.name, str(reason), outs, graph)

    def _replace(self, module: Module, graph: Graph, group: Group, context: Context, result: Result) -> None:
        static_sizes(module, graph, result)
        outs = [n for n in graph if n.op == "all_to_all_v" and n.attrs["group"] == group]
        if not outs:
            raise NoMatch(f"no exchange over {group} is left")
        found = find(module, graph, outs[0])
        build = _TwoTiers(module, graph, found, self.ranks_per_node)
        y = build.all_gather() if self.form == "all-gather" else build.dedup()
        y.name = found.unpermute.result.name
        origin = merged_origin([found.out, found.home], self.name)
        found.unpermute.result.replace_with(y)
        drop_dead(module, graph)
        result.apply(
            f"exchange by {self.form} between nodes: {volumes(found, build.nodes, context.tune)}", origin, graph
        )


def _not_slower(module: Module, tried: Module, context: Context) -> None:
    """NoMatch where the other form takes longer, both without the reads that can go."""
    times = []
    for each in (copy_module(module), tried):
        remove_reads(each, "async", 0.0)
        times.append(host_time(each, context).us)
    if times[1] > times[0]:
        raise NoMatch(f"on {context.target.name} it would take {times[1]:.1f} us, and takes {times[0]:.1f} us as it is")


def copies(form: str, nodes: int, top_k: int, experts: int) -> float:
    """How often a token crosses from node to node, on average where all choices of experts are equally likely."""
    if form == "flat":
        return top_k * (nodes - 1) / nodes
    if form == "all-gather":
        return float(nodes - 1)
    missed = comb(experts - experts // nodes, top_k) / comb(experts, top_k)
    return (nodes - 1) * (1 - missed)


def volumes(found: Dispatcher, nodes: int, sizes: Mapping[str, int]) -> str:
    """Copies of a token that cross between nodes, and their size for the tokens of a rank where ``sizes`` tell them."""
    tokens, top_k = found.permute.operand(1).type.dims
    (experts,) = found.gating.results[2].type.dims
    row = found.permute.operand(0).type
    parts = []
    for form in ("flat", *FORMS):
        n = copies(form, nodes, evaluate(top_k, {}), evaluate(experts, {}))
        size = substitute(tokens * row.dims[1] * (row.dtype.bits // 8), dict(sizes))
        mib = f" ({n * size / 2**20:.1f} MiB a rank)" if isinstance(size, int) else ""
        parts.append(f"{form} {n:.2f}{mib}")
    return "copies of a token: " + ", ".join(parts)


class _TwoTiers(Rebuilt):
    """Builds the two exchanges."""

    def __init__(self, module: Module, graph: Graph, found: Dispatcher, ranks_per_node: int):
        super().__init__(module, graph, found, NAME)
        size = self.group.size
        stride = exact_div(ranks_per_node, self.group.stride)
        inner = stride if isinstance(stride, int) else 0
        if not isinstance(size, int) or inner < 2 or size % inner or size == inner:
            raise NoMatch(f"{self.group} does not spread over nodes of {ranks_per_node} ranks with several in each")
        self.nodes, self.inner = size // inner, inner
        self.within_node = Group(f"{self.group.name}_local", inner, self.group.stride)
        self.between = Group(f"{self.group.name}_node", self.nodes, self.group.stride * inner)
        self.node_experts = self.local * inner

    def all_gather(self) -> Value:
        b, group = self.b, self.between
        gathered = [b.all_gather(v, group=group, axis=0) for v in (self.x, self.experts, self.weights)]
        y = self.on_node(*gathered)
        made: Value = b.reduce_scatter(y, group=group, axis=0, reduction="sum")
        return made

    def dedup(self) -> Value:
        b = self.b
        nodes = b.reshape(b.iota(size=self.nodes, dtype=I32), shape=(1, 1, self.nodes))
        of = b.reshape(
            b.div(self.experts, self.number(self.node_experts, self.experts)), shape=(self.tokens, self.chosen, 1)
        )
        hit = b.reduce_max(b.cast(b.eq(of, nodes), to=I32), axes=(1,), keepdims=False)  # [T, N]
        send = b.reduce_sum(hit, axes=(0,), keepdims=False)
        everyone = b.all_gather(b.reshape(send, shape=(1, self.nodes)), group=self.between, axis=0)
        receive = b.gather(everyone, b.group_rank(group=self.between), axis=1)
        flat = b.reshape(b.transpose(hit, perm=(1, 0)), shape=(self.nodes * self.tokens,))
        sent = self.host_size(send, self.nodes * self.tokens, "sent")
        came = self.host_size(receive, self.nodes * self.tokens, "came")
        first = b.slice(b.argsort(flat, axis=0, descending=True), axis=0, start=0, stop=sent, step=1)
        token = b.mod(first, self.number(self.tokens, first), fmod=False)
        out, back = b.to_host(send), b.to_host(receive)
        moved = [
            b.all_to_all_v(b.gather(v, token, axis=0), out, back, group=self.between, rows=came)
            for v in (self.x, self.experts, self.weights)
        ]
        y = self.on_node(*moved)
        home = b.all_to_all_v(y, back, out, group=self.between, rows=sent)
        place = b.add(b.mul(token, self.number(self.nodes, token)), b.div(first, self.number(self.tokens, first)))
        return self.summed(home, place, hit, None)

    def on_node(self, x: Value, experts: Value, weights: Value) -> Value:
        """Sums over this node's experts for the tokens that this rank looks after: x [M, H] -> [M, H]."""
        b = self.b
        slots = experts.type.numel()
        first = b.mul(b.cast(b.group_rank(group=self.between), to=I32), self.number(self.node_experts, experts))
        here = b.sub(experts, first)
        mine = self.within(here, self.node_experts)
        flat = b.reshape(self.chosen_of(mine, here, self.number(self.node_experts, here)), shape=(slots,))
        histogram = b.histogram(flat, bins=self.node_experts + 1)
        counts = b.slice(histogram, axis=0, start=0, stop=self.node_experts, step=1)
        by_rank = b.reshape(counts, shape=(1, self.inner, self.local))
        send = b.reduce_sum(by_rank, axes=(0, 2), keepdims=False)
        everyone = b.all_gather(by_rank, group=self.within_node, axis=0)
        arriving = b.gather(everyone, b.group_rank(group=self.within_node), axis=1)
        receive = b.reduce_sum(arriving, axes=(1,), keepdims=False)
        sent = self.host_size(send, slots, "sorted")
        came = self.host_size(receive, slots * self.inner, "arriving")
        taken = b.slice(b.argsort(flat, axis=0, descending=False), axis=0, start=0, stop=sent, step=1)
        rows = b.gather(x, b.div(taken, self.number(self.chosen, taken)), axis=0)
        out, back = b.to_host(send), b.to_host(receive)
        rows = b.all_to_all_v(rows, out, back, group=self.within_node, rows=came)
        order = self._by_expert(arriving, came)
        groups = b.reduce_sum(arriving, axes=(0,), keepdims=False)
        done = self.experts_of(b.gather(rows, order, axis=0), groups)
        rows = b.gather(done, b.argsort(order, axis=0, descending=False), axis=0)
        rows = b.all_to_all_v(rows, back, out, group=self.within_node, rows=sent)
        return self.summed(rows, taken, mine, weights)

    def _by_expert(self, arriving: Value, came: Dim) -> Value:
        """The order that sorts rows, which lie by (rank, expert) as ``arriving`` [ranks, experts] counts, by expert."""
        b = self.b
        chunks = b.reshape(arriving, shape=(self.inner * self.local,))
        ends = b.cumsum(chunks, axis=0, exclusive=False, reverse=False)
        chunk = b.cumsum(b.histogram(ends, bins=came), axis=0, exclusive=False, reverse=False)
        expert = b.mod(chunk, self.number(self.local, chunk), fmod=False)
        made: Value = b.argsort(expert, axis=0, descending=False)
        return made

    def host_size(self, counts: Value, at_most: Dim, base: str) -> Dim:
        """A size that the host reads: the sum of ``counts``."""
        b = self.b
        name = self.symbol(at_most, base)
        b.bind_size(b.to_host(b.reduce_sum(counts, axes=(0,), keepdims=False)), value=sym(name))
        return sym(name)

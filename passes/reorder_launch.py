"""Launches in an order in which host and device wait least for one another.

The order must be legal (``passes/launch_order.py``): data, sizes, and the same order of collectives on every rank. What
comes of it: long kernels are issued ahead of waits, exchanges as early as their rows are there, kernels that need no
exchange (a shared expert, weight gradients) beside it, and what the host computes late.

A new order is taken only where the two-timeline model says that the layer, in a row of its like, takes less time in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from moec.ir.graph import Module, Node, merged_origin
from moec.ops.places import has_host
from moec.ops.registry import OPS
from moec.passes.base import Context, Pass, Result, register_pass
from moec.passes.launch_order import must_follow, rearrange
from moec.passes.node_price import TargetPrices
from moec.passes.reorder_launch_list import Cost, best_window, list_schedule
from moec.timeline.build import is_free, stream_of, tasks_of
from moec.timeline.idle import steady

MOST_NODES = 4000
MOST_WINDOW = 6


@register_pass
class ReorderLaunch(Pass):
    """Reorder the launches of a layer with collectives or reads so that less of them is exposed: list scheduling on the
    two-timeline model, and with ``window`` the best order of each window of so many launches.

    A window has at most 6 launches; all its legal orders are tried.
    """

    name = "reorder-launch"
    window: int = 0

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        graph = module.main
        if context.target is None or not (has_host(module) or has_collectives(module)):
            return result
        nodes = list(graph)
        if len(nodes) > MOST_NODES:
            result.miss(self.name, f"{len(nodes)} nodes; orders of up to {MOST_NODES} are tried", (), graph)
            return result
        timed = Timed(module, context)
        before = must_follow(module, graph)
        was = timed.us(nodes)
        order = list_schedule(nodes, before, timed.costs(nodes))
        if timed.us(order) >= was:
            order = nodes
        if self.window > 1:
            order = self._windows(order, before, timed)
        took = timed.us(order)
        rearrange(graph, nodes)
        if took < was - 1e-6:
            rearrange(graph, order)
            moved = [n for n, old in zip(order, nodes, strict=True) if n is not old and not is_free(n)]
            result.apply(f"order that takes {took:.1f} us, not {was:.1f}", merged_origin(moved, self.name), graph)
        else:
            result.miss(self.name, f"no order found that takes less than {was:.1f} us", (), graph)
        return result

    def _windows(self, order: list[Node], before: dict[Node, list[Node]], timed: Timed) -> list[Node]:
        size = min(self.window, MOST_WINDOW)
        fixed = [n for n in order if is_free(n)]
        for start in range(max(1, len(order) - size + 1)):
            if any(n in set(fixed) for n in order[start : start + 1]):
                continue
            order = best_window(order, start, size, before, timed.us)
        return order


def has_collectives(module: Module) -> bool:
    """Whether ranks exchange anything."""
    return any("collective" in OPS[n.op].traits for n in module.nodes() if n.op in OPS)


class Timed:
    """Times orders of the nodes of ``main`` on the two timelines."""

    def __init__(self, module: Module, context: Context):
        self.module, self.graph = module, module.main
        self.prices = TargetPrices(module, context.target, context.tune)
        self.machine = self.prices.machine()

    def us(self, order: Sequence[Node]) -> float:
        """Microseconds of a turn. The graph is left in this order."""
        rearrange(self.graph, order)
        program = tasks_of(self.module, self.prices)
        return steady(program.tasks, self.machine, program.outputs).us

    def costs(self, nodes: Sequence[Node]) -> dict[Node, Cost]:
        """What each node takes."""
        return {n: cost_of(n, self.prices) for n in nodes}


def cost_of(node: Node, prices: TargetPrices) -> Cost:
    """What a node takes of host and device."""
    if is_free(node) or node.op == "call":
        return Cost()
    if node.op == "host":
        return Cost(prices.step(node))
    if node.op == "read_wait":
        return Cost(prices.issue(node), waits=True)
    stream = "copy" if node.op in ("read_start", "to_device") else "compute"
    if "collective" in OPS[node.op].traits:
        stream = stream_of(node)
    return Cost(prices.issue(node), prices.device(node), stream, node.op == "to_host")

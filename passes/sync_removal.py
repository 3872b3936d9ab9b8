"""Reads that stop the host, taken out of a layer.

A framework's dispatcher reads numbers back from the device because a shape, a list of splits or a loop depends on them.
Each such read is replaced by the first of these that fits:

1. *static size*: the number follows from what the host knows (a dropless router's counts sum to T*K);
2. *device counts*: the op that takes the numbers can read them on the device (grouped products);
3. *computed on the device*: the host only computed something for the device from them; the device does that itself;
4. the lists of ``all_to_all_v``, which its interface takes on the host, as ``counts`` says: ``async`` merges what is
   left into one packed read that starts behind the last producer and is waited for late; ``all-gather`` exchanges
   tokens instead of rows and needs no lists; ``capacity`` sends blocks of a fixed size and refuses an overflow;
   ``keep`` leaves them.
"""

from __future__ import annotations

from moec.diagnostics import Refusal
from moec.ir.graph import Graph, Module, merged_origin
from moec.ops.registry import OPS
from moec.passes.base import Context, Pass, Result, register_pass
from moec.passes.sync_removal_exchange import exchange_otherwise
from moec.passes.sync_removal_late import merge_reads, start_early, wait_late
from moec.passes.sync_removal_reads import Twins, reads_of, reasons, sweep
from moec.passes.sync_removal_static import known_sum, substitute_symbol, symbol_of

CHOICES = ("async", "all-gather", "capacity", "keep")


@register_pass
class SyncRemoval(Pass):
    """Remove device-to-host reads: static sizes, counts read on the device, host computations done by the device, and
    for the lists of all_to_all_v what ``counts`` says.

    ``counts``: ``async`` (one merged read, waited for late), ``all-gather`` (a dispatcher without lists), ``capacity``
    (blocks of ``capacity_factor`` times the average, an overflow is refused) or ``keep``. ``all-gather`` has room for
    ``capacity_factor`` times the average number of rows where that is above 0, else for the worst case.
    """

    name = "sync-removal"
    counts: str = "async"
    capacity_factor: float = 0.0

    def run(self, module: Module, context: Context) -> Result:
        if self.counts not in CHOICES:
            raise Refusal(f"sync-removal: counts '{self.counts}' is none of {', '.join(CHOICES)}")
        if self.counts == "capacity" and self.capacity_factor < 1:
            todo = "give capacity_factor=2.0 or the like; below 1 even a balanced load overflows"
            raise Refusal("sync-removal: counts=capacity needs a capacity_factor of 1 or more", todo=todo)
        result = Result()
        for graph in list(module.functions.values()):
            if module.functions.get(graph.name) is graph and reads_of(graph):
                self._reads(module, graph, result)
        return result

    def _reads(self, module: Module, graph: Graph, result: Result) -> None:
        static_sizes(module, graph, result)
        on_the_device(module, graph, result)
        sweep(module, graph)
        if self.counts in ("all-gather", "capacity") and reads_of(graph):
            exchange_otherwise(module, graph, self.counts, self.capacity_factor, result)
            sweep(module, graph)
        if self.counts == "async":
            late(module, graph, result)
        for left in reasons(module, graph):
            result.miss(SyncRemoval.name, "the host still waits: " + "; ".join(left.uses), [left.read], graph)


def static_sizes(module: Module, graph: Graph, result: Result) -> None:
    """Sizes that the host knows without reading them become dimensions."""
    for node in graph:
        if node.op != "bind_size":
            continue
        dim = known_sum(node.operand(0), module)
        if dim is None:
            continue
        origin = merged_origin([node], SyncRemoval.name)
        substitute_symbol(module, symbol_of(node), dim)
        node.results[0].replace_with(node.operand(0))
        graph.erase(node)
        result.apply("static size", origin, graph)
    sweep(module, graph)


def on_the_device(module: Module, graph: Graph, result: Result) -> None:
    """Give ops of the device the twin of what they take from the host, but for ``all_to_all_v``."""
    twins = Twins(module, graph, SyncRemoval.name)
    for node in graph:
        if node.op == "to_device" and twins.has(node.operand(0)):
            producer = node.operand(0).producer
            rule = "computed on the device" if producer is not None and producer.op == "host" else "stays on the device"
            node.results[0].replace_with(twins.of(node.operand(0)))
            result.apply(rule, merged_origin([node], SyncRemoval.name), graph)
            continue
        definition = OPS[node.op]
        if not definition.host_operands or node.op in ("to_device", "all_to_all_v"):
            continue
        for operand, v in list(definition.pairs(node.operands)):
            if operand.name in definition.host_operands and v is not None and _on_host(v) and twins.has(v):
                node.set_operand(definition.operand_index(operand.name), twins.of(v))
                result.apply("device counts", merged_origin([node], SyncRemoval.name), graph)


def _on_host(value: object) -> bool:
    node = getattr(value, "producer", None)
    return node is not None and OPS[node.op].place == "host"


def late(module: Module, graph: Graph, result: Result) -> None:
    """What reads are left become as few asynchronous ones as can be, waited for late."""
    groups = merge_reads(module, graph, SyncRemoval.name)
    for group in groups:
        rule = "packed read, waited for late" if len(group) > 1 else "read waited for late"
        result.apply(rule, merged_origin(group, SyncRemoval.name), graph)
    if groups:
        start_early(module, graph)
        wait_late(module, graph)

"""The steps of ``sync-removal`` on one function, in the order in which they are tried; see the pass."""

from __future__ import annotations

from moec.ir.graph import Graph, Module, Node, merged_origin
from moec.ir.symbol import DEFAULT_BOUND
from moec.ops.build import Builder
from moec.ops.calls import names_in
from moec.ops.registry import OPS
from moec.passes.base import Result
from moec.passes.sync_removal_exchange import exchange_otherwise
from moec.passes.sync_removal_late import merge_reads, start_early, wait_late
from moec.passes.sync_removal_reads import Twins, reads_of, reasons, sweep
from moec.passes.sync_removal_static import known_sum, substitute_symbol, symbol_of

NAME = "sync-removal"


def remove_reads(module: Module, counts: str, capacity_factor: float, lengths: str = "host") -> Result:
    """Take the blocking reads out of every function of a module."""
    result = Result()
    for graph in list(module.functions.values()):
        if module.functions.get(graph.name) is graph and reads_of(graph):
            _of_function(module, graph, counts, capacity_factor, lengths, result)
    return result


def _of_function(
    module: Module, graph: Graph, counts: str, capacity_factor: float, lengths: str, result: Result
) -> None:
    static_sizes(module, graph, result)
    on_the_device(module, graph, result)
    sweep(module, graph)
    if lengths == "device":
        device_lengths(module, graph, result)
        sweep(module, graph)
    if counts in ("all-gather", "capacity") and reads_of(graph):
        exchange_otherwise(module, graph, counts, capacity_factor, result)
        sweep(module, graph)
    if counts == "async":
        late(module, graph, result)
    for left in reasons(module, graph):
        result.miss(NAME, "the host still waits: " + "; ".join(left.uses), [left.read], graph)


def static_sizes(module: Module, graph: Graph, result: Result) -> None:
    """Sizes that the host knows without reading them become dimensions."""
    for node in graph:
        if node.op != "bind_size":
            continue
        dim = known_sum(node.operand(0), module)
        if dim is None:
            continue
        origin = merged_origin([node], NAME)
        substitute_symbol(module, symbol_of(node), dim)
        node.results[0].replace_with(node.operand(0))
        graph.erase(node)
        result.apply("static size", origin, graph)
    sweep(module, graph)


def device_lengths(module: Module, graph: Graph, result: Result) -> None:
    """Sizes of tensors that only the device works on become lengths that the device knows, in buffers of the most rows
    that there may be. Sizes that collectives or host steps name, or that have no bound, stay with the host.
    """
    twins = Twins(module, graph, NAME)
    for node in [n for n in graph if n.op == "bind_size"]:
        name, value = symbol_of(node), node.operand(0)
        high = module.symbols.get(name, DEFAULT_BOUND)[1]
        if high >= DEFAULT_BOUND[1] or not twins.has(value) or name in _host_names(module, node):
            continue
        b = Builder(graph, node, merged_origin([node], NAME))
        b.device_size(twins.of(value), value=node.attrs["value"], at_most=high)
        node.results[0].replace_with(value)
        graph.erase(node)
        result.apply("static upper bound with a device length", b.origin, graph)


def _host_names(module: Module, binds: Node) -> set[str]:
    """The symbols that the host must know: of collectives, host steps and copies to the device."""
    found: set[str] = set()
    for node in module.nodes():
        traits = OPS[node.op].traits
        if node is not binds and ("collective" in traits or OPS[node.op].place == "host" or node.op == "to_device"):
            found.update(names_in(node, module))
    return found


def on_the_device(module: Module, graph: Graph, result: Result) -> None:
    """Give ops of the device the twin of what they take from the host, but for ``all_to_all_v``."""
    twins = Twins(module, graph, NAME)
    for node in graph:
        if node.op == "to_device" and twins.has(node.operand(0)):
            producer = node.operand(0).producer
            rule = "computed on the device" if producer is not None and producer.op == "host" else "stays on the device"
            node.results[0].replace_with(twins.of(node.operand(0)))
            result.apply(rule, merged_origin([node], NAME), graph)
            continue
        definition = OPS[node.op]
        if not definition.host_operands or node.op in ("to_device", "all_to_all_v"):
            continue
        for operand, v in list(definition.pairs(node.operands)):
            if operand.name in definition.host_operands and v is not None and _on_host(v) and twins.has(v):
                node.set_operand(definition.operand_index(operand.name), twins.of(v))
                result.apply("device counts", merged_origin([node], NAME), graph)


def _on_host(value: object) -> bool:
    node = getattr(value, "producer", None)
    return node is not None and OPS[node.op].place == "host"


def late(module: Module, graph: Graph, result: Result) -> None:
    """What reads are left become as few asynchronous ones as can be, waited for late."""
    groups = merge_reads(module, graph, NAME)
    for group in groups:
        rule = "packed read, waited for late" if len(group) > 1 else "read waited for late"
        result.apply(rule, merged_origin(group, NAME), graph)
    if groups:
        start_early(module, graph)
        wait_late(module, graph)

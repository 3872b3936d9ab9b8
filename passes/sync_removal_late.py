"""Reads that nobody can do without: merged into one, started behind what they read, waited for as late as possible.

The values are laid end to end in one buffer, its copy is queued right behind the last of their producers, and a host
step takes it apart after the wait. The wait and what the host does with the numbers sink to the first device op that
needs them, and every device op that does not need them goes in front of the wait; collectives keep their order among
one another.
"""

from __future__ import annotations

from collections.abc import Sequence

from moec.ir.graph import Graph, Module, Node, Origin, Value, merged_origin
from moec.ir.symbol import Dim, symbols_of
from moec.ops.build import Builder
from moec.ops.registry import OPS
from moec.passes.launch_order import held_by, must_follow, rearrange
from moec.passes.sync_removal_reads import BLOCKING, reads_of, tainted_by


def merge_reads(module: Module, graph: Graph, rewrite: str) -> list[list[Node]]:
    """Replace the blocking reads of a function by asynchronous ones, as few as can be; the reads of each, in order.

    Reads go together where none needs what another one brought, and their dtypes are the same.
    """
    groups: list[list[Node]] = []
    for read in reads_of(graph):
        fits = groups and all(_independent(graph, other, read) for other in groups[-1])
        if fits and groups[-1][0].result.type.dtype is read.result.type.dtype:
            groups[-1].append(read)
        else:
            groups.append([read])
    for group in groups:
        _replace(module, graph, group, rewrite)
    return groups


def _independent(graph: Graph, first: Node, second: Node) -> bool:
    """Whether ``second`` reads nothing that came from ``first``, by data or by a size that it decides."""
    tainted = tainted_by(graph, first.results)
    decided = {str(n.attrs["value"]) for n in graph if n.op == "bind_size" and n.results[0] in tainted}
    stack, seen = [second.operand(0)], set[Value]()
    while stack:
        v = stack.pop()
        if v in seen:
            continue
        seen.add(v)
        if v in tainted or any(s in decided for d in v.type.shape or () for s in symbols_of(d)):
            return False
        if v.producer is not None:
            stack += [o for o in v.producer.operands if o is not None]
    return True


def _replace(module: Module, graph: Graph, group: Sequence[Node], rewrite: str) -> None:
    places = {n: i for i, n in enumerate(graph)}
    sources = [read.operand(0) for read in group]
    last = max((v.producer for v in sources if v.producer is not None), key=lambda n: places[n], default=None)
    origin = merged_origin(group, rewrite)
    first_use = min((u for r in group for u in r.result.uses), key=lambda n: places.get(n, len(places)))
    behind = Builder(graph, last.next if last is not None else next(iter(graph), None), origin)
    at = Builder(graph, first_use, origin)
    if len(group) == 1:
        brought = [at.read_wait(behind.read_start(sources[0]))]
    else:
        flat = [v if v.type.rank == 1 else behind.reshape(v, shape=(v.type.numel(),)) for v in sources]
        packed = at.read_wait(behind.read_start(behind.concat(*flat, axis=0)))
        step = _unpack(module, packed, sources, origin)
        brought = list(at.call(module, step, packed, op="host"))
    for read, value in zip(group, brought, strict=True):
        value.name = read.result.name
        read.result.replace_with(value)
        graph.erase(read)


def _unpack(module: Module, packed: Value, sources: Sequence[Value], origin: Origin) -> str:
    """A host step's body that takes a packed buffer apart; its name."""
    number = 0
    while (name := f"unpack.{number}" if number else "unpack") in module.functions:
        number += 1
    body = module.add(Graph(name))
    whole = body.add_input("packed", packed.type)
    b = Builder(body, None, origin)
    found: list[Value] = []
    start: Dim = 0
    for v in sources:
        stop = start + v.type.numel()
        part = b.slice(whole, axis=0, start=start, stop=stop, step=1)
        found.append(part if v.type.rank == 1 else b.reshape(part, shape=v.type.dims))
        start = stop
    body.set_outputs(found, [v.name or f"part{i}" for i, v in enumerate(sources)])
    return name


def start_early(module: Module, graph: Graph) -> None:
    """Move what a read needs, and the start of the read, in front of all else: the copy waits for nothing but them."""
    for start in [n for n in graph if n.op == "read_start"]:
        before = must_follow(module, graph)
        wanted, stack = {start}, [start]
        while stack:
            for node in before[stack.pop()]:
                if node not in wanted:
                    wanted.add(node)
                    stack.append(node)
        nodes = list(graph)
        rearrange(graph, [n for n in nodes if n in wanted] + [n for n in nodes if n not in wanted])


def wait_late(module: Module, graph: Graph) -> int:
    """Move what does not need the host's numbers in front of the waits, so that it is launched before the host waits.

    Returns how many device ops now stand in front of a wait that they stood behind.
    """
    moved = 0
    for wait in [n for n in graph if n.op in ("read_wait", BLOCKING)]:
        held = held_by(wait, must_follow(module, graph))
        behind = False
        for node in list(graph):
            if node is wait:
                behind = True
            elif behind and node not in held:
                graph.move(node, wait)
                moved += OPS[node.op].place == "device" and OPS[node.op].traits.isdisjoint(("view", "source"))
    return moved

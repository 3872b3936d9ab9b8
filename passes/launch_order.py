"""What keeps the launches of a function in order: data, sizes, collectives, and other effects.

- A node follows those whose results it reads.
- A node that names a size that data decides, in its attributes, its results or a function that it runs, follows the
  node that decides it.
- Collectives follow one another as written, so that every rank of every group comes to them in the same order.
- Reads, host steps and size decisions follow nothing else: each is what it is whenever it happens.
- What has another effect (an opaque op, a call of a function with effects) stays where it is among effects.

Any order that respects these is a legal order of launches.
"""

from __future__ import annotations

from collections.abc import Iterable

from moec.ir.graph import Graph, Module, Node
from moec.ir.symbol import symbols_of
from moec.ops.calls import names_in
from moec.ops.registry import OPS
from moec.passes.effects import effectful_functions, has_effect

FREE_EFFECTS = ("to_host", "read_start", "read_wait", "host", "bind_size", "device_size")
"""Ops with an effect that is only not to be dropped."""


def must_follow(module: Module, graph: Graph) -> dict[Node, list[Node]]:
    """For each node of a function the nodes that it must follow directly, each once, in order of the function."""
    functions = effectful_functions(module)
    found: dict[Node, list[Node]] = {}
    decides = dict.fromkeys(s for v in graph.inputs for d in v.type.shape or () for s in symbols_of(d))
    decider: dict[str, Node] = {}
    collective: Node | None = None
    barrier: Node | None = None
    since: list[Node] = []
    for node in graph:
        after: dict[Node, None] = {v.producer: None for v in node.operands if v is not None and v.producer is not None}
        names = dict.fromkeys(names_in(node, module))
        after.update((decider[s], None) for s in names if s in decider)
        for s in names:
            if s not in decides:
                decider.setdefault(s, node)
        if has_effect(node, functions):
            if barrier is not None:
                after[barrier] = None
            if node.op not in OPS or _is_barrier(node):
                after.update((n, None) for n in since)
                barrier, collective, since = node, None, []
            else:
                if "collective" in OPS[node.op].traits:
                    if collective is not None:
                        after[collective] = None
                    collective = node
                since.append(node)
        found[node] = list(after)
    return found


def _is_barrier(node: Node) -> bool:
    return node.op not in FREE_EFFECTS and "collective" not in OPS[node.op].traits


def held_by(node: Node, order: dict[Node, list[Node]]) -> set[Node]:
    """``node`` and all that must follow it, directly or not; ``order`` is ``must_follow``'s, in function order."""
    held = {node}
    for other, before in order.items():
        if any(b in held for b in before):
            held.add(other)
    return held


def legal(order: Iterable[Node], before: dict[Node, list[Node]]) -> bool:
    """Whether a sequence of nodes has each behind all that it must follow."""
    seen: set[Node] = set()
    for node in order:
        if any(b not in seen for b in before[node]):
            return False
        seen.add(node)
    return True


def rearrange(graph: Graph, order: Iterable[Node]) -> None:
    """Put the nodes of a function in a new order."""
    for node in order:
        graph.move(node, None)

"""Orders of launches: list scheduling, and the best order of a small window by trying them all.

The list scheduler keeps the clocks of the host and of the streams and issues, of what may be issued, what would begin
first; of several that would begin at the same time, the one with the longest path behind it. A wait begins when what it
waits for arrives, so work that the device can begin before that is issued first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from moec.ir.graph import Node

Before = Mapping[Node, Sequence[Node]]


@dataclass(frozen=True)
class Cost:
    """What a node takes: the host ``host_us``, the device ``device_us`` in ``stream``. ``waits`` where the host waits
    for the result of another node (``read_wait``) or its own (a blocking read). Nothing of it for a view.
    """

    host_us: float = 0.0
    device_us: float = 0.0
    stream: str = ""
    waits: bool = False


def longest_paths(nodes: Sequence[Node], before: Before, cost: Mapping[Node, Cost]) -> dict[Node, float]:
    """For each node the longest time from its begin to the end of all that follows it."""
    path = {n: cost[n].device_us + cost[n].host_us for n in nodes}
    for node in reversed(nodes):
        for other in before[node]:
            own = cost[other].device_us + cost[other].host_us
            path[other] = max(path[other], own + path[node])
    return path


def list_schedule(nodes: Sequence[Node], before: Before, cost: Mapping[Node, Cost]) -> list[Node]:
    """A legal order of ``nodes`` (given in one)."""
    return _List(nodes, before, cost).run()


class _List:
    def __init__(self, nodes: Sequence[Node], before: Before, cost: Mapping[Node, Cost]):
        self.nodes, self.before, self.cost = nodes, before, cost
        self.rank = {n: i for i, n in enumerate(nodes)}
        self.path = longest_paths(nodes, before, cost)
        self.missing = {n: len(before[n]) for n in nodes}
        self.followers: dict[Node, list[Node]] = {n: [] for n in nodes}
        for n in nodes:
            for other in before[n]:
                self.followers[other].append(n)
        self.host = 0.0
        self.free: dict[str, float] = {}
        self.done: dict[Node, float] = {}

    def run(self) -> list[Node]:
        order: list[Node] = []
        ready = [n for n in self.nodes if not self.missing[n]]
        while ready:
            node = min(ready, key=self._key)
            ready.remove(node)
            order.append(node)
            self._issue(node)
            for other in self.followers[node]:
                self.missing[other] -= 1
                if not self.missing[other]:
                    ready.append(other)
        return order

    def _inputs(self, node: Node) -> float:
        return max((self.done[b] for b in self.before[node]), default=0.0)

    def _begin(self, node: Node) -> float:
        """When the device (or, for a wait or a step, the host) would begin with a node issued now."""
        c = self.cost[node]
        if c.stream:
            return max(self.host + c.host_us, self.free.get(c.stream, 0.0), self._inputs(node))
        return max(self.host, self._inputs(node)) if c.waits or c.host_us else 0.0

    def _key(self, node: Node) -> tuple[float, float, int]:
        return self._begin(node), -self.path[node], self.rank[node]

    def _issue(self, node: Node) -> None:
        c, begin = self.cost[node], self._begin(node)
        if c.stream:
            self.host += c.host_us
            self.done[node] = self.free[c.stream] = begin + c.device_us
            if c.waits:
                self.host = max(self.host, self.done[node])
        elif c.waits or c.host_us:
            self.host = begin + c.host_us
            self.done[node] = self.host
        else:
            self.done[node] = self._inputs(node)


def best_window(
    order: Sequence[Node], start: int, size: int, before: Before, us: Callable[[Sequence[Node]], float]
) -> list[Node]:
    """The order in which ``size`` nodes from ``start`` on stand as they take least time, all legal ones tried; as it
    is where none takes less.
    """
    window = list(order[start : start + size])
    head, tail = list(order[:start]), list(order[start + size :])
    inside = set(window)
    best, least = window, us(order)

    def extend(chosen: list[Node], left: list[Node]) -> None:
        nonlocal best, least
        if not left:
            took = us([*head, *chosen, *tail])
            if took < least - 1e-9:
                best, least = list(chosen), took
            return
        placed = set(chosen)
        for node in left:
            if all(b in placed or b not in inside for b in before[node]):
                extend([*chosen, node], [n for n in left if n is not node])

    extend([], window)
    return [*head, *best, *tail]

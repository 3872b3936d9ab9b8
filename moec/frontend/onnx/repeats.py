"""Repeated layers: a run of nodes that stands in a graph several times in a row, each time on other tensors.

Exporters unroll a model's identical layers. Here they are found again, in linear time, so that the layer is imported
once, as a function, and each of its copies is one call: passes then work once for all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from moec.frontend.onnx.order import NodeView

SMALLEST = 32
"""A run of fewer nodes than this is no layer."""

MIXING = frozenset(
    [
        "ArgMax",
        "Attention",
        "GroupQueryAttention",
        "LayerNormalization",
        "MultiHeadAttention",
        "RMSNormalization",
        "ReduceMean",
        "SimplifiedLayerNormalization",
        "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization",
        "Softmax",
        "TopK",
    ]
)
"""What a layer has and an expert has not: operators that mix tokens or features, or choose.

A run without any of them is no layer but one of many like parts of one, and those are to be seen together.
"""

A_LAYER = 4
"""How many nodes of one such kind a layer may hold."""

CANDIDATES = 6
"""How many of the likeliest distances between copies are tried."""

TEMPLATE = 1
"""The copy whose names tell which of the tensors read from outside are different ones."""

Place = tuple[int, int]
"""A node's output: the node's position and which output."""


@dataclass(frozen=True)
class Repeats:
    """``copies`` runs of ``period`` nodes, the first from position ``start`` on.

    ``outside[k]`` names the tensors that copy k reads from outside, slot by slot: the same slot means the same use.
    ``results`` are the outputs that something outside their own copy reads: (position within the run, output).
    """

    start: int
    period: int
    copies: int
    outside: Sequence[Sequence[str]]
    results: Sequence[Place]

    @property
    def stop(self) -> int:
        """The position behind the last copy."""
        return self.start + self.period * self.copies


def find_repeats(views: Sequence[NodeView], graph_outputs: Sequence[str]) -> list[Repeats]:
    """Repetitions among nodes in execution order, the longest first, then what repeats before and behind it."""
    if len(views) < 2 * SMALLEST:
        return []
    kinds = _kinds(views)
    made = {name: (i, j) for i, view in enumerate(views) for j, name in enumerate(view.outputs) if name}
    found: list[Repeats] = []
    ranges = [(0, len(views))]
    while ranges:
        low, high = ranges.pop()
        best = _best(views, kinds, made, low, high, graph_outputs)
        if best is not None:
            found.append(best)
            ranges += [(low, best.start), (best.stop, high)]
    return found


def _best(
    views: Sequence[NodeView],
    kinds: np.ndarray,
    made: dict[str, Place],
    low: int,
    high: int,
    graph_outputs: Sequence[str],
) -> Repeats | None:
    """The longest repetition within a range of positions."""
    best: Repeats | None = None
    part = kinds[low:high]
    mixing = np.array([view.op_type in MIXING for view in views[low:high]], bool)
    for period in _distances(part, mixing):
        first, length = _longest_run(part, period)
        if length < period or (best is not None and length + period <= best.copies * best.period):
            continue
        start = _narrowest_cut(views, made, low + first, length, period)
        most = (low + first + length - start) // period + 1
        copies = _alike(views, made, start, period, most)
        if copies and (best is None or len(copies) * period > best.copies * best.period):
            results = _results(views, made, start, period, len(copies), graph_outputs)
            best = Repeats(start, period, len(copies), copies, results)
    return best


def _kinds(views: Sequence[NodeView]) -> np.ndarray:
    """A number for each node, the same for nodes of equal operator and attributes and as many inputs and outputs."""
    numbers: dict[tuple[object, ...], int] = {}
    found = np.empty(len(views), np.int64)
    for i, view in enumerate(views):
        attributes = tuple(a.SerializeToString(deterministic=True) for a in view.proto.attribute)
        key = (view.op_type, view.domain, len(view.inputs), len(view.outputs), attributes)
        found[i] = numbers.setdefault(key, len(numbers))
    return found


def _distances(kinds: np.ndarray, mixing: np.ndarray) -> list[int]:
    """The likeliest distances from one copy to the next: those between nodes of one kind that only layers have."""
    votes: Counter[int] = Counter()
    for kind in dict.fromkeys(kinds[mixing].tolist()):
        at = np.flatnonzero(kinds == kind)
        for apart in range(1, 1 + min(A_LAYER, len(at) - 1)):
            gaps = at[apart:] - at[:-apart]
            votes.update(gaps[gaps >= SMALLEST].tolist())
    return [int(gap) for gap, _ in sorted(votes.items(), key=lambda item: (-item[1], item[0]))[:CANDIDATES]]


def _longest_run(kinds: np.ndarray, period: int) -> tuple[int, int]:
    """Start and length of the longest stretch in which each kind stands again ``period`` further on."""
    differ = np.flatnonzero(kinds[:-period] != kinds[period:])
    edges = np.concatenate([[-1], differ, [len(kinds) - period]])
    lengths = np.diff(edges) - 1
    longest = int(np.argmax(lengths))
    return int(edges[longest]) + 1, int(lengths[longest])


def _narrowest_cut(views: Sequence[NodeView], made: dict[str, Place], start: int, length: int, period: int) -> int:
    """Where within the slack of a run its copies begin: where the fewest values pass from one copy to the next."""
    slack = length % period
    if not slack:
        return start
    last: dict[int, int] = {}
    for i, view in enumerate(views):
        for name in view.inputs:
            place = made.get(name)
            if place is not None:
                last[place[0]] = i
    steps = np.zeros(len(views) + 2, np.int64)
    for producer, consumer in last.items():
        steps[producer + 1] += 1
        steps[consumer + 1] -= 1
    passing = np.cumsum(steps)
    cuts = [sum(int(passing[c]) for c in range(start + o, start + length + 1, period)) for o in range(slack + 1)]
    return start + int(np.argmin(cuts))


def _alike(views: Sequence[NodeView], made: dict[str, Place], start: int, period: int, copies: int) -> list[list[str]]:
    """What each copy reads from outside, for as many copies in a row as are wired alike; empty where it is only one.

    The second copy sets the pattern: in the first, what the layer below gives and what layers share may be the same.
    """
    base = start + TEMPLATE * period
    slots: dict[str, int] = {}
    wiring: list[Place | int] = []
    for t in range(period):
        for name in views[base + t].inputs:
            place = made.get(name)
            if not name:
                wiring.append(-1)
            elif place is not None and place[0] >= base:
                wiring.append((place[0] - base, place[1]))
            else:
                wiring.append(slots.setdefault(name, len(slots)))
    found: list[list[str]] = []
    for k in range(copies):
        outside = _outside(views, made, start + k * period, period, wiring, len(slots))
        if outside is None:
            break
        found.append(outside)
    return found if len(found) > 1 else []


def _outside(
    views: Sequence[NodeView],
    made: dict[str, Place],
    base: int,
    period: int,
    wiring: Sequence[Place | int],
    count: int,
) -> list[str] | None:
    """The outside names of the copy at ``base`` by slot; None where it is wired differently."""
    names = [""] * count
    wires = iter(wiring)
    for t in range(period):
        for name in views[base + t].inputs:
            wire = next(wires)
            place = made.get(name)
            if wire == -1 or not name:
                if name or wire != -1:
                    return None
            elif isinstance(wire, tuple):
                if place is None or (place[0] - base, place[1]) != wire:
                    return None
            else:
                if (place is not None and place[0] >= base) or names[wire] not in ("", name):
                    return None
                names[wire] = name
    return names


def _results(
    views: Sequence[NodeView],
    made: dict[str, Place],
    start: int,
    period: int,
    copies: int,
    graph_outputs: Sequence[str],
) -> list[Place]:
    """The outputs of a run that something outside the copy reads, in any copy."""
    stop = start + period * copies
    read: set[Place] = set()
    for i, view in enumerate(views):
        reader = (i - start) // period if start <= i < stop else -1
        for name in view.inputs:
            place = made.get(name)
            if place is not None and start <= place[0] < stop and (place[0] - start) // period != reader:
                read.add(((place[0] - start) % period, place[1]))
    for name in graph_outputs:
        place = made.get(name)
        if place is not None and start <= place[0] < stop:
            read.add(((place[0] - start) % period, place[1]))
    return sorted(read)

"""Collectives over the links of a system: full mesh in a node (A2), a switch (A3), a network port a card between nodes.

Ring-free algorithms on a mesh send each peer its part directly, so that P cards use P - 1 links at once. Across nodes a
collective is done in two tiers: within nodes, and between cards of the same place in each node.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log2
from pathlib import Path

from moec.diagnostics import Refusal, Where, suggest
from moec.targets.ascend.machine import Machine

FILE = Path(__file__).parents[1] / "data" / "collectives.csv"

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_to_all_v", "broadcast", "send")


@lru_cache(maxsize=1)
def figures() -> dict[str, float]:
    """The committed figures of collectives by name."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return {row["name"]: float(row["value"]) for row in csv.DictReader(file)}


@dataclass(frozen=True)
class Tier:
    """One level of the network: bytes per second that a card sends to ``peers`` others at once, latency in us."""

    rate: float
    latency: float
    links: int

    def us(self, sent: float, peers: int) -> float:
        """Microseconds to send ``sent`` bytes in all, evenly to ``peers`` cards; a mesh uses one link a peer."""
        if peers <= 0 or sent <= 0:
            return 0.0
        share = min(peers, self.links) / self.links if self.links else 1.0
        return sent / (self.rate * share) * 1e6 + self.latency


def tiers(machine: Machine, ideal: bool = False) -> tuple[Tier, Tier]:
    """Within a node and between nodes, at the rate that transfers get (``ideal``: at the links' own).

    Cards of a node with one die each (A2) form a mesh, those with two (A3) a switched plane.
    """
    c = figures()
    mesh = int(c["mesh_links"]) if machine["links.die.size"] <= 1 else 0
    share, between = (1.0, 1.0) if ideal else (c["efficiency"], c["efficiency"] * c["between"])
    inner = Tier(machine["links.node.rate"] * share, machine["links.node.latency"], mesh)
    return inner, Tier(machine["links.cluster.rate"] * between, machine["links.cluster.latency"], 0)


def collective_us(machine: Machine, op: str, bytes_per_rank: int, ranks: int, ranks_per_node: int) -> float:
    """Microseconds of ``op``; see ``Target.collective``. Refusal for what the system does not have."""
    if op not in COLLECTIVES:
        hint = suggest(op, COLLECTIVES)
        raise Refusal(
            f"unknown collective '{op}'",
            Where(node=op),
            f"{hint + '; ' if hint else ''}one of {', '.join(COLLECTIVES)}",
        )
    if ranks < 1 or ranks_per_node < 1 or bytes_per_rank < 0:
        raise Refusal(
            f"{ranks} ranks, {ranks_per_node} a node, {bytes_per_rank} bytes", Where(node=op), "count from one"
        )
    most = int(machine["links.node.size"] * machine["links.cluster.size"])
    if ranks > most:
        raise Refusal(f"{ranks} ranks; a system of {machine.title} has {most}", Where(node=op), "ask for fewer")
    local = min(ranks, ranks_per_node)
    if local > machine["links.node.size"]:
        what = f"{local} ranks in a node; a node of {machine.title} has {int(machine['links.node.size'])}"
        raise Refusal(what, Where(node=op), "name fewer ranks a node")
    if ranks == 1:
        return 0.0
    nodes = ceil(ranks / local)
    moved = float(bytes_per_rank)
    c = figures()
    inner, outer = tiers(machine)
    base = c["base"] + (2 * outer.latency * ceil(log2(nodes)) if nodes > 1 else 0.0)
    filling = min(_filled(op, moved, ranks), c["fill_bytes"]) / c["fill_rate"] * 1e6
    return base + filling + _transfer(op, moved, local, nodes, inner, outer)


def collective_floor_us(machine: Machine, op: str, bytes_per_rank: int, ranks: int, ranks_per_node: int) -> float:
    """Microseconds of the exchange alone at the links' full rates."""
    local = min(ranks, ranks_per_node)
    if ranks == 1:
        return 0.0
    return _transfer(op, float(bytes_per_rank), local, ceil(ranks / local), *tiers(machine, ideal=True))


def _filled(op: str, moved: float, ranks: int) -> float:
    """Bytes that a rank stages through the communication buffer: its operand, or all that it gathers."""
    return moved * ranks if op == "all_gather" else 0.0 if op == "send" else moved


def _transfer(op: str, moved: float, local: int, nodes: int, inner: Tier, outer: Tier) -> float:
    ranks = local * nodes
    within, across = local - 1, nodes - 1
    if op == "all_gather":
        return outer.us(moved * across, across) + inner.us(moved * nodes * within, within)
    if op == "reduce_scatter":
        return inner.us(moved * within / local, within) + outer.us(moved / local * across / nodes, across)
    if op == "all_reduce":
        return 2 * (inner.us(moved * within / local, within) + outer.us(moved / local * across / nodes, across))
    if op in ("all_to_all", "all_to_all_v"):
        return max(inner.us(moved * within / ranks, within), outer.us(moved * (ranks - local) / ranks, across))
    if op == "broadcast":
        return outer.us(moved / local * min(across, 1), across) + 2 * inner.us(moved * within / local, within)
    return outer.us(moved, 1) if nodes > 1 else inner.us(moved, 1)

"""What a pass did: the rewrites that it made, those that it nearly made and why not, and the gate that counts them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from moec.ir.graph import Graph, Node, Origin


@dataclass(frozen=True)
class Application:
    """A rewrite that was done: which ``rule``, in which ``function``, and the provenance of what it made."""

    rule: str
    origin: Origin
    function: str = ""


@dataclass(frozen=True)
class NearMiss:
    """A rewrite that was not done though it nearly was: the ``reason`` and the ``nodes`` to blame.

    The nodes may have been erased by later rewrites; their provenance (``node.origin``) stays.
    """

    rule: str
    reason: str
    nodes: tuple[Node, ...] = ()
    function: str = ""


@dataclass
class Result:
    """What a pass did. ``changed`` is whether the module differs; it follows from ``applied`` unless said."""

    applied: list[Application] = field(default_factory=list)
    near_misses: list[NearMiss] = field(default_factory=list)
    changed: bool = False
    errors: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Of a pass that rounds otherwise on purpose: the largest absolute and relative error that it makes in each output
    on witness inputs.
    """
    memory: dict[str, Any] | None = None
    """Of a pass that plans memory: the ``memory`` entry of the summary."""

    def apply(self, rule: str, origin: Origin, graph: Graph | None = None) -> None:
        """Record an application."""
        self.applied.append(Application(rule, origin, graph.name if graph is not None else ""))
        self.changed = True

    def miss(self, rule: str, reason: str, nodes: Sequence[Node] = (), graph: Graph | None = None) -> None:
        """Record a near miss."""
        self.near_misses.append(NearMiss(rule, reason, tuple(nodes), graph.name if graph is not None else ""))

    def counts(self) -> dict[str, int]:
        """How often each rule was applied, in order of first application."""
        table: dict[str, int] = {}
        for a in self.applied:
            table[a.rule] = table.get(a.rule, 0) + 1
        return table


@dataclass
class Gate:
    """Counts applications of rules and closes after ``limit`` of them (None: never), so that the one that breaks a
    layer can be found by bisection.
    """

    limit: int | None = None
    passed: int = 0
    """Applications so far."""

    @property
    def open(self) -> bool:
        """Whether a rule may be applied."""
        return self.limit is None or self.passed < self.limit

    def count(self) -> None:
        """One more application was done."""
        self.passed += 1

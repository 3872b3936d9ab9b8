"""Follows what tensors mean from a router's choice forward through the graph, one transfer rule an op.

Only nodes that read something tracked are visited, in execution order, so a block costs time in proportion to its own
size. Where no rule
applies, the node is remembered with the reason: if no whole block comes out, these are the nodes to blame.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from moec.ir.graph import Node, Value
from moec.ir.symbol import Dim
from moec.passes.recover_moe.axes import Atom, Axis
from moec.passes.recover_moe.contents import Abstract, Limit, Space
from moec.passes.recover_moe.static import Statics

Known = Sequence[Abstract]
OUTSIDE = "an operand comes from outside the block"
UNKNOWN = "no rule says what it does to the rows of experts"

Rule = Callable[["Interpreter", Node, Known], "Abstract | list[Abstract | None] | None"]
"""``(interpreter, node, what its operands mean) -> what its results mean``, None where nothing is known of them."""

RULES: dict[str, Rule] = {}


def rule(*ops: str) -> Callable[[Rule], Rule]:
    """Register a transfer rule."""

    def register(fn: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, fn))
        return fn

    return register


class Lost(Exception):
    """The meaning is lost at a node, for a reason worth telling."""


class Interpreter:
    """The meaning of values around one router that chooses ``top_k`` of ``experts`` for each token.

    A choice of one has no axis of choices: ``choices`` is empty, as are all axes of size 1, and slots are tokens.
    """

    def __init__(self, order: Mapping[Node, int], statics: Statics, tokens: Axis, top_k: int, experts: int):
        self.order, self.statics = order, statics
        self.tokens = tokens
        """The axis of tokens."""
        self.choices: Axis = () if top_k == 1 else (Atom("choice", "", top_k),)
        self.experts: Axis = (Atom("expert", "", experts),)
        self.top_k, self.expert_count = top_k, experts
        self.meaning: dict[Value, Abstract] = {}
        self.lost: list[tuple[Node, str]] = []
        self.spaces: dict[tuple[str, Node, object], Space] = {}
        self.unstated: dict[Node, dict[str, Any]] = {}
        """Attributes of nodes whose sizes the tracer baked in, as they are where data decides those sizes."""
        self._queue: list[tuple[int, Node]] = []
        self._queued: set[Node] = set()

    @property
    def token_count(self) -> Dim:
        """T."""
        total: Dim = 1
        for a in self.tokens:
            total = total * a.dim
        return total

    @property
    def slots(self) -> Axis:
        """The axis of all slots, token-major."""
        return (*self.tokens, *self.choices)

    @property
    def slot_count(self) -> Dim:
        """T * K."""
        return self.token_count * self.top_k

    def start(self, value: Value, meaning: Abstract) -> None:
        """Say what a value means; its readers will be visited."""
        self.meaning[value] = meaning
        for user in value.uses:
            if user not in self._queued and user in self.order:
                self._queued.add(user)
                heapq.heappush(self._queue, (self.order[user], user))

    def of(self, value: Value) -> Abstract | None:
        """What a value means, constants included."""
        return self.meaning.get(value) or self.statics.abstract(value)

    def space(
        self,
        kind: str,
        node: Node,
        expert: object = None,
        whole: Space | None = None,
        limit: Limit | None = None,
        order: Axis = (),
    ) -> Space:
        """The space of that description; one object however often it is asked for."""
        key = (kind, node if whole is None else whole.node, expert)
        if key not in self.spaces:
            self.spaces[key] = Space(kind, node, expert, whole, limit, order)
        return self.spaces[key]

    def rows(self, space: Space, dim: Dim) -> Axis:
        """The axis of a space's rows."""
        return (Atom("rows", space, dim),)

    def run(self) -> None:
        """Visit everything that reads what is known."""
        while self._queue:
            _, node = heapq.heappop(self._queue)
            self.visit(node)

    def visit(self, node: Node) -> None:
        """Work out what one node's results mean."""
        if node.results and node.results[0] in self.meaning:
            return
        known = [self.of(v) for v in node.operands if v is not None]
        found = None
        reason = OUTSIDE
        if None not in known:
            reason = UNKNOWN
            apply = RULES.get(node.op)
            try:
                found = apply(self, node, [k for k in known if k is not None]) if apply else None
            except (Lost, ValueError) as lost:
                reason = str(lost)
        results = found if isinstance(found, list) else [found]
        if all(r is None for r in results):
            self.lost.append((node, reason))
            return
        for value, meaning in zip(node.results, results, strict=False):
            if meaning is not None:
                self.start(value, meaning)

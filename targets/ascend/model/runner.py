"""Runs a compiled kernel on one core: exactly, and quickly where it repeats.

A unit (a loop body or a whole loop) run with the same key in the same canonical state does the same, shifted in time.
Its outcome is kept: cycles, the state after, counters, variables assigned. While the part of a loop body's key that
the loop variable decides stays the same, a state that comes back makes the loop periodic, and the rest is multiplied
out. Both are exact; without ``remember`` everything is simulated, and the results are equal (tests/cost).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Protocol

from moec.targets.ascend.model.engine import Engine, Timed
from moec.targets.ascend.model.nodes import (
    BarrierNode,
    BranchNode,
    FlagNode,
    InstrNode,
    LetNode,
    LoopNode,
    Node,
    Program,
    SyncNode,
    Unit,
)  # fmt: skip
from moec.targets.ascend.model.terms import Values


@dataclass(slots=True, eq=False)
class Outcome:
    """What a unit did: cycles passed, id of the state after, differences of the totals, values assigned."""

    cycles: int
    state: int
    totals: list[int]
    out: tuple[int | float, ...]


@dataclass
class Memory:
    """What all cores of one simulation share: outcomes by (unit, key, state), of runs of iterations that differ in
    nothing also by their number, and the states by id."""

    outcomes: dict[tuple[int, tuple[Any, ...], int], Outcome] = field(default_factory=dict)
    runs: dict[tuple[int, tuple[Any, ...], int, int], Outcome] = field(default_factory=dict)
    ids: dict[tuple[Any, ...], int] = field(default_factory=dict)
    states: list[tuple[Any, ...]] = field(default_factory=list)

    def intern(self, state: tuple[Any, ...]) -> int:
        """The id of a canonical state."""
        found = self.ids.get(state)
        if found is None:
            found = self.ids[state] = len(self.states)
            self.states.append(state)
        return found


class Costs(Protocol):
    """Gives the engine's form of an instruction for the numbers its cost depends on."""

    def timed(self, node: InstrNode, key: tuple[Any, ...]) -> Timed:
        """The instruction ``node`` with the numbers ``key``."""
        ...


@dataclass(slots=True)
class Message:
    """What a core says to the others: it has reached SyncAll (``all``), sets a cross-core flag (``set``: ``mode``,
    ``id``), waits for one (``wait``: ``id``), begins (``enter``) or ends (``leave``) an iteration, ``unit`` with
    ``key``, of the ``depth``-th loop with waits around it. ``at`` is when it sets, waits or has reached, in cycles of
    its own clock."""

    kind: str
    at: int
    mode: int = 0
    id: int = 0
    unit: Unit | None = None
    key: tuple[Any, ...] = ()
    depth: int = 0


Talk = Generator[Message, int, None]
"""A core's run: yields messages; is sent the cycle at which it may go on; for ``enter``, whether the iteration has been
applied to it and is over."""


class Runner:
    """One core running one program. ``issue`` and ``flag``: scalar cycles of an instruction and a flag."""

    alone = False
    """Whether it waits for no other core."""

    def __init__(
        self, program: Program, engine: Engine, costs: Costs, issue: int, flag: int, memory: Memory | None,
        core: dict[str, int],
    ):  # fmt: skip
        self.program, self.engine, self.costs, self.memory = program, engine, costs, memory
        self.issue, self.flag = issue, flag
        self.values: Values = [0] * program.slots
        for which, number in core.items():
            self.values[program.core_slots[which]] = number
        self._state: int | None = None  # id of the present canonical state, where known
        self._live = True  # whether the engine's fields hold it
        self._owed: dict[Outcome, int] = {}  # outcomes applied (how often) whose totals the engine has yet to be given
        self.laps = False  # whether it says where iterations with waits begin and end
        self._depth = 0

    def run(self) -> Talk:
        """The whole program; only kernels that synchronise cores yield."""
        if self.program.main.syncs and not self.alone:
            yield from self._talk(self.program.main.nodes)
        else:
            self._unit(self.program.main, self.program.main.nodes)
        self._wake()
        self._settle()

    # -- state

    def _wake(self) -> None:
        """Makes the engine's fields hold the present state, about to change."""
        if not self._live:
            assert self.memory is not None and self._state is not None
            self.engine.restore(self.memory.states[self._state])
            self._live = True
        self._state = None

    def _known(self, memory: Memory) -> int:
        if self._state is None:
            self._state = memory.intern(self.engine.canonical())
        return self._state

    def _settle(self) -> None:
        """Gives the engine the totals of what has been applied."""
        if self._owed:
            for outcome, times in self._owed.items():
                self.engine.add(outcome.totals, times)
            self._owed.clear()

    def _apply(self, outcome: Outcome, times: int = 1) -> None:
        self.engine.now += outcome.cycles * times
        self._owed[outcome] = self._owed.get(outcome, 0) + times
        self._state = outcome.state
        self._live = False

    def state(self) -> int:
        """The id of the present canonical state."""
        assert self.memory is not None
        return self._known(self.memory)

    def stands(self, outcome: Outcome) -> bool:
        """Whether the state is the one that ``outcome`` left, and nothing has changed since."""
        return self._state == outcome.state and not self._live

    def totals(self) -> Any:
        """All that has been counted so far."""
        self._settle()
        return self.engine.totals()

    def outcome(self, unit: Unit, start: int, before: Any) -> Outcome:
        """What ``unit`` did since clock ``start`` and totals ``before``."""
        self._settle()
        totals = self.engine.since(before)
        return Outcome(self.engine.now - start, self.state(), totals, tuple([self.values[slot] for slot in unit.out]))

    def apply(self, unit: Unit, outcome: Outcome) -> None:
        """Does what ``unit`` is known to do."""
        self.engine.now += outcome.cycles
        owed = self._owed
        owed[outcome] = owed.get(outcome, 0) + 1
        self._state = outcome.state
        self._live = False
        if unit.out:
            values = self.values
            for slot, value in zip(unit.out, outcome.out, strict=True):
                values[slot] = value

    # -- running

    def _unit(self, unit: Unit, does: LoopNode | tuple[Node, ...]) -> Outcome | None:
        """Runs a unit, a loop or some nodes, unless its outcome from here is known."""
        memory = self.memory
        if memory is None or (unit.syncs and not self.alone):
            self._do(does)
            return None
        state = self._state
        key = (unit.uid, unit.key(self.values), self._known(memory) if state is None else state)
        outcome = memory.outcomes.get(key)
        if outcome is not None:
            self.apply(unit, outcome)
            return outcome
        start, before = self.engine.now, self.totals()
        self._do(does)
        outcome = memory.outcomes[key] = self.outcome(unit, start, before)
        return outcome

    def _do(self, does: LoopNode | tuple[Node, ...]) -> None:
        if isinstance(does, tuple):
            self._block(does)
        else:
            self._loop(does)

    def _block(self, nodes: tuple[Node, ...]) -> None:
        engine, values = self.engine, self.values
        for node in nodes:
            if isinstance(node, LetNode):
                if node.cycles:
                    if self._state is not None:
                        self._wake()
                    engine.now += node.cycles
                    engine.busy[-1] += node.cycles
                if node.value is not None:
                    values[node.slot] = node.value(values)[0]
            elif isinstance(node, InstrNode):
                if self._state is not None:
                    self._wake()
                engine.issue(self.costs.timed(node, node.key(values)), self.issue)
            elif isinstance(node, FlagNode):
                if self._state is not None:
                    self._wake()
                engine.scalar(self.flag)
                (engine.set_flag if node.raises else engine.wait_flag)(node.src, node.dst, node.id(values)[0])
            elif isinstance(node, LoopNode):
                self._unit(node.whole, node)
            elif isinstance(node, Unit):
                self._unit(node, node.nodes)
            elif isinstance(node, BranchNode):
                self._block(node.then if node.cond(values)[0] else node.orelse)
            elif isinstance(node, BarrierNode):
                if self._state is not None:
                    self._wake()
                engine.barrier(node.pipe)

    def _loop(self, node: LoopNode) -> None:
        trips = range(*node.bounds(self.values))
        memory, values, slot, varying = self.memory, self.values, node.slot, node.varying
        if memory is None or (node.body.syncs and not self.alone):
            for number in trips:
                values[slot] = number
                self._block(node.body.nodes)
            return
        if varying is None or len(trips) < 4:
            uid, key, outcomes, body = node.body.uid, node.body.key, memory.outcomes, node.body
            for number in trips:
                values[slot] = number
                state = self._state
                outcome = outcomes.get((uid, key(values), self._known(memory) if state is None else state))
                if outcome is None:
                    self._unit(body, body.nodes)
                else:
                    self.apply(body, outcome)
            return
        if node.steady:
            self._run_of(node, trips, memory)
            return
        owed, body, outcome = self._owed, node.body, None
        follows: dict[tuple[tuple[Any, ...], Outcome | None], Outcome] = {}
        last: Outcome | None = None  # what the iteration before did: it decides the state and what is assigned
        cycles, behind = 0, False  # iterations that are counted but not yet applied
        for number in trips:
            values[slot] = number
            where = (varying(values), last)
            outcome = follows.get(where)
            if outcome is not None:
                owed[outcome] = owed.get(outcome, 0) + 1
                cycles += outcome.cycles
                behind = True
            else:
                if last is not None and behind:
                    self._leap(body, last, cycles)
                    cycles, behind = 0, False
                outcome = self._unit(body, body.nodes)
                assert outcome is not None
                if last is not None:
                    follows[where] = outcome
            last = outcome
        if last is not None and behind:
            self._leap(body, last, cycles)

    def _leap(self, body: Unit, last: Outcome, cycles: int) -> None:
        """Comes to where iterations of ``body`` that took ``cycles`` in all, and of which this was the last, end."""
        self.engine.now += cycles
        self._state = last.state
        self._live = False
        for slot, value in zip(body.out, last.out, strict=True):
            self.values[slot] = value

    def _run_of(self, node: LoopNode, trips: range, memory: Memory) -> None:
        """Iterations that differ in nothing but the state and the variables they assign."""
        values, body = self.values, node.body
        values[node.slot] = trips[0]
        if len(trips) == 1:
            self._unit(body, body.nodes)
            return
        key = (body.uid, body.key(values), self._known(memory), len(trips))
        outcome = memory.runs.get(key)
        if outcome is None:
            start, before = self.engine.now, self.totals()
            self._alike(node, trips, memory)
            memory.runs[key] = self.outcome(body, start, before)
        else:
            self.apply(body, outcome)

    def _alike(self, node: LoopNode, trips: range, memory: Memory) -> None:
        """Such iterations are periodic once state and assigned variables return."""
        seen: dict[tuple[Any, ...], int] = {}
        trail: list[Outcome] = []
        i = 0
        while i < len(trips):
            where = (self._known(memory), *(self.values[slot] for slot in node.body.out))
            first = seen.setdefault(where, len(trail))
            if first < len(trail):
                times = (len(trips) - i) // (len(trail) - first)
                if times:
                    for outcome in trail[first:]:
                        self._apply(outcome, times)
                    i += times * (len(trail) - first)
                seen, trail = {where: 0}, []
                if i == len(trips):
                    return
            self.values[node.slot] = trips[i]
            outcome_ = self._unit(node.body, node.body.nodes)
            assert outcome_ is not None
            trail.append(outcome_)
            i += 1

    # -- several cores

    def _talk(self, nodes: tuple[Node, ...]) -> Talk:
        for node in nodes:
            if isinstance(node, SyncNode):
                yield from self._sync(node)
            elif isinstance(node, BranchNode) and node.syncs:
                yield from self._talk(node.then if node.cond(self.values)[0] else node.orelse)
            elif isinstance(node, LoopNode) and node.syncs:
                yield from self._laps(node)
            else:
                self._block((node,))

    def _laps(self, node: LoopNode) -> Talk:
        values, body = self.values, node.body
        trips = range(*node.bounds(values))
        if not self.laps:
            for number in trips:
                values[node.slot] = number
                yield from self._talk(body.nodes)
            return
        self._depth += 1
        enter = Message("enter", 0, unit=body, depth=self._depth)  # one for all iterations
        for number in trips:
            values[node.slot] = number
            enter.key = body.key(values)
            if not (yield enter):
                yield from self._talk(body.nodes)
                yield Message("leave", 0, unit=body, depth=self._depth)
        self._depth -= 1

    def _sync(self, node: SyncNode) -> Talk:
        self._wake()
        engine = self.engine
        if node.kind == "all":
            engine.now = yield Message("all", engine.idle())
            return
        assert node.id is not None
        number = int(node.id(self.values)[0])
        if node.kind == "set":
            yield Message("set", engine.signal(node.pipe), node.mode, number)
        else:
            engine.now = max(engine.now, (yield Message("wait", engine.now, id=number)))


class Counting(Runner):
    """A core whose engine counts and has no time: it is always in the same state and waits for nobody."""

    alone = True

    def _wake(self) -> None:
        pass

    def _block(self, nodes: tuple[Node, ...]) -> None:
        engine, values = self.engine, self.values
        for node in nodes:
            if isinstance(node, LetNode):
                if node.value is not None:
                    values[node.slot] = node.value(values)[0]
            elif isinstance(node, InstrNode):
                engine.issue(self.costs.timed(node, node.key(values)), 0)
            elif isinstance(node, LoopNode):
                self._unit(node.whole, node)
            elif isinstance(node, Unit):
                self._unit(node, node.nodes)
            elif isinstance(node, BranchNode):
                self._block(node.then if node.cond(values)[0] else node.orelse)

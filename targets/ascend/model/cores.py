"""Several cores together: which there are, SyncAll and cross-core flags.

The cores of a group that waits for no other are looked up together: where all of them begin an iteration of a loop
with waits, what they do until each has ended its iteration is decided by the keys of the iterations, the states of the
cores, how far their clocks are apart and which flags are on the way. What has been seen is applied to all at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from moec.diagnostics import CheckFailed, Where
from moec.targets.ascend.model.engine import Deadlock
from moec.targets.ascend.model.nodes import Unit
from moec.targets.ascend.model.runner import Message, Outcome, Runner, Talk

VECTOR_CORES = 2
"""Vector cores to a cube core in a mixed kernel."""


@dataclass(frozen=True)
class Seat:
    """One core of a launch: its kind (aic or aiv), its group (a cube core and its vector cores), and what it knows of
    itself: ``idx`` (GetBlockIdx), ``sub`` (GetSubBlockIdx)."""

    kind: str
    group: int
    facts: Mapping[str, int]


def seats_of(core: str, blocks: int) -> list[Seat]:
    """The cores of a kernel for ``core`` (aic, aiv, mix) launched with ``blocks``."""
    if core != "mix":
        return [Seat(core, c, {"idx": c, "sub": 0}) for c in range(blocks)]
    out: list[Seat] = []
    for c in range(blocks):
        out.append(Seat("aic", c, {"idx": c, "sub": 0}))
        out += [Seat("aiv", c, {"idx": c * VECTOR_CORES + s, "sub": s}) for s in range(VECTOR_CORES)]
    return out


Flags = tuple[tuple[tuple[int, tuple[int, ...]], ...], tuple[tuple[tuple[int, int], tuple[int, ...]], ...]]
"""Flags on the way to a core by id, and what it has set that other senders have not, by (mode, id); relative times."""


@dataclass(frozen=True, eq=False)
class Known:
    """What an iteration did: of each core that ran it, and the flags on the way to each core of the group after it.
    ``next``: what the iterations did that came at once after it, by what they were."""

    outcomes: tuple[Outcome, ...]
    flags: tuple[Flags, ...]
    next: dict[tuple[Any, ...], Known] = field(default_factory=dict)


Together = dict[tuple[Any, ...], Known]
"""Iterations of whole groups that have been seen."""


@dataclass
class _Lap:
    """An iteration of several cores that is being recorded: its key, and clock and totals of each core before it."""

    key: tuple[Any, ...]
    before: list[tuple[int, list[int]]]
    live: bool = True


@dataclass
class _Core:
    """One core in time: its run, what it last said, when flags reach it that it has not waited for, when it set those
    by (mode, id) that others have yet to set, and the iterations it is in (None: not recorded)."""

    seat: Seat
    runner: Runner
    talk: Talk
    said: Message | None = None
    arrived: dict[int, list[int]] = field(default_factory=dict)
    sets: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    laps: list[_Lap | None] = field(default_factory=list)


class _After(NamedTuple):
    """The iteration that was applied last, to which cores, and the clocks of all cores of the group then. The flags
    that it leaves are not yet on their way."""

    known: Known
    there: Sequence[_Core]
    clocks: tuple[int, ...]


def run_cores(
    kernel: str, seats: Sequence[Seat], runners: Sequence[Runner], sync_all: int, cross_core: int,
    together: Together | None = None,
) -> None:  # fmt: skip
    """Runs every core to its end, letting those go on that wait for others.

    SyncAll ends for all cores when the last has arrived and all its pipes are done, plus ``sync_all`` cycles. A
    cross-core flag arrives ``cross_core`` cycles after its last sender has set it: mode 0 all cores of a kind have, and
    it reaches them; mode 1 the vector cores of a group; mode 2 from the cube core to its vector cores, or from all of
    those to their cube core. ``together`` (only where groups do not wait for one another): what groups have been seen
    to do. Raises CheckFailed where cores wait for ever.
    """
    groups: dict[int, list[_Core]] = {}
    for seat, runner in zip(seats, runners, strict=True):
        runner.laps = together is not None
        group = groups.setdefault(seat.group if together is not None else 0, [])
        group.append(_Core(seat, runner, runner.run()))
    try:
        for cores in groups.values():
            _Group(cores, sync_all, cross_core, together).run()
    except Deadlock as error:
        raise CheckFailed(f"kernel {kernel}: {error}", Where(node=kernel), "its flags do not match") from None


class _Group:
    """Cores that wait for one another."""

    def __init__(self, cores: Sequence[_Core], sync_all: int, cross_core: int, together: Together | None):
        self.cores, self.sync_all, self.cross_core, self.together = cores, sync_all, cross_core, together
        self.after: _After | None = None
        self.late: tuple[Known, tuple[Any, ...]] | None = None  # what came before, and which iterations come now

    def run(self) -> None:
        for core in self.cores:
            self._advance(core, None)
        while any(core.said is not None for core in self.cores):
            if not self._follow() and not self._release() and not self._lap():
                waiting = [f"core {i}: {c.said.kind}" for i, c in enumerate(self.cores) if c.said is not None]
                raise Deadlock(f"cores wait for one another for ever ({', '.join(waiting[:4])})")

    def _advance(self, core: _Core, at: int | None) -> None:
        """Lets a core go on at cycle ``at`` until it waits, begins or ends an iteration, or ends."""
        try:
            core.said = next(core.talk) if at is None else core.talk.send(at)
            while True:
                if core.said.kind == "set":
                    self._set(core, core.said)
                    core.said = core.talk.send(core.said.at)
                elif core.said.kind == "leave" and not ((lap := core.laps[-1]) and lap.live):
                    core.laps.pop()
                    core.said = core.talk.send(0)
                else:
                    return
        except StopIteration:
            core.said = None

    def _set(self, core: _Core, said: Message) -> None:
        """Takes note of a flag; hands it to whom it is for once every sender has set it as often."""
        self._send()
        key = (said.mode, said.id)
        core.sets.setdefault(key, []).append(said.at)
        scope = [c for c in self.cores if _in_scope(said.mode, core.seat, c.seat)]
        senders = [c for c in scope if said.mode != 2 or c.seat.kind == core.seat.kind]
        if not all(c.sets.get(key) for c in senders):
            return
        at = max(c.sets[key].pop(0) for c in senders) + self.cross_core
        for c in scope:
            if said.mode != 2 or c.seat.kind != core.seat.kind:
                c.arrived.setdefault(said.id, []).append(at)

    def _release(self) -> bool:
        """Frees every core that can go on; False if none can."""
        self._send()
        if all(core.said is not None and core.said.kind == "all" for core in self.cores):
            at = max(core.said.at for core in self.cores if core.said is not None) + self.sync_all
            for core in self.cores:
                self._advance(core, at)
            return True
        moved = False
        for core in self.cores:
            if core.said is not None and core.said.kind == "wait" and core.arrived.get(core.said.id):
                self._advance(core, core.arrived[core.said.id].pop(0))
                moved = True
        return moved

    # -- iterations of several cores

    def _lap(self) -> bool:
        """Goes on where cores begin or end iterations: together where all of them do, else without a record."""
        there = [(c, c.said) for c in self.cores if c.said is not None]
        entering = [(c, said) for c, said in there if said.kind == "enter"]
        leaving = [c for c, said in there if said.kind == "leave"]
        deepest = max((said.depth for _, said in entering), default=0)
        if len(entering) == len(there) and all(said.depth == deepest for _, said in there):
            self._enter(there)
        elif len(leaving) == len(there):
            self._leave(there)
        elif entering:
            for core in [c for c, said in entering if said.depth == deepest]:
                core.laps.append(None)
                self._advance(core, 0)
        elif leaving:
            for core in leaving:
                lap = core.laps.pop()
                assert lap is not None
                lap.live = False
                self._advance(core, 0)
        else:
            return False
        return True

    def _follow(self) -> bool:
        """Applies an iteration that has been seen to come at once after the one before; whether there is one."""
        after, self.late = self.after, None
        if after is None:
            return False
        which: list[tuple[Unit | None, tuple[Any, ...]]] = []
        depth = after.there[0].said.depth if after.there[0].said is not None else 0
        for core, outcome in zip(after.there, after.known.outcomes, strict=True):
            said = core.said
            if said is None or said.kind != "enter" or said.depth != depth or not core.runner.stands(outcome):
                return False
            which.append((said.unit, said.key))
        if tuple([c.runner.engine.now for c in self.cores]) != after.clocks:
            return False
        key = tuple(which)
        known = after.known.next.get(key)
        if known is None:
            self.late = after.known, key
            return False
        self._apply(known, after.there)
        return True

    def _apply(self, known: Known, there: Sequence[_Core]) -> None:
        """Does what an iteration is known to do, and lets the cores go on."""
        for core, outcome in zip(there, known.outcomes, strict=True):
            assert core.said is not None and core.said.unit is not None
            core.runner.apply(core.said.unit, outcome)
        self.after = _After(known, there, tuple([c.runner.engine.now for c in self.cores]))
        for core in there:
            self._advance(core, 1)

    def _send(self) -> None:
        """Puts the flags of the iteration that was applied last on their way."""
        after, self.after = self.after, None
        if after is None:
            return
        base = after.clocks[self.cores.index(after.there[0])]
        for core, now, (arrived, sets) in zip(self.cores, after.clocks, after.known.flags, strict=True):
            core.arrived = {number: [now + t for t in times] for number, times in arrived}
            core.sets = {flag: [base + t for t in times] for flag, times in sets}

    def _enter(self, there: Sequence[tuple[_Core, Message]]) -> None:
        assert self.together is not None
        base = there[0][0].runner.engine.now
        cores = tuple(
            (self.cores.index(c), said.unit, said.key, c.runner.state(), c.runner.engine.now - base)
            for c, said in there
        )  # fmt: skip
        key = (cores, tuple(self._flags(c, base) for c in self.cores))
        known = self.together.get(key)
        if known is not None:
            if self.late is not None:
                before, which = self.late
                before.next[which] = known
            self._apply(known, [c for c, _ in there])
            return
        lap = _Lap(key, [(c.runner.engine.now, c.runner.totals()) for c, _ in there])
        for core, _ in there:
            core.laps.append(lap)
        for core, _ in there:
            self._advance(core, 0)

    def _leave(self, there: Sequence[tuple[_Core, Message]]) -> None:
        assert self.together is not None
        laps = [c.laps.pop() for c, _ in there]
        lap = laps[0]
        assert lap is not None and all(other is lap for other in laps)
        outcomes = []
        for (core, said), (now, before) in zip(there, lap.before, strict=True):
            assert said.unit is not None
            outcomes.append(core.runner.outcome(said.unit, now, before))
        base = there[0][0].runner.engine.now
        self.together[lap.key] = Known(tuple(outcomes), tuple(self._flags(c, base) for c in self.cores))
        for core, _ in there:
            self._advance(core, 0)

    def _flags(self, core: _Core, base: int) -> Flags:
        """Flags on the way to a core, relative to its clock (past ones are 0), and those it has set, to ``base``."""
        now = core.runner.engine.now
        arrived = tuple(
            sorted((n, tuple(max(0, t - now) for t in times)) for n, times in core.arrived.items() if times)
        )
        return arrived, tuple(sorted((f, tuple(t - base for t in times)) for f, times in core.sets.items() if times))


def _in_scope(mode: int, mine: Seat, other: Seat) -> bool:
    if mode == 0:
        return mine.kind == other.kind
    return mine.group == other.group and (mode == 2 or other.kind == "aiv")

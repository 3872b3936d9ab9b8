"""Several cores together: which there are, SyncAll and cross-core flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from moec.diagnostics import CheckFailed, Where
from moec.targets.ascend.model.engine import Deadlock
from moec.targets.ascend.model.runner import Message, Runner, Talk

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


@dataclass
class _Core:
    """One core in time: its run, what it last said, which flags have reached it and how often it waited for each, and
    when it set each of them by (mode, id)."""

    seat: Seat
    talk: Talk
    said: Message | None = None
    arrived: dict[int, list[int]] = field(default_factory=dict)
    waits: dict[int, int] = field(default_factory=dict)
    sets: dict[tuple[int, int], list[int]] = field(default_factory=dict)


def run_cores(kernel: str, seats: Sequence[Seat], runners: Sequence[Runner], sync_all: int, cross_core: int) -> None:
    """Runs every core to its end, letting those go on that wait for others.

    SyncAll ends for all cores when the last has arrived and all its pipes are done, plus ``sync_all`` cycles. A
    cross-core flag arrives ``cross_core`` cycles after its last sender has set it: mode 0 all cores of a kind have, and
    it reaches them; mode 1 the vector cores of a group; mode 2 from the cube core to its vector cores, or from all of
    those to their cube core. Raises CheckFailed where cores wait for ever.
    """
    cores = [_Core(seat, r.run()) for seat, r in zip(seats, runners, strict=True)]
    try:
        for core in cores:
            _advance(cores, core, None, cross_core)
        while any(core.said is not None for core in cores):
            if not _release(cores, sync_all, cross_core):
                waiting = [f"core {i}: {c.said.kind}" for i, c in enumerate(cores) if c.said is not None]
                raise Deadlock(f"cores wait for one another for ever ({', '.join(waiting[:4])})")
    except Deadlock as error:
        raise CheckFailed(f"kernel {kernel}: {error}", Where(node=kernel), "its flags do not match") from None


def _advance(cores: Sequence[_Core], core: _Core, at: int | None, cross_core: int) -> None:
    """Lets a core go on at cycle ``at`` until it waits or ends."""
    try:
        core.said = next(core.talk) if at is None else core.talk.send(at)
        while core.said.kind == "set":
            _set(cores, core, core.said, cross_core)
            core.said = core.talk.send(core.said.at)
    except StopIteration:
        core.said = None


def _set(cores: Sequence[_Core], core: _Core, said: Message, cross_core: int) -> None:
    """Takes note of a flag; hands it to whom it is for once every sender has set it as often."""
    key = (said.mode, said.id)
    times = core.sets.setdefault(key, [])
    times.append(said.at)
    number = len(times) - 1
    scope = [c for c in cores if _in_scope(said.mode, core.seat, c.seat)]
    senders = [c for c in scope if said.mode != 2 or c.seat.kind == core.seat.kind]
    if any(len(c.sets.get(key, ())) <= number for c in senders):
        return
    at = max(c.sets[key][number] for c in senders) + cross_core
    for c in scope:
        if said.mode != 2 or c.seat.kind != core.seat.kind:
            c.arrived.setdefault(said.id, []).append(at)


def _in_scope(mode: int, mine: Seat, other: Seat) -> bool:
    if mode == 0:
        return mine.kind == other.kind
    return mine.group == other.group and (mode == 2 or other.kind == "aiv")


def _release(cores: Sequence[_Core], sync_all: int, cross_core: int) -> bool:
    """Frees every core that can go on; False if none can."""
    if all(core.said is not None and core.said.kind == "all" for core in cores):
        at = max(core.said.at for core in cores if core.said is not None) + sync_all
        for core in cores:
            _advance(cores, core, at, cross_core)
        return True
    moved = False
    for core in cores:
        said = core.said
        if said is None or said.kind != "wait":
            continue
        number = core.waits.get(said.id, 0)
        arrived = core.arrived.get(said.id, ())
        if len(arrived) > number:
            core.waits[said.id] = number + 1
            _advance(cores, core, arrived[number], cross_core)
            moved = True
    return moved

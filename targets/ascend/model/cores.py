"""Several cores together: SyncAll and cross-core flags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from moec.diagnostics import CheckFailed, Where
from moec.targets.ascend.model.engine import Deadlock
from moec.targets.ascend.model.runner import Message, Runner, Talk


@dataclass
class _Seat:
    """One core: its run, what it last said, and how often it has set and waited for each flag."""

    talk: Talk
    said: Message | None = None
    sets: dict[int, list[int]] = field(default_factory=dict)
    waits: dict[int, int] = field(default_factory=dict)


def run_cores(kernel: str, runners: Sequence[Runner], sync_all: int, cross_core: int) -> None:
    """Runs every core to its end, letting those go on that wait for others.

    SyncAll ends for all cores when the last has arrived and all its pipes are done, plus ``sync_all`` cycles. A wait
    for a cross-core flag ends when every core has set it as often as this core has waited for it (mode 0, the only
    one that cores of one kind have among them), plus ``cross_core``. Raises CheckFailed where cores wait for ever.
    """
    seats = [_Seat(r.run()) for r in runners]
    try:
        for seat in seats:
            _advance(seat, None)
        while any(seat.said is not None for seat in seats):
            if not _release(seats, sync_all, cross_core):
                waiting = [f"core {i}: {s.said.kind}" for i, s in enumerate(seats) if s.said is not None]
                raise Deadlock(f"cores wait for one another for ever ({', '.join(waiting[:4])})")
    except Deadlock as error:
        raise CheckFailed(f"kernel {kernel}: {error}", Where(node=kernel), "its flags do not match") from None


def _advance(seat: _Seat, at: int | None) -> None:
    """Lets a core go on at cycle ``at`` until it waits or ends."""
    try:
        seat.said = next(seat.talk) if at is None else seat.talk.send(at)
        while seat.said.kind == "set":
            seat.sets.setdefault(seat.said.id, []).append(seat.said.at)
            seat.said = seat.talk.send(seat.said.at)
    except StopIteration:
        seat.said = None


def _release(seats: Sequence[_Seat], sync_all: int, cross_core: int) -> bool:
    """Frees every core that can go on; False if none can."""
    if all(seat.said is not None and seat.said.kind == "all" for seat in seats):
        at = max(seat.said.at for seat in seats if seat.said is not None) + sync_all
        for seat in seats:
            _advance(seat, at)
        return True
    moved = False
    for seat in seats:
        said = seat.said
        if said is None or said.kind != "wait":
            continue
        number = seat.waits.get(said.id, 0)
        if all(len(other.sets.get(said.id, ())) > number for other in seats):
            seat.waits[said.id] = number + 1
            _advance(seat, max(other.sets[said.id][number] for other in seats) + cross_core)
            moved = True
    return moved

"""Order between the streams of a program: events where it needs them, what is unordered, and until when memory is used.

Two steps are ordered where they stand on one stream, where an event leads from the one to the other, or where the host
waited in between. For each step the last step of every stream that is over when it starts is kept: a clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from moec.codegen.steps import HOST, Access, Record, Wait

Accesses = Callable[[Any], Sequence[Access]]
Clock = dict[str, int]


class _Order:
    """The clocks of the steps so far; positions count the steps that were given."""

    def __init__(self) -> None:
        self.now: dict[str, Clock] = {HOST: {}}
        self.events: dict[str, Clock] = {}

    def of(self, stream: str) -> Clock:
        """What is over when the next step of ``stream`` starts."""
        clock = self.now.setdefault(stream, {})
        if stream != HOST:
            _join(clock, self.now[HOST])
        return clock

    def event(self, step: Record | Wait) -> None:
        if isinstance(step, Record):
            self.events[step.event] = dict(self.of(step.stream))
        elif step.event not in self.events:
            raise ValueError(f"{step.stream} waits for event {step.event}, which nothing recorded before")
        else:
            _join(self.of(step.stream), self.events[step.event])

    def done(self, stream: str, position: int) -> None:
        self.now[stream][stream] = position


def _join(clock: Clock, other: Clock) -> None:
    for stream, position in other.items():
        if clock.get(stream, -1) < position:
            clock[stream] = position


class _Uses:
    """Who touched each tensor last."""

    def __init__(self) -> None:
        self.written: dict[str, tuple[str, int]] = {}
        self.read: dict[str, Clock] = {}

    def before(self, found: Sequence[Access]) -> dict[str, Clock]:
        """For each that touches something now, the steps that must be over: the last of each stream."""
        needed: dict[str, Clock] = {}
        for who, tensor, writes in found:
            need = needed.setdefault(who, {})
            if tensor in self.written:
                _join(need, dict([self.written[tensor]]))
            if writes:
                _join(need, self.read.get(tensor, {}))
        return needed

    def add(self, found: Sequence[Access], position: int) -> None:
        for who, tensor, writes in found:
            if writes:
                self.written[tensor] = (who, position)
                self.read[tensor] = {}
            else:
                self.read.setdefault(tensor, {})[who] = position


def with_events(steps: Sequence[Any], accesses: Accesses) -> list[Any]:
    """``steps`` with an event wherever one stream, or the host, touches what another has made or still reads: recorded
    right behind the step that must be over, waited for right before the one that needs it.
    """
    order, uses = _Order(), _Uses()
    behind: dict[int, list[Record]] = {}
    before: dict[int, list[Wait]] = {}
    clocks: list[tuple[str, Clock]] = []
    taken = {s.event for s in steps if isinstance(s, Record)}
    names: dict[int, str] = {}
    for i, step in enumerate(steps):
        if isinstance(step, Record | Wait):
            order.event(step)
            clocks.append((step.stream, {}))
            continue
        found = list(accesses(step))
        for who, need in uses.before(found).items():
            for other, position in sorted(need.items()):
                clock = order.of(who)
                if other in (who, HOST) or clock.get(other, -1) >= position:
                    continue
                if position not in names:
                    names[position] = _fresh(taken)
                    behind.setdefault(position, []).append(Record(names[position], other))
                before.setdefault(i, []).append(Wait(names[position], who))
                _join(clock, clocks[position][1])
        uses.add(found, i)
        stream = _stream(found, step)
        clock = order.of(stream)
        order.done(stream, i)
        clocks.append((stream, dict(clock)))
    return [s for i, step in enumerate(steps) for s in (*before.get(i, ()), step, *behind.get(i, ()))]


def _fresh(taken: set[str]) -> str:
    name = f"e{len(taken)}"
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _stream(found: Sequence[Access], step: Any) -> str:
    return str(getattr(step, "stream", found[0][0] if found else HOST))


def _played(steps: Sequence[Any], accesses: Accesses) -> Iterator[tuple[int, Sequence[Access], str, _Order]]:
    """Each step (index) that is no event, with what it touches, its stream, and what is over as it starts."""
    order = _Order()
    for i, step in enumerate(steps):
        if isinstance(step, Record | Wait):
            order.event(step)
            continue
        found = list(accesses(step))
        stream = _stream(found, step)
        order.of(stream)
        yield i, found, stream, order
        order.done(stream, i)


def unordered(steps: Sequence[Any], accesses: Accesses) -> list[tuple[int, int, str]]:
    """Steps (indices) that touch the same tensor, one of them writing it, with nothing that orders them."""
    uses = _Uses()
    out: list[tuple[int, int, str]] = []
    for i, found, _, order in _played(steps, accesses):
        for access in found:
            for who, need in uses.before([access]).items():
                clock = order.of(who)
                out += [
                    (p, i, access[1]) for o, p in sorted(need.items()) if o not in (who, HOST) and clock.get(o, -1) < p
                ]
        uses.add(found, i)
    return out


def ends(steps: Sequence[Any], accesses: Accesses) -> dict[str, int]:
    """For each tensor the last step (index) that may still run beside a use of it: what starts later starts after."""
    of_stream: dict[str, list[int]] = {}
    known: dict[str, list[Clock]] = {}
    used: dict[str, list[tuple[str, int]]] = {}
    for i, found, stream, order in _played(steps, accesses):
        for who, tensor, _ in found:
            used.setdefault(tensor, []).append((who, i))
        of_stream.setdefault(stream, []).append(i)
        known.setdefault(stream, []).append(dict(order.of(stream)))
    return {t: max(_end(who, i, of_stream, known) for who, i in uses) for t, uses in used.items()}


def last_uses(steps: Sequence[Any], accesses: Accesses) -> dict[str, tuple[int, str]]:
    """For each tensor its last use, step (index) and stream, if every other use is over when that starts."""
    used: dict[str, Clock] = {}
    out: dict[str, tuple[int, str]] = {}
    for i, found, stream, order in _played(steps, accesses):
        clock = order.of(stream)
        for who, tensor, _ in found:
            uses = used.setdefault(tensor, {})
            uses[who] = i
            out.pop(tensor, None)
            if all(s == stream or clock.get(s, -1) >= at for s, at in uses.items()):
                out[tensor] = (i, stream)
    return out


def _end(who: str, at: int, of_stream: dict[str, list[int]], known: dict[str, list[Clock]]) -> int:
    """The last step that does not know the one at ``at``, of ``who``, to be over."""
    last = at
    if who == HOST:
        return last
    for stream, places in of_stream.items():
        if stream == who:
            continue
        first = bisect_right(places, at)
        after = bisect_left(known[stream], at, lo=first, key=lambda clock: clock.get(who, -1))
        if after > first:
            last = max(last, places[after - 1])
    return last

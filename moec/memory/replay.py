"""Replaying a plan: memory and time event by event, several micro-batches in flight, as a card would run it.

Nothing here is shared with what made the plan. Reading what is not on the card, freeing what is not there, copying
what has not arrived or making room twice is an error, each with the event to blame.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from moec.diagnostics import CheckFailed
from moec.memory.plan import Event, Plan
from moec.memory.problem import Problem

Begin = tuple[float, tuple[tuple[float, int], ...]]

FEW = 64
"""Chunks in flight up to which each is run."""


@dataclass(frozen=True)
class Outcome:
    """What the replay saw: peak bytes of the card and where, of that moment ``parts`` besides the fixed bytes
    (``activations`` of forward, ``passing`` of backward, ``workspace`` of the step that runs), peak bytes of the host,
    microseconds of one period in steady state (a forward and a backward), and how long of it compute waited for copies.
    """

    peak_bytes: int
    peak_at: str
    parts: Mapping[str, int]
    host_bytes: int
    period_us: float
    waited_us: float


@dataclass
class _Card:
    """The state of card and host, of the compute stream, and of the two copy streams (the link works both ways)."""

    problem: Problem
    now: float = 0.0
    outward: float = 0.0
    """When the stream of copies out is done with what it has; ``inward`` likewise."""
    inward: float = 0.0
    bytes: int = 0
    of_forward: int = 0
    """Bytes of forward's tensors among them."""
    peak: int = 0
    peak_at: str = ""
    peak_parts: dict[str, int] = field(default_factory=dict)
    host: int = 0
    host_peak: int = 0
    waited: float = 0.0
    here: dict[tuple[int, int], float] = field(default_factory=dict)
    """(chunk, tensor) on the card, and from when on it may be read."""
    there: dict[tuple[int, int], float] = field(default_factory=dict)
    """On the host, and from when on it may be fetched."""
    leaving: deque[tuple[float, int]] = field(default_factory=deque)
    """Tensors that are copied out, and when each is off the card: in order, since the stream is one queue."""

    def __post_init__(self) -> None:
        self.given = frozenset(self.problem.given)
        self.made = frozenset(self.problem.producer)
        self.fixed = self.bytes = self.peak = sum(self.problem.fixed_bytes.values())
        self.peak_at, self.peak_parts = "fixed bytes", self.parts(0)

    def settle(self) -> None:
        """Free what copies out have left by now."""
        while self.leaving and self.leaving[0][0] <= self.now:
            self.add(self.leaving.popleft()[1], -1)

    def under_way(self) -> Begin:
        """The copies out that are not done, and how long each still takes."""
        left = [(round(end - self.now, 6), v) for end, v in self.leaving if end > self.now]
        return round(max(self.outward - self.now, 0.0), 6), tuple(left)

    def add(self, v: int, sign: int) -> None:
        """Count a tensor in, or out."""
        size = sign * self.problem.tensors[v].bytes
        self.bytes += size
        if v in self.made:
            self.of_forward += size

    def parts(self, workspace: int) -> dict[str, int]:
        """What the card holds besides the fixed bytes."""
        passing = self.bytes - self.fixed - self.of_forward
        return {"activations": self.of_forward, "passing": passing, "workspace": workspace}

    def look(self, workspace: int, what: str) -> None:
        """See whether there was ever more than now, with the workspace of what runs."""
        if self.bytes + workspace > self.peak:
            self.peak, self.peak_at = self.bytes + workspace, what
            self.peak_parts = self.parts(workspace)

    def run(self, chunk: int, event: Event, forward: bool, what: str) -> None:
        """One event of a chunk's forward or backward."""
        if event.what in ("run", "again"):
            self.compute(chunk, event, forward, what)
        elif event.what == "free":
            if self.here.pop((chunk, event.index), None) is None:
                raise self.wrong(f"frees {self.name(event.index)}, which is not on the card", what)
            self.add(event.index, -1)
        elif event.what == "out":
            self.copy_out(chunk, event.index, what)
        else:
            self.copy_in(chunk, event.index, what)

    def compute(self, chunk: int, event: Event, forward: bool, what: str) -> None:
        steps = self.problem.forward if forward or event.what == "again" else self.problem.backward
        step = steps[event.index]
        ready = self.now
        for v in step.reads:
            if v in self.given:
                continue
            arrival = self.here.get((chunk, v))
            if arrival is None:
                raise self.wrong(f"{step.name} reads {self.name(v)}, which is not on the card", what)
            ready = max(ready, arrival)
        self.waited += ready - self.now
        self.now = ready
        self.settle()
        for v in step.writes:
            if (chunk, v) in self.here:
                raise self.wrong(f"{step.name} writes {self.name(v)}, which is on the card already", what)
            self.here[chunk, v] = self.now
            self.add(v, 1)
        self.look(step.workspace, f"{what}, {step.name}")
        self.now += step.us

    def copy_out(self, chunk: int, v: int, what: str) -> None:
        if self.here.pop((chunk, v), None) is None:
            raise self.wrong(f"copies out {self.name(v)}, which is not on the card", what)
        size = self.problem.tensors[v].bytes
        self.outward = max(self.outward, self.now) + self.problem.copy_us(v)
        self.leaving.append((self.outward, v))
        self.there[chunk, v] = self.outward
        self.host += size
        self.host_peak = max(self.host_peak, self.host)

    def copy_in(self, chunk: int, v: int, what: str) -> None:
        left = self.there.pop((chunk, v), None)
        if left is None:
            raise self.wrong(f"copies back {self.name(v)}, which is not on the host", what)
        self.settle()
        self.inward = max(self.inward, self.now, left) + self.problem.copy_us(v)
        self.here[chunk, v] = self.inward
        self.add(v, 1)
        self.look(0, f"{what}, copy back of {self.name(v)}")
        self.host -= self.problem.tensors[v].bytes

    def name(self, v: int) -> str:
        return self.problem.tensors[v].name

    def wrong(self, text: str, what: str) -> CheckFailed:
        return CheckFailed(f"the plan fails replay: {what}: {text}")


def replay(problem: Problem, plan: Plan, few: int = FEW) -> Outcome:
    """Run the plan for as many chunks as are in flight and a few more: first all forwards, then one backward and one
    forward in turn, as 1F1B does. CheckFailed where an event cannot happen or something is left over.

    Of more than ``few`` chunks in flight only so many are run, where the last two forwards before the first backward
    begin alike (the same copies under way, as long before they end): so do those that are left out, each of which adds
    what it keeps and parks to every moment at which all are in flight, the peak among them.
    """
    most = problem.in_flight
    if most > few and (outcome := _replayed(problem, plan, max(few, 4))) is not None:
        return outcome
    outcome = _replayed(problem, plan, most)
    assert outcome is not None
    return outcome


def _replayed(problem: Problem, plan: Plan, run: int) -> Outcome | None:
    """The outcome by ``run`` of the chunks in flight; None where they are fewer and what is left out may differ."""
    card = _Card(problem)
    left_out = problem.in_flight - run
    chunks = run + 4
    marks: list[tuple[float, float]] = []
    begins: list[Begin] = []
    for chunk in range(run):
        begins.append(card.under_way())
        _part(card, chunk, plan.forward, True, None, left_out if chunk else 0)
    if left_out and begins[-1] != begins[-2]:
        return None
    waiting = [v for _, v in plan.ahead]
    for chunk in range(chunks):
        marks.append((card.now, card.waited))
        for v in waiting:
            card.copy_in(chunk, v, f"chunk {chunk} backward")
        waiting = [v for _, v in plan.ahead] if chunk + 1 < chunks else []
        early = _Early(card, chunk + 1, plan, waiting)
        _part(card, chunk, plan.backward, False, early)
        if chunk + run < chunks:
            _part(card, chunk + run, plan.forward, True, early, left_out)
    for key in card.here:
        raise card.wrong(f"{card.name(key[1])} is never freed", f"chunk {key[0]}")
    for key in card.there:
        raise card.wrong(f"{card.name(key[1])} is left on the host", f"chunk {key[0]}")
    (before, waited), (after, later) = marks[2], marks[3]
    kept, parked = (left_out * n for n in _stays(problem, plan))
    parts = {**card.peak_parts, "activations": card.peak_parts["activations"] + kept}
    return Outcome(card.peak + kept, card.peak_at, parts, card.host_peak + parked, after - before, later - waited)


def _stays(problem: Problem, plan: Plan) -> tuple[int, int]:
    """Bytes that a chunk's forward leaves on the card, and on the host, for its backward."""
    gone = {
        what: sum(problem.tensors[e.index].bytes for e in plan.forward if e.what == what) for what in ("free", "out")
    }
    made = sum(
        problem.tensors[v].bytes for e in plan.forward if e.what == "run" for v in problem.forward[e.index].writes
    )
    return made - gone["free"] - gone["out"], gone["out"]


@dataclass
class _Early:
    """Copies back for the next backward, issued while this one and the forward behind it run."""

    card: _Card
    chunk: int
    plan: Plan
    waiting: list[int]
    position: int = 0

    def compute(self) -> None:
        """A compute event comes next."""
        for at, v in self.plan.ahead:
            if at == self.position and v in self.waiting:
                self.waiting.remove(v)
                self.card.copy_in(self.chunk, v, f"chunk {self.chunk} backward")
        self.position += 1


def _part(
    card: _Card, chunk: int, events: tuple[Event, ...], forward: bool, early: _Early | None, before: int = 0
) -> None:
    """One chunk's forward or backward; ``before`` chunks were left out, and count for its number."""
    what = f"chunk {chunk + before} {'forward' if forward else 'backward'}"
    for event in events:
        if early is not None and event.what in ("run", "again"):
            early.compute()
        card.run(chunk, event, forward, what)

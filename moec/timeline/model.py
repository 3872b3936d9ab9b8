"""The two timelines: a host that issues work, and a device whose streams do it.

Host threads take their tasks in order. A task with device work is issued for ``host_us`` and then stands in its
stream's launch queue, which has room for ``depth`` tasks: while it is full, the host waits. The device begins it when
its stream is free, ``latency_us`` have passed since it was issued, what it reads is done (``event_us`` later where that
stands in another stream), and its link is free. A blocking read stops the host until its copy is done; a wait stops the
host until the copy that it names is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

KINDS = ("kernel", "collective", "copy", "read", "swap", "wait", "step")


@dataclass(frozen=True)
class Task:
    """One thing that the host does. ``stream`` is empty where the device has no part in it.

    ``after``: tasks whose device work it reads (by number). ``needs``: tasks of other host threads that must be over.
    ``awaits``: for a wait, the task whose copy it waits for. ``blocks``: the host waits for its own device work (a read
    by one call). ``link`` is what a transfer has to itself. ``where`` is the source line; ``group`` the ranks that a
    collective runs over; ``lane`` one of several independent programs that share the machine. Times in microseconds.
    """

    label: str
    kind: str
    where: str = ""
    host_us: float = 0.0
    device_us: float = 0.0
    stream: str = ""
    link: str = ""
    after: tuple[int, ...] = ()
    needs: tuple[int, ...] = ()
    awaits: int | None = None
    blocks: bool = False
    thread: int = 0
    bytes: int = 0
    group: str = ""
    lane: str = ""


@dataclass(frozen=True)
class Machine:
    """What the timeline must know of host and device besides the tasks.

    ``depth``: tasks that a launch queue holds before the host waits. ``latency_us``: from the end of an issue to the
    earliest start. ``event_us``: from the end of a task to the start of one in another stream that waits for it.
    ``wake_us``: from the end of a copy to the host's going on.
    """

    depth: int = 1024
    latency_us: float = 0.0
    event_us: float = 0.0
    wake_us: float = 0.0


@dataclass(frozen=True)
class Placed:
    """When a task happened: the host began it at ``host_start``, waited ``waited`` in it (for the device) and
    ``queued`` (for a place in the queue) and went on at ``host_end``; the device worked from ``start`` to ``end``.
    """

    task: Task
    host_start: float
    host_end: float
    waited: float
    queued: float
    start: float
    end: float


def simulate(tasks: Sequence[Task], machine: Machine) -> list[Placed]:
    """When each task happens. ValueError where a task needs one that stands behind it."""
    placed: list[Placed] = []
    clock: dict[int, float] = {}
    free: dict[str, float] = {}
    links: dict[str, float] = {}
    starts: dict[str, list[float]] = {}
    for number, task in enumerate(tasks):
        if any(i >= number for i in (*task.after, *task.needs, *([task.awaits] if task.awaits is not None else []))):
            raise ValueError(f"task {number} ({task.label}) needs one that stands behind it")
        begin = max([clock.get(task.thread, 0.0), *(placed[i].host_end for i in task.needs)])
        if task.awaits is not None:
            arrived = placed[task.awaits].end + machine.wake_us
            waited = max(0.0, arrived - begin)
            end = begin + waited + task.host_us
            placed.append(Placed(task, begin, end, waited, 0.0, end, end))
        elif not task.stream:
            end = begin + task.host_us
            placed.append(Placed(task, begin, end, 0.0, 0.0, end, end))
        else:
            placed.append(_issue(task, begin, placed, free, links, starts, machine))
        clock[task.thread] = placed[-1].host_end
    return placed


def _issue(
    task: Task,
    begin: float,
    placed: Sequence[Placed],
    free: dict[str, float],
    links: dict[str, float],
    starts: dict[str, list[float]],
    machine: Machine,
) -> Placed:
    queue = starts.setdefault(task.stream, [])
    room = queue[-machine.depth] if len(queue) >= machine.depth else 0.0
    queued = max(0.0, room - begin)
    issued = begin + queued + task.host_us
    start = max(
        issued + machine.latency_us, free.get(task.stream, 0.0), links.get(task.link, 0.0) if task.link else 0.0
    )
    for i in task.after:
        other = placed[i]
        start = max(start, other.end + (machine.event_us if other.task.stream not in ("", task.stream) else 0.0))
    end = start + task.device_us
    queue.append(start)
    free[task.stream] = end
    if task.link:
        links[task.link] = end
    waited = max(0.0, end + machine.wake_us - issued) if task.blocks else 0.0
    return Placed(task, begin, issued + waited, waited, queued, start, end)


Outputs = Mapping[str, Sequence[int]]
"""By lane: the tasks (by number) that the next turn of the lane reads."""


def repeated(tasks: Sequence[Task], times: int, outputs: Outputs) -> list[Task]:
    """The same program several times, one after the other, as the layers of a model run. What reads nothing in one turn
    reads its lane's ``outputs`` of the turn before.
    """
    found: list[Task] = []
    for turn in range(times):
        base = turn * len(tasks)
        before = {lane: tuple(i + base - len(tasks) for i in ends) for lane, ends in outputs.items() if turn}
        for t in tasks:
            after = tuple(i + base for i in t.after) if t.after or not t.stream else before.get(t.lane, ())
            needs = tuple(i + base for i in t.needs)
            awaits = None if t.awaits is None else t.awaits + base
            found.append(replace(t, after=after, needs=needs, awaits=awaits))
    return found

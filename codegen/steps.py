"""Steps of a program beside launches: streams and events, collectives, and what the host does itself.

A stream is a name: the device takes its steps in order. Streams meet by events: ``Record`` marks a point of one, and
``Wait`` keeps another, or the host, until that point is over. The host issues steps in the program's order, so that
what it has waited for is over for every later step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from moec.ir.symbol import Dim

COMPUTE = "compute"
COMM = "comm"
COPY = "copy"
HOST = "host"
"""Stands for the host where a stream is asked for."""

Param = int | str | tuple[int | str, ...]
Access = tuple[str, str, bool]
"""Who touches a tensor (a stream or the host), which one, and whether it is written."""


@dataclass(frozen=True, slots=True)
class Record:
    """``event`` is over when what stands before it on ``stream`` is."""

    event: str
    stream: str = COMPUTE


@dataclass(frozen=True, slots=True)
class Wait:
    """``stream``, or the host, goes on when ``event`` is over."""

    event: str
    stream: str = COMPUTE


@dataclass(frozen=True, slots=True)
class Collective:
    """A call of the communication library: ``op`` over ``group``, from all of ``source`` into ``target``.

    ``count`` elements: what each rank puts in (all_gather, all_reduce), gets (reduce_scatter) or sends to each other
    one (all_to_all); of all_to_all_v the elements of a row, of which it sends ``send[j]`` to rank j and gets
    ``receive[j]``, lists on the host.
    """

    op: str
    group: str
    source: str
    target: str
    count: Dim
    reduction: str = ""
    send: str = ""
    receive: str = ""
    nodes: tuple[str, ...] = ()
    stream: str = COMM


@dataclass(frozen=True, slots=True)
class HostOp:
    """``target``, in host memory, is ``op`` of what is there: see ``moec.codegen.host_cpp`` for the ops and their
    parameters."""

    op: str
    target: str
    sources: tuple[str, ...]
    params: tuple[tuple[str, Param], ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bind:
    """From here on ``symbol`` is the one integer that ``source``, in host memory, holds: at least ``low``, at most
    ``high``, or the program stops."""

    symbol: str
    source: str
    low: Dim
    high: Dim
    nodes: tuple[str, ...] = ()


HostStep = HostOp | Bind


def accesses(step: Collective | HostOp | Bind | Record | Wait) -> Iterable[Access]:
    """What such a step touches."""
    if isinstance(step, Collective):
        yield step.stream, step.source, False
        yield from ((HOST, name, False) for name in (step.send, step.receive) if name)
        yield step.stream, step.target, True
    elif isinstance(step, HostOp):
        yield from ((HOST, name, False) for name in step.sources)
        yield HOST, step.target, True
    elif isinstance(step, Bind):
        yield HOST, step.source, False

"""The compiled form of a kernel that the runner walks.

The statements become ``Node``s. Loop bodies and whole loops become ``Unit``s, which carry the key that decides what
they do (moec.targets.ascend.model.effects), so that the runner can look up a unit it has already run in the same
state. Functions map the list of variable values to numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from moec.codegen.instructions import InstrSpec
from moec.targets.ascend.model.terms import Values

Numbers = Callable[[Values], tuple[Any, ...]]
"""Evaluates some scalars."""


@dataclass(eq=False)
class InstrNode:
    """``key`` gives the numbers its cost depends on: parameters by ``names``, then device offset and three distances in
    UB (as moec.targets.ascend.cost.instruction.Distances). ``shared``: it reads L1 that is double buffered, which
    MTE2 fills meanwhile."""

    uid: int
    spec: InstrSpec
    dtypes: Mapping[str, str]
    path: str
    pipe: int
    tensor: str
    fixed: Mapping[str, Any]
    names: tuple[str, ...]
    key: Numbers
    writes: bool
    shared: bool


@dataclass(eq=False)
class FlagNode:
    """SetFlag or WaitFlag between two pipes; ``id`` evaluates the event id."""

    raises: bool
    src: int
    dst: int
    id: Numbers


@dataclass(eq=False)
class BarrierNode:
    pipe: int


@dataclass(eq=False)
class LetNode:
    """A scalar statement: ``cycles`` of the scalar unit, and a value for ``slot`` if time depends on it (else -1)."""

    slot: int
    value: Numbers | None
    cycles: int


@dataclass(eq=False)
class SyncNode:
    """SyncAll (``kind`` all), CrossCoreSet (set) or CrossCoreWait (wait)."""

    kind: str
    mode: int = 0
    pipe: int = -1
    id: Numbers | None = None


@dataclass(eq=False)
class BranchNode:
    cond: Numbers
    then: tuple[Node, ...]
    orelse: tuple[Node, ...]
    syncs: bool


@dataclass(eq=False)
class Unit:
    """A loop body, a whole loop (then ``nodes`` is empty), a whole kernel or what lies between two waits for other
    cores: its work and results are decided by ``key`` and the core's state. ``out``: slots they assign."""

    uid: int
    nodes: tuple[Node, ...]
    key: Numbers
    out: tuple[int, ...]
    syncs: bool


@dataclass(eq=False)
class LoopNode:
    """``varying``: the part of the body's key that the loop variable decides. While that stays the same, equal states
    repeat. None where variables that the body assigns enter it too. ``steady``: it decides nothing."""

    slot: int
    bounds: Numbers
    body: Unit
    whole: Unit
    varying: Numbers | None
    steady: bool
    syncs: bool


Node = InstrNode | FlagNode | BarrierNode | LetNode | SyncNode | BranchNode | LoopNode | Unit


@dataclass(eq=False)
class Program:
    """A compiled kernel: ``main`` is the whole body, ``slots`` counts variables, ``core_slots`` are the core's."""

    main: Unit
    slots: int
    core_slots: Mapping[str, int]
    tensors: tuple[str, ...]
    paths: tuple[str, ...]
    dtypes: tuple[str, ...]
    instructions: tuple[InstrNode, ...]


def syncs(node: Node) -> bool:
    """Whether ``node`` may wait for other cores."""
    return isinstance(node, SyncNode) or (isinstance(node, (LoopNode, BranchNode)) and node.syncs)

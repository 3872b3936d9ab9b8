"""What the planner decides about: one chunk of a model on one card, forward and backward, with sizes and times.

A chunk is what one pipeline stage runs for one micro-batch without a break. ``in_flight`` chunks have run forward and
wait for their backward at once: what one keeps counts that often.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

KEEP, RECOMPUTE, SWAP = "keep", "recompute", "swap"

COPY_US = 10.0
"""Microseconds that a copy stream loses to one copy, whatever its size (assumed): few large copies beat many."""


@dataclass(frozen=True)
class Tensor:
    """A buffer of ``bytes`` that ``step`` of its phase writes; None: it is there from the start (weights, inputs) and
    counted among the fixed bytes. Views of one storage are one tensor. ``must_save`` says why it may not be computed
    again (top-k choices, counts, permutations); empty where it may. ``origin`` is the place in the user's file.
    """

    name: str
    bytes: int
    must_save: str = ""
    origin: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Step:
    """One kernel of ``us`` microseconds that reads and writes tensors by index. ``fixed`` says why it may not run a
    second time (a collective whose order counts, say); empty where it may.
    """

    name: str
    us: float
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    fixed: str = ""
    workspace: int = 0
    """Bytes that it needs besides, while it runs."""
    origin: str = ""
    """The place in the user's file."""


@dataclass(frozen=True)
class Problem:
    """One chunk: ``forward`` then, later, ``backward`` steps over ``tensors``.

    ``fixed_bytes`` by what they are for (weights, gradients, optimizer, inputs). ``pcie`` is bytes per microsecond
    between card and host, one direction at a time; 0 where nothing may be swapped. ``host_bytes`` is what the host
    gives to this card. ValueError where a step reads what no earlier one wrote.
    """

    tensors: tuple[Tensor, ...]
    forward: tuple[Step, ...]
    backward: tuple[Step, ...]
    fixed_bytes: Mapping[str, int] = field(default_factory=dict)
    in_flight: int = 1
    pcie: float = 0.0
    host_bytes: int = 0

    def __post_init__(self) -> None:
        written: set[int] = set(self.given)
        for step in (*self.forward, *self.backward):
            if missing := [v for v in step.reads if v not in written]:
                names = ", ".join(self.tensors[v].name for v in missing)
                raise ValueError(f"step {step.name} reads {names} before it is written")
            if again := [v for v in step.writes if v in written]:
                raise ValueError(f"step {step.name} writes {self.tensors[again[0]].name}, which is written already")
            written.update(step.writes)
        if self.in_flight < 1:
            raise ValueError(f"{self.in_flight} chunks in flight: at least one is")

    @cached_property
    def given(self) -> tuple[int, ...]:
        """Tensors that no step writes."""
        written = {v for s in (*self.forward, *self.backward) for v in s.writes}
        return tuple(v for v in range(len(self.tensors)) if v not in written)

    @cached_property
    def producer(self) -> dict[int, int]:
        """The forward step that writes a tensor."""
        return {v: i for i, s in enumerate(self.forward) for v in s.writes}

    @cached_property
    def needed(self) -> tuple[int, ...]:
        """The forward tensors that backward reads, in order of production: what a chunk saves if nothing is planned."""
        read = {v for s in self.backward for v in s.reads}
        return tuple(v for v in self.producer if v in read)

    @cached_property
    def candidates(self) -> tuple[int, ...]:
        """Forward tensors that a plan may keep or swap: those that backward or a recomputation may read."""
        read = {v for s in (*self.forward, *self.backward) for v in s.reads}
        return tuple(v for v in self.producer if v in read)

    @cached_property
    def recomputable(self) -> frozenset[int]:
        """Forward steps that may run again: neither fixed themselves nor writing what must be saved."""
        return frozenset(
            i
            for i, s in enumerate(self.forward)
            if not s.fixed and not any(self.tensors[v].must_save for v in s.writes)
        )

    @cached_property
    def forward_us(self) -> float:
        """Compute time of a forward."""
        return sum(s.us for s in self.forward)

    @cached_property
    def backward_us(self) -> float:
        """Compute time of a backward, with nothing computed again."""
        return sum(s.us for s in self.backward)

    @property
    def us(self) -> float:
        """Compute time of one chunk, forward and backward, with nothing planned."""
        return self.forward_us + self.backward_us

    def copy_us(self, v: int) -> float:
        """What a copy of a tensor, one way, takes of its stream. ZeroDivisionError where nothing may be swapped."""
        return self.tensors[v].bytes / self.pcie + COPY_US

    def why_fixed(self, v: int) -> str:
        """Why a tensor may not be recomputed; empty where it may."""
        step = self.forward[self.producer[v]]
        others = [self.tensors[w].must_save for w in step.writes if self.tensors[w].must_save]
        return self.tensors[v].must_save or step.fixed or (f"its step also writes {others[0]}" if others else "")

"""What earlier stages may ask of a target, and what a target answers.

Passes and the driver know a target only through ``Target``; ``moec.targets.ascend`` implements it and the driver
hands it in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from moec.ir.graph import Module
from moec.ir.types import DType, TensorType

Sizes = Mapping[str, int]
"""A number for each symbol of a module."""


@dataclass(frozen=True)
class Span:
    """One interval on one pipe of the busiest core: ``start`` to ``stop`` in cycles from the kernel's start."""

    pipe: str
    start: int
    stop: int
    label: str


@dataclass(frozen=True)
class KernelTime:
    """How a modelled device runs one kernel once.

    ``cycles`` are those of the slowest core; ``us`` adds the launch. ``busy`` is each pipe's share of ``cycles`` on
    that core. ``bound`` names what limits the kernel: a pipe, ``HBM``, ``L2``, ``launch`` or ``host`` (a copy to or
    from it). ``floor_us`` is max(flops / peak, bytes / bandwidth), which no kernel may beat; ``bytes`` is device
    memory traffic. ``nodes`` are the layer IR nodes that it came from.
    """

    kernel: str
    core: str
    blocks: int
    cycles: int
    us: float
    launch_us: float
    floor_us: float
    bound: str
    flops: int
    bytes: int
    busy: Mapping[str, float] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()
    model: str = ""
    """Version of the model that said so: the cycle model that ran the kernel, or the operator model, which knows only
    what an op must move and compute."""
    low_us: float = 0.0
    high_us: float = 0.0
    """The band that holds about nine in ten measurements of such a kernel; both 0 where there is none."""
    confidence: str = ""
    """How sure the estimate is: ``high``, ``medium`` or ``low`` by the width of the band."""


@dataclass(frozen=True)
class Schedule:
    """The kernels of a program in launch order, for one choice of sizes."""

    target: str
    sizes: Sizes
    kernels: tuple[KernelTime, ...]
    model: str = ""
    """Version of the model that said so."""

    @property
    def us(self) -> float:
        """Microseconds of the whole program, one kernel after the other."""
        return sum(k.us for k in self.kernels)

    @property
    def cycles(self) -> int:
        """Core cycles of all kernels, launches not counted."""
        return sum(k.cycles for k in self.kernels)


@runtime_checkable
class Target(Protocol):
    """A device that moec compiles for."""

    name: str
    title: str

    def capacity(self, space: str) -> int:
        """Bytes of the on-chip memory ``space`` (``UB``, ``L1``, ``L0A``, ...) that a kernel may plan. KeyError for an
        unknown one.
        """
        ...

    def computes(self, dtype: DType) -> bool:
        """Whether tensors of ``dtype`` can be operands of a kernel."""
        ...

    def estimate(
        self, op: str, operands: Sequence[TensorType | None], attrs: Mapping[str, Any], sizes: Sizes
    ) -> KernelTime:
        """The time of one op alone. ``KernelTime.model`` names who answers: the cycle model where the op has a kernel,
        else an analytic model of its cost class, which also answers for an op that is not registered (by its bytes). A
        collective gets the time of its exchange. Refusal where the op moves nothing (a view), is control flow, or does
        not fit into the device's memory.
        """
        ...

    def workspace(self, op: str, operands: Sequence[TensorType | None], attrs: Mapping[str, Any], sizes: Sizes) -> int:
        """Bytes of device memory that the kernels of one op use besides its operands and results, at their fullest; 0
        where it has no kernel. Refusal where the op cannot be built of such operands, or a tile does not fit.
        """
        ...

    def collective(self, op: str, bytes_per_rank: int, ranks: int, *, ranks_per_node: int) -> float:
        """Microseconds of a collective over ``ranks`` devices, ``ranks_per_node`` of which share a node.

        ``op``: ``all_reduce``, ``all_gather``, ``reduce_scatter``, ``all_to_all``, ``all_to_all_v``, ``broadcast`` or
        ``send``. ``bytes_per_rank``: what each rank puts in (of all_gather its part, of the others its whole operand).
        Refusal for an unknown op or more ranks than the system has.
        """
        ...

    def host(self, call: str) -> float:
        """Microseconds of host time that ``call`` takes: ``launch``, ``read``, ``copy``, ``sync``, ``event``, ...

        Refusal for an unknown one, listing those there are.
        """
        ...

    def lower(self, module: Module, tune: Sizes, library: str = "kernels") -> Any:
        """The program of ``module``: kernels, launches, buffers. ``tune`` says which sizes to choose tiles for,
        ``library`` what runs an op: ``kernels`` of moec's, the vendor's operators (``aclnn``) where there are such,
        or, as ``auto``, what the estimate says is faster.

        NoKernel lists every op that has none, Refusal every tile that does not fit.
        """
        ...

    def emit(self, program: Any, folder: Path) -> None:
        """Write the project that the vendor's tools (or the CPU model) build into ``folder``."""
        ...

    def schedule(self, program: Any, sizes: Sizes) -> Schedule:
        """Time every kernel of ``program`` at ``sizes``."""
        ...

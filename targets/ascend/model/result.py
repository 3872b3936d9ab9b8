"""What the model says of one kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MODEL_VERSION = "ascend-cycles 6"
"""Changes whenever an estimate may change; every report carries it, and the cost goldens name it."""


@dataclass(frozen=True)
class Interval:
    """Cycles ``start`` to ``stop`` that one instruction held ``pipe`` of the core shown."""

    pipe: str
    start: int
    stop: int
    label: str


@dataclass(frozen=True)
class KernelResult:
    """One launch of one kernel at given sizes.

    ``cycles``: of the slowest core, ``us``: with the launch. ``busy``: cycles per pipe (S is the scalar unit) on that
    core, until results are usable; ``mean_busy`` the same in the mean over cores, as profilers print it (of a mixed
    kernel each pipe is that of the core kind that has more). ``stalls``: cycles its copies waited for HBM or L2 beyond
    their own path. ``path_bytes``: bytes asked for per path; ``hbm_bytes`` what the L2 does not serve, ``l2_bytes`` all
    device memory traffic, of all cores. ``blocks``: cores, of a mixed kernel the cube cores. ``flops``: cube
    FLOP and vector elements. ``instructions``: how often each call was issued, by all cores. ``floor_us``: max(FLOP /
    peak, bytes / bandwidth); ``core_cycles``: end of each core.
    """

    kernel: str
    core: str
    machine: str
    blocks: int
    cycles: int
    us: float
    launch_us: float
    floor_us: float
    bound: str
    busy: Mapping[str, int]
    stalls: Mapping[str, int]
    path_bytes: Mapping[str, int]
    hbm_bytes: int
    l2_bytes: int
    flops: int
    instructions: Mapping[str, int]
    core_cycles: tuple[int, ...]
    source: tuple[str, ...] = ()
    intervals: tuple[Interval, ...] = ()
    mean_busy: Mapping[str, int] = field(default_factory=dict)
    version: str = MODEL_VERSION

    @property
    def shares(self) -> dict[str, float]:
        """Busy share of each pipe."""
        return {pipe: cycles / self.cycles if self.cycles else 0.0 for pipe, cycles in self.busy.items()}


def bound_by(
    cycles: int, us: float, launch_us: float, busy: Mapping[str, int], stalls: Mapping[str, int], moving: frozenset[str]
) -> str:
    """What limits a kernel: ``launch`` where that takes longer than the work; else the busiest pipe, or, where that
    pipe moves device memory and spent half of its time waiting for a pool, the pool."""
    if cycles == 0 or launch_us >= us - launch_us:
        return "launch"
    pipe = max(busy, key=lambda p: (busy[p], p))
    if pipe in moving:
        pool = max(stalls, key=lambda p: (stalls[p], p))
        if 2 * stalls[pool] >= busy[pipe]:
            return pool
    return pipe

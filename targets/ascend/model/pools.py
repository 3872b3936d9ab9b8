"""Device memory as two pools that all cores share: HBM, and the L2 in front of it.

All traffic passes the L2; what is touched for the first time also comes from (or goes to) HBM. Re-reads are taken to
hit: a refinement by capacity and reuse distance belongs here and changes nothing else. A core gets a fixed share of
each pool: the pool's rate divided by the number of cores it serves at a time, which is all cores' bytes over the
busiest core's, so that the busiest core is done exactly when the pool could have been, and no earlier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from moec.targets.ascend.machine import Machine


@dataclass(frozen=True)
class Traffic:
    """Bytes of one parameter in one direction: ``asked`` by the instructions and ``moved`` in requests, per core, and
    ``size``, the bytes that can be touched at all."""

    asked: tuple[int, ...]
    moved: tuple[int, ...]
    size: int

    @property
    def first(self) -> int:
        """Bytes asked for the first time, at most: each byte of the parameter once."""
        return min(sum(self.asked), self.size)

    @property
    def cold(self) -> Fraction:
        """Share of the traffic that is first touch."""
        total = sum(self.asked)
        return Fraction(self.first, total) if total else Fraction(0)


@dataclass(frozen=True)
class Pools:
    """Cycles of a core's share per moved byte. ``hbm[key]`` and ``l2`` multiply moved bytes; ``key`` is (parameter,
    whether it is written)."""

    hbm: Mapping[tuple[str, bool], Fraction]
    l2: Fraction
    hbm_bytes: int
    l2_bytes: int

    def need(self, key: tuple[str, bool], moved: int) -> tuple[int, int]:
        """Cycles of the HBM and the L2 share that ``moved`` bytes take."""
        return (_ceil(self.hbm.get(key, Fraction(0)) * moved), _ceil(self.l2 * moved))


def _ceil(x: Fraction) -> int:
    return -(-x.numerator // x.denominator)


def share_out(machine: Machine, traffic: Mapping[tuple[str, bool], Traffic]) -> Pools:
    """The pools for a kernel with this traffic."""
    cores = max((len(t.moved) for t in traffic.values()), default=0)
    l2 = [sum(t.moved[c] for t in traffic.values()) for c in range(cores)]
    hbm = [sum((t.cold * t.moved[c] for t in traffic.values()), Fraction(0)) for c in range(cores)]
    hz = Fraction(machine["clock_mhz"]).limit_denominator(1000) * 1_000_000
    hbm_rate = Fraction(int(machine["memory.hbm_rate"])) / hz / _served(hbm)
    hbm_rate = min(hbm_rate, Fraction(machine["memory.hbm_per_core"]))
    l2_rate = Fraction(int(machine["memory.l2_rate"])) / hz / _served(l2)
    return Pools(
        {key: t.cold / hbm_rate for key, t in traffic.items()}, 1 / l2_rate,
        sum(t.first for t in traffic.values()), sum(sum(t.asked) for t in traffic.values()),
    )  # fmt: skip


def _served(per_core: Sequence[int | Fraction]) -> Fraction:
    """How many cores a pool serves at a time: their bytes over those of the busiest."""
    most = max(per_core, default=0)
    return Fraction(sum(per_core)) / Fraction(most) if most else Fraction(1)

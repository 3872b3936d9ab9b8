"""Device memory as two pools that all cores share: HBM, and the L2 in front of it.

All traffic passes the L2. What is read for the first time comes from HBM, and so does what is read again when the L2
has lost it since (moec.targets.ascend.model.locality); what the kernel itself wrote and reads back is still there if
it fits. Writes stay in the L2 until something pushes them out: every byte that a read brings in pushes out one byte
written earlier, as many as there are, and what does not fit follows; the L2 is taken to be full of earlier results at
the start.

A core gets a fixed share of each pool: the pool's rate divided by the number of cores it serves at a time, which is all
cores' bytes over the busiest core's, so that the busiest core is done exactly when the pool could have been, and no
earlier. The rate at which one core can read HBM has a limit of its own; writes it only hands over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from moec.targets.ascend.machine import Machine

Key = tuple[str, bool]
"""A parameter and whether it is written."""


@dataclass(frozen=True)
class Traffic:
    """Bytes of one parameter in one direction: ``asked`` by the instructions and ``moved`` in requests, per core, and
    ``size``, the bytes that can be touched at all. ``lost``: share of re-reads that the L2 has lost; ``cached``:
    whether reads are kept in the L2."""

    asked: tuple[int, ...]
    moved: tuple[int, ...]
    size: int
    lost: Fraction = Fraction(0)
    cached: bool = True

    @property
    def first(self) -> int:
        """Bytes asked for the first time, at most: each byte of the parameter once."""
        return min(sum(self.asked), self.size)

    @property
    def missed(self) -> Fraction:
        """Bytes that the L2 does not have: first touches and what it has lost; all that is not kept."""
        if not self.cached:
            return Fraction(sum(self.asked))
        return self.first + (sum(self.asked) - self.first) * self.lost


@dataclass(frozen=True)
class Pools:
    """Cycles of a core's share per moved byte: ``hbm[key]`` and ``l2`` multiply moved bytes. ``cold``: share of the
    bytes that HBM serves, ``first``: of those that are touched for the first time."""

    hbm: Mapping[Key, Fraction]
    cold: Mapping[Key, Fraction]
    first: Mapping[Key, Fraction]
    l2: Fraction
    hbm_bytes: int
    l2_bytes: int

    def need(self, key: Key, moved: int) -> tuple[int, int]:
        """Cycles of the HBM and the L2 share that ``moved`` bytes take."""
        return (_ceil(self.hbm.get(key, Fraction(0)) * moved), _ceil(self.l2 * moved))

    def beyond_rows(self, key: Key, together: Fraction | int) -> Fraction:
        """The share of a core's reads whose time in HBM stands for that in the L2: what it brings there itself. Of
        lines that ``together`` cores touch first at one time each of them waits for all: one brings a line, and then
        the others have it as rows from the L2."""
        first = self.first.get(key, Fraction(0))
        return self.cold.get(key, Fraction(0)) - first * (1 - 1 / Fraction(together))


def _ceil(x: Fraction) -> int:
    return -(-x.numerator // x.denominator)


def from_hbm(traffic: Mapping[Key, Traffic], capacity: int) -> dict[Key, Fraction]:
    """Bytes of each parameter and direction that HBM reads or writes; the L2 holds ``capacity`` bytes."""
    written = sum(t.first for (_, writes), t in traffic.items() if writes)
    own = {name for (name, writes), t in traffic.items() if writes and t.size <= capacity}
    out: dict[Key, Fraction] = {}
    brought = Fraction(0)
    for (name, writes), t in traffic.items():
        if not writes:
            missed = t.missed if name not in own else Fraction(0)
            out[name, writes] = missed
            brought += missed if t.cached else 0
    pushed = min(Fraction(written), brought + max(0, written - capacity))
    for (name, writes), t in traffic.items():
        if writes:
            out[name, writes] = pushed * t.first / written if written else Fraction(0)
    return out


def share_out(machine: Machine, traffic: Mapping[Key, Traffic]) -> Pools:
    """The pools for a kernel with this traffic."""
    cores = max((len(t.moved) for t in traffic.values()), default=0)
    beyond = from_hbm(traffic, int(machine["memory.l2_bytes"]))
    cold = {key: beyond[key] / sum(t.asked) if sum(t.asked) else Fraction(0) for key, t in traffic.items()}
    first = {
        key: min(cold[key], Fraction(t.first, sum(t.asked))) if sum(t.asked) else Fraction(0)
        for key, t in traffic.items()
    }
    l2 = [sum(t.moved[c] for t in traffic.values()) for c in range(cores)]
    hbm = [sum((cold[key] * t.moved[c] for key, t in traffic.items()), Fraction(0)) for c in range(cores)]
    hz = Fraction(machine["clock_mhz"]).limit_denominator(1000) * 1_000_000
    write_rate = _hbm_rate(machine, beyond) / hz / _served(hbm)
    read_rate = min(write_rate, Fraction(machine["memory.hbm_per_core"]))
    l2_rate = Fraction(int(machine["memory.l2_rate"])) / hz / _served(l2)
    return Pools(
        {key: cold[key] / (write_rate if key[1] else read_rate) for key in traffic}, cold, first, 1 / l2_rate,
        _ceil(sum(beyond.values(), Fraction(0))), sum(sum(t.asked) for t in traffic.values()),
    )  # fmt: skip


def _hbm_rate(machine: Machine, beyond: Mapping[Key, Fraction]) -> Fraction:
    """Bytes per second that HBM moves: between the rate of one direction and that of both in equal parts."""
    written = sum((b for (_, writes), b in beyond.items() if writes), Fraction(0))
    total = sum(beyond.values(), Fraction(0))
    mixed = 2 * min(written, total - written) / total if total else Fraction(0)
    one, both = (Fraction(int(machine[f"memory.{key}"])) for key in ("hbm_rate", "hbm_mixed"))
    return 1 / ((1 - mixed) / one + mixed / both)


def _served(per_core: Sequence[int | Fraction]) -> Fraction:
    """How many cores a pool serves at a time: their bytes over those of the busiest."""
    most = max(per_core, default=0)
    return Fraction(sum(per_core)) / Fraction(most) if most else Fraction(1)

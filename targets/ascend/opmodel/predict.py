"""From a description of an operator's work to microseconds: launch, start, and pipes that hide one another in part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, isinf

from moec.targets.ascend.opmodel.chip import Chip
from moec.targets.ascend.opmodel.constants import OP_MODEL_VERSION, Constants, constants
from moec.targets.ascend.opmodel.cube import gemm_time, read_again
from moec.targets.ascend.opmodel.work import Work

BLOCK_BYTES = 4096
"""Bytes of the largest operand that the vendor's vector kernels give a core at least (profiled rows: 4096 f32 on 4
cores, 1024 on 1)."""

SETUP_CORES = 20.0
"""Cores among which the first copy of an operand takes twice as long as on one (profiled 20-core rows)."""


LAUNCH_POWER = 0.8
"""How the launch grows with further cores (task less core time of profiled vector kernels: 0.1 us for the second, 0.6
for 8, 1.8 for 40, 2.5 for 48)."""


@dataclass(frozen=True)
class Prediction:
    """Microseconds of one launch. ``busy``: of each limit on the busiest core; ``bound``: the longest of them, or
    ``launch``. ``floor_us``: no kernel that moves the work's bytes is faster.
    """

    us: float
    launch_us: float
    floor_us: float
    bound: str
    blocks: int
    core: str
    busy: Mapping[str, float]
    model: str = OP_MODEL_VERSION


def launch_us(cores: int, c: Constants) -> float:
    """Microseconds between a kernel's task time and its cores' time: starting and gathering them."""
    return c.launch + c.launch_core * (cores - 1) ** LAUNCH_POWER


def cold_share(moved: float, chip: Chip, c: Constants) -> float:
    """The part of ``moved`` bytes that L2 does not hold: none up to ``resident`` of its size, all from ``evicted``."""
    return min(1.0, max(0.0, (moved / chip.l2_bytes - c.resident) / (c.evicted - c.resident)))


def floor_us(work: Work, chip: Chip) -> float:
    """max(FLOP / peak, bytes certain to come from HBM / its peak, all bytes / L2's peak)."""
    cube = sum(g.flops / (2 * chip.macs(g.dtype) * chip.aic * chip.mhz) for g in work.gemms)
    return max(cube, work.cold / chip.hbm_peak * 1e6, work.moved / chip.l2_peak * 1e6)


def pieces_of(work: Work, chip: Chip, blocks: int | None) -> tuple[int, float]:
    """Cores launched, and how many full cores' worth of them are at work: the busiest has whole pieces.

    Where a row does not say how many cores, a vector kernel of the vendor's gives each ``BLOCK_BYTES`` at least.
    """
    pieces = work.units
    if blocks is None:
        pieces = min(pieces, max(work.reads, work.writes) / BLOCK_BYTES)
        blocks = max(1, min(chip.aiv, ceil(pieces)))
    used = min(blocks, chip.aiv)
    if pieces <= 1 or isinf(pieces):
        return blocks, 1.0 if pieces <= 1 else float(used)
    return blocks, pieces / ceil(pieces / used)


def predict(work: Work, chip: Chip, blocks: int | None = None, c: Constants | None = None) -> Prediction:
    """The time of ``work`` on ``blocks`` cores (vector cores; cube cores of a matrix kernel)."""
    c = c or constants()
    return _cube(work, chip, blocks, c) if work.cube else _vector(work, chip, blocks, c)


def hbm_rate(work: Work, chip: Chip, c: Constants) -> float:
    """Bytes per microsecond of HBM: reads alone or writes alone get the one-way rate, a mix its share of the peak."""
    mixed = min(1.0, 5.0 * min(work.reads, work.writes) / max(1, work.moved))
    one_way, both = chip.hbm_rate, (c.hbm_share if chip.hbm_peak > 1e12 else c.hbm_share_small) * chip.hbm_peak
    return (one_way + mixed * (both - one_way)) / 1e6


def _memory_us(
    work: Work, cold: float, warm: float, chip: Chip, cores: float, rate: float, c: Constants
) -> tuple[float, float]:
    """Microseconds of bytes from HBM and from L2 on ``cores`` cores; each core has a rate, all share the pools."""
    hbm = min(hbm_rate(work, chip, c), cores * chip.core_hbm * chip.mhz)
    l2 = min(cores * rate * chip.mhz, chip.l2_peak / 1e6)
    return cold / hbm, warm / l2


def _vector(work: Work, chip: Chip, blocks: int | None, c: Constants) -> Prediction:
    cores, used = pieces_of(work, chip, blocks)
    warm = max(0.0, work.moved - work.cold + work.scattered)
    missed = warm * (cold_share(warm, chip, c) if work.hot else max(c.strayed, cold_share(warm, chip, c)))
    hbm, l2 = _memory_us(work, work.cold + missed, warm - missed, chip, used, c.l2_vector, c)
    memory = hbm + l2
    vector = c.vector_slack * work.vector / used / chip.mhz
    issue = c.issue_slack * work.issue / used / chip.mhz
    single = work.single / chip.mhz
    longest = max(memory, vector, issue)
    core = longest + c.exposed_vector * (memory + vector + issue - longest) + single
    start = c.start + c.start_core * (cores - 1) + c.operand * work.operands * (1 + (cores - 1) / SETUP_CORES)
    launch = launch_us(cores, c)
    floor = floor_us(work, chip)
    us = launch + max(start + core, floor)
    busy = {"HBM": hbm, "L2": l2, "V": vector, "S": issue + single}
    return Prediction(us, launch, floor, _bound(busy, launch + start, us), cores, "aiv", busy)


def _cube(work: Work, chip: Chip, blocks: int | None, c: Constants) -> Prediction:
    cores = max(1, blocks or chip.aic)
    used = min(cores, chip.aic)
    times = [gemm_time(g, chip, used, c) for g in work.gemms]
    cube, load = sum(t.cube for t in times), sum(t.load for t in times)
    missed = work.cold + (work.moved - work.cold) * cold_share(work.moved - work.cold, chip, c)
    vector = c.vector_slack * work.vector / (used * (chip.aiv // chip.aic)) / chip.mhz
    if work.mixed:
        hbm, _ = _memory_us(work, missed, 0.0, chip, used, c.l2_cube, c)
        parts = {"M": cube, "MTE2": min(load, cube), "HBM": hbm, "FIX": work.fixpipe / used / 122.0 / chip.mhz}
        busy = parts = parts | {"V": vector}
    else:
        again = sum(read_again(g, chip, used, c) for g in work.gemms)
        hbm, known = _memory_us(work, missed + again, missed * work.reads / max(1, work.moved) + again, chip, used,
                                c.l2_cube, c)  # fmt: skip
        load = max(0.0, load - known) + hbm
        parts = {"M": cube, "MTE2": load, "FIX": sum(t.store for t in times), "V": vector}
        busy = parts | {"MTE2": load - hbm, "HBM": hbm}
    if work.mixed:
        core = _overlapped(parts.values(), c.exposed_mixed)
    else:
        products = _overlapped([us for pipe, us in parts.items() if pipe != "V"], c.exposed_cube)
        core = _overlapped([products, vector], c.exposed_mixed)
    start = c.start_mixed if work.mixed else c.start_cube
    launch = launch_us(cores, c)
    floor = floor_us(work, chip)
    before = predict(work.before, chip, None, c).us - launch if work.before is not None else 0.0
    us = launch + max(0.0, before) + max(start + core, floor)
    core_kind = "mix" if work.mixed else "aic"
    bound = _bound(parts, launch + start, us)
    if bound == "MTE2" and not work.mixed and hbm > load - hbm:
        bound = "HBM"
    return Prediction(us, launch, floor, bound, cores, core_kind, busy)


def _overlapped(times: Iterable[float], exposed: float) -> float:
    """The longest, and the part of the others that is not hidden behind it."""
    known = list(times)
    return max(known) + exposed * (sum(known) - max(known))


def _bound(busy: Mapping[str, float], fixed: float, us: float) -> str:
    if fixed >= us - fixed:
        return "launch"
    return max(busy, key=lambda k: (busy[k], k))

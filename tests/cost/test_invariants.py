"""What holds of every product, whatever its sizes, tiling and chip."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moec.codegen.tiling import CubeTile
from moec.diagnostics import Refusal
from moec.targets.ascend.machine import Machine, load, machines
from moec.targets.ascend.model.result import KernelResult
from moec.targets.ascend.replay import Tiling, band, replay

SIZES = st.tuples(st.integers(1, 700), st.integers(16, 700), st.integers(16, 900))
SETTINGS = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def tilings(draw: st.DrawFn) -> CubeTile:
    """Tiles that fit into every chip's memories, with each choice on and off."""
    k0 = draw(st.sampled_from([32, 64]))
    b = k0 * draw(st.sampled_from([1, 2]))
    a = b * draw(st.sampled_from([1, 2]))
    return CubeTile(
        draw(st.sampled_from([16, 64, 128])), draw(st.sampled_from([32, 128])), a, k0, 1,
        b, draw(st.sampled_from([1, 2])), panel=draw(st.sampled_from([0, 2])), diagonal=draw(st.booleans()),
        stagger=draw(st.booleans()), unit=draw(st.booleans()),
    )  # fmt: skip


def timed(machine: Machine, tile: CubeTile, size: tuple[int, int, int], dtype: str = "f16") -> KernelResult:
    return replay(machine, Tiling(tile), size, dtype, dtype)


def floors(machine: Machine, result: KernelResult, size: tuple[int, int, int], width: int) -> tuple[float, ...]:
    """Microseconds of FLOP at the peak, of what comes from HBM and of all that passes L2, worked out here."""
    m, n, k = size
    compulsory = width * (m * k + n * k)  # read at least once, from HBM; results may stay in the L2
    assert result.hbm_bytes >= compulsory and result.l2_bytes >= compulsory + width * m * n
    flops = 2 * m * n * k / machine.peak_flops("f16")
    return (
        flops * 1e6,
        result.hbm_bytes / machine["memory.hbm_peak"] * 1e6,
        result.l2_bytes / machine["memory.l2_peak"] * 1e6,
    )


@given(SIZES, tilings(), st.sampled_from(machines()))
@SETTINGS
def test_no_product_is_faster_than_its_work_and_its_bytes(
    size: tuple[int, int, int], tile: CubeTile, chip: str
) -> None:
    machine = load(chip)
    result = timed(machine, tile, size)
    worst = max(floors(machine, result, size, 2))
    assert result.floor_us == pytest.approx(worst, rel=1e-6)
    assert result.us - result.launch_us >= worst
    assert result.flops == 2 * size[0] * size[1] * size[2]
    between = band(result)
    assert result.floor_us <= between["low_us"] + 1e-3 and between["low_us"] <= result.us <= between["high_us"]
    assert result.version.startswith("ascend-cycles ")


@given(st.integers(1, 16), st.integers(32, 128), st.integers(2, 8), st.sampled_from(machines()))
@SETTINGS
def test_a_product_of_few_rows_takes_as_long_as_its_weights(m: int, n: int, k: int, chip: str) -> None:
    machine, size = load(chip), (m, 128 * n, 256 * k)
    tile = CubeTile(16, 128, 256, 64, 1, 256, 2)
    result = timed(machine, tile, size)
    work = result.us - result.launch_us
    assert work >= max(floors(machine, result, size, 2))
    assert work >= result.hbm_bytes / machine["memory.hbm_rate"] * 1e6 * 0.999  # nor faster than HBM was measured


@given(SIZES, tilings(), st.integers(1, 4))
@SETTINGS
def test_more_of_k_takes_no_less(size: tuple[int, int, int], tile: CubeTile, more: int) -> None:
    m, n, k = size
    machine = load("ascend910b1")
    whole = -(-k // tile.k1) * tile.k1  # whole blocks: a cut one may cost rows that a whole one does not
    few, many = timed(machine, tile, (m, n, whole)), timed(machine, tile, (m, n, whole + more * tile.k1))
    assert few.cycles <= many.cycles
    assert few.l2_bytes < many.l2_bytes and few.flops < many.flops


@given(SIZES, tilings(), st.sampled_from(["memory.hbm_rate", "memory.l2_rate", "clock_mhz"]))
@SETTINGS
def test_a_better_chip_takes_no_longer(size: tuple[int, int, int], tile: CubeTile, figure: str) -> None:
    machine = load("ascend910b1")
    f = machine.figures[figure]
    better = replace(machine, figures={**machine.figures, figure: replace(f, value=f.value * 1.5)})
    if figure == "memory.hbm_rate":
        both = machine.figures["memory.hbm_mixed"]
        better.figures["memory.hbm_mixed"] = replace(both, value=both.value * 1.5)  # type: ignore[index]
    assert timed(better, tile, size).us <= timed(machine, tile, size).us * (1 + 1e-9)


@pytest.mark.parametrize("size", [(512, 512, 512), (4096, 700, 64)])
def test_what_does_not_fit_is_refused_whatever_the_size(size: tuple[int, int, int]) -> None:
    with pytest.raises(Refusal, match="KiB"):
        timed(load("ascend910b4"), CubeTile(512, 512, 64, 64, 1, 64, 2), size)

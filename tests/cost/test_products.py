"""Products under every choice of their tile program: the floor, growth, what the order of tiles does to the caches."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import Kernel
from moec.codegen.kernels.grouped import Grouped, grouped_matmul_kernel
from moec.codegen.kernels.matmul import Product, matmul_kernel
from moec.codegen.kernels.vector.parts import parts_kernel
from moec.codegen.tile_cost import ProductSize, cycles
from moec.codegen.tiling import PANELS, CubeTile, cube_tile, panel, streamed
from moec.targets.ascend.machine import load, machines
from moec.targets.ascend.model.result import KernelResult
from moec.targets.ascend.model.simulate import simulate

B1 = load("ascend910b1")
CAPS = Capacities()
BASE = CubeTile(64, 128, 256, 64, 1)
TILES = st.sampled_from(
    [
        BASE,
        replace(BASE, l1_slots=1, unit=True),
        replace(BASE, k1b=128),
        replace(BASE, k1=128, k1b=256, stagger=True),
        replace(BASE, panel=3, diagonal=True),
        replace(BASE, block_m=192, block_n=256, panel=2),
        replace(BASE, bypass="ab"),
    ]
)


@cache
def kernel(tile: CubeTile) -> Kernel:
    """N and K fixed, M at run time."""
    return matmul_kernel("mm", CAPS, tile, Product(None, 640, 1024, 1, "bf16", "bf16"))


def timed(m: int, n: int, k: int, tile: CubeTile) -> KernelResult:
    return simulate(matmul_kernel("mm", CAPS, tile, Product(m, n, k, 1, "bf16", "bf16")), B1, {})


@given(st.integers(1, 3000), TILES, st.sampled_from(machines()))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_never_below_the_floor(m: int, tile: CubeTile, chip: str) -> None:
    machine = load(chip)
    result = simulate(kernel(tile), machine, {"M": m})
    work = result.us - result.launch_us
    assert work >= result.floor_us
    assert work * 1e-6 >= 2 * m * 640 * 1024 / machine.peak_flops("bf16")
    assert work * 1e-6 >= result.hbm_bytes / machine["memory.hbm_peak"]
    assert work * 1e-6 >= result.l2_bytes / machine["memory.l2_peak"]
    assert result.cycles >= max(result.busy.values())
    assert all(result.mean_busy[pipe] <= result.cycles for pipe in result.mean_busy)


@given(st.integers(1, 10), st.integers(1, 4), TILES)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_more_rows_of_tiles_take_no_less(rows: int, more: int, tile: CubeTile) -> None:
    """Whole rounds of tiles: part of one may find its neighbours' data in the L2 and end sooner."""
    few, many = (simulate(kernel(tile), B1, {"M": 64 * 24 * r}) for r in (rows, rows + more))
    assert few.cycles <= many.cycles
    assert few.flops < many.flops
    assert few.hbm_bytes < many.hbm_bytes


@given(st.integers(1, 700), TILES)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_looked_up_is_what_is_simulated(m: int, tile: CubeTile) -> None:
    assert simulate(kernel(tile), B1, {"M": m}) == simulate(kernel(tile), B1, {"M": m}, remember=False)


@pytest.mark.slow
@pytest.mark.parametrize("chip", machines())
def test_more_depth_takes_longer(chip: str) -> None:
    times = [timed(1024, 1024, k, BASE).us for k in (256, 512, 1024, 4096)]
    assert times == sorted(times)


def test_the_first_touch_is_from_hbm_and_no_more_where_all_fits() -> None:
    result = timed(2048, 1024, 1024, BASE)
    assert result.hbm_bytes == (2048 * 1024 + 1024 * 1024 + 2048 * 1024) * 2


def test_what_is_read_past_the_l2_comes_from_hbm_every_time() -> None:
    plain, past = timed(2048, 1024, 1024, BASE), timed(2048, 1024, 1024, replace(BASE, bypass="ab"))
    assert past.hbm_bytes >= plain.l2_bytes - 2048 * 1024 * 2
    assert past.us > plain.us


def test_an_operand_that_the_l2_cannot_hold_is_read_again() -> None:
    """252 MB of the first operand: down the columns it is lost between columns, in panels it is not."""
    tile = CubeTile(128, 256, 256, 64, 1)
    columns, panels = (timed(16384, 2048, 7680, replace(tile, panel=p)) for p in (0, 8))
    unique = (16384 * 7680 + 2048 * 7680 + 16384 * 2048) * 2
    assert panels.hbm_bytes < 1.05 * unique
    assert columns.hbm_bytes > 3 * unique
    assert panels.us < 0.8 * columns.us


def test_cores_that_read_one_line_wait_in_turn() -> None:
    """24 rows of tiles and more: down the columns all cores read the same rows of the second operand."""
    tile = CubeTile(128, 256, 256, 64, 1)
    columns = timed(3072, 2048, 1024, tile)
    apart = timed(3072, 2048, 1024, replace(tile, panel=8))
    staggered = timed(3072, 2048, 1024, replace(tile, stagger=True))
    assert apart.mean_busy["MTE2"] < 0.9 * columns.mean_busy["MTE2"]
    assert staggered.mean_busy["MTE2"] < columns.mean_busy["MTE2"]


def test_the_panel_that_is_chosen() -> None:
    """One that the model finds no slower than whole columns, and whole columns where there is nothing to gain."""
    tile = CubeTile(128, 256, 256, 64, 1)
    assert panel(tile, ProductSize(1024, 7680, 2048, 2)) == 0
    for m, n, k in ((16384, 4608, 7680), (8192, 8192, 4096), (16384, 3072, 1536)):
        chosen = cube_tile(m, n, k, "bf16", CAPS)
        assert chosen.panel in PANELS[1:]
        assert timed(m, n, k, chosen).us < timed(m, n, k, replace(chosen, panel=0)).us


def test_two_buffers_of_l1_overlap_loads_and_products() -> None:
    one, two = (timed(2048, 1024, 4096, replace(BASE, l1_slots=s)) for s in (1, 2))
    assert two.us < 0.8 * one.us
    assert one.busy["MTE2"] + one.busy["MTE1"] > 0.95 * one.cycles
    assert two.busy["MTE2"] > 0.9 * two.cycles


GROUPS = [(8, 1024, 2048, 32), (128, 1536, 1024, 16), (512, 1024, 512, 8), (1, 256, 7680, 24)]
"""Rows, N and K of the product of each expert, and how many experts."""
FIXED = [
    CubeTile(16, 64, 1024, 256, 2),
    CubeTile(16, 256, 256, 64, 2),
    CubeTile(64, 256, 256, 64, 2),
    CubeTile(128, 128, 256, 64, 2),
    CubeTile(128, 256, 256, 64, 1),
]


def grouped(m: int, n: int, k: int, experts: int, tile: CubeTile) -> KernelResult:
    kernel = grouped_matmul_kernel("gmm", CAPS, tile, Grouped(experts, n, k, "bf16", "bf16"))
    return simulate(kernel, B1, {"S": m * experts})


@pytest.mark.parametrize(("m", "n", "k", "experts"), GROUPS)
def test_the_tile_that_is_chosen_for_experts(m: int, n: int, k: int, experts: int) -> None:
    """No slower than tiles that are good for some sizes, and counted about as the model times it."""
    chosen = cube_tile(m, n, k, "bf16", CAPS, out="bf16", groups=experts, known_k=True)
    found = grouped(m, n, k, experts, chosen)
    assert found.us <= 1.03 * min(grouped(m, n, k, experts, tile).us for tile in FIXED)
    counted = cycles(chosen, ProductSize(m, n, k, 2, 2, experts, 24, known_k=True))
    assert 0.7 * found.cycles <= counted <= 1.15 * found.cycles


def test_a_kept_operand_is_copied_once_a_block() -> None:
    """Four tiles share an expert's weights, or its rows: one copy into L1 instead of four."""
    tile = CubeTile(64, 64, 256, 64, 2)
    plain = grouped(256, 256, 256, 24, tile).path_bytes["GM->L1"]
    operand = 24 * 256 * 256 * 2
    assert plain == 2 * 4 * operand
    for keep in ("a", "b"):
        kept = replace(tile, keep=keep, block_m=256 if keep == "b" else 0, block_n=256 if keep == "a" else 0)
        assert grouped(256, 256, 256, 24, kept).path_bytes["GM->L1"] == plain - 3 * operand


def test_what_is_read_once_passes_by_the_l2() -> None:
    tile = CubeTile(128, 256, 256, 64, 1)
    assert streamed(tile, 128, 7680) == "b" and streamed(tile, 129, 256) == "a"
    assert streamed(tile, None, 7680) == "" and streamed(tile, 100, 100) == "ab"


@pytest.mark.parametrize(
    ("m", "n", "k", "parts"), [(128, 128, 16384, 24), (64, 2048, 16384, 3), (2048, 2048, 16384, 1)]
)
def test_k_is_split_where_there_are_few_tiles(m: int, n: int, k: int, parts: int) -> None:
    """And only then; the second kernel and its launch are paid for."""
    tile = cube_tile(m, n, k, "bf16", CAPS, out="bf16", known_k=True, may_split=True)
    assert tile.splits == parts
    if parts > 1:
        product = simulate(matmul_kernel("mm", CAPS, tile, Product(m, n, k, 1, "bf16", "f32")), B1, {})
        summed = simulate(parts_kernel("sum", CAPS, parts, m * n, k, "bf16"), B1, {})
        whole = timed(m, n, k, cube_tile(m, n, k, "bf16", CAPS, out="bf16", known_k=True))
        assert product.us + summed.us < 0.85 * whole.us

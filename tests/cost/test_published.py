"""Against published measurements (CANN asc-devkit examples on 910B1: 24 cube or 48 vector cores at 1.85 GHz)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from published_kernels import add, copies, everything
from staged_matmul import B1, STAGES, Stage, mean_busy, modelled

from moec.codegen.kernel_ir import Kernel
from moec.targets.ascend.model.simulate import simulate

SQUARE = (12288, 12288)
ALL = (6144, 512)


def off(model: float, measured: float) -> float:
    return abs(model / measured - 1)


@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.name)
def test_staged_matmul(stage: Stage) -> None:
    """Task time within 10 %, busy times of cube, MTE1 and MTE2 within 15 %."""
    result, busy = modelled(stage), mean_busy(stage)
    assert off(result.us, stage.task) < 0.10
    assert off(busy["M"], stage.cube) < 0.15
    assert off(busy["MTE1"], stage.mte1) < 0.15
    assert off(busy["MTE2"], stage.mte2) < 0.15


def test_staged_matmul_fixpipe() -> None:
    """With unit flags a Fixpipe counts from when it is taken up: as far ahead of the cube as MTE1's queue, which
    holds loads and flags, lets the scalar unit run. Stage 8 (four places a step) and the basic API (seven) differ in
    nothing else and measured 273 and 160."""
    for stage in STAGES:
        assert off(mean_busy(stage)["FIX"], stage.fixpipe) < 0.10, stage.name
    assert mean_busy(STAGES[8])["FIX"] > 1.4 * mean_busy(STAGES[10])["FIX"]


def test_staged_matmul_in_order() -> None:
    """Wherever the measured step is over 2 %."""
    for one, next_ in pairwise(STAGES[:9]):
        if one.task / next_.task > 1.02:
            assert modelled(one).us > modelled(next_).us, (one.name, next_.name)


@pytest.mark.parametrize(
    ("kernel", "measured"),
    [
        (copies("aiv", SQUARE, (1, 64)), 548.161),
        (copies("aiv", SQUARE, (64, 64)), 220.772),
        (copies("aiv", SQUARE, (64, 1024)), 202.657),
        (copies("aiv", (12288, 12287), (64, 1024)), 259.047),
        (copies("aic", SQUARE, (64, 64)), 283.508),
        (copies("aic", SQUARE, (64, 256)), 214.519),
        (copies("aic", (12288, 12287), (64, 256)), 422.515),
        (everything("aiv", ALL, (128, 64), rotated=False), 474.717),
        (everything("aic", ALL, (256, 64), rotated=False), 240.198),
        (everything("aiv", ALL, (128, 64), rotated=True), 307.38),
        (everything("aic", ALL, (256, 64), rotated=True), 209.8),
    ],
    ids=[
        "UB 1x64",
        "UB 64x64",
        "UB 64x1024",
        "UB off line",
        "L1 64x64",
        "L1 64x256",
        "L1 off line",
        "UB same",
        "L1 same",
        "UB rotated",
        "L1 rotated",
    ],
)
def test_copies(kernel: Kernel, measured: float) -> None:
    """Busy time of MTE2."""
    assert off(B1.us(simulate(kernel, B1, {}).mean_busy["MTE2"]), measured) < 0.15


@pytest.mark.parametrize(
    ("core", "slices", "measured", "hit"),
    [("aiv", 1, 816.05, 0.0), ("aiv", 4, 354.56, 0.75), ("aic", 1, 872.19, 0.0), ("aic", 4, 397.8, 0.75)],
)
def test_four_passes(core: str, slices: int, measured: float, hit: float) -> None:
    """302 MB four times over, or 75 MB at a time: core time, and the share of reads that the L2 served."""
    result = simulate(copies(core, SQUARE, (64, 1024), 4, slices), B1, {})
    assert off(B1.us(result.cycles), measured) < 0.15
    assert 1 - result.hbm_bytes / result.l2_bytes == pytest.approx(hit, abs=0.01)


@pytest.mark.parametrize(
    ("kernel", "core_time", "vector"),
    [
        (add(1, 4096), 6909.14, 761.65),
        (add(48, 4096, in_turn=True), 297.14, 15.885),
        (add(48, 16384, in_turn=True), 261.5, 12.845),
        (add(48, 16384, slots=2), 257.56, 12.846),
        (add(48, 16384, slots=2, bypass=True), 185.15, 12.846),
        (add(48, 16256, slots=2, bypass=True), 178.49, 6.954),
    ],
    ids=["one core", "48 cores", "large copies", "double buffer", "past the L2", "clear banks"],
)
def test_vector_add_ladder(kernel: Kernel, core_time: float, vector: float) -> None:
    result = simulate(kernel, B1, {})
    assert off(B1.us(result.cycles), core_time) < 0.15
    assert off(B1.us(result.mean_busy["V"]), vector) < 0.15

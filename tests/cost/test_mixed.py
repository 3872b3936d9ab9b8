"""Kernels of cube and vector cores: flags between them decide who waits, and each core does its own kind's work."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moec.codegen.kernel_ir import (
    Assign,
    Barrier,
    Buffer,
    CrossCoreSet,
    CrossCoreWait,
    For,
    GmRef,
    GmTensor,
    If,
    Instr,
    Kernel,
    Let,
    LocalRef,
    SetFlag,
    Stmt,
    SyncAll,
    WaitFlag,
)
from moec.codegen.scalar import Core, Scalar, Var, binary, eq, smin
from moec.diagnostics import CheckFailed
from moec.targets.ascend.machine import load
from moec.targets.ascend.model.simulate import simulate

B1 = load("ascend910b1")
BUFFERS = (
    Buffer("a", "L0A", "f16", 0, 4096), Buffer("b", "L0B", "f16", 0, 4096), Buffer("c", "L0C", "f32", 0, 4096),
    Buffer("u", "UB", "f32", 0, 4096),
)  # fmt: skip
PARAMS = (GmTensor("w", "f32", (1 << 20,), "out"), GmTensor("y", "f32", (1 << 20,), "out"))
ISSUE, CROSS, FLAG, HAND = 3, 100, 1, 6


def local(name: str, dtype: str) -> LocalRef:
    return LocalRef(name, 0, 0, dtype)


def mmad(k: int) -> Instr:
    """64 x 64 x k: 2 + 16 k / 16 cycles, 40 more on an idle cube, usable 21 later."""
    params = (("m", 64), ("n", 64), ("k", k), ("unitFlag", 0), ("cmatrixInitVal", True))
    return Instr("Mmad", (local("c", "f32"), local("a", "f16"), local("b", "f16")), params)


def fixpipe() -> Instr:
    names = ("nSize", "mSize", "srcStride", "dstStride", "quantPre", "unitFlag")
    values = (64, 64, 64, 64, "QuantMode_t::NoQuant", 0)
    return Instr("Fixpipe", (GmRef("w", 0, "f32"), local("c", "f32")), tuple(zip(names, values, strict=True)))


def exp(count: Scalar) -> Instr:
    return Instr("Exp", (local("u", "f32"), local("u", "f32")), (("count", count),))


def mixed(
    cube: tuple[Stmt, ...], vector: tuple[Stmt, ...], blocks: Scalar = 1, before: tuple[Stmt, ...] = ()
) -> Kernel:
    body = (*before, If(eq(Core("aic"), 1), cube, vector))
    return Kernel("mixed", "mix", PARAMS, (), BUFFERS, body, blocks)


def test_vector_cores_wait_for_their_cube_core() -> None:
    cube = (mmad(64), SetFlag("M", "FIX", 0), WaitFlag("M", "FIX", 0), CrossCoreSet(2, "FIX", 3))
    result = simulate(mixed(cube, (CrossCoreWait(3), exp(64))), B1, {})
    # if 1, issue 3; 66 blocks and issue of the Mmad, 40 cold, 21 until usable; to FIX 6, which sets the flag
    flag = 1 + ISSUE + 66 + 40 + 21 + HAND
    assert result.core_cycles[0] == flag  # its pipe FIX waited that long
    assert result.core_cycles[1:] == (flag + CROSS + ISSUE + 3 + 22,) * 2
    assert (result.core, result.blocks) == ("mix", 1)
    assert result.busy["M"] == 127 and result.busy["V"] == 25


def test_a_cube_core_waits_for_both_vector_cores() -> None:
    vector = (If(eq(Core("sub"), 1), (exp(4096),)), exp(64), CrossCoreSet(2, "V", 1))
    result = simulate(mixed((CrossCoreWait(1), mmad(16)), vector), B1, {})
    slow = 2 + ISSUE + 128 + 3 + 22  # the second vector core's flag is up when its exps of 64 and 1 repeats are done
    assert result.core_cycles[2] == slow
    assert result.core_cycles[0] == slow + CROSS + ISSUE + (2 + 16) + 40 + 21


def test_groups_do_not_wait_for_one_another() -> None:
    """Block 1's vector cores are late; block 0 does not notice, unless the flag is of all vector cores (mode 0)."""
    late = (If(eq(Core("idx") // 2, 1), (exp(4096),)),)

    def ends(mode: int) -> tuple[int, ...]:
        vector = (*late, CrossCoreSet(mode, "V", 2), CrossCoreWait(2), exp(64))
        return simulate(mixed((), vector, 2), B1, {}).core_cycles

    own, all_ = ends(1), ends(0)
    assert own[1] < own[4] == all_[4] == all_[1]


def test_a_pipeline_takes_as_long_as_its_slower_side() -> None:
    """The cube makes tiles, the vector cores use them: time per tile is the larger of the two, not their sum."""

    def cycles(repeats: int, tiles: int = 50) -> int:
        cube = (For("i", 0, tiles, 1, (mmad(64), SetFlag("M", "FIX", 0), WaitFlag("M", "FIX", 0), fixpipe(),
                                        CrossCoreSet(2, "FIX", 0))),)  # fmt: skip
        vector = (For("j", 0, tiles, 1, (CrossCoreWait(0), exp(64 * repeats))),)
        return simulate(mixed(cube, vector), B1, {}).cycles

    fast, slow = cycles(1), cycles(2000)
    assert abs(slow - 50 * 4000) < 1000
    assert fast < 50 * 600
    assert cycles(2000, 100) - slow == pytest.approx(50 * 4000, rel=0.01)


def test_sync_all_is_of_all_cores() -> None:
    result = simulate(mixed((mmad(64), SyncAll()), (exp(4096), SyncAll(), exp(64))), B1, {})
    assert len({*result.core_cycles[1:]}) == 1
    assert result.core_cycles[0] == result.core_cycles[1] - (ISSUE + 3 + 22)


def test_flags_nobody_sets_are_found() -> None:
    with pytest.raises(CheckFailed, match="wait for one another for ever"):
        simulate(mixed((CrossCoreWait(0),), ()), B1, {})


def test_blocks_count_cube_cores_and_the_launch_both_kinds() -> None:
    one, all_ = (simulate(mixed((mmad(64),), (exp(64),), blocks), B1, {}) for blocks in (1, 99))
    assert (one.blocks, all_.blocks) == (1, 24)
    assert len(all_.core_cycles) == 72
    assert all_.launch_us == pytest.approx(max(0.36 + 0.139 * 24, 0.41 + 0.09 * 48))


def test_what_the_kernel_wrote_is_read_from_the_l2() -> None:
    load_ = Instr("DataCopy", (local("u", "f32"), GmRef("w", 0, "f32")), (("count", 4096),))
    cube = (fixpipe(), CrossCoreSet(2, "FIX", 0))
    kernel = mixed(cube, (CrossCoreWait(0), load_))
    assert simulate(kernel, B1, {}).hbm_bytes == 0
    alone = replace(kernel, body=(If(eq(Core("aic"), 0), (load_,)),))
    assert simulate(alone, B1, {}).hbm_bytes == 2 * 4096 * 4


def test_spans_of_the_slowest_core() -> None:
    cube = (For("i", 0, 3, 1, (mmad(64), CrossCoreSet(2, "M", 0))),)
    vector = (For("j", 0, 3, 1, (CrossCoreWait(0), exp(4096))),)
    result = simulate(mixed(cube, vector), B1, {}, spans=10)
    assert [i.label for i in result.intervals] == ["Exp"] * 3


COUNT, SIZE = Var("count"), Var("size")
IDLE = Barrier("ALL")
CARRIED: dict[str, tuple[tuple[Stmt, ...], tuple[Stmt, ...]]] = {
    # What lies between two waits is looked up; an inner loop's length follows the outer variable.
    "lengths": (
        (For("i", 0, 20, 1, (mmad(64), For("k", 0, Var("i") % 3, 1, (mmad(32),)), CrossCoreSet(2, "M", 0))),),
        (For("j", 0, 20, 1, (CrossCoreWait(0), For("m", 0, 5, 1, (exp(640),)))),),
    ),
    # A variable declared before a wait decides what is done after it.
    "declared before": (
        (For("i", 0, 24, 1, (mmad(16), mmad(16), mmad(16), mmad(16), CrossCoreSet(2, "M", 0))),),
        (
            For(
                "j", 0, 24, 1,
                (Let(SIZE, Var("j") % 4 * 64 + 64), exp(64), exp(64), exp(64), CrossCoreWait(0), exp(SIZE), exp(SIZE),
                 exp(8), exp(SIZE)),
            ),
        ),
    ),
    # A counter moved on before a wait and after it.
    "counter": (
        (Let(COUNT, 0), For("i", 0, 30, 1, (Assign(COUNT, (COUNT + 1) % 4), mmad(16), mmad(16), mmad(16), mmad(16),
                                            CrossCoreSet(2, "M", 0), For("k", 0, COUNT, 1, (mmad(32),)),
                                            Assign(COUNT, COUNT + 2), CrossCoreWait(1))),),
        (For("j", 0, 30, 1, (CrossCoreWait(0), exp(64), CrossCoreSet(2, "V", 1))),),
    ),
    # The cube runs ahead, then falls behind: only the distance of the clocks tells the iterations of a tile apart.
    "ahead, then behind": (
        (For("t", 0, 8, 1, (For("i", 0, 12, 1, (mmad(Var("t") % 2 * 240 + 16), CrossCoreSet(2, "M", 0), IDLE)),)),),
        (For("t", 0, 8, 1, (For("i", 0, 12, 1, (CrossCoreWait(0), exp(4096), IDLE)),)),),
    ),
    # Both directions, and a vector core that does more than the other.
    "ping pong": (
        (For("i", 0, 40, 1, (mmad(64), mmad(16), mmad(16), mmad(16), CrossCoreSet(2, "M", 0), CrossCoreWait(1))),),
        (For("j", 0, 40, 1, (CrossCoreWait(0), exp(64), exp(640), exp(64),
                             If(eq(Core("sub"), 1), (exp(512),)), CrossCoreSet(2, "V", 1))),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CARRIED)
def test_the_same_without_memory(name: str) -> None:
    kernel = mixed(*CARRIED[name], 3)
    assert simulate(kernel, B1, {}) == simulate(kernel, B1, {}, remember=False)


STEP, TILE = Var("i"), Var("t")


@st.composite
def pipelines(draw: st.DrawFn) -> Kernel:
    """Tiles of some steps; the vector cores answer each step, which the cube waits for ``lag`` steps later; either side
    may count steps in one loop or in two, and sizes follow tile, step and core."""
    tiles, lag = draw(st.integers(1, 14)), draw(st.integers(0, 3))
    steps = draw(st.sampled_from([3, 8, TILE % 3 + 1, TILE // 4 + 2]))
    size = [
        draw(st.sampled_from([64, 640, STEP % 2 * 448 + 64, TILE % 3 * 640 + 64, Core("sub") * 512 + 64])) for _ in "ab"
    ]
    deep = draw(st.sampled_from([16, 64, STEP % 3 * 16 + 16, TILE % 2 * 64 + 16]))
    idle = (IDLE,) if draw(st.booleans()) else ()
    meet = (CrossCoreSet(1, "V", 4), CrossCoreWait(4)) if draw(st.booleans()) else ()
    work = (CrossCoreWait(0), *(exp(n) for n in size), *meet, CrossCoreSet(2, "V", 1), exp(size[0]), *idle)
    vector: tuple[Stmt, ...] = (For("i", 0, steps, 1, work),)
    if draw(st.booleans()):
        vector = (For("i", 0, steps, 1, (For("b", 0, 1, 1, work),)),)
    step = (mmad(deep), mmad(16), CrossCoreSet(2, "M", 0), If(binary("<", STEP, lag), (), (CrossCoreWait(1),)))
    late = For("b", 0, smin(lag, steps), 1, (CrossCoreWait(1),))
    cube = (For("i", 0, steps, 1, step), late)
    last = draw(st.booleans())  # the cube may take up the answers of a tile only after its last step
    if last:
        cube = (For("i", 0, smin(steps, 8), 1, step[:3]), For("b", 0, smin(steps, 8), 1, (CrossCoreWait(1),)))
        vector = (For("i", 0, smin(steps, 8), 1, work),)
    groups = draw(st.integers(1, 3))
    return mixed(
        (For("t", Core("idx"), tiles, groups, cube),), (For("t", Core("idx") // 2, tiles, groups, vector),), groups
    )


@given(pipelines())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_pipelines_without_memory(kernel: Kernel) -> None:
    assert simulate(kernel, B1, {}) == simulate(kernel, B1, {}, remember=False)


def test_groups_with_equal_work_are_simulated_once() -> None:
    """Two sizes of work over 24 groups; every group ends as it does when all are simulated."""
    rows = For("r", Core("idx") // 2, 30, 24, (CrossCoreWait(0), exp(640), exp(640)))
    tiles = For("t", Core("idx"), 30, 24, (mmad(64), mmad(32), CrossCoreSet(2, "M", 0)))
    kernel = mixed((tiles,), (rows,), 24)
    result = simulate(kernel, B1, {})
    assert len({result.core_cycles[i] for i in range(0, 72, 3)}) == 2
    assert result == simulate(kernel, B1, {}, remember=False)


def test_groups_with_equal_counts_in_another_order_end_on_their_own() -> None:
    """The second group has the tiles of the first, the longest one last."""
    size = TILE % 3 * 640 + 64
    work = (CrossCoreWait(0), exp(size), exp(64), CrossCoreSet(2, "V", 1), exp(size))
    step = (mmad(16), mmad(16), CrossCoreSet(2, "M", 0), CrossCoreWait(1))
    tiles = For("t", Core("idx"), 6, 2, (For("i", 0, 3, 1, step),))
    rows = For("t", Core("idx") // 2, 6, 2, (For("i", 0, 3, 1, work),))
    result = simulate(mixed((tiles,), (rows,), 2), B1, {})
    assert result.core_cycles[1] != result.core_cycles[4]
    assert result == simulate(mixed((tiles,), (rows,), 2), B1, {}, remember=False)

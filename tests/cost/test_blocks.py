"""Whole MoE blocks: every kernel of every size keeps its floor, and the schedule is what the parts say."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from moec.driver import Compiled
from moec.driver import compile as compile_block
from moec.targets.ascend import load_target
from moec.targets.ascend.machine import machines

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.fixture(scope="module")
def tiny() -> Compiled:
    return compile_block(EXAMPLES / "tiny_moe.moe", set={"T": 32})


@pytest.mark.parametrize("name", machines())
def test_every_kernel_keeps_its_floor(tiny: Compiled, name: str) -> None:
    target = load_target(name)
    for tokens in (1, 7, 64):
        schedule = target.schedule(tiny.program, {"T": tokens})
        assert [k.kernel for k in schedule.kernels].count("gating") == 1
        for k in schedule.kernels:
            assert k.us - k.launch_us >= k.floor_us > 0, k.kernel
            assert all(0 <= share <= 1 for share in k.busy.values()), k.kernel
            assert all(s.stop <= k.cycles for s in k.spans), k.kernel
        assert math.isclose(schedule.us, sum(k.us for k in schedule.kernels))


def test_more_tokens_take_longer(tiny: Compiled) -> None:
    target = load_target("ascend910b1")
    times = [target.schedule(tiny.program, {"T": tokens}).us for tokens in (1, 8, 16, 32, 64)]
    assert times == sorted(times)


def test_the_same_schedule_twice(tiny: Compiled) -> None:
    target = load_target("ascend910b3")
    assert target.schedule(tiny.program, {"T": 33}) == target.schedule(tiny.program, {"T": 33})


@pytest.mark.slow
def test_pangu_ultra_at_4096_tokens() -> None:
    """256 experts of 2048, hidden 7680, top 8, one shared: weights of 24 GB bound the routed products."""
    block = compile_block(EXAMPLES / "pangu_ultra_moe_block.moe", set={"T": 4096})
    schedule = load_target("ascend910b1").schedule(block.program, {"T": 4096})
    for k in schedule.kernels:
        assert k.us - k.launch_us >= k.floor_us, k.kernel
    routed = [k for k in schedule.kernels if k.kernel.startswith("grouped_matmul")]
    assert [k.bound for k in routed] == ["HBM", "HBM"]
    assert sum(k.flops for k in routed) == 2 * 4096 * 8 * 7680 * 2048 * 3
    assert sum(k.bytes for k in routed) > 256 * 3 * 7680 * 2048 * 2

"""The bank-conflict table (CANN asc-devkit examples, bank_conflict_ub): f32 Add of 4096, one after the other.

1000 instructions, ticks of 50 MHz; at 1.8 GHz 36 cycles a tick. Each waits for the one before it.
"""

from __future__ import annotations

import pytest

from moec.codegen.kernel_ir import Barrier, Buffer, For, GmTensor, Instr, Kernel, LocalRef
from moec.targets.ascend.machine import load
from moec.targets.ascend.model.simulate import simulate

B1 = load("ascend910b1")
TICK = 1800 / 50


def adds(src0: int, src1: int, dst: int, src0_strides: tuple[int, int] | None = None) -> Kernel:
    """The published loop with operands at these bytes of UB; ``src0_strides``: block and repeat stride, 1 and 8
    else."""
    names = {"src0": src0, "src1": src1, "dst": dst}
    buffers = tuple(Buffer(n, "UB", "f32", at, 4096) for n, at in names.items())
    refs = tuple(LocalRef(n, 0, 0, "f32") for n in ("dst", "src0", "src1"))
    if src0_strides is None:
        instr = Instr("Add", refs, (("count", 4096),))
    else:
        strides = {"dst": (1, 8), "src0": src0_strides, "src1": (1, 8)}
        params = [(f"{n}BlkStride", s[0]) for n, s in strides.items()]
        params += [(f"{n}RepStride", s[1]) for n, s in strides.items()]
        instr = Instr("Add.rep", refs, (("mask", 64), ("repeatTime", 64), *params))
    body = (For("i", 0, 1000, 1, (instr, Barrier("V"))),)
    return Kernel("adds", "aiv", (GmTensor("x", "f32", (1,), "in"),), (), buffers, body, 1)


@pytest.mark.parametrize(
    ("kernel", "ticks"),
    [
        (adds(0, 0x10100, 0x20000), 2390),
        (adds(0, 0x4000, 0x10000), 4167),
        (adds(0, 0x10000, 0x14100), 4167),
        (adds(0, 0x10100, 0x4000), 2389),
        (adds(0, 0x10100, 0x4020), 3751),
        (adds(0, 0x10100, 0x10100), 2390),
        (adds(0, 0x10100, 0x10100, (0, 1)), 3584),
        (adds(0, 0x10100, 0x10100, (0, 8)), 2389),
    ],
    ids=["clear", "one bank", "one group", "in step", "write in the way", "in place", "every other", "one block"],
)
def test_scenarios(kernel: Kernel, ticks: int) -> None:
    cycles = simulate(kernel, B1, {}).cycles / 1000
    assert abs(cycles / (ticks * TICK / 1000) - 1) < 0.15

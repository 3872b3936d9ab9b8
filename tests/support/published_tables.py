"""Published measurements of single kernels (CANN asc-devkit examples, 910B1 at 1.85 GHz) beside the tile programs that
do the same: plain copies, reads by all cores, four passes, the ladder of a vector addition, bank conflicts of UB."""

from __future__ import annotations

from dataclasses import dataclass

from published_kernels import add, copies, everything

from moec.codegen.kernel_ir import Barrier, Buffer, For, GmTensor, Instr, Kernel, LocalRef
from moec.targets.ascend.machine import Machine
from moec.targets.ascend.model.simulate import simulate

SQUARE, OFF_LINE, ALL = (12288, 12288), (12288, 12287), (6144, 512)


@dataclass(frozen=True)
class Row:
    """A kernel and what was measured of it: microseconds (``MTE2``: of that pipe in the mean over cores, ``core``: of
    the slowest core, ``V`` as MTE2), or ``ticks``: of 50 MHz for a thousand instructions, at 1.8 GHz 36 cycles each.
    """

    name: str
    kernel: Kernel
    what: str
    measured: float


def modelled(row: Row, machine: Machine) -> float:
    """The model's figure for what was measured."""
    result = simulate(row.kernel, machine, {})
    if row.what == "ticks":
        return result.cycles / 36
    return machine.us(result.cycles if row.what == "core" else result.mean_busy[row.what])


COPIES = (
    Row("UB, 1 x 64 a copy", copies("aiv", SQUARE, (1, 64)), "MTE2", 548.161),
    Row("UB, 64 x 64", copies("aiv", SQUARE, (64, 64)), "MTE2", 220.772),
    Row("UB, 64 x 1024", copies("aiv", SQUARE, (64, 1024)), "MTE2", 202.657),
    Row("UB, rows off lines", copies("aiv", OFF_LINE, (64, 1024)), "MTE2", 259.047),
    Row("L1 by nd2nz, 64 x 64", copies("aic", SQUARE, (64, 64)), "MTE2", 283.508),
    Row("L1 by nd2nz, 64 x 256", copies("aic", SQUARE, (64, 256)), "MTE2", 214.519),
    Row("L1 by nd2nz, rows off lines", copies("aic", OFF_LINE, (64, 256)), "MTE2", 422.515),
    Row("UB, 48 cores the same tiles", everything("aiv", ALL, (128, 64), rotated=False), "MTE2", 474.717),
    Row("UB, the same, each from elsewhere", everything("aiv", ALL, (128, 64), rotated=True), "MTE2", 307.38),
    Row("L1, 24 cores the same tiles", everything("aic", ALL, (256, 64), rotated=False), "MTE2", 240.198),
    Row("L1, the same, each from elsewhere", everything("aic", ALL, (256, 64), rotated=True), "MTE2", 209.8),
    Row("UB, four passes", copies("aiv", SQUARE, (64, 1024), 4, 1), "core", 816.05),
    Row("UB, four passes of each quarter", copies("aiv", SQUARE, (64, 1024), 4, 4), "core", 354.56),
    Row("L1, four passes", copies("aic", SQUARE, (64, 1024), 4, 1), "core", 872.19),
    Row("L1, four passes of each quarter", copies("aic", SQUARE, (64, 1024), 4, 4), "core", 397.8),
)

LADDER = tuple(
    Row(name, kernel, what, us)
    for name, kernel, core, vector in (
        ("one core", add(1, 4096), 6909.14, 761.65),
        ("48 cores, copies of 4096", add(48, 4096, in_turn=True), 297.14, 15.885),
        ("copies of 16384", add(48, 16384, in_turn=True), 261.5, 12.845),
        ("double buffer", add(48, 16384, slots=2), 257.56, 12.846),
        ("past the L2", add(48, 16384, slots=2, bypass=True), 185.15, 12.846),
        ("clear banks", add(48, 16256, slots=2, bypass=True), 178.49, 6.954),
    )
    for what, us in (("core", core), ("V", vector))
)


def adds(src0: int, src1: int, dst: int, src0_strides: tuple[int, int] | None = None) -> Kernel:
    """bank_conflict_ub: f32 Add of 4096 a thousand times, each waiting for the one before, with operands at these bytes
    of UB; ``src0_strides``: block and repeat stride of the first source, 1 and 8 else."""
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


BANKS = (
    Row("clear", adds(0, 0x10100, 0x20000), "ticks", 2390),
    Row("sources in one bank", adds(0, 0x4000, 0x10000), "ticks", 4167),
    Row("sources in one group", adds(0, 0x10000, 0x14100), "ticks", 4167),
    Row("result in step with a source", adds(0, 0x10100, 0x4000), "ticks", 2389),
    Row("result in a source's way", adds(0, 0x10100, 0x4020), "ticks", 3751),
    Row("in place", adds(0, 0x10100, 0x10100), "ticks", 2390),
    Row("a source read again and again", adds(0, 0x10100, 0x10100, (0, 1)), "ticks", 3584),
    Row("one block a repeat", adds(0, 0x10100, 0x10100, (0, 8)), "ticks", 2389),
)

TABLES = {"copies": COPIES, "vector addition": LADDER, "bank conflicts": BANKS}

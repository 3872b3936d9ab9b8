"""The staged 8192^3 fp16 product of the CANN asc-devkit examples (matmul_high_performance, and its basic-API
version), as tile programs: the choices that the published kernels state, and what was measured on 910B1 at 1.85 GHz.

Base tiles 64x64x64 and 128x256x64. Stages 0 to 3 keep one block of each operand in L1 and hand over by unit flags;
from stage 4 on L1 is double buffered and holds several blocks of K (2, then 8, of the first operand; 4 of the
second); stage 6 takes half of the rows at a time; stage 7 differs from 6 only in scalar code that is worked out at
compile time, as all of it is here; stage 8 hands over by unit flags. The library of stages 0 to 8 fills L0A by one
LoadData3D a step (latency 50 for both operands, CANN asc-devkit docs) and has flags of its own for each operand in L1;
the basic-API version fills L0B by four 2D ones, for which the four of L0A stand here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import For, If, Instr, SetFlag, Stmt, WaitFlag
from moec.codegen.kernels.matmul import Product, matmul_kernel
from moec.codegen.tiling import CubeTile
from moec.targets.ascend.machine import Machine, load
from moec.targets.ascend.model.result import KernelResult
from moec.targets.ascend.model.simulate import simulate

SMALL = CubeTile(64, 64, 64, 64, 1, l1_slots=1, unit=True)
BASE = replace(SMALL, m=128, n=256)
MDL = replace(BASE, k1=128, k1b=256, l1_slots=2, unit=False, block_m=2048, block_n=1536)
DEEP = replace(MDL, k1=512)
HALVES = replace(DEEP, block_m=1024, panel=4)


@dataclass(frozen=True)
class Stage:
    """Task time and busy times in the mean over cores, in microseconds."""

    name: str
    cores: int
    tile: CubeTile
    task: float
    cube: float
    mte1: float
    mte2: float
    fixpipe: float
    by_operand: bool = True


STAGES = (
    Stage("0: one core, 64x64x64", 1, SMALL, 759363.98, 141699.459, 162104.184, 582515.828, 34303.063),
    Stage("1: one core", 1, BASE, 249467.08, 81477.188, 52003.703, 195613.432, 11313.746),
    Stage("2: 24 cores as 2 x 12", 24, replace(BASE, block_m=4096, block_n=683),
          12541.22, 3462.802, 2260.551, 10177.798, 875.439),
    Stage("3: 24 cores as 4 x 6", 24, replace(BASE, block_m=2048, block_n=1536),
          12283.84, 3394.884, 2166.824, 8616.671, 488.829),
    Stage("4: large packets", 24, MDL, 5039.86, 3116.472, 2332.914, 4051.458, 44.749),
    Stage("5: L1 full", 24, DEEP, 4156.76, 3352.087, 2750.454, 3778.555, 47.853),
    Stage("6: L2 halves", 24, HALVES, 4088.36, 3254.31, 2680.849, 3625.42, 47.398),
    Stage("7: constant tiling", 24, HALVES, 4053.44, 3163.682, 2609.617, 3513.806, 45.76),
    Stage("8: unit flags", 24, replace(HALVES, unit=True), 4012.44, 3076.396, 2533.512, 3435.584, 272.576),
    Stage("basic API", 24, replace(DEEP, unit=True), 4121.16, 3081.664, 2538.348, 3552.248, 160.405,
          False),
    Stage("basic API, L2 halves", 24, replace(HALVES, unit=True), 4081.64, 3082.158, 2553.064, 3487.068, 161.812,
          False),
)  # fmt: skip
PRODUCT = Product(8192, 8192, 8192, 1, "f16", "f16")
B1 = load("ascend910b1")


def on_cores(machine: Machine, cores: int) -> Machine:
    """The machine with fewer cube cores."""
    return replace(
        machine, figures={**machine.figures, "cores.aic": replace(machine.figures["cores.aic"], value=cores)}
    )


def by_operand(stmts: Sequence[Stmt], l1: str = "") -> tuple[Stmt, ...]:
    """The statements with flags of its own for the first operand in L1, as the library has them, beside each that the
    kernel sets or waits for between MTE2 and MTE1 for the second."""
    out: list[Stmt] = []
    for s in stmts:
        if isinstance(s, For):
            s = replace(s, body=by_operand(s.body))
        elif isinstance(s, If):
            s = replace(s, then=by_operand(s.then), orelse=by_operand(s.orelse))
        out.append(s)
        if isinstance(s, (SetFlag, WaitFlag)) and {s.src, s.dst} == {"MTE1", "MTE2"}:
            out.append(replace(s, id=s.id + 2))
    return tuple(out)


def by_3d(stmts: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """The statements with one load of all of L0A where the kernel has one for each column of fractals."""
    out: list[Stmt] = []
    for s in stmts:
        if isinstance(s, For) and s.var == "column":
            (load_,) = s.body
            assert isinstance(load_, Instr)
            params = tuple((k, s.stop * v if k == "repeatTimes" else v) for k, v in load_.params)
            out.append(replace(load_, params=params))
        elif isinstance(s, For):
            out.append(replace(s, body=by_3d(s.body)))
        elif isinstance(s, If):
            out.append(replace(s, then=by_3d(s.then), orelse=by_3d(s.orelse)))
        else:
            out.append(s)
    return tuple(out)


@cache
def modelled(stage: Stage) -> KernelResult:
    """The model's word on a stage."""
    caps = Capacities(aic=stage.cores, l1=512 * 1024)  # the published kernels use all of L1
    kernel, machine = matmul_kernel("mm", caps, stage.tile, PRODUCT), on_cores(B1, stage.cores)
    if stage.by_operand:
        kernel = replace(kernel, body=by_operand(by_3d(kernel.body)))
        late = {f: replace(machine.figures[f], value=50) for f in ("paths.L1->L0A.latency", "paths.L1->L0B.latency")}
        machine = replace(machine, figures={**machine.figures, **late})
    return simulate(kernel, machine, {})


def mean_busy(stage: Stage) -> dict[str, float]:
    """Microseconds of each pipe in the mean over cores."""
    return {pipe: B1.us(cycles) for pipe, cycles in modelled(stage).mean_busy.items()}

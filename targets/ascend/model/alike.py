"""Which kernels take equally long: those that are one once their arguments are numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moec.codegen.kernel_ir import Kernel
from moec.codegen.scalar import Env, evaluate
from moec.targets.ascend.machine import Machine
from moec.targets.ascend.model.program import numbers_in
from moec.targets.ascend.model.scenario import shape_of
from moec.targets.ascend.model.simulate import KINDS


def work_of(kernel: Kernel, machine: Machine, args: Mapping[str, int]) -> tuple[Any, ...]:
    """What the time of ``kernel`` at ``args`` depends on, besides device data that is given: equal for kernels that
    differ in their names, or in whether a size is an argument or a number, alone."""
    wanted = int(evaluate(kernel.blocks, Env({}, args, {})))
    blocks = max(1, min(wanted, machine.cores(KINDS[kernel.core][0])))
    params = tuple((p.name, p.dtype, p.direction, p.role, shape_of(p, args)) for p in kernel.params)
    bodies = tuple(numbers_in(kernel, args, blocks, kind) for kind in KINDS[kernel.core])
    return kernel.core, blocks, params, kernel.buffers, bodies

"""The counts of a case of fault injection, which has every writer of kernels, three ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from ascend_run import built
from counted import disagreements, integers, run_counted

from moec.codegen.arrays import read_manifest, sizes_of
from moec.codegen.program import Output, Program


def bared(program: Program) -> Program:
    """``program`` with every buffer of the device among its outputs: what kernels read of one another is then known."""
    outside = {o.tensor for o in program.outputs}
    inner = [t for t in program.tensors if t.kind == "temp" and t.name not in outside]
    more = (Output(f"inner_{t.name}", t.name, t.shape) for t in inner)
    return replace(program, outputs=(*program.outputs, *more))


def counts_that_differ(
    program: Program, arrays: Mapping[str, np.ndarray], folder: Path, known: Mapping[str, int]
) -> list[str]:
    """What the CPU model, the kernel IR and the cycle model count otherwise of one run, kernel by kernel."""
    program = bared(program)
    project = built(program, folder)
    sizes = sizes_of(read_manifest(folder), arrays, known)
    got, ran = run_counted(project, arrays, sizes, folder, MOEC_CPU_STRICT="1")
    sizes = sizes | {
        str(d): n
        for o in program.outputs
        for d, n in zip(o.shape, got[o.name].shape, strict=True)
        if str(d) in known  # the run has found it out
    }
    return disagreements(program, sizes, ran, integers(program, arrays, got))

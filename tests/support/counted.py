"""Three counts of what a program's launches do: by the CPU model as they ran, by the kernel IR, by the cycle model."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from ascend_run import CALLS, Project

from moec.codegen.instructions import INSTRUCTIONS
from moec.codegen.interpret import seats, trace
from moec.codegen.kernel_ir import ITEMSIZE, Instr, Kernel, LoadScalar, StoreScalar, Witness, space_of
from moec.codegen.program import Program, block_dim, launch_args
from moec.targets.ascend.machine import Machine, load
from moec.targets.ascend.model.scenario import Scenario
from moec.targets.ascend.model.simulate import simulate

Arrays = Mapping[str, np.ndarray]
MOVING = ("MTE1", "MTE2", "MTE3", "FIX")
"""Pipes whose bytes are compared."""


def run_counted(
    project: Project, arrays: Arrays, sizes: Mapping[str, int], folder: Path, **environment: str
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Outputs, and what the CPU model counted of each launch."""
    path = folder / "stats.json"
    outputs = project.outputs(arrays, sizes, MOEC_CPU_STATS=str(path), **environment)
    return outputs, list(json.loads(path.read_text())["launches"])


def integers(program: Program, arrays: Arrays, outputs: Arrays) -> dict[str, tuple[int, ...]]:
    """Device tensors of integers whose values are known from outside."""
    found = {t.name: arrays[t.source] for t in program.tensors if t.source in arrays}
    found |= {o.tensor: outputs[o.name] for o in program.outputs}
    return {name: tuple(int(n) for n in a.ravel()) for name, a in found.items() if a.dtype.kind in "iu"}


def disagreements(
    program: Program,
    sizes: Mapping[str, int],
    ran: Sequence[Mapping[str, Any]],
    known: Mapping[str, tuple[int, ...]],
) -> list[str]:
    """What one of the three counts otherwise: calls of each pipe, bytes of those that move, FLOP of the cube."""
    found: list[str] = []
    launches, machine = program.launches(), _machine(program)
    assert len(launches) == len(ran)
    for launch, got in zip(launches, ran, strict=True):
        kernel = program.kernel(launch.kernel)
        args = launch_args(launch, kernel, sizes)
        tensors = dict(launch.operands)
        data = {p.name: known[tensors[p.name]] for p in kernel.params if tensors[p.name] in known}
        cores = block_dim(kernel, args, program.cores)
        found += [f"{kernel.name}: {d}" for d in _launch(kernel, machine, args, cores, data, got)]
    return found


def _machine(program: Program) -> Machine:
    """The chip with the cores that the program is for."""
    chip = load("ascend910b1")
    cores = {
        name: replace(chip.figures[name], value=program.cores[name.removeprefix("cores.")])
        for name in ("cores.aic", "cores.aiv")
    }
    return replace(chip, figures={**chip.figures, **cores})


def _launch(
    kernel: Kernel,
    machine: Machine,
    args: Mapping[str, int],
    cores: int,
    data: Mapping[str, tuple[int, ...]],
    got: Mapping[str, Any],
) -> list[str]:
    calls: Counter[tuple[str, str]] = Counter()
    moved: Counter[tuple[str, str]] = Counter()
    ops: Counter[str] = Counter()
    paths: Counter[str] = Counter()
    witness = Witness(tuple(args.items()), cores, tuple(data.items()))
    for core, seat in product(range(cores), seats(kernel)):
        for event in trace(kernel, witness, core, None, seat):
            stmt = event.stmt
            if isinstance(stmt, Instr):
                spec = INSTRUCTIONS[stmt.op]
                name = "Nd2Nz" if stmt.op == "Nd2Nz" else re.findall(r"([A-Z]\w+)[<(]", spec.call)[0]
                spaces = {o.name: space_of(kernel, r) for o, r in zip(spec.operands, stmt.operands, strict=True)}
                assert event.resolved is not None
                path = "" if isinstance(spec.pipe, str) else spec.path_of(spaces)
                nbytes = spec.work(event.resolved, path).bytes
                ops[stmt.op] += 1
                paths[path] += nbytes if path else 0
            elif isinstance(stmt, LoadScalar | StoreScalar):
                name = "GetValue" if isinstance(stmt, LoadScalar) else "SetValue"
                nbytes = ITEMSIZE[stmt.ref.dtype]
            else:
                name, nbytes = CALLS.get(type(stmt).__name__, ""), 0
            if name:
                calls[event.pipe, name] += 1
                moved[event.pipe, name] += nbytes if event.pipe in MOVING else 0
    rows = {(i["pipe"], i["op"]): i for i in got["instructions"]}
    model = simulate(kernel, machine, args, Scenario(data))
    macs = sum(i["mnk"] for i in rows.values())
    pairs: list[tuple[str, object, object]] = [
        ("calls of the kernel IR, calls that ran", dict(calls), {k: i["count"] for k, i in rows.items()}),
        (
            "bytes of the kernel IR, bytes that ran",
            {k: n for k, n in moved.items() if n},
            {k: i["bytes"] for k, i in rows.items() if k[0] in MOVING and i["bytes"]},
        ),
        ("calls of the kernel IR, of the cycle model", dict(ops), {k: n for k, n in model.instructions.items() if n}),
        (
            "bytes of the kernel IR, of the cycle model",
            {k: n for k, n in paths.items() if n},
            {k: n for k, n in model.path_bytes.items() if n},
        ),
    ]
    if kernel.core == "aic":
        pairs.append(("FLOP of the cycle model, that ran", model.flops, 2 * macs))
    return [f"{what}: {_differ(a, b)}" for what, a, b in pairs if a != b]


def _differ(a: object, b: object) -> str:
    if isinstance(a, dict) and isinstance(b, dict):
        return str({k: (a.get(k), b.get(k)) for k in sorted({*a, *b}, key=str) if a.get(k) != b.get(k)})
    return f"{a}, {b}"

"""A block's training graph as kernels: static checks, and runs of forward and backward against the reference."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from ascend_run import Project, built, issued

import moec
from moec.codegen.capacities import Capacities
from moec.codegen.hazards import check
from moec.codegen.kernel_ir import Witness
from moec.codegen.limits import check_limits
from moec.codegen.lower import lower_module
from moec.codegen.program import Program, block_dim, launch_args
from moec.codegen.program_text import parse_program, print_program
from moec.codegen.races import check_races
from moec.codegen.steps import Record, Wait
from moec.eval import run
from moec.ir.graph import Module

LAYER = Path(__file__).resolve().parents[2] / "examples" / "tiny_moe.moe"
PLANS = {
    "all saved": "",
    "recomputed": "recompute{what=act+permute}",
    "parked": "swap{what=permute+act}",
}
"""What becomes of the saved activations."""


def lowered(plan: str) -> tuple[Module, Program]:
    module = moec.compile(LAYER, train="", memory=PLANS[plan], print=lambda text: None).module
    return module, lower_module(module, Capacities(aic=2, aiv=3), {})


def inputs_of(module: Module, tokens: int) -> dict[str, np.ndarray]:
    """Every input and weight."""
    rng = np.random.default_rng(tokens)
    given = {}
    for value in module.main.inputs:
        shape = [d if isinstance(d, int) else tokens for d in value.type.dims]
        given[str(value.name)] = rng.standard_normal(shape).astype(np.float32)
    for node in module.main:
        if node.op == "weight":
            given[node.attrs["name"]] = (rng.standard_normal(node.attrs["shape"]) * 0.2).astype(np.float32)
    return given


def agrees(module: Module, project: Project, tokens: int, order: str) -> None:
    """Every output and gradient within four times the error that f32 arithmetic in the reference has."""
    given = inputs_of(module, tokens)
    names = {str(v.name) for v in module.main.inputs}
    inputs = {n: a for n, a in given.items() if n in names}
    weights = {n: a for n, a in given.items() if n not in names}
    got = project.outputs(given, {"T": tokens}, MOEC_CPU_ORDER=order, MOEC_CPU_STRICT="1", MOEC_POISON="1")
    exact, reference = run(module, inputs, weights, fp64=True), run(module, inputs, weights)
    assert set(got) == set(exact) and len(exact) == 8
    for name, want in exact.items():
        allowed = 4 * np.abs(reference[name] - want).max() + 1e-6 * np.abs(want).max()
        np.testing.assert_allclose(got[name], want, rtol=0, atol=allowed, err_msg=f"{name} of {tokens} tokens")


@pytest.mark.parametrize("plan", PLANS)
def test_forward_and_backward_run_as_the_reference_says(plan: str, tmp_path: Path) -> None:
    module, program = lowered(plan)
    assert parse_program(print_program(program)) == program
    project = built(program, tmp_path)
    runs = [(1, "forward"), (5, "reverse"), (64, "random:3")] if plan == "all saved" else [(5, "forward")]
    for tokens, order in runs:
        agrees(module, project, tokens, order)


def test_what_is_used_for_the_last_time_is_overwritten_behind_it(tmp_path: Path) -> None:
    """With copies to the host on streams of their own. What they bring back is used by two streams in order, and dies;
    what they park while the compute stream may still read it does not.
    """
    _, program = lowered("parked")
    assert len(program.streams()) == 3
    kept = {o.tensor for o in program.outputs}
    touched: dict[str, dict[str, int]] = {}
    for i, step in enumerate(program.steps):
        for stream, name, _ in program.accesses(step):
            touched.setdefault(name, {})[stream] = i

    def over(behind: int, of: str, at: int, seen_by: str) -> bool:
        """Whether an event leads from what stands ``behind`` on one stream to before ``at`` on the other."""
        records = {s.event for s in program.steps[behind:at] if isinstance(s, Record) and s.stream == of}
        return any(isinstance(s, Wait) and s.stream == seen_by and s.event in records for s in program.steps[behind:at])

    gone = [(i, name, stream) for i, dead in program.deaths().items() for name, stream in dead]
    for i, name, stream in gone:
        assert max(touched[name].values()) == i == touched[name][stream]
        assert all(over(at, other, i, stream) for other, at in touched[name].items() if other != stream)
    temps = {t.name for t in program.of_kind("temp")} - kept
    alive = temps - {name for _, name, _ in gone}
    assert len({name for _, name, _ in gone if len(touched[name]) == 2}) == len(alive) == 3
    assert all({*touched[name]} == {"compute", "copy_out"} for name in alive)
    main = (built(program, tmp_path).folder / "host" / "main.cpp").read_text()
    assert main.count("0xFF, dev_") == len(gone) == len(temps) - 3


def test_what_runs_is_what_the_kernels_say(tmp_path: Path) -> None:
    """Instructions, flags and barriers of every launch, as the kernel IR issues and as the CPU model counts them."""
    module, program = lowered("all saved")
    given, tokens = inputs_of(module, 5), 5
    names = {str(v.name) for v in module.main.inputs}
    values = run(module, {n: given[n] for n in names}, {n: a for n, a in given.items() if n not in names})
    scores = 1 / (1 + np.exp(-values["logits"].astype(np.float64)))
    chosen = np.argsort(-scores, axis=1)[:, :2]
    counts = tuple(int(n) for n in np.bincount(chosen.ravel(), minlength=scores.shape[1]))
    path = tmp_path / "stats.json"
    built(program, tmp_path).outputs(given, {"T": tokens}, MOEC_CPU_STATS=str(path))
    launches = json.loads(path.read_text())["launches"]
    assert len(launches) == len(program.launches()) > 20
    for launch, ran in zip(program.launches(), launches, strict=True):
        kernel = program.kernel(launch.kernel)
        args = launch_args(launch, kernel, {"T": tokens})
        data = tuple((p.name, counts) for p in kernel.params if p.role == "counts" and p.direction == "in")
        cores = block_dim(kernel, args, program.cores)
        planned = issued(kernel, Witness(tuple(args.items()), cores, data))
        got = {(i["pipe"], i["op"]): i["count"] for i in ran["instructions"]}
        wanted = {k: n for k, (n, _) in planned.items()}
        assert got == wanted, kernel.name


def test_every_kernel_passes_the_static_checks() -> None:
    _, program = lowered("all saved")
    for kernel in program.kernels:
        assert [*check(kernel), *check_races(kernel)] == [], kernel.name
        assert check_limits(kernel) == [], kernel.name

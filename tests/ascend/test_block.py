"""A whole block, from a layer text to kernels: static checks of every kernel, and a run against the reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ascend_run import Project, built

import moec
from moec.codegen.capacities import Capacities
from moec.codegen.hazards import check, is_site
from moec.codegen.kernel_ir import For, If, Kernel, Stmt
from moec.codegen.limits import check_limits
from moec.codegen.lower import lower_module
from moec.codegen.program import Program
from moec.codegen.races import check_races
from moec.codegen.text import print_kernel
from moec.codegen.text_parse import parse_kernel
from moec.eval import run
from moec.ir.graph import Module

LAYER = Path(__file__).resolve().parents[2] / "examples" / "tiny_moe.moe"


@pytest.fixture(scope="module")
def module() -> Module:
    return moec.compile(LAYER).module


@pytest.fixture(scope="module")
def program(module: Module) -> Program:
    return lower_module(module, Capacities(aic=2, aiv=3), {})


def without_each(block: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, tuple[Stmt, ...]]]:
    """Each synchronisation statement with the block that lacks it."""
    for i, s in enumerate(block):
        head, tail = block[:i], block[i + 1 :]
        if is_site(s):
            yield s, (*head, *tail)
        elif isinstance(s, For):
            yield from ((site, (*head, replace(s, body=b), *tail)) for site, b in without_each(s.body))
        elif isinstance(s, If):
            yield from ((site, (*head, replace(s, then=b), *tail)) for site, b in without_each(s.then))
            yield from ((site, (*head, replace(s, orelse=b), *tail)) for site, b in without_each(s.orelse))


def faults(kernel: Kernel) -> list[object]:
    return [*check(kernel), *check_races(kernel)]


def test_every_kernel_passes_the_static_checks(program: Program) -> None:
    for kernel in program.kernels:
        assert faults(kernel) == [], kernel.name
        assert check_limits(kernel) == [], kernel.name
        assert parse_kernel(print_kernel(kernel)) == kernel


def test_removing_any_site_of_any_kernel_is_noticed(program: Program) -> None:
    """By the static checks alone; the CPU model's share is measured on the kernels of each family."""
    missed, total = [], 0
    for kernel in program.kernels:
        for site, body in without_each(kernel.body):
            total += 1
            if not faults(replace(kernel, body=body)):
                missed.append((kernel.name, site))
    assert total > 200
    assert missed == []


@pytest.fixture(scope="module")
def project(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Project:
    return built(program, tmp_path_factory.mktemp("block"))


@pytest.mark.parametrize("tokens", [1, 5, 64])
@pytest.mark.parametrize("order", ["forward", "reverse", "random:3"])
def test_the_block_runs_as_the_reference_says(module: Module, project: Project, tokens: int, order: str) -> None:
    rng = np.random.default_rng(tokens)
    inputs = {"x": rng.standard_normal((tokens, 64)).astype(np.float32)}
    weights = {
        node.attrs["name"]: (rng.standard_normal(node.attrs["shape"]) * 0.2).astype(np.float32)
        for node in module.main
        if node.op == "weight"
    }
    got = project.outputs(inputs | weights, {"T": tokens}, MOEC_CPU_ORDER=order, MOEC_CPU_STRICT="1")
    exact, reference = run(module, inputs, weights, fp64=True), run(module, inputs, weights)
    for name, want in exact.items():
        allowed = 4 * np.abs(reference[name] - want).max() + 1e-6 * np.abs(want).max()
        np.testing.assert_allclose(got[name], want, rtol=0, atol=allowed)

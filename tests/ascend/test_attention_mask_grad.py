"""The gradient of attention by an added mask on the CPU model against fp64, for masks that are broadcast every way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ascend_run import Case, built, mask_sites
from attention_layers import Errors, Net, arrays_of, mask_gradient, program, run_alike, with_gradient
from kernel_sites import without_each

from moec.codegen.hazards import check
from moec.codegen.kernel_ir import CrossCoreSet, CrossCoreWait
from moec.codegen.limits import check_limits
from moec.codegen.races import check_races

NETS = {
    "relative": Net("f32", 4, 2, 24, 16, mask=("f32", "1, 4, S, T")),
    "all": Net("f16", 2, 2, 48, 24, True, 70, 8.0, ("f16", "B, 1, S, T"), "f16", (16, 1)),
}
SWEPT = {
    "keys": Net("bf16", 2, 1, 40, 24, causal=True, mask=("bf16", "2, 1, T")),
    "own": Net("bf16", 2, 2, 64, 64, causal=True, window=33, mask=("bf16", "B, 2, S, T")),
    "plane": Net("f32", 2, 2, 33, 20, mask=("f32", "S, T"), sinks="f32", rope=(20, 2)),
    "vector": Net("f32", 2, 2, 16, 16, mask=("f32", "T")),
    "queries": Net("f32", 2, 1, 16, 16, causal=True, mask=("f32", "B, 1, S, 1"), sinks="f32"),
    "one": Net("f16", 2, 2, 16, 16, mask=("f32", "B, 2, 1, 1"), sinks="f32"),
}
SIZES = ((1, 1, 1), (1, 5, 7), (2, 126, 127), (1, 70, 200), (1, 9, 5), (2, 0, 3))
PLAIN = Net("bf16", 2, 2, 64, 64, causal=True, mask=("bf16", "2, S, T"))


def compare(nets: dict[str, Net], folder: Path) -> None:
    project = built(program(nets, True, by_mask=True), folder)
    errors = Errors()
    for batch, queries, keys in SIZES:
        arrays, inputs = {}, {}
        for name, net in nets.items():
            rng = np.random.default_rng(13)
            inputs[name] = with_gradient(net, arrays_of(net, batch, queries, keys, rng), rng)
            arrays |= {f"{name}_{operand}": value for operand, value in inputs[name].items()}
        got = run_alike(project, arrays, {"B": batch, "S": queries, "T": keys})
        for name, net in nets.items():
            assert net.mask is not None
            want, plain = mask_gradient(net, inputs[name]), mask_gradient(net, inputs[name], np.float32)
            errors.add(name, got[f"{name}_dmask"], want, plain, net.mask[0])
    errors.check()


@pytest.mark.slow
def test_gradient_by_the_mask(tmp_path: Path) -> None:
    compare(NETS, tmp_path)


@pytest.mark.slow
def test_gradient_by_masks_of_every_shape(tmp_path: Path) -> None:
    compare(SWEPT, tmp_path)


def test_static_checks() -> None:
    (kernel,) = (k for k in program({"x": PLAIN}, True, by_mask=True).kernels if k.core == "mix")
    assert check(kernel) == [] and check_races(kernel) == [] and check_limits(kernel) == []
    crossing = [body for s, body in without_each(kernel.body) if isinstance(s, CrossCoreSet | CrossCoreWait)]
    assert len(crossing) == 4
    assert all(check(replace(kernel, body=body)) for body in crossing)


@pytest.mark.slow
def test_every_site_is_caught(tmp_path: Path) -> None:
    project = built(program({"x": PLAIN}, True, by_mask=True), tmp_path)
    cases = []
    for batch, queries, keys in ((2, 170, 150), (1, 5, 7)):
        rng = np.random.default_rng(5)
        a = with_gradient(PLAIN, arrays_of(PLAIN, batch, queries, keys, rng), rng)
        arrays, sizes = {f"x_{n}": v for n, v in a.items()}, {"B": batch, "S": queries, "T": keys}
        cases.append(Case(arrays, sizes, project.outputs(arrays, sizes), 0.0))
    report = mask_sites(project, cases, ("set", "wait", "barrier"))
    assert not report.missed, f"{report}: {report.missed}"

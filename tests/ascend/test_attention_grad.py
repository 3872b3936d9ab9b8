"""The gradient of attention on the CPU model against fp64: the same bits in every order of the cores."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from ascend_run import Case, Project, built, mask_sites
from attention_layers import Errors, Net, arrays_of, gradient, program, run_alike, with_gradient
from kernel_sites import without_each

from moec.codegen.hazards import check
from moec.codegen.kernel_ir import CrossCoreSet, CrossCoreWait, Witness
from moec.codegen.limits import check_limits
from moec.codegen.races import check_races

NETS = {
    "grouped": Net("f32", 4, 2, 72, 80, causal=True, rope=(20, 2)),
    "all": Net("f16", 2, 2, 48, 24, True, 70, 8.0, ("bool", "B, 1, S, T"), "f16", (16, 1)),
}
SWEPT = {
    "latent": Net("bf16", 2, 2, 128, 64, causal=True, rope=(64, 1)),
    "narrow": Net("f16", 2, 1, 5, 7, causal=True, window=33, sinks="f32"),
    "row": Net("f32", 2, 2, 64, 5, mask=("bool", "B, 1, 1, T"), causal=True),
    "added": Net("bf16", 2, 2, 64, 64, mask=("bf16", "2, S, T")),
    "queries": Net("f32", 2, 1, 24, 16, sinks="f32", mask=("f32", "B, 1, S, 1")),
    "chosen": Net("bf16", 2, 2, 33, 20, causal=True, mask=("bool", "2, S, 1")),
    "one": Net("f16", 2, 2, 33, 20, sinks="f32", mask=("f16", "B, 2, 1, 1")),
    "wide": Net("bf16", 2, 1, 256, 256, causal=True),
    "widest": Net("f32", 1, 1, 256, 250, softcap=8.0),
    "floats": Net("f32", 2, 2, 32, 64, mask=("f32", "B, 2, S, T"), softcap=5.0, rope=(20, 2)),
}
SIZES = ((1, 1, 1), (1, 5, 7), (2, 126, 127), (1, 70, 200), (1, 1, 130), (1, 9, 5), (2, 0, 3))
PLAIN = Net("bf16", 2, 1, 64, 64, causal=True)


def compare(nets: dict[str, Net], project: Project) -> None:
    errors = Errors()
    for batch, queries, keys in SIZES:
        arrays, sizes = {}, {"B": batch, "S": queries, "T": keys}
        inputs = {}
        for name, net in nets.items():
            rng = np.random.default_rng(11)
            inputs[name] = with_gradient(net, arrays_of(net, batch, queries, keys, rng), rng)
            arrays |= {f"{name}_{operand}": value for operand, value in inputs[name].items()}
        got = run_alike(project, arrays, sizes)
        for name, net in nets.items():
            want, plain = gradient(net, inputs[name]), gradient(net, inputs[name], np.float32)
            for result, value in want.items():
                dtype = net.sinks if result == "dsinks" else net.dtype
                errors.add(f"{name} {result}", got[f"{name}_{result}"], value, plain[result], dtype)
    errors.check()


def test_gradient(tmp_path: Path) -> None:
    compare(NETS, built(program(NETS, True), tmp_path))


@pytest.mark.slow
def test_gradient_of_every_kind(tmp_path: Path) -> None:
    compare(SWEPT, built(program(SWEPT, True), tmp_path))


@pytest.mark.slow
def test_keys_that_no_query_sees_have_exact_zeros(tmp_path: Path) -> None:
    """With 9 queries behind 5 keys the first 4 rows attend nothing; beyond a window old keys are not seen at all."""
    net = Net("bf16", 1, 1, 64, 64, causal=True, window=16)
    rng = np.random.default_rng(3)
    a = with_gradient(net, arrays_of(net, 1, 8, 200, rng), rng)
    project = built(program({"x": net}, True), tmp_path)
    got = run_alike(project, {f"x_{n}": v for n, v in a.items()}, {"B": 1, "S": 8, "T": 200})
    assert not got["x_dk"][:, :, :177].any() and not got["x_dv"][:, :, :177].any()
    assert got["x_dv"][:, :, 177:].any()


def test_static_checks() -> None:
    kernels = [k for k in program({"x": PLAIN}, True).kernels if k.core == "mix"]
    assert len(kernels) == 2
    for kernel in kernels:
        assert check(kernel) == [] and check_races(kernel) == [] and check_limits(kernel) == []
        sites = list(without_each(kernel.body))
        crossing = [body for s, body in sites if isinstance(s, CrossCoreSet | CrossCoreWait)]
        assert len(crossing) == 4
        assert all(check(replace(kernel, body=body)) for body in crossing)


def test_rests_of_rows_of_f32_are_ordered_behind_the_pieces_before_them() -> None:
    """Small products that add to one result want a barrier between them, the rest's no less than the pieces'."""
    net = Net("f32", 1, 1, 16, 16, causal=True)
    mixed = [k for k in program({"x": net}, True).kernels if k.core == "mix"]
    for kernel, rows in product(mixed, (4, 20, 84, 148)):
        args = {"B": 1, "S": rows, "T": rows, "offset": 0}
        seen = Witness(tuple((a.name, args[a.name]) for a in kernel.args), 1)
        assert check(replace(kernel, witnesses=(seen,))) == []


@pytest.mark.slow
@pytest.mark.parametrize("net", [*NETS.values(), PLAIN])
def test_removing_any_site_is_noticed_statically(net: Net) -> None:
    for kernel in program({"x": net}, True).kernels:
        assert [s for s, body in without_each(kernel.body) if not check(replace(kernel, body=body))] == []


@pytest.mark.slow
def test_every_site_is_caught(tmp_path: Path) -> None:
    project = built(program({"x": PLAIN}, True), tmp_path)
    cases = []
    for batch, queries, keys in ((2, 170, 150), (1, 5, 7)):
        rng = np.random.default_rng(5)
        a = with_gradient(PLAIN, arrays_of(PLAIN, batch, queries, keys, rng), rng)
        arrays, sizes = {f"x_{n}": v for n, v in a.items()}, {"B": batch, "S": queries, "T": keys}
        cases.append(Case(arrays, sizes, project.outputs(arrays, sizes), 0.0))
    report = mask_sites(project, cases, ("set", "wait", "barrier"))
    assert not report.missed, f"{report}: {report.missed}"

"""Attention forward as a mixed kernel on the CPU model against fp64, in several orders of the cores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ascend_run import Case, Project, built, executed, issued, mask_sites
from attention_layers import STATS, Errors, Net, arrays_of, forward, program, run_alike
from kernel_sites import without_each

from moec.codegen.hazards import check
from moec.codegen.kernel_ir import CrossCoreSet, CrossCoreWait, Kernel, Witness
from moec.codegen.limits import check_limits
from moec.codegen.races import check_races
from moec.codegen.text import print_kernel
from moec.codegen.text_parse import parse_kernel

NETS = {
    "grouped": Net("f32", 4, 2, 80, 80, causal=True, stats=True),
    "latent": Net("bf16", 2, 2, 128, 64, causal=True, rope=(64, 1)),
    "all": Net("f16", 2, 1, 40, 24, True, 70, 8.0, ("bool", "B, 1, S, T"), "f16", (16, 1), stats=True),
}
SWEPT = {
    "narrow": Net("f16", 2, 1, 5, 7, causal=True, window=33, sinks="f32", stats=True),
    "row": Net("f32", 2, 2, 64, 5, mask=("bool", "B, 1, 1, T"), causal=True, empty="nan"),
    "added": Net("bf16", 2, 2, 64, 64, mask=("bf16", "2, S, T"), sinks="f32"),
    "floats": Net("f32", 2, 2, 33, 64, mask=("f32", "B, 2, S, T"), softcap=5.0),
    "vector": Net("f32", 2, 2, 64, 64, mask=("f32", "T"), window=100, rope=(20, 2)),
    "queries": Net("f32", 2, 1, 24, 16, sinks="f32", mask=("f32", "B, 1, S, 1"), stats=True),
    "chosen": Net("bf16", 2, 2, 33, 20, causal=True, mask=("bool", "2, S, 1"), stats=True),
}
SIZES = ((1, 1, 1), (1, 5, 7), (2, 126, 127), (1, 70, 200), (1, 1, 130), (1, 9, 5), (2, 0, 3))
PLAIN = Net("bf16", 2, 1, 64, 64, causal=True)


def compare(nets: dict[str, Net], project: Project) -> None:
    errors = Errors()
    for batch, queries, keys in SIZES:
        arrays, sizes = {}, {"B": batch, "S": queries, "T": keys}
        inputs = {n: arrays_of(net, batch, queries, keys, np.random.default_rng(7)) for n, net in nets.items()}
        for name, a in inputs.items():
            arrays |= {f"{name}_{operand}": value for operand, value in a.items()}
        got = run_alike(project, arrays, sizes)
        for name, net in nets.items():
            want, plain = forward(net, inputs[name]), forward(net, inputs[name], np.float32)
            errors.add(f"{name} y", got[f"{name}_y"], want["y"], plain["y"], net.dtype)
            for stat in STATS if net.stats else ():
                errors.add(f"{name} {stat}", got[f"{name}_{stat}"], want[stat], plain[stat], "f32")
    errors.check()


def test_forward(tmp_path: Path) -> None:
    compare(NETS, built(program(NETS, False), tmp_path))


@pytest.mark.slow
def test_forward_of_every_kind(tmp_path: Path) -> None:
    compare(SWEPT, built(program(SWEPT, False), tmp_path))


def kernel_of(net: Net) -> Kernel:
    (kernel,) = program({"x": net}, False).kernels
    return kernel


def cross_sites(kernel: Kernel) -> list[Kernel]:
    return [
        replace(kernel, body=body)
        for site, body in without_each(kernel.body)
        if isinstance(site, CrossCoreSet | CrossCoreWait)
    ]


def test_static_checks_follow_cross_core_flags() -> None:
    kernel = kernel_of(PLAIN)
    assert kernel.core == "mix"
    assert check(kernel) == [] and check_races(kernel) == [] and check_limits(kernel) == []
    broken = cross_sites(kernel)
    assert len(broken) == 6
    found = [check(k) for k in broken]
    assert all(found)
    assert all("cross-core flag" in v[0].what or "may start before" in v[0].what for v in found)
    assert parse_kernel(print_kernel(kernel)) == kernel


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NETS, "plain"])
def test_removing_any_site_is_noticed_statically(name: str) -> None:
    kernel = kernel_of({**NETS, "plain": PLAIN}[name])
    sites = list(without_each(kernel.body))
    assert len(sites) > 60
    assert [s for s, body in sites if not check(replace(kernel, body=body))] == []


def test_every_site_is_caught(tmp_path: Path) -> None:
    """Flags inside and across cores, barriers, pads and bounds."""
    project = built(program({"x": PLAIN}, False), tmp_path)
    cases = []
    for batch, queries, keys in ((2, 100, 150), (1, 5, 7)):
        a = arrays_of(PLAIN, batch, queries, keys, np.random.default_rng(5))
        arrays = {f"x_{n}": v for n, v in a.items()}
        sizes = {"B": batch, "S": queries, "T": keys}
        cases.append(Case(arrays, sizes, project.outputs(arrays, sizes), 0.0))
    report = mask_sites(project, cases)
    assert not report.missed, f"{report}: {report.missed}"
    assert sum(report.total.values()) > 110


def test_counts_are_those_of_the_kernel(tmp_path: Path) -> None:
    """And by hand: 1 head, 40 queries in tiles of 32 and 8, 70 keys in tiles of 64 and 6, 64 columns, 16 bits."""
    net = Net("f16", 1, 1, 64, 64)
    made = program({"x": net}, False)
    a = arrays_of(net, 1, 40, 70, np.random.default_rng(1))
    ran = executed(built(made, tmp_path), {f"x_{n}": v for n, v in a.items()}, {"B": 1, "S": 40, "T": 70})
    kernel = made.kernels[0]
    values = {"B": 1, "S": 40, "T": 70, "offset": 30}
    planned = issued(kernel, Witness(tuple((p.name, values[p.name]) for p in kernel.args), 2))
    assert {k: n for k, (n, _) in planned.items()} == {k: i["count"] for k, i in ran.items()}
    assert {k: b for k, (_, b) in planned.items() if k[0] in ("MTE2", "MTE3", "FIX")} == {
        k: i["bytes"] for k, i in ran.items() if k[0] in ("MTE2", "MTE3", "FIX")
    }
    assert ran["MTE2", "Nd2Nz"]["count"] == 2 + 4 * 3  # each tile's queries once, then keys, values, probabilities
    assert ran["MTE2", "Nd2Nz"]["bytes"] == (40 * 64 + 2 * 2 * 70 * 64 + 40 * 70) * 2
    assert ran["FIX", "Fixpipe"]["bytes"] == 40 * 70 * 4 + 2 * 40 * 64 * 4  # scores, and a product a pair of tiles
    assert ran["M", "Mmad"]["mnk"] == 2 * 40 * 70 * 64
    assert ran["FIX", "CrossCoreSetFlag"]["count"] == 4 * 2  # scores and product of each pair of tiles
    assert ran["MTE3", "CrossCoreSetFlag"]["count"] == 4 * 2  # probabilities, by two vector cores
    assert ran["S", "CrossCoreWaitFlag"]["count"] == 4 + 4 * 2 * 2

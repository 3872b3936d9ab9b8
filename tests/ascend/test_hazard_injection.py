"""Every flag, barrier, padding and buffer bound of every kernel left out in turn, and the counts of the same runs.

``benchmarks/hazard_injection.py`` prints the table; here every writer of kernels must have a case, and every fault must
be noticed by a run and, where there is one, by the static check.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import kernel_writers
import numpy as np
import pytest
from injection import flags_in, sites_of, without
from injection_all import CASES
from injection_cases import Case
from injection_counts import counts_that_differ
from injection_run import inject, prepared
from injection_vector import VECTOR

from moec.codegen import builder
from moec.codegen.hazards import check
from moec.codegen.kernel_ir import Kernel

OPEN = {
    ("sort", "event"),
    ("sort", "pad"),  # behind a list in the workspace there is room: whole blocks may be stored
    ("sort", "bound"),
    ("attention_dkv_bf16", "event"),
    ("attention_dkv_bf16", "pad"),
    ("attention_dq_bf16", "pad"),
    ("attention_dkv_f16", "event"),
    ("attention_dkv_f16", "pad"),
    ("attention_dsinks_f16", "event"),
    ("attention_heads_f16", "event"),
    ("attention_heads_f16", "barrier"),
    ("attention_heads_f16", "pad"),
    ("attention_packed", "event"),
    ("attention_stats_bf16", "event"),
    ("attention_stats_f16", "barrier"),
    ("scatter_nd_none", "barrier"),  # the static check takes MTE3 to keep its own order
}
"""Kernels and kinds of which single faults are not noticed both ways yet: the sizes here do not take the paths on which
the witnesses need them, or what is said."""
SAMPLE = next(c for c in VECTOR if c.name == "bias of experts")


def test_every_writer_of_kernels_has_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer is any place in moec.codegen that makes a KernelBuilder."""

    def as_it_is(kernel: Kernel) -> Kernel:
        return kernel

    monkeypatch.setattr(builder, "synchronise", as_it_is)  # who wrote a kernel does not depend on its flags
    kernel_writers.note()
    have = {kernel_writers.writer_of(k) for case in CASES for k in case.program().kernels}
    assert kernel_writers.writers() - have == set()


def missed(case: Case, folder: Path) -> list[str]:
    """Faults that a run or the static check does not notice."""
    program = case.program()
    sites = [site for kernel in program.kernels for site in sites_of(kernel)]
    assert len(sites) > 5 * len(program.kernels)
    inject(prepared(program, case.runs(np.random.default_rng(5)), folder, case.known), sites)
    return [
        f"{s.kernel}: {s.kind} {s.text} ({s.mask}){'' if s.dynamic else ', by the run'}"
        f"{', by the static check' if s.static is False else ''}"
        for s in sites
        if not s.is_room and (not s.dynamic or (s.static is False and s.kind != "bound"))
        if (s.kernel, s.kind) not in OPEN
    ]


def test_faults_of_a_small_kernel_are_noticed(tmp_path: Path) -> None:
    assert missed(SAMPLE, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_every_fault_is_noticed(case: Case, tmp_path: Path) -> None:
    assert missed(case, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_counts_agree(case: Case, tmp_path: Path) -> None:
    """Calls and bytes of each pipe, and the cube's FLOP: by the CPU model, the kernel IR and the cycle model."""
    for number, arrays in enumerate(case.runs(np.random.default_rng(5))[:2]):
        folder = tmp_path / str(number)
        assert counts_that_differ(case.program(), arrays, folder, case.known) == []


def test_the_static_verdict_is_that_of_the_check() -> None:
    """What leaving a site out of the trace says is what the check of the kernel without it says."""
    (kernel,) = (k for k in SAMPLE.program().kernels if k.name == "grouped_bias")
    flags = list(flags_in(kernel.body, ()))
    sites = sites_of(kernel)[: len(flags)]
    assert len(sites) > 10 and {s.kind for s in sites} == {"set", "wait", "barrier"}
    for site, (path, _) in zip(sites, flags, strict=True):
        assert site.static == (check(replace(kernel, body=without(kernel.body, path))) != [])

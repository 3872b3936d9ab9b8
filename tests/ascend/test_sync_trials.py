"""What the synchronisation pass tries choices of flags with is what the kernel with these flags in it runs."""

from __future__ import annotations

from random import Random

import pytest
from attention_layers import CAPS, Net, program

from moec.codegen import builder
from moec.codegen.depend import Sync, candidates
from moec.codegen.hazards import violations
from moec.codegen.kernel_ir import Kernel
from moec.codegen.kernels.vector.sums import Sums, sums_kernel
from moec.codegen.ordered import coded, ordered
from moec.codegen.placing import insert
from moec.codegen.traces import Step, program_of
from moec.codegen.weave import Places, runs_of


def drafts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Kernel]:
    """Kernels as their writers leave them, without flags: of vector cores, and of cube and vector cores together."""
    found: dict[str, Kernel] = {}
    synchronise = builder.synchronise

    def noted(kernel: Kernel) -> Kernel:
        found[kernel.name] = kernel
        return synchronise(kernel)

    monkeypatch.setattr(builder, "synchronise", noted)
    sums_kernel("sums", CAPS, Sums(None, None, 70, "f16", "f32", 128))
    program({"x": Net("f32", 2, 1, 24, 16, causal=True, packed=True)}, False)
    return found


def own_ids(syncs: list[Sync]) -> list[int]:
    return [sum(s.slots for s in syncs[:i]) for i in range(len(syncs))]


def core_of(program: list[Step]) -> list[tuple[object, ...]]:
    """Without paths, which are those of another kernel."""
    return [(s.kind, s.pipe, s.pos, s.channel, tuple(need[:2] for need in s.needs)) for s in program]


def test_trials_are_what_kernels_run(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = drafts(monkeypatch)
    assert {k.core for k in kernels.values()} == {"aiv", "mix"}
    for kernel in kernels.values():
        syncs = candidates(kernel)
        runs = runs_of(kernel, places := Places(kernel, syncs))
        rng, faulty = Random(3), 0
        for drop in (0.0, 0.02, 0.5):
            kept = [s for s in syncs if rng.random() >= drop]
            plan, bases = places.plan(kept, own_ids(kept)), own_ids(kept)
            done, _ = insert(kernel, kept, bases)
            for run in runs:
                woven, real = run.program(plan), program_of(done, run.witness, run.core)
                assert core_of(woven) == core_of(real), kernel.name
                assert ordered(*coded(woven)) == (violations(real) == []), kernel.name
                faulty += violations(real) != []
        assert faulty, kernel.name


def test_any_single_flag_left_out_is_judged_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every candidate the set, the wait, or both: in the middle of a run flags stay up, or are awaited in vain."""
    judged = []
    for kernel in drafts(monkeypatch).values():
        syncs = candidates(kernel)
        places = Places(kernel, syncs)
        program = runs_of(kernel, places)[-1].program(places.plan(syncs, own_ids(syncs)))
        for i in range(0, len(syncs), 3):
            for kinds in (("set",), ("wait",), ("set", "wait", "barrier")):
                rest = [s for s in program if s.tag != i or s.kind not in kinds]
                good = violations(rest) == []
                assert ordered(*coded(rest)) == good, f"{kernel.name}: {syncs[i]} without {kinds}"
                judged.append(good)
    assert judged.count(True) > 20 and judged.count(False) > 20

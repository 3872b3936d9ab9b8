"""Random layer IR differentiated: it verifies, keeps to its seam, computes forward as before, and agrees with
differences wherever forward is smooth enough to tell.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from graphs import inputs_of, modules
from hypothesis import HealthCheck, given, settings

from moec.autodiff import differentiate
from moec.diagnostics import Refusal
from moec.eval import run
from moec.ir.graph import Module
from moec.ops.verify import verify
from moec.passes.base import PassManager
from tests.support.train import copy
from tests.train.test_autodiff_seam import crossings, seam

Array = np.ndarray


def along(module: Module, given_: Mapping[str, Array], dys: Mapping[str, Array], steps: Mapping[str, Array]) -> float:
    """The derivative of forward along ``steps`` by central differences; NaN where two sizes of step disagree."""

    def loss(h: float) -> float:
        moved = {n: a + h * steps[n] if n in steps else a for n, a in given_.items()}
        out = run(module, moved, fp64=True)
        return sum(float(np.sum(out[n] * dy)) for n, dy in dys.items())

    with np.errstate(all="ignore"):
        coarse, fine = ((loss(h) - loss(-h)) / (2 * h) for h in (4e-5, 1e-5))
    return fine if abs(coarse - fine) <= 1e-6 * max(1.0, abs(fine)) else float("nan")


def test_random_graphs() -> None:
    seen = {"refused": 0, "agreed": 0, "not smooth": 0}

    @settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(modules(max_steps=8))
    def check(module: Module) -> None:
        made = copy(module)
        try:
            differentiate(made)
        except Refusal:
            seen["refused"] += 1
            return
        verify(made)
        assert crossings(made.main) == []
        kept = seam(made)
        arrays = {n: a.astype(np.float64) if a.dtype.kind in "fV" else a for n, a in inputs_of(module, 3).items()}
        rng = np.random.default_rng(5)
        forward = run(module, arrays, fp64=True)
        hooks = [v.name for v in made.main.inputs if v.name not in arrays]
        dys = {n: rng.standard_normal(forward[n.removeprefix("d_")].shape) for n in hooks}
        with np.errstate(all="ignore"):
            got = run(made, {**arrays, **dys}, fp64=True)
        for name, before in forward.items():
            np.testing.assert_array_equal(got[name], before)
        losses = {n.removeprefix("d_"): dy for n, dy in dys.items()}
        outputs = dict(zip(made.main.output_names, made.main.outputs, strict=True))
        seeded = [n for n in forward if any(user.op == "seed" for user in outputs[n].uses)]
        losses |= {n: np.ones(forward[n].shape) for n in seeded}
        steps = {n[2:]: rng.standard_normal(a.shape) for n, a in got.items() if n.startswith("d_") and n[2:] in arrays}
        expected = along(module, arrays, losses, steps)
        actual = sum(float(np.sum(got[f"d_{n}"] * s)) for n, s in steps.items())
        if np.isfinite(expected) and np.isfinite(actual) and abs(expected) < 1e6:
            assert abs(actual - expected) <= 1e-5 * max(1.0, abs(expected)), (actual, expected)
            seen["agreed"] += 1
        else:
            seen["not smooth"] += 1
        PassManager.parse("cse,dce,fuse-vector").run(made)
        assert seam(made) == kept
        with np.errstate(all="ignore"):
            after = run(made, {**arrays, **dys}, fp64=True)
        for name, before in got.items():
            np.testing.assert_allclose(after[name], before, rtol=1e-9, atol=1e-9)

    check()
    assert seen["agreed"] > 40, seen

"""A training graph of norms and a loss as kernels: every output and gradient against the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from ascend_run import built

import moec
from moec.codegen.capacities import Capacities
from moec.codegen.lower import lower_module
from moec.eval import run
from moec.ir.text import parse_module

TEXT = """
symbol T in [1, 4096]
func main(%x: f32[T, 126], %w: f32[126], %v: f32[126], %b: f32[126], %l: i32[T]) -> (y: f32[T, 126], loss: f32[T]) {
  %0 = rms_norm(%x, %w) {eps = 1e-6} : f32[T, 126]
  %1 = layer_norm(%0, %v, %b) {eps = 1e-6, axis = 1} : f32[T, 126]
  %2 = cross_entropy(%1, %l) {ignore = -100} : f32[T]
  return %1, %2
}
"""


def test_norms_and_loss(tmp_path: Path) -> None:
    module = moec.compile(parse_module(TEXT), train="", print=lambda text: None).module
    program = lower_module(module, Capacities(aic=2, aiv=3), {})
    project = built(program, tmp_path)
    rng = np.random.default_rng(0)
    for tokens in (1, 5, 300):
        given = {}
        for value in module.main.inputs:
            shape = [d if isinstance(d, int) else tokens for d in value.type.dims]
            given[str(value.name)] = rng.standard_normal(shape).astype(np.float32)
        given["l"] = rng.integers(0, 126, tokens).astype(np.int32)
        given["l"][1::4] = -100
        got = project.outputs(given, {"T": tokens}, MOEC_CPU_STRICT="1", MOEC_POISON="1")
        exact, reference = run(module, given, fp64=True), run(module, given)
        assert set(got) == set(exact) >= {"d_x", "d_w", "d_v", "d_b"}
        for name, want in exact.items():
            allowed = 4 * np.abs(reference[name] - want).max() + 2e-6 * np.abs(want).max()
            np.testing.assert_allclose(got[name], want, rtol=0, atol=allowed, err_msg=f"{name} of {tokens} tokens")

"""Leaving out every flag, barrier, padding and buffer bound of the gradients' kernels in turn: each must be noticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from grad_layers import (
    Gated,
    activation_inputs,
    activation_text,
    routing_inputs,
    routing_text,
    unpermute_inputs,
    unpermute_text,
)
from vector_layers import GATINGS
from vector_run import Layer, numbers

pytestmark = pytest.mark.slow  # a build for every site or choice


def caught(layer: Layer, cases: list[dict[str, np.ndarray]]) -> None:
    report = layer.mask(cases)
    print(report)
    assert not report.missed, f"{report}: {report.missed}"


def elements(layer: Layer, buffer: str) -> int:
    """Elements of a buffer of the first kernel: sizes are chosen so that it is filled to its end."""
    return next(b.elems for b in layer.program.kernels[0].buffers if b.name == buffer)


def test_interleaved_activation(tmp_path: Path) -> None:
    cases: list[Gated] = [("silu", "interleaved", 1.702, 7.0, 1.0, "bf16", 45)]
    layer = Layer(activation_text(cases), tmp_path, cores=2)
    rng = np.random.default_rng(0)
    full = 2 * 5 * elements(layer, "dy_in") // 45
    caught(layer, [activation_inputs(rng, cases, rows) for rows in (3, full)])


def test_unpermute(tmp_path: Path) -> None:
    layer = Layer(unpermute_text(126, 2, "bf16", "bf16", True), tmp_path, cores=2)
    rng = np.random.default_rng(1)
    tokens = elements(layer, "index") // 2
    caught(layer, [unpermute_inputs(rng, t, 126, 2, "bf16", "bf16", True) for t in (3, 2 * 4 * tokens)])


def test_routing(tmp_path: Path) -> None:
    cases = [GATINGS["odd_groups"]]
    layer = Layer(routing_text(cases), tmp_path, cores=2)
    rng = np.random.default_rng(2)
    rows = elements(layer, "hits") // 64
    caught(layer, [routing_inputs(rng, cases, t) for t in (1, 2 * 5 * rows)])


def test_sums(tmp_path: Path) -> None:
    text = """
symbol T in [0, 100000]
func main(%x: bf16[T, 4100], %c: i32[3]) -> (y: bf16[4100], z: f32[3, 4100]) {
  %0 = reduce_sum(%x) {axes = [0], keepdims = false} : bf16[4100]
  %1 = segment_sum(%x, %c) {to = !f32} : f32[3, 4100]
  return %0, %1
}
"""
    layer = Layer(text, tmp_path, cores=1)
    rng = np.random.default_rng(3)
    cases = []
    for rows in (1, 300):
        counts = np.array([rows // 3, rows - 2 * (rows // 3), rows // 3], np.int32)
        cases.append({"x": numbers(rng, (rows, 4100), "bf16"), "c": counts})
    caught(layer, cases)

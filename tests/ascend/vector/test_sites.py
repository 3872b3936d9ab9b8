"""Leaving out every flag, barrier, padding and buffer bound of the vector kernels in turn: each must be noticed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from vector_layers import GATINGS, NORMS, fused, gating_inputs, gating_text, permute_text, routed
from vector_run import Layer, numbers


def caught(layer: Layer, cases: Sequence[dict[str, np.ndarray]]) -> None:
    report = layer.mask(cases)
    print(report)
    assert not report.missed, f"{report}: {report.missed}"


def elements(layer: Layer, kernel: int, buffer: str) -> int:
    """Elements of a buffer: sizes are chosen so that it is filled to its end."""
    return next(b.elems for b in layer.program.kernels[kernel].buffers if b.name == buffer)


def test_gating(tmp_path: Path) -> None:
    cases = [GATINGS["odd_groups"]]
    layer = Layer(gating_text(cases), tmp_path, cores=2)
    rng = np.random.default_rng(0)
    rows = elements(layer, 0, "lane_index") // 96
    caught(layer, [gating_inputs(rng, cases, t) for t in (1, 2 * 5 * rows)])


def test_permute_and_unpermute(tmp_path: Path) -> None:
    layer = Layer(permute_text(126, 2, 5, "bf16"), tmp_path, cores=2)
    rng = np.random.default_rng(1)
    tokens = elements(layer, 0, "places") // 2
    caught(layer, [routed(rng, t, 126, 2, 5, "bf16") for t in (3, 2 * 4 * tokens)])


WIDTHS = [("C", [(2, 5), (3, 64), (64, 100), (2, 40013)]), ("126", [(3, 126)]), ("20001", [(5, 20001)])]


@pytest.mark.parametrize(("width", "shapes"), WIDTHS, ids=[w for w, _ in WIDTHS])
def test_rows(tmp_path: Path, width: str, shapes: list[tuple[int, int]]) -> None:
    """Whole rows, rows in chunks, and everything at run time."""
    kinds = "%x: f32[T, C], %w: f32[C], %b: f32[T, 1]"
    text = fused("norms", kinds, "g: f32[T, C]; d: f32[T, 1]", NORMS, "%g, %d")
    if width != "C":
        text = text.replace("symbol C in [1, 100000]\n", "").replace("C", width)
    layer = Layer(text, tmp_path, cores=2)
    rng = np.random.default_rng(2)
    if width == "C":
        shapes = [*shapes, (8, elements(layer, 0, "in0"))]
    elif width == "126":
        shapes = [*shapes, (2 * 5 * (elements(layer, 0, "in0") // 128), 126)]
    cases = []
    for rows, cols in shapes:
        x, w, b = (numbers(rng, s, "f32") for s in ((rows, cols), (cols,), (rows, 1)))
        cases.append({"x": x, "w": w, "b": b})
    caught(layer, cases)


def test_flat_and_gated(tmp_path: Path) -> None:
    text = """
symbol S in [0, 100000]
func main(%h: bf16[S, 90], %m: bool[S, 90]) -> (y: bf16[S, 45], z: bf16[S, 90]) {
  %0 = swiglu(%h) {activation = "silu", glu = "interleaved", alpha = 1.702, limit = 7.0, up_offset = 1.0} : bf16[S, 45]
  %1 = tanh(%h) : bf16[S, 90]
  %2 = select(%m, %1, %h) : bf16[S, 90]
  return %0, %2
}
"""
    layer = Layer(text, tmp_path, cores=2)
    rng = np.random.default_rng(3)
    tile = elements(layer, 0, "full32_0") // 48
    runs = [elements(layer, i, "in0") for i in (1, 2)]
    sizes = (3, 2 * 5 * tile, *(-(-2 * 45 * n // 90) for n in runs))
    caught(layer, [{"h": numbers(rng, (s, 90), "bf16", 3), "m": rng.random((s, 90)) < 0.5} for s in sizes])

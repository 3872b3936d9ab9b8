"""A small layer for the command line's tests: a router with softmax and top-2, as IR text."""

from __future__ import annotations

from pathlib import Path

import pytest

ROUTER = """\
symbol T in [1, 64]

func main(%x: f32[T, 16]) -> (weights: f32[T, 2], experts: i64[T, 2]) {
  %w = weight() {name = "router", dtype = !f32, shape = [8, 16], data = none} : f32[8, 16]
  %0 = matmul(%x, %w) {transpose_a = false, transpose_b = true, to = none} : f32[T, 8]
  %1 = softmax(%0) {axis = 1} : f32[T, 8]
  %2, %3 = topk(%1) {k = 2, axis = 1, largest = true, sorted = true} : f32[T, 2], i64[T, 2]
  %4 = reduce_sum(%2) {axes = [1], keepdims = true} : f32[T, 1]
  %5 = div(%2, %4) : f32[T, 2]
  return %5, %3
}
"""


@pytest.fixture
def router(tmp_path: Path) -> Path:
    """The router as a .mir file in a folder of its own."""
    file = tmp_path / "router.mir"
    file.write_text(ROUTER, encoding="utf-8")
    return file

"""The gradient of a norm is one kernel: rows are read once, and what the weight's gradient sums is written with it."""

from __future__ import annotations

import pytest

from moec.ir.text import parse_module
from moec.passes.base import Context, PassManager, train_passes

NORMS = {
    "rms_norm": "rms_norm(%x, %w) {eps = 1e-06}",
    "layer_norm": "layer_norm(%x, %w, none) {eps = 1e-06, axis = 1}",
}


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("norm", NORMS)
def test_one_kernel_a_direction(norm: str, dtype: str) -> None:
    module = parse_module(f"""
symbol T in [1, 4096]
func main(%x: {dtype}[T, 64], %w: {dtype}[64]) -> (y: {dtype}[T, 64]) {{
  %y = {NORMS[norm]} : {dtype}[T, 64]
  return %y
}}
""")
    PassManager(train_passes()).run(module, Context())
    over_rows = [n for n in module.main if n.op == "fused" and n.result.type.rank == 2]
    assert [sorted(v.name for v in n.operands if v is not None) for n in over_rows] == [["w", "x"], ["d_y", "w", "x"]]
    assert len(over_rows[1].results) == 2

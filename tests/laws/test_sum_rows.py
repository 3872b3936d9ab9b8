"""Rows that are added up by an index: summed in order where the index is known, and that is faster."""

from __future__ import annotations

import numpy as np
import pytest

from moec.eval import run
from moec.ir.graph import Module
from moec.ir.text import parse_module
from moec.passes.base import Context, PassManager
from moec.target import KernelTime

SOURCE = """
func main(%rows: f32[S, 3], %k: i64[S]) -> (y: f32[4, 3]) {{
  {index}
  %at = save(%i) {{name = "i"}} : i64[S]
  %zero = constant() {{value = dense<f32[]: [0.0]>}} : f32[]
  %none = expand(%zero) {{shape = [4, 3]}} : f32[4, 3]
  %tuples = reshape(%at) {{shape = [S, 1]}} : i64[S, 1]
  %y = scatter_nd(%none, %tuples, %rows) {{reduction = "add"}} : f32[4, 3]
  return %y
}}
"""
KNOWN = """%four = constant() {value = dense<i64[]: [4]>} : i64[]
  %o = argsort(%k) {axis = 0, descending = false} : i64[S]
  %i = mod(%o, %four) {fmod = false} : i64[S]"""


class Priced:
    """A target on which each op takes what is said, or 1 us."""

    name = "priced"

    def __init__(self, **us: float):
        self.us = us

    def estimate(self, op: str, *_: object) -> KernelTime:
        us = self.us.get(op, 1.0)
        return KernelTime(op, "toy", 1, 0, us, 0.5, 0.0, "toy", 0, 0)


def summed(index: str, context: Context) -> tuple[Module, str]:
    """The module after the pass, and why a rule was missed."""
    module = parse_module(SOURCE.format(index=index))
    result = PassManager.parse("sum-rows").run(module, context)[0].result
    return module, " ".join(m.reason for m in result.near_misses)


def ops(module: Module) -> list[str]:
    return [n.op for n in module.main]


def test_rows_are_summed_in_the_order_of_their_sums() -> None:
    module, _ = summed(KNOWN, Context())
    assert "scatter_nd" not in ops(module) and ops(module).count("segment_sum") == 1
    rng = np.random.default_rng(1)
    given = {"rows": rng.standard_normal((7, 3)).astype(np.float32), "k": rng.permutation(7)}
    old = run(parse_module(SOURCE.format(index=KNOWN)), given, {})
    np.testing.assert_allclose(run(module, given, {})["y"], old["y"], rtol=1e-6)


def test_an_index_that_may_be_negative_counts_from_the_end() -> None:
    module, why = summed("%i = mul(%k, %k) : i64[S]", Context())
    assert "scatter_nd" in ops(module) and "may be negative" in why


@pytest.mark.parametrize(("us", "op"), [(9.0, "segment_sum"), (0.5, "scatter_nd")])
def test_the_target_says_which_way_is_faster(us: float, op: str) -> None:
    module, _ = summed(KNOWN, Context(Priced(scatter_nd=us), {"S": 7}))
    assert op in ops(module)

"""U15: of two casts in a row only a widening round trip folds; one that rounds or truncates on the way stays."""

from __future__ import annotations

import pytest

from moec.ir.text import parse_module
from moec.passes.base import PassManager, parse_passes


@pytest.mark.parametrize(
    ("given", "middle", "folds"), [("f32", "i32", False), ("f32", "bf16", False), ("bf16", "f32", True)]
)
def test_u15_only_a_widening_round_trip_of_casts_folds(given: str, middle: str, folds: bool) -> None:
    module = parse_module(
        f"func main(%x: {given}[4]) -> (y: {given}[4]) {{\n"
        f"  %0 = cast(%x) {{to = !{middle}}} : {middle}[4]\n"
        f"  %1 = cast(%0) {{to = !{given}}} : {given}[4]\n  return %1\n}}\n"
    )
    PassManager(parse_passes("canonicalise,dce")).run(module)
    assert [n.op for n in module.main] == ([] if folds else ["cast", "cast"])

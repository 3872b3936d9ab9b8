"""The seam between forward and backward after every pass: what is kept is saved, once, and nothing else crosses."""

from __future__ import annotations

import pytest

from moec.autodiff import saved_values
from moec.autodiff.sides import late_nodes
from moec.ir.graph import Graph, Module
from moec.ir.text import parse_module
from moec.passes.base import Context, PassManager, known_passes, train_passes
from tests.train.test_autodiff_layers import SMALL, layer


def crossings(graph: Graph) -> list[str]:
    """What backward reads of forward without a save; inputs, weights and constants are there anyway."""
    late = late_nodes(graph)
    found = []
    for node in graph:
        for v in node.operands if node in late and node.op != "seed" else ():
            maker = v.producer if v is not None else None
            if maker is not None and maker not in late and maker.op not in ("save", "constant", "weight"):
                found.append(f"{node.op} reads {maker.op}")
    return found


def seam(module: Module) -> list[str]:
    return sorted(f"{s.name}: {s.type} x{s.times}" for s in saved_values(module))


@pytest.mark.parametrize("name", SMALL)
def test_passes_keep_the_seam_of_a_layer(name: str) -> None:
    module = layer(name)
    kept: list[str] = []
    for step in PassManager(train_passes()).steps(module, Context()):
        if step.made_by.name in ("autodiff", "prob-placement"):
            kept = seam(module)
        if kept:
            assert seam(module) == kept, step.made_by.name
            assert crossings(module.main) == [], step.made_by.name
            for node in module.nodes():
                bodies = [module.functions[node.attrs["fn"]]] if node.op == "fused" else []
                assert all(n.op not in ("save", "seed") for body in bodies for n in body)
    assert len(kept) > 10
    assert len({s.split(":")[0] for s in kept}) == len(kept), "each save has a name of its own"


TWICE = """
func main(%x: bf16[T, 8]) -> (y: f32[T, 8]) {
  %1 = cast(%x) {to = !f32} : f32[T, 8]
  %2 = exp(%1) : f32[T, 8]
  %3 = sin(%1) : f32[T, 8]
  %4 = mul(%2, %3) : f32[T, 8]
  return %4
}
"""


def test_what_backward_makes_again_is_not_merged_with_forwards() -> None:
    """sin's gradient reads the wide x again: the narrow input is there anyway, the wide one would have to stay."""
    module = parse_module(TWICE)
    PassManager.parse("autodiff,cse").run(module)
    casts = [n for n in module.main if n.op == "cast" and n.operand(0).name == "x"]
    assert len(casts) == 2 and crossings(module.main) == []


def test_two_saves_are_never_merged() -> None:
    module = parse_module("""
func main(%x: f32[4], %d_y: f32[4]) -> (y: f32[4], d_x: f32[4]) {
  %1 = exp(%x) : f32[4]
  %2 = exp(%x) : f32[4]
  %3 = add(%1, %2) : f32[4]
  %a = save(%1) {name = "a"} : f32[4]
  %b = save(%2) {name = "b"} : f32[4]
  %4 = mul(%d_y, %a) : f32[4]
  %5 = mul(%d_y, %b) : f32[4]
  %6 = add(%4, %5) : f32[4]
  return %3, %6
}
""")
    PassManager.parse("canonicalise,cse,dce,fuse-vector,dce").run(module)
    assert seam(module) == ["a: f32[4] x1", "b: f32[4] x1"]


def test_every_pass_of_the_pipeline_is_known() -> None:
    assert {p.name for p in train_passes()} <= set(known_passes())

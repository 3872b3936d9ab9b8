"""Activations that are parked on the host: copies on streams of their own, ordered by events, and the right numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from moec import driver
from moec.codegen.program import Copy, Launch, Program
from moec.codegen.steps import COMPUTE, Record, Wait
from moec.codegen.streams import unordered
from moec.execute import Project
from moec.hosttime import time_of
from moec.ir.graph import Module
from moec.ir.text import parse_module
from moec.passes.base import Context, parse_passes

SOURCE = """
symbol T in [1, 64]
func main(%x: f32[T, 32], %d: f32[T, 32]) -> (y: f32[T, 32], z: f32[T, 32]) {
  %a = exp(%x) : f32[T, 32]
  %p = swap_out(%a) {name = "a"} : f32[T, 32]
  %b = tanh(%a) : f32[T, 32]
  %r = swap_out(%b) {name = "b"} : f32[T, 32]
  %c = sin(%b) : f32[T, 32]
  %e = mul(%c, %d) : f32[T, 32]
  %s = swap_in(%r, %e) : f32[T, 32]
  %f = mul(%s, %e) : f32[T, 32]
  %q = swap_in(%p, %f) : f32[T, 32]
  %z = mul(%q, %f) : f32[T, 32]
  return %c, %z
}
"""
SIZES = {"T": 24}


def layer() -> Module:
    return parse_module(SOURCE)


def program() -> Program:
    made = driver.load_target("ascend910b1").lower(layer(), SIZES)
    assert isinstance(made, Program)
    return made


def test_each_way_has_a_stream_and_events_order_what_touches_the_same_memory() -> None:
    made = program()
    copies = [s for s in made.steps if isinstance(s, Copy)]
    assert [c.stream for c in copies] == ["copy_out", "copy_out", "copy_back", "copy_back"]
    assert made.streams() == [COMPUTE, "copy_out", "copy_back"]
    assert unordered(made.steps, made.accesses) == []
    for at, step in enumerate(made.steps):
        if isinstance(step, Wait):
            without = [s for i, s in enumerate(made.steps) if i != at]
            ordered = unordered(without, made.accesses) == []
            assert not ordered or step.event.startswith(("back", "parked")), f"{step} orders nothing"


def test_a_copy_back_waits_for_compute_to_come_to_it() -> None:
    steps = program().steps
    for number, copy in enumerate(s for s in steps if isinstance(s, Copy) and s.stream == "copy_back"):
        recorded = steps.index(Record(f"back{number}", COMPUTE))
        launches = [s for s in steps[:recorded] if isinstance(s, Launch)]
        assert len(launches) == 4 + number, "exp, tanh, sin and the product that triggers the first"
        assert recorded < steps.index(Wait(f"back{number}", "copy_back")) < steps.index(copy)


def test_memory_of_what_went_out_is_taken_again_behind_the_wait_for_it() -> None:
    made = program()
    waited = made.steps.index(Wait("parked0", COMPUTE))
    lives, lives_of = made.lifetimes(), dict(zip("ab", ("a", "b"), strict=True))
    firsts = {s.target: i for i, s in enumerate(made.steps) if isinstance(s, Copy) and s.stream == "copy_back"}
    for name in lives_of.values():
        assert lives[name][1] < waited
    assert all(lives[target][0] == at > waited for target, at in firsts.items())


def test_the_cpu_model_computes_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, d = (rng.standard_normal((24, 32)).astype(np.float32) for _ in "xd")
    compiled = driver.compile(layer(), tmp_path / "out", set=SIZES, passes=parse_passes("dce"))
    assert compiled.schedule is not None, compiled.summary["not_lowered"]
    got = Project(tmp_path / "out").run({"x": x, "d": d}, {"MOEC_CPU_STRICT": "1"})
    c = np.sin(np.tanh(np.exp(x)))
    np.testing.assert_allclose(got["y"], c, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got["z"], np.exp(x) * np.tanh(np.exp(x)) * c * d, rtol=1e-5, atol=1e-5)


def test_copies_have_streams_and_links_of_their_own_on_the_timeline() -> None:
    found = time_of(layer(), Context(driver.load_target("ascend910b1"), SIZES))
    assert found is not None
    swaps = [p.task for p in found.placed if p.task.kind == "swap"]
    assert {(t.label, t.stream, t.link) for t in swaps} == {
        ("swap_out", "copy out", "copy out"),
        ("swap_in", "copy back", "copy back"),
    }


def test_what_comes_back_waits_for_this_turns_copy_only_where_one_micro_batch_is_in_flight() -> None:
    context = Context(driver.load_target("ascend910b1"), SIZES)
    for apart in (False, True):
        found = time_of(layer(), context, apart)
        assert found is not None
        tasks = [p.task for p in found.placed]
        backs = [t for t in tasks if t.label == "swap_in"]
        assert backs and all(any(tasks[i].label == "swap_out" for i in t.after) != apart for t in backs)
        assert all(any(tasks[i].kind == "kernel" for i in t.after) for t in backs), "each waits for its trigger"

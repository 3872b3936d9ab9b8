"""Every record and every wait of events between streams left out in turn: by the static check, and by a run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from injection import Site
from injection_run import inject, prepared

from moec import driver
from moec.codegen.program import Program
from moec.codegen.steps import Record, Wait
from moec.codegen.streams import unordered
from moec.ir.text import parse_module

SOURCE = """
symbol T in [1, 64]
func main(%x: f32[T, 32], %d: f32[T, 32]) -> (y: f32[T, 32], z: f32[T, 32]) {
  %a = exp(%x) : f32[T, 32]
  %p = swap_out(%a) {name = "a"} : f32[T, 32]
  %b = tanh(%a) : f32[T, 32]
  %c = sin(%b) : f32[T, 32]
  %e = mul(%c, %d) : f32[T, 32]
  %q = swap_in(%p, %e) : f32[T, 32]
  %z = mul(%q, %e) : f32[T, 32]
  return %c, %z
}
"""
CALL = re.compile(r"Check\(aclrt(RecordEvent|StreamWaitEvent|SynchronizeEvent)\(")


def event_sites(program: Program, folder: Path) -> list[Site]:
    """What leaves out each record and wait of an emitted program, with the verdict of the static check."""
    lines = (folder / "host" / "main.cpp").read_text().splitlines()
    calls = [(i, line.strip()) for i, line in enumerate(lines, 1) if CALL.search(line)]
    steps = [(i, s) for i, s in enumerate(program.steps) if isinstance(s, Record | Wait)]
    out = []
    for (number, text), (at, step) in zip(calls, steps, strict=True):
        kind = "set" if isinstance(step, Record) else "wait"
        without = replace(program, steps=tuple(s for i, s in enumerate(program.steps) if i != at))
        out.append(Site("host", kind, text, f"{kind}@host/main.cpp:{number}", _noticed(without)))
    return out


def _noticed(program: Program) -> bool:
    recorded = {s.event for s in program.steps if isinstance(s, Record)}
    waits = [s for s in program.steps if isinstance(s, Wait)]
    return any(w.event not in recorded for w in waits) or unordered(program.steps, program.accesses) != []


def for_time_alone(sites: Sequence[Site]) -> list[Site]:
    """Events that order no memory: a copy back starts when compute comes to it, memory is taken again behind a wait."""
    return [s for s in sites if re.search("event_(back|parked)", s.text)]


@pytest.mark.slow
def test_every_event_between_streams_is_noticed(tmp_path: Path) -> None:
    made = driver.load_target("ascend910b1").lower(parse_module(SOURCE), {"T": 24})
    assert isinstance(made, Program)
    rng = np.random.default_rng(0)
    arrays = {n: rng.standard_normal((24, 32)).astype(np.float32) for n in "xd"}
    built = prepared(made, [arrays], tmp_path)
    sites = event_sites(made, tmp_path)
    inject(built, sites)
    needed = [s for s in sites if s not in for_time_alone(sites)]
    assert len(needed) >= 4
    assert [s for s in needed if not s.dynamic or not s.static] == []

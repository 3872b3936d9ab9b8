"""Temporaries in one block: none that live at once overlap, the host program places them as reports say, and a run in
which all that is dead is overwritten gives the same bits.
"""

from __future__ import annotations

import itertools
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ascend_run import TEMPLATES, Project, built
from hypothesis import given, settings
from hypothesis import strategies as st

from moec.codegen import project as project_module
from moec.codegen.arena import ALIGN, Life, _placed, lower_bound, place, temporaries
from moec.codegen.lower import lower_module
from moec.codegen.program import Program
from moec.ir.text import parse_module
from tests.ascend.test_programs import CAPS

LIVES = st.lists(
    st.builds(lambda a, n, size: Life(a, a + n, size), st.integers(0, 12), st.integers(0, 6), st.integers(0, 40_000)),
    max_size=12,
)


def overlapping(lives: list[Life], offsets: tuple[int, ...]) -> list[tuple[int, int]]:
    """Pairs that live at once and share a byte."""
    return [
        (i, j)
        for i, j in itertools.combinations(range(len(lives)), 2)
        if lives[i].first <= lives[j].last
        and lives[j].first <= lives[i].last
        and offsets[i] < offsets[j] + lives[j].bytes
        and offsets[j] < offsets[i] + lives[i].bytes
    ]


@given(LIVES)
def test_none_that_live_at_once_overlap(lives: list[Life]) -> None:
    placed = place(lives)
    assert not overlapping(lives, placed.offsets)
    assert all(o % ALIGN == 0 for o in placed.offsets)
    assert placed.peak == max(
        (o + -(-max(x.bytes, 1) // ALIGN) * ALIGN for o, x in zip(placed.offsets, lives, strict=True)), default=0
    )
    assert placed.bound <= placed.peak


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.builds(
            lambda a, n, size: Life(a, a + n, size * ALIGN), st.integers(0, 5), st.integers(0, 3), st.integers(1, 6)
        ),
        max_size=6,
    )
)
def test_the_peak_is_near_the_best_of_all_orders(lives: list[Life]) -> None:
    best = min(
        (_placed(lives, [x.bytes for x in lives], order)[1] for order in itertools.permutations(range(len(lives)))),
        default=0,
    )
    placed = place(lives)
    assert placed.bound <= best <= placed.peak <= 1.35 * best


def test_the_bound_is_what_lives_at_once() -> None:
    assert lower_bound([Life(0, 1, 5), Life(1, 2, 7), Life(2, 3, 1)]) == 12


def test_the_host_places_as_reports_say(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    cases = [
        [Life(int(a), int(a + n), int(size)) for a, n, size in rng.integers(0, [40, 9, 90_000], (count, 3))]
        for count in (0, 1, 2, 7, 30, 80)
    ]
    prints = "".join(
        "{ std::vector<arena::Life> lives = {"
        + ", ".join(f"{{{x.bytes}, {x.first}, {x.last}, 0}}" for x in lives)
        + '}; std::printf("%zu", arena::Place(lives)); '
        + 'for (auto &x : lives) std::printf(" %zu", x.offset); std::puts(""); }\n'
        for lives in cases
    )
    (tmp_path / "main.cpp").write_text(f'#include <cstdio>\n#include "arena.h"\nint main() {{\n{prints}}}\n')
    command = ["g++", "-std=c++17", "-I", str(TEMPLATES), str(tmp_path / "main.cpp"), "-o", str(tmp_path / "run")]
    subprocess.run(command, check=True)
    printed = subprocess.run([tmp_path / "run"], capture_output=True, text=True, check=True).stdout.splitlines()
    for lives, line in zip(cases, printed, strict=True):
        peak, *offsets = map(int, line.split())
        assert (peak, tuple(offsets)) == (place(lives).peak, place(lives).offsets)


CHAIN = """\
symbol T in [1, 512]

func main(%x: f32[T, 64]) -> (y: f32[T, 64]) {
  %w = weight() {name = "w", dtype = !f32, shape = [64, 64], data = none} : f32[64, 64]
  %a = matmul(%x, %w) {transpose_a = false, transpose_b = false, to = none} : f32[T, 64]
  %b = matmul(%a, %w) {transpose_a = false, transpose_b = false, to = none} : f32[T, 64]
  %c = matmul(%b, %w) {transpose_a = false, transpose_b = false, to = none} : f32[T, 64]
  %d = matmul(%c, %w) {transpose_a = false, transpose_b = true, to = none} : f32[T, 64]
  return %d
}
"""


@pytest.fixture(scope="module")
def chain() -> Program:
    return lower_module(parse_module(CHAIN), CAPS, {})


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in (("x", (100, 64)), ("w", (64, 64)))}


def test_temporaries_share_memory(chain: Program) -> None:
    lives = list(temporaries(chain, {"T": 100}).values())
    placed = place(lives)
    assert len(lives) == 4 and placed.peak == placed.bound == 2 * 100 * 64 * 4


def test_what_is_dead_may_be_overwritten(chain: Program, tmp_path: Path) -> None:
    project = built(chain, tmp_path)
    plain = project.outputs(arrays(), {"T": 100})
    poisoned = project.outputs(arrays(), {"T": 100}, MOEC_POISON="1")
    assert np.isfinite(plain["y"]).all() and np.array_equal(plain["y"], poisoned["y"])


@pytest.mark.parametrize("fault", ["freed too early", "one place for two"])
def test_a_wrong_plan_shows(fault: str, chain: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lives = dict(chain.lifetimes())
    names = list(lives)
    wrong = {n: (a, max(a, b - 1)) for n, (a, b) in lives.items()} if fault == "freed too early" else lives
    if fault == "one place for two":
        wrong = lives | {names[1]: (90, 91)}
    monkeypatch.setattr(Program, "lifetimes", lambda self: wrong)
    project: Project = built(replace(chain), tmp_path)
    monkeypatch.undo()
    assert project_module is not None
    expected = built(chain, tmp_path / "right").outputs(arrays(), {"T": 100})["y"]
    code, _, outputs = project.run(arrays(), {"T": 100}, MOEC_POISON="1")
    assert code != 0 or not np.array_equal(outputs["y"], expected)

"""A layer over packed sequences whose mask compares their numbers: compiled, the kernel is told where they start, and
what it computes on the CPU model is what the mask said.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import moec
from moec.eval import run
from moec.execute import Project
from moec.ir.text import parse_module
from moec.passes.base import PassManager

LAYER = Path(__file__).resolve().parents[1] / "golden" / "passes" / "packed-mask" / "causal.mir"


def _arrays(rng: np.random.Generator, length: int) -> dict[str, np.ndarray]:
    heads = {"q": 4, "k": 2, "v": 2}
    arrays = {n: rng.standard_normal((1, h, length, 16)).astype(np.float32) for n, h in heads.items()}
    flags, also = rng.random((1, length)) < 0.1, np.tril(np.ones((1, 1, length, length), bool))
    return {**arrays, "f": flags, "m": also & (rng.random(also.shape) < 0.9) | np.eye(length, dtype=bool)}


@pytest.mark.parametrize("length", [1, 6, 200])
def test_the_numbers_say_the_same_as_the_starts(length: int) -> None:
    before, after = (parse_module(LAYER.read_text().partition("====")[0]) for _ in range(2))
    PassManager.parse("packed-mask,dce").run(after)
    assert [n.op for n in after.main].count("eq") == 0
    rng = np.random.default_rng(length)
    for _ in range(5):
        arrays = _arrays(rng, length)
        np.testing.assert_array_equal(run(after, arrays)["y"], run(before, arrays)["y"])


@pytest.mark.slow
def test_compiled_and_run(tmp_path: Path) -> None:
    module = parse_module(LAYER.read_text().partition("====")[0])
    made = moec.compile(module, tmp_path / "out", set={"S": 4096})
    assert made.program is not None and any(k.name == "attention_packed" for k in made.program.kernels)
    rng = np.random.default_rng(2)
    for length in (1, 70, 133):
        arrays = _arrays(rng, length)
        got = Project(tmp_path / "out").run(arrays, {"MOEC_CPU_STRICT": "1"})
        want = run(parse_module(LAYER.read_text().partition("====")[0]), arrays)
        np.testing.assert_allclose(got["y"], want["y"], rtol=2e-5, atol=2e-5)

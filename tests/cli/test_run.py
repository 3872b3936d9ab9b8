"""``moec run``: the emitted kernels against the numpy reference, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from command import ROOT, moec, refused

from moec import eval as reference
from moec.driver import load
from moec.witness import Witness

TINY = ROOT / "examples" / "tiny_moe.moe"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny block compiled in ``out``; ``x.npz`` holds inputs, weights and the reference's outputs for two sizes."""
    folder = tmp_path_factory.mktemp("run")
    assert moec("compile", TINY, "-o", folder / "out").returncode == 0
    module = load(TINY)
    weights = Witness.of(module, None).weights
    arrays: dict[str, np.ndarray] = {}
    for case, tokens in (("", 1), ("2", 37)):
        x = np.random.default_rng(tokens).standard_normal((tokens, 64)).astype(np.float32)
        outputs = reference.run(module, {"x": x}, weights)
        arrays |= {f"in{case}.{n}": a for n, a in {"x": x, **weights}.items()}
        arrays |= {f"out{case}.{n}": a for n, a in outputs.items()}
    np.savez(folder / "x.npz", **arrays)  # type: ignore[arg-type]
    return folder


def test_one_project_agrees_at_both_sizes(place: Path) -> None:
    done = moec("run", place / "out", "--inputs", place / "x.npz", "--expect", place / "x.npz", "--tolerance", "1e-5")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert {(r[0], r[-1]) for r in rows} == {("1", "yes"), ("2", "yes")}


def test_a_wrong_expectation_exits_3(place: Path, tmp_path: Path) -> None:
    with np.load(place / "x.npz") as stored:
        arrays = {n: a + np.float32(0.5) if n == "out2.y" else a for n, a in stored.items()}
    np.savez(tmp_path / "wrong.npz", **arrays)
    done = moec("run", place / "out", "--inputs", tmp_path / "wrong.npz", "--expect", tmp_path / "wrong.npz")
    refused(done, 3, "case 2", "'y'")


def test_what_the_cpu_model_refuses_exits_3_with_kernel_and_place(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sites = json.loads((place / "out" / "ascendc" / "sites.json").read_text())
    (name, site) = next((n, s) for n, s in sites.items() if s["kind"] == "wait")
    monkeypatch.setitem(os.environ, "MOEC_CPU_MASK", f"{site['kind']}@{site['file']}:{site['line']}")
    done = moec("run", place / "out", "--inputs", place / "x.npz")
    refused(done, 3, "moec-cpu: error:", name.split(":")[0])


def test_missing_inputs_come_all_at_once(place: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", X=np.zeros((2, 64), np.float32))
    done = moec("run", place / "out", "--inputs", tmp_path / "in.npz")
    refused(done, 1, "input 'x' (f32[T, 64]) is missing", "did you mean 'X'?", "input 'router'")


def test_sizes_outside_the_bounds_are_refused(place: Path, tmp_path: Path) -> None:
    with np.load(place / "x.npz") as stored:
        arrays = {n.removeprefix("in."): a for n, a in stored.items() if n.startswith("in.")}
    arrays["x"] = np.zeros((65, 64), np.float32)
    np.savez(tmp_path / "in.npz", **arrays)
    refused(moec("run", place / "out", "--inputs", tmp_path / "in.npz"), 1, "T = 65", "[1, 64]")


def test_integers_for_floats_are_refused(place: Path, tmp_path: Path) -> None:
    with np.load(place / "x.npz") as stored:
        arrays = {n.removeprefix("in."): a for n, a in stored.items() if n.startswith("in.")}
    arrays["x"] = np.zeros((3, 64), np.int64)
    np.savez(tmp_path / "in.npz", **arrays)
    refused(moec("run", place / "out", "--inputs", tmp_path / "in.npz"), 1, "int64", "f32 is wanted")


def test_a_folder_that_moec_did_not_write_is_refused(place: Path, tmp_path: Path) -> None:
    refused(moec("run", tmp_path, "--inputs", place / "x.npz"), 1, "manifest.json", "moec compile")


def test_no_compiler_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    refused(moec("run", place / "out", "--inputs", place / "x.npz"), 1, "no-such-compiler", "install g++")

"""``moec eval`` and ``moec compile --check`` of a program over ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from command import moec

TEXT = """
group tp = 2
dim T in [1, 8] = 4
input x: f32[T, 4]
weight w: f32[3, 4] sharded(tp, axis = 0)
y = all_gather(x @ w.T, group = tp, axis = 1)
output y
"""


def test_every_rank_is_run(tmp_path: Path) -> None:
    file = tmp_path / "tp.moe"
    file.write_text(TEXT)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((5, 4), np.float32), rng.standard_normal((6, 4), np.float32)
    np.savez(tmp_path / "in.npz", x=x, w=w)
    np.savez(tmp_path / "out.npz", **{"rank0.y": x @ w.T, "rank1.y": x @ w.T})
    done = moec("eval", file, "--inputs", tmp_path / "in.npz", "--expect", tmp_path / "out.npz")
    assert done.returncode == 0 and "rank1.y" in done.stdout and done.stderr == ""
    np.savez(tmp_path / "one.npz", **{"rank0.x": x, "w": w})
    refused = moec("eval", file, "--inputs", tmp_path / "one.npz")
    assert refused.returncode == 1 and "input 'x'" in refused.stderr


def test_passes_are_checked_on_every_rank(tmp_path: Path) -> None:
    file = tmp_path / "tp.moe"
    file.write_text(TEXT)
    done = moec("compile", file, "--check", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "agree" in done.stdout + done.stderr

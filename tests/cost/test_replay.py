"""A given tiling, read and replayed; the command's answer and its trace."""

from __future__ import annotations

import csv
import json
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from moec.cli import app
from moec.codegen.tiling import CubeTile
from moec.diagnostics import Refusal, Usage
from moec.targets.ascend.machine import load
from moec.targets.ascend.replay import Tiling, replay, tiling

B1 = load("ascend910b1")


def test_a_tiling_is_read() -> None:
    text = "base=128x256x64, l1=512x256, cores=24, split=2048x1536, panel=4"
    text += ", order=diagonal, stagger=yes, unit=yes, bypass=a"
    tile = CubeTile(128, 256, 512, 64, 1, 256, 2, 2048, 1536, 4, True, True, True, "a")
    assert tiling(text) == Tiling(tile, 24)
    assert tiling("base=64x64x64,buffers=1,l0c=2,b=kn") == Tiling(CubeTile(64, 64, 64, 64, 2, 64, 1), 0, True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("l1=256", "base is missing"),
        ("base=128x256", "'base=128x256'"),
        ("base=128x256x64,lone=3", "'lone=3' is none of its keys"),
        ("base=128x256x64,cores=0", "'cores=0'"),
        ("base=128x256x64,unit=maybe", "'unit=maybe'"),
        ("base=100x256x64", "base M 100 is no multiple of 16"),
        ("base=128x256x64,l1=96", "l1 96 is no multiple of 64"),
        ("base=128x256x64,l1=192x128", "l1 192 is no multiple of 128"),
    ],
)
def test_a_wrong_tiling_is_refused(text: str, says: str) -> None:
    with pytest.raises(Usage, match=says):
        tiling(text)


def test_all_that_is_wrong_is_named() -> None:
    with pytest.raises(Usage) as caught:
        tiling("base=1x2,unit=maybe,lone=3")
    assert len(caught.value.problems) == 3


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(Refusal, match="KiB of L1"):
        replay(B1, tiling("base=128x256x64,l1=2048"), (512, 512, 4096), "f16", "f16")


def test_more_than_the_memory_holds_is_refused() -> None:
    with pytest.raises(Refusal, match="KiB, Ascend910B1"):
        replay(B1, tiling("base=128x256x64"), (10**10, 8192, 8192), "f16", "f16")
    with pytest.raises(Refusal, match="KiB of L0A"):
        replay(B1, tiling("base=1024x16x64"), (8192, 8192, 8192), "f16", "f16")


def test_choices_change_the_time_and_not_the_work() -> None:
    size = (1000, 700, 512)
    plain = replay(B1, tiling("base=64x64x64"), size, "f16", "f16")
    deep = replay(B1, tiling("base=64x64x64,l1=256"), size, "f16", "f16")
    alone = replay(B1, tiling("base=64x64x64,cores=1"), size, "f16", "f16")
    assert plain.flops == deep.flops == alone.flops == 2 * 1000 * 700 * 512
    assert deep.us < plain.us < alone.us
    assert alone.blocks == 1
    past = replay(B1, tiling("base=64x64x64,bypass=b"), size, "f16", "f16")
    assert past.hbm_bytes > plain.hbm_bytes  # every re-read of b comes from HBM


def test_the_command(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    how = "base=64x128x64,l1=256x128,cores=4,unit=yes"
    arguments = [
        "estimate",
        "matmul",
        "--shape",
        "256,512,1024",
        "--dtype",
        "f16",
        "--tile",
        how,
        "--trace",
        str(trace),
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["cores"] == 4 and answer["us"] > answer["floor_us"]
    assert answer["floor_us"] <= answer["low_us"] < answer["us"] < answer["high_us"] and answer["confidence"]
    assert set(answer["pipes_us"]) == {"M", "MTE1", "MTE2", "FIX", "S"}
    rows = list(csv.DictReader(trace.read_text(encoding="utf-8").splitlines()))
    assert {r["instr"] for r in rows} == {"Nd2Nz", "LoadData", "Mmad", "Fixpipe"}
    assert len([r for r in rows if r["instr"] == "Mmad"]) == 4 * 1024 // 64  # 16 tiles over 4 cores
    for pipe in ("M", "MTE1", "MTE2"):
        ends = [(int(r["start_cycle"]), int(r["end_cycle"])) for r in rows if r["pipe"] == pipe]
        assert all(a[1] <= b[0] for a, b in pairwise(ends))


def test_the_command_says_what_is_missing() -> None:
    for arguments in (
        ["estimate", "add", "--shape", "8,8,8", "--tile", "base=16x16x16"],
        ["estimate", "matmul", "--shape", "8,8", "--dtype", "f16", "--tile", "base=16x16x16"],
        ["estimate", "matmul", "--shape", "8,8,8", "--dtype", "i8", "--tile", "base=16x16x16"],
        ["estimate", "matmul", "--shape", "8x8,8x8", "--trace", "x.csv"],
    ):
        assert CliRunner().invoke(app, arguments).exit_code != 0


def test_more_cores_than_the_machine_has_are_refused() -> None:
    with pytest.raises(Refusal, match="cores=25, ascend910b1 has 24"):
        replay(B1, tiling("base=64x64x64,cores=25"), (64, 64, 64), "f16", "f16")

"""Machine files: complete, sourced, and refused with file and key when they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from moec.diagnostics import Refusal
from moec.targets.ascend.machine import CONFIDENCE, SCHEMA, load, load_file, machines

GOOD = """extends: ascend910b1
title: a test chip
soc: Test1
"""


def test_the_machines_that_there_are() -> None:
    assert {"ascend910b1", "ascend910b2", "ascend910b3", "ascend910b4", "ascend910_9391"} <= set(machines())
    assert "dav_c220" not in machines()  # what they share is no machine


@pytest.mark.parametrize("name", machines())
def test_every_figure_has_a_source_and_a_confidence(name: str) -> None:
    machine = load(name)
    assert set(machine.figures) == set(SCHEMA)
    for key, figure in machine.figures.items():
        assert figure.source in machine.sources, key
        assert figure.confidence in CONFIDENCE, key
        assert figure.unit == SCHEMA[key]
        if figure.source == "NONE":
            assert figure.confidence == "inferred", key


@pytest.mark.parametrize(
    ("name", "aic", "aiv", "mhz", "tflops", "hbm_gib", "l2_mib"),
    [
        ("ascend910b1", 24, 48, 1850, 363.7, 64, 192),
        ("ascend910b2", 24, 48, 1800, 353.9, 64, 192),
        ("ascend910b3", 20, 40, 1800, 294.9, 64, 192),
        ("ascend910b4", 20, 40, 1500, 245.8, 32, 96),
        ("ascend910_9391", 24, 48, 1850, 363.7, 64, 192),
        ("ascend910_9362", 20, 40, 1500, 245.8, 32, 168),
    ],
)
def test_the_catalogue(name: str, aic: int, aiv: int, mhz: int, tflops: float, hbm_gib: int, l2_mib: int) -> None:
    m = load(name)
    assert (m.cores("aic"), m.cores("aiv"), m["clock_mhz"]) == (aic, aiv, mhz)
    assert round(m.peak_flops("bf16") / 1e12, 1) == tflops
    assert (m["memory.hbm_bytes"], m["memory.l2_bytes"]) == (hbm_gib << 30, l2_mib << 20)
    assert m["memory.hbm_rate"] < m["memory.hbm_peak"]


def test_usable_sizes() -> None:
    m = load("ascend910b1")
    assert m.usable("UB") == 192 * 1024 - 256 - 8 * 1024
    assert m.usable("L1") == 512 * 1024 - 256
    assert [m.usable(b) // 1024 for b in ("L0A", "L0B", "L0C", "BT", "FB")] == [64, 64, 128, 1, 2]


def test_unknown_target_suggests_one() -> None:
    with pytest.raises(Refusal, match=r"unknown target 'ascend910b5'") as error:
        load("ascend910b5")
    assert "did you mean 'ascend910b" in str(error.value)


def refusal(tmp_path: Path, text: str) -> str:
    path = tmp_path / "chip.yaml"
    path.write_text(text)
    with pytest.raises(Refusal) as error:
        load_file(path)
    assert "chip.yaml" in str(error.value)
    return str(error.value)


def test_a_machine_may_extend_another(tmp_path: Path) -> None:
    path = tmp_path / "chip.yaml"
    path.write_text(GOOD + "clock_mhz: {value: 1650, source: OPS, confidence: measured}\n")
    assert load_file(path)["clock_mhz"] == 1650
    assert load_file(path)["cores.aic"] == 24


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    text = refusal(
        tmp_path,
        GOOD
        + "clok_mhz: {value: 1, source: INI, confidence: measured}\n"
        + "cores: {aic: {value: many, source: INI, confidence: measured}}\n"
        + "memory: {l2_rate: {value: 1.0e12, source: HEARSAY, confidence: sure}, hbm_rate: 5}\n",
    )
    assert "clok_mhz: unknown key" in text and "did you mean 'clock_mhz'?" in text
    assert "cores.aic: value 'many' is no number" in text
    assert "memory.l2_rate: source 'HEARSAY' is not listed" in text
    assert "memory.l2_rate: confidence 'sure' unknown" in text
    assert "memory.hbm_rate: a figure without source" in text


def test_missing_figures_are_named(tmp_path: Path) -> None:
    text = refusal(
        tmp_path, "title: t\nsoc: s\nsources: {X: x}\nclock_mhz: {value: 1, source: X, confidence: measured}\n"
    )
    assert "cores.aic: missing figure" in text and "paths.GM->UB.rate: missing figure" in text
    assert "clock_mhz" not in text


def test_what_is_no_yaml_or_extends_nothing(tmp_path: Path) -> None:
    assert "not YAML" in refusal(tmp_path, "a: [1, 2\n")
    load_file.cache_clear()
    assert "no such machine file" in refusal(tmp_path, "extends: nowhere\n")
    load_file.cache_clear()
    assert "circle" in refusal(tmp_path, "extends: chip\n")

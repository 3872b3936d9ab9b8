"""Costs of single instructions: worked by hand, and against the measured points they were fitted to."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from moec.codegen.instructions import INSTRUCTIONS
from moec.codegen.instructions.vector import CASTS
from moec.targets.ascend.cost.banks import DENSE, reads_meet, write_meets
from moec.targets.ascend.cost.copies import CopyCost, copy_cost, request_bytes, rows_bytes
from moec.targets.ascend.cost.cube import mmad_cycles
from moec.targets.ascend.cost.fit import fit_line, fit_vector, without_outliers
from moec.targets.ascend.cost.fit import main as derive
from moec.targets.ascend.cost.fit import vector_cycles as model_cycles
from moec.targets.ascend.cost.lone import lone_cycles, tooth
from moec.targets.ascend.cost.table import DATA, vector_fits
from moec.targets.ascend.cost.vector import base_name, fit_of, vector_cycles
from moec.targets.ascend.machine import load

B1 = load("ascend910b1")


@pytest.mark.parametrize(
    ("dtype", "m", "n", "k", "cycles"),
    [
        ("bf16", 16, 16, 16, 2 + 1),
        ("f16", 128, 256, 64, 2 + 8 * 16 * 4),
        ("f16", 1, 1, 1, 2 + 1),
        ("f16", 17, 16, 16, 2 + 2),
        ("f16", 16, 16, 17, 2 + 2),
        ("f32", 16, 16, 8, 2 + 2),  # four deep a cycle
        ("f32", 16, 32, 9, 2 + 2 * 3),
        ("i8", 16, 16, 64, 2 + 2),
        ("f16", 0, 16, 16, 2),
    ],
)
def test_mmad(dtype: str, m: int, n: int, k: int, cycles: int) -> None:
    assert mmad_cycles(B1, dtype, m, n, k) == cycles


@pytest.mark.parametrize(
    ("offset", "length", "moved"),
    [
        (0, 0, 0),
        (0, 1, 128),
        (0, 128, 128),
        (0, 129, 256),
        (128, 128, 128),
        (64, 128, 256),  # crosses a request of 128
        (192, 128, 512),  # crosses one of 256
        (0, 512, 512),
        (2, 510, 512),
        (2, 512, 1024),  # crosses a line: both lines
        (0, 513, 1024),
        (511, 2, 1024),
    ],
)
def test_requests(offset: int, length: int, moved: int) -> None:
    assert request_bytes(offset, length) == moved


@pytest.mark.parametrize(
    ("offset", "rows", "length", "pitch", "moved"),
    [
        (0, 4, 512, 512, 2048),  # dense: one long row
        (32, 4, 512, 512, 2560),
        (0, 4, 512, 1024, 2048),
        (2, 4, 512, 1024, 4096),
        (0, 2, 512, 1025, 512 + 1024),  # the second row is off the line
        (0, 3, 128, 4096, 384),
        (0, 0, 128, 4096, 0),
    ],
)
def test_rows(offset: int, rows: int, length: int, pitch: int, moved: int) -> None:
    assert rows_bytes(offset, rows, length, pitch) == moved


def test_rows_is_the_sum_over_rows() -> None:
    for offset, rows, length, pitch in [(6, 37, 100, 130), (0, 700, 96, 510), (511, 5, 1024, 1026), (3, 9, 64, 96)]:
        each = sum(request_bytes((offset + i * pitch) % 512, length) for i in range(rows))
        assert rows_bytes(offset % 512, rows, length, pitch) == each


@pytest.mark.parametrize(
    ("path", "args", "cost"),
    [
        ("GM->UB", (32768,), CopyCost(261, 193, 32768, 64)),  # 32768 / 126 = 260.06
        ("GM->UB", (32,), CopyCost(20, 193, 128 + 12, 1)),  # one issue; a request and the short row
        ("GM->UB", (0,), CopyCost(20, 193, 0)),
        ("UB->GM", (7300,), CopyCost(100, 117, 7680, 15)),  # alone 191 + 48 x 2180 / 4096 = 216.5
        ("GM->UB", (64 * 128, 64, 128, 16384), CopyCost(129, 193, 64 * (128 + 12), 64)),  # 63 + 8192 / 126 = 128.02
        # 20 + 127 x 2.42 + 65536 / 133 = 820.1
        ("GM->L1.nd2nz", (128 * 512, 128, 512, 16384), CopyCost(821, 41, 65536, 128)),
        # 20 + 127 x 2.42 + 16384 / 133 = 450.5
        ("GM->L1.nd2nz", (128 * 128, 128, 128, 16384), CopyCost(451, 41, 128 * (128 + 42), 128)),
        # only row 0 on a line
        ("GM->L1.nd2nz", (128 * 512, 128, 512, 16386), CopyCost(821, 41, 127 * 1024 + 512, 128)),
        ("L1->L0A", (512,), CopyCost(4, 28, 0)),  # 2 + 512 / 263
        ("L1->L0B", (512,), CopyCost(6, 28, 0)),
        ("L1->L0B", (32768,), CopyCost(251, 28, 0)),
        ("L0C->GM", (131072, 128, 1024, 32768), CopyCost(1532, 42, 131072, 256)),  # 127 x 3.6 + 131072 / 122
        ("L0C->GM", (1024,), CopyCost(64, 19, 1024, 2)),  # alone 83
        ("L1->BT", (64,), CopyCost(3, 20, 0)),
    ],
)
def test_copies(path: str, args: tuple[int, ...], cost: CopyCost) -> None:
    assert copy_cost(B1, path, *args) == cost


def test_short_rows_past_the_l2_move_more() -> None:
    """Nothing keeps the rest of their lines; whole lines cost the same."""
    short = [copy_cost(B1, "GM->UB", 8192, 64, 128, 16384, past_l2=past).moved for past in (False, True)]
    assert short == [64 * (128 + 12), 64 * (128 + 12 + 64)]
    whole = [copy_cost(B1, "GM->UB", 65536, 64, 1024, 16384, past_l2=past).moved for past in (False, True)]
    assert whole == [65536, 65536]


@pytest.mark.parametrize("row", [32, 128, 512, 4096])
def test_rows_without_gaps_are_one_row(row: int) -> None:
    """They move as many bytes as one row of their length, however short each is."""
    whole = copy_cost(B1, "GM->L1", 64 * row)
    assert whole.moved >= 64 * row
    assert copy_cost(B1, "GM->L1", 64 * row, rows=64, row_bytes=row, pitch=row) == whole


@pytest.mark.parametrize(
    ("op", "source", "result", "repeats", "reads", "cycles"),
    [
        ("Add", "f32", "f32", 64, 1.0, 128),
        ("Add", "f32", "f32", 64, 0.5, 96),
        ("Add", "f32", "f32", 64, 0.0, 64),
        ("Add", "f32", "f32", 1, 1.0, 3),
        ("Add", "f32", "f32", 0, 1.0, 0),
        ("Add.rep", "f32", "f32", 10, 1.0, 20),
        ("Muls", "f32", "f32", 10, 1.0, 10),
        ("Exp", "f32", "f32", 10, 0.0, 20),  # one source: no conflict to avoid
        ("Div", "f32", "f32", 10, 1.0, 40),
        ("Cast", "bf16", "f32", 16, 1.0, 16),
        ("WholeReduceSum", "f32", "f32", 10, 1.0, 30),
        ("WholeReduceMax.value", "f32", "f32", 10, 1.0, 70),
        ("Sort32", "f32", "f32", 3, 1.0, 48),
        ("MrgSort", "f32", "f32", 2, 1.0, 38),
        ("Gather", "f32", "f32", 2, 1.0, 27),
        ("ReduceSum", "f32", "f32", 1, 1.0, 3),
        ("ReduceSum", "f32", "f32", 64, 1.0, 192 + 22 + 3),  # 64 sums, their drain, the sum of sums
        ("Muls", "f32", "f32", 256, 1.0, 255 + 4),  # two instructions
    ],
)
def test_vector(op: str, source: str, result: str, repeats: int, reads: float, cycles: int) -> None:
    assert vector_cycles(B1, op, source, result, repeats, reads) == cycles


def test_reads_of_one_bank_group() -> None:
    assert reads_meet(256) == reads_meet(768) == reads_meet(-256) == 0  # eight groups apart
    assert reads_meet(0) == reads_meet(512) == 1  # the same groups
    assert reads_meet(128) == 1  # some groups in common
    assert reads_meet(256, (0, 1), DENSE) == 0.5  # one block a repeat, moving on by one: in the way every other time
    assert reads_meet(256, (0, 8), DENSE) == 0


def test_writes_into_banks_that_are_read() -> None:
    assert write_meets(0) == write_meets(512) == 0  # in step: put off by a repeat
    assert write_meets(256) == 0
    assert write_meets(32) == write_meets(128) == 1


def test_a_write_in_the_way_costs_more_only_where_the_rate_is_high() -> None:
    assert vector_cycles(B1, "Muls", "f32", "f32", 100, write=1.0) == 177
    assert vector_cycles(B1, "Add", "f32", "f32", 100, 0.0, 1.0) == 177
    assert vector_cycles(B1, "Add", "f32", "f32", 100, 1.0, 1.0) == 200
    assert vector_cycles(B1, "Exp", "f32", "f32", 100, write=1.0) == 200


def test_every_declared_vector_instruction_has_a_cost() -> None:
    for name, spec in INSTRUCTIONS.items():
        if spec.pipe != "V" or name == "Cast":
            continue
        operand = spec.operands[-1]
        for dtype in operand.dtypes or ("f32",):
            data = dtype if operand.name not in ("index", "offsets", "mask", "work") else "f32"
            assert vector_cycles(B1, name, data, data, 4) > 0, (name, dtype)
    for source, result in CASTS:
        assert fit_of("Cast", source, result).rate > 0


POINTS = list(csv.DictReader((DATA / "points.csv").read_text(encoding="utf-8").splitlines()))
EXPECTED = {"VSHL/UINT16_UINT16", "VMLA/FP16_FP16_FP16", "VMLA/FP16_FP16_FP32", "VMADDRELU/FP16_FP16_FP16"}
EXPECTED |= {"VREDUCE/UINT16_UINT16_UINT16", "VREDUCEV2/UINT16_UINT16_UINT16"}
"""Series whose last measured point breaks the series (about twice the trend); kept as they were measured."""


def test_vector_fits_meet_the_measured_points() -> None:
    errors = []
    for p in POINTS:
        if p["kind"] != "vector" or p["key"] in EXPECTED:
            continue
        name, dtypes = p["key"].split("/")
        fit = vector_fits()[name, dtypes]
        model = model_cycles(fit.floor, fit.base, fit.rate, float(p["size"]))
        errors.append(abs(model - float(p["cycles"])) / float(p["cycles"]))
    assert sorted(errors)[len(errors) // 2] < 0.01
    assert sum(e > 0.05 for e in errors) < 0.06 * len(errors)


@pytest.mark.parametrize(
    ("path", "chip", "typical", "worst"),
    [
        ("GM->UB", "910B3", 0.01, 0.09),
        ("UB->GM", "910B1", 0.03, 0.05),
        ("GM->L1", "910B1", 0.03, 0.10),
        ("L1->L0A", "910B1", 0.01, 0.30),
        ("L1->L0B", "910B1", 0.01, 0.10),
        ("L1->FB", "910B1", 0.03, 0.08),
        ("L1->BT", "910B1", 0.05, 0.15),
        ("L0C->GM", "910B1", 0.03, 0.06),
        ("GM->L0A", "910B3", 0.02, 0.07),
        ("GM->L0B", "910B3", 0.02, 0.07),
        ("UB->UB", "910B1", 0.01, 0.05),
    ],
)
def test_paths_meet_the_measured_points(path: str, chip: str, typical: float, worst: float) -> None:
    """A single copy, waited for: measured alone, so device memory adds its latency, on-chip paths ran back to back.

    GM->L1 by nd2nz is left out but for its teeth (see ``cost/lone.py``); GM->UB on 910B1 was measured on all cores.
    """
    errors = []
    for p in POINTS:
        if p["kind"] == "path" and p["key"] == f"{path}/{chip}":
            cost = copy_cost(B1, path, int(float(p["size"])))
            model = cost.busy + (cost.latency if "GM" in path else 0)
            errors.append(abs(model - float(p["cycles"])) / float(p["cycles"]))
    assert len(errors) >= 8
    assert sorted(errors)[len(errors) // 2] <= typical
    assert max(errors) <= worst


def test_single_copies_between_the_measured_points() -> None:
    assert lone_cycles("UB->GM", 512) == lone_cycles("UB->GM", 1024) == 151  # none takes less
    assert lone_cycles("UB->GM", 10**6) is None
    assert lone_cycles("L1->L0A", 1024) is None
    low, high = lone_cycles("GM->L1", 1024), lone_cycles("GM->L1", 4096)
    assert low is not None and high is not None
    assert lone_cycles("GM->L1", 2560) == (low + high) / 2


@pytest.mark.parametrize(
    ("nbytes", "cycles"), [(8192, 0), (16384, 0), (32768, 0), (131072, 0), (24576, 257), (57344, 938), (1 << 20, 0)]
)
def test_teeth_of_nd2nz(nbytes: int, cycles: float) -> None:
    """24576: 1046 above (794 + 784) / 2; 57344: 1755 above a line from 784 to 824."""
    assert tooth(nbytes) == pytest.approx(cycles, abs=6)
    row = 128
    cost = copy_cost(B1, "GM->L1.nd2nz", nbytes, nbytes // row, row, 16384)
    assert cost.latency == pytest.approx(41 + cycles, abs=7)


def test_mmad_meets_the_measured_points() -> None:
    points = sorted((float(p["size"]), float(p["cycles"])) for p in POINTS if p["kind"] == "mmad" and "B1" in p["key"])
    errors = [abs(2 + size - cycles) / cycles for size, cycles in points]
    assert errors[0] < 0.18 and max(errors[1:]) < 0.02


def test_the_tables_are_what_the_script_derives(tmp_path: Path) -> None:
    """With ``MOEC_NPU_DATA`` naming the folder of the measured table, the committed tables come out again."""
    table = Path(os.environ.get("MOEC_NPU_DATA", "")) / "mskpp_910b1.csv"
    if not table.is_file():
        pytest.skip("MOEC_NPU_DATA names no folder with mskpp_910b1.csv")
    derive(str(table), tmp_path)
    for path in sorted(tmp_path.iterdir()):
        assert path.read_bytes() == (DATA / path.name).read_bytes(), path.name


def test_fits_recover_what_made_the_points() -> None:
    line = [(float(b), 100 + b / 50) for b in range(1000, 20000, 1000)]
    assert fit_line(line) == (100.0, 50.0)
    ramp = [(float(r), float(max(7, 3 + 2 * r))) for r in range(1, 17)]
    assert fit_vector(ramp) == (7, 3, 2.0)
    broken = [*ramp[:12], (13.0, 20000.0), *ramp[13:]]
    assert without_outliers(broken) == [p for p in broken if p[1] < 1000]
    assert base_name("Add.rep") == "Add"

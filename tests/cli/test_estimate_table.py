"""``moec estimate --table`` and what the command says of wrong use."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from command import moec, refused

HEADER = "chip,op,input_shapes,output_shapes,dtypes\n"
ROW = '910B3,Add,"64,64;64,64","64,64",FLOAT;FLOAT -> FLOAT\n'


def test_a_table_is_written_with_estimates(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(HEADER + ROW + ROW.replace("910B3", "our card"), encoding="utf-8")
    out = tmp_path / "out.csv"
    done = moec("estimate", "--table", str(tmp_path / "in.csv"), "-o", str(out), "--chip-as", "our card=ascend910b4")
    assert done.returncode == 0, done.stderr
    assert "2 of 2 rows estimated; model ascend-ops" in done.stderr
    rows = list(csv.DictReader(out.open(encoding="utf-8", newline="")))
    assert [r["chip"] for r in rows] == ["910B3", "our card"]
    assert all(float(r["low_us"]) < float(r["predicted_us"]) < float(r["high_us"]) for r in rows)
    printed = moec("estimate", "--table", str(tmp_path / "in.csv"), "--chip-as", "our card=ascend910b4")
    assert printed.stdout.replace("\r", "") == out.read_text(encoding="utf-8")


def test_rows_without_an_estimate_are_counted(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(HEADER + ROW.replace("910B3", "our card"), encoding="utf-8")
    done = moec("estimate", "--table", str(tmp_path / "in.csv"))
    assert "0 of 1 rows estimated (declined: 1 by chip)" in done.stderr


@pytest.mark.parametrize("size", ["-4", "4.5", "²", "9" * 20, "9" * 5000])
def test_a_size_that_is_none_declines_its_row_alone(size: str, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(HEADER + ROW.replace("64,64;", f"{size},64;") + ROW, encoding="utf-8")
    done = moec("estimate", "--table", str(tmp_path / "in.csv"))
    assert "1 of 2 rows estimated (declined: 1 by input_shapes)" in done.stderr


def test_a_folder_is_no_place_for_a_table(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(HEADER + ROW, encoding="utf-8")
    refused(moec("estimate", "--table", str(tmp_path / "in.csv"), "-o", str(tmp_path)), 1, "it is a folder")


def test_nothing_is_left_where_a_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(HEADER.replace("op", "operator", 1) + ROW, encoding="utf-8")
    out = tmp_path / "out.csv"
    out.write_text("as it was", encoding="utf-8")
    refused(moec("estimate", "--table", str(tmp_path / "in.csv"), "-o", str(out)), 1, "in.csv:1: no column 'op'")
    assert moec("estimate", "--table", str(tmp_path / "in.csv")).stdout == ""
    assert out.read_text(encoding="utf-8") == "as it was"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.csv", "out.csv"]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ((), 2, "an op and its shapes are missing"),
        (("add",), 2, "an op and its shapes are missing"),
        (("add", "--shape", "4x4,4x4", "-o", "x.csv"), 2, "belong to --table"),
        (("add", "--table", "x.csv"), 2, "--table takes its ops from the file"),
        (("--table", "no/such.csv"), 1, "No such file"),
        (("matmul", "--shape", "²x4,4x4"), 2, "is no shape"),
        (("matmul", "--shape", "9" * 5000 + "x4,4x4"), 2, "is no shape"),
        (("matmul", "--shape", "16,16,16", "--tile", "base=16x16x16", "--trace", "no/such.csv"), 1, "cannot write no/"),
        (("--table", "no/such.csv", "--chip-as", "card"), 2, "no CLASS=MACHINE"),
        (("--table", "no/such.csv", "--chip-as", "card=ascend910b5"), 1, "did you mean 'ascend910b"),
    ],
)
def test_wrong_use(arguments: tuple[str, ...], code: int, text: str) -> None:
    refused(moec("estimate", *arguments), code, text)


def test_a_short_row_and_one_with_more_than_the_memory_keep_their_place(tmp_path: Path) -> None:
    large = ROW.replace("64,64", "1048576,1048576")
    (tmp_path / "in.csv").write_text(HEADER + ROW + "910B3,Add\n" + large, encoding="utf-8")
    done = moec("estimate", "--table", str(tmp_path / "in.csv"))
    assert done.stdout.count("\n") == 4 and "takes 4,294,967,296 KiB" in done.stdout
    assert "2 of 3 rows estimated (declined: 1 by input_shapes)" in done.stderr

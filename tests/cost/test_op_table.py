"""The batch form: rows kept, order kept, reasons given, broken tables refused with their line."""

from __future__ import annotations

import csv
import io
from math import prod

import pytest

from moec.diagnostics import Refusal
from moec.targets.ascend.opmodel.table import ADDED, Count, estimate_table

HEADER = "id,chip,op,input_shapes,output_shapes,dtypes,formats,block_dim,freq_mhz\n"
B2 = "910B2-class(24AIC@1800MHz)"


def run(text: str, chips: dict[str, str] | None = None) -> tuple[list[dict[str, str]], Count]:
    out = io.StringIO()
    count = estimate_table(io.StringIO(text), out, "ops.csv", chips)
    return list(csv.DictReader(io.StringIO(out.getvalue()))), count


def row(op: str, shapes: str, out: str, dtypes: str, chip: str = B2, blocks: str = "", formats: str = "ND") -> str:
    return f'7,"{chip}",{op},"{shapes}","{out}",{dtypes},{formats},{blocks},\n'


def test_rows_order_and_columns_stay() -> None:
    text = HEADER + row("Add", "4096,4096;4096,4096", "4096,4096", "DT_BF16;DT_BF16 -> DT_BF16")
    text += row("MatMulV3", "3,x;4", "5", "FLOAT;FLOAT -> FLOAT") + row("Cast", "8", "8", "FLOAT -> DT_BF16")
    rows, count = run(text)
    assert [r["op"] for r in rows] == ["Add", "MatMulV3", "Cast"]
    assert list(rows[0]) == [*HEADER.strip().split(","), *ADDED]
    assert (count.rows, count.estimated) == (3, 2)
    assert rows[1]["reason"].startswith("input_shapes: '3,x'") and rows[1]["predicted_us"] == ""
    for r in (rows[0], rows[2]):
        assert 0 < float(r["low_us"]) < float(r["predicted_us"]) < float(r["high_us"])
        assert r["bound_by"] and not r["reason"]


LLM = [
    ("MatMulV2", "4096,7680;7680,2048", "4096,2048", "DT_BF16;DT_BF16 -> DT_BF16"),
    ("BatchMatMul", "16,512,128;16,128,512", "16,512,512", "FLOAT16;FLOAT16 -> FLOAT16"),
    ("GroupedMatmul", "32768,7168;64,7168,2048;64", "32768,2048", "DT_BF16;DT_BF16;INT64 -> DT_BF16"),
    ("GroupedMatmul", "7168,32768;32768,2048;64", "64,7168,2048", "DT_BF16;DT_BF16;INT64 -> DT_BF16"),
    ("FlashAttentionScore", "4096,1,2048;4096,1,1024;4096,1,1024;2048,2048", "1,16,4096,8;1,16,4096,8;;4096,1,2048",
     "DT_BF16;DT_BF16;DT_BF16;BOOL -> FLOAT;FLOAT;DT_BF16;DT_BF16"),
    ("FlashAttentionScoreGrad",
     "4096,1,2048;4096,1,1024;4096,1,1024;4096,1,2048;2048,2048;1,16,4096,8;1,16,4096,8;4096,1,2048",
     "4096,1,2048;4096,1,1024;4096,1,1024",
     "DT_BF16;DT_BF16;DT_BF16;DT_BF16;BOOL;FLOAT;FLOAT;DT_BF16 -> DT_BF16;DT_BF16;DT_BF16"),
    ("RmsNormGrad", "4096,7680;4096,7680;4096;7680", "4096,7680;7680",
     "DT_BF16;DT_BF16;FLOAT;DT_BF16 -> DT_BF16;FLOAT"),
    ("SwiGluGrad", "4096,2048;4096,4096", "4096,4096", "DT_BF16;DT_BF16 -> DT_BF16"),
    ("MoeGatingTopKSoftmax", "4096,256", "4096,8;4096,8;4096,8", "FLOAT -> FLOAT;INT32;INT32"),
    ("MoeTokenPermute", "4096,7168;4096,8", "32768,7168;32768", "DT_BF16;INT32 -> DT_BF16;INT32"),
    ("MoeTokenUnpermute", "32768,7168;32768;4096,8", "4096,7168", "DT_BF16;INT32;DT_BF16 -> DT_BF16"),
    ("MoeTokenUnpermuteGrad", "32768,7168;4096,7168;32768;4096,8", "32768,7168;4096,8",
     "DT_BF16;DT_BF16;INT32;DT_BF16 -> DT_BF16;DT_BF16"),
    ("MoeInitRoutingV2", "4096,7168;4096,8", "32768,7168;32768;256", "DT_BF16;INT32 -> DT_BF16;INT32;INT32"),
    ("TransData", "4096,2048", "128,256,16,16", "FLOAT16 -> FLOAT16"),
    ("Transpose", "4096,1,16,128;4", "1,16,4096,128", "DT_BF16;INT64 -> DT_BF16"),
    ("Slice", "4096,1,4096;3;3", "4096,1,2048", "DT_BF16;INT64;INT64 -> DT_BF16"),
    ("ConcatD", "4096,1,2048;4096,1,2048", "4096,1,4096", "DT_BF16;DT_BF16 -> DT_BF16"),
    ("TopKV2", "4096,256;1", "4096,8;4096,8", "FLOAT;INT32 -> FLOAT;INT32"),
    ("ReduceSum", "4096,32000;1", "4096", "FLOAT;INT64 -> FLOAT"),
    ("RotaryPositionEmbedding", "4096,1,16,128;4096,1,1,128;4096,1,1,128", "4096,1,16,128",
     "DT_BF16;DT_BF16;DT_BF16 -> DT_BF16"),
    ("ApplyAdamWV2", "155582464;155582464;155582464;155582464;1", "155582464;155582464;155582464",
     "FLOAT;FLOAT;FLOAT;FLOAT;FLOAT -> FLOAT;FLOAT;FLOAT"),
    ("ScatterElementsV2", "4096,256;4096,8;4096,8", "4096,256", "FLOAT;INT64;FLOAT -> FLOAT"),
    ("Conv2D", "32,3,224,224;64,3,7,7", "32,64,112,112", "FLOAT16;FLOAT16 -> FLOAT16"),
    ("SelectV2", "4096,4096;4096,4096;1", "4096,4096", "BOOL;FLOAT;FLOAT -> FLOAT"),
    ("NobodyKnowsThis", "4096,4096", "4096,4096", "DT_BF16 -> DT_BF16"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "ins", "outs", "dtypes"), LLM, ids=[f"{r[0]}-{i}" for i, r in enumerate(LLM)])
def test_operators_of_a_training_step_are_understood(op: str, ins: str, outs: str, dtypes: str) -> None:
    """Each has an estimate above what HBM or L2 allows and below a hundred times that."""
    (found,), _ = run(HEADER + row(op, ins, outs, dtypes))
    assert not found["reason"]
    sizes = [s for side in (ins, outs) for s in side.split(";") if s]
    elements = sum(prod(map(int, s.split(","))) for s in sizes)
    us = float(found["predicted_us"])
    assert us > elements / 7e6
    assert us < 100 + elements / 1e4


def test_stated_clock_and_cores_count() -> None:
    text = HEADER
    for chip in ("910B3(20AIC@1800MHz)", "910B3(20AIC@900MHz)", "910B3(10AIC@1800MHz)"):
        text += row("Cos", "4096,4096", "4096,4096", "FLOAT -> FLOAT", chip)
    text += row("Cos", "4096,4096", "4096,4096", "FLOAT -> FLOAT", "910B3(20AIC@1800MHz)", "10")
    whole, slow, half, few = (float(r["predicted_us"]) for r in run(text)[0])
    assert 1.7 < slow / whole < 2.1
    assert 1.7 < half / whole < 2.1
    assert 3.3 < few / whole < 4.2


def test_the_clock_of_a_row_holds_before_that_of_its_class() -> None:
    cells = row("Cos", "4096,4096", "4096,4096", "FLOAT -> FLOAT", "910B3(20AIC@1800MHz)")
    (whole,), _ = run(HEADER + cells)
    (slow,), _ = run(HEADER + cells.replace(",\n", ",900\n"))
    assert 1.7 < float(slow["predicted_us"]) / float(whole["predicted_us"]) < 2.1


def test_a_class_may_be_mapped_to_a_machine() -> None:
    text = HEADER + row("Cast", "8", "8", "FLOAT -> DT_BF16", "our card")
    (declined,), count = run(text)
    assert declined["reason"] == "chip: no machine is like 'our card'; map it with --chip-as"
    assert count.declined == {"chip": 1}
    (mapped,), _ = run(text, {"our card": "ascend910b2"})
    assert float(mapped["predicted_us"]) > 0


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "ops.csv is empty"),
        ("chip,operator,input_shapes\n", 1, "no column 'op'"),
        ("chip,op,op,input_shapes\n", 1, "column 'op' twice"),
        ("op,input_shapes\n", 1, "no column 'chip'"),
    ],
)
def test_a_table_without_a_usable_header_is_refused_with_its_line(text: str, line: int, says: str) -> None:
    with pytest.raises(Refusal, match=says) as refused:
        run(text)
    assert refused.value.problems[0].where.line == line


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (row("", "8", "8", "FLOAT -> FLOAT"), "op: empty"),
        (
            row("MatMul", "8,16;17,8", "8,8", "FLOAT;FLOAT -> FLOAT"),
            "input_shapes: no product of 8x16 and 17x8 gives 8x8",
        ),
        (row("Add", "-1,8", "8", "FLOAT -> FLOAT"), "input_shapes: '-1,8' is no shape of known sizes"),
        (row("Add", "8,8;3,5", "10,10", "FLOAT;FLOAT -> FLOAT"),
         "input_shapes: 8x8 and 3x5 do not give 10x10 under Add"),
        (row("Add", "4,4;4,4", "8,8", "FLOAT;FLOAT -> FLOAT"), "input_shapes: 4x4 and 4x4 do not give 8x8 under Add"),
        (row("Cast", "8,8", "8,9", "FLOAT -> DT_BF16"), "input_shapes: 8x8 do not give 8x9 under Cast"),
        (row("RmsNorm", "64,128;100", "64,128;64", "FLOAT;FLOAT -> FLOAT;FLOAT"),
         "input_shapes: 64x128 and 100 do not give 64x128 and 64 under RmsNorm"),
        (row("SwiGlu", "64,128", "64,128", "FLOAT -> FLOAT"), "input_shapes: 64x128 do not give 64x128 under SwiGlu"),
        (row("ConcatD", "64,128;64,128", "64,512", "FLOAT;FLOAT -> FLOAT"),
         "input_shapes: 64x128 and 64x128 do not give 64x512 under ConcatD"),
        (row("Transpose", "64,128;2", "128,65", "FLOAT;INT64 -> FLOAT"),
         "input_shapes: 64x128 and 2 do not give 128x65 under Transpose"),
        (row("ReduceSum", "64;1", "128", "FLOAT;INT64 -> FLOAT"),
         "input_shapes: 64 and 1 do not give 128 under ReduceSum"),
        (row("GroupedMatmul", "64,128;8,256,64;8", "64,64", "FLOAT;FLOAT;INT64 -> FLOAT"),
         "input_shapes: 64x128 and 8x256x64 and 8 do not give 64x64 under GroupedMatmul"),
        (row("MoeTokenPermute", "64,128;64,2", "128,100;128", "FLOAT;INT32 -> FLOAT;INT32"),
         "input_shapes: 64x128 and 64x2 do not give 128x100 and 128 under MoeTokenPermute"),
    ],
)  # fmt: skip
def test_rows_that_make_no_sense_keep_their_place(cells: str, reason: str) -> None:
    rows, _ = run(HEADER + cells + row("Cast", "8", "8", "FLOAT -> DT_BF16"))
    assert rows[0]["reason"] == reason
    assert rows[1]["predicted_us"]

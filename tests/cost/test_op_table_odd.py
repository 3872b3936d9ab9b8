"""Tables as people save them: every row comes back, in its place, with an estimate wherever one can be made."""

from __future__ import annotations

import csv
import io
import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moec.cli.estimate_table import estimate_rows
from moec.targets.ascend.opmodel.table import ADDED, Count, estimate_table
from moec.targets.ascend.opmodel.vendor import FAMILIES, lookup, table

HEADER = "chip,op,input_shapes,output_shapes,dtypes,formats,block_dim,freq_mhz"
PLAIN = ["910B2", "Add", "4096,1024;4096,1024", "4096,1024", "DT_BF16;DT_BF16 -> DT_BF16", "ND;ND -> ND", "48", "1800"]


def run(text: str, chips: dict[str, str] | None = None) -> tuple[list[dict[str, str]], Count]:
    out = io.StringIO()
    count = estimate_table(io.StringIO(text, newline=""), out, "ops.csv", chips)
    delimiter = max(",;\t", key=out.getvalue().splitlines()[0].count)
    return list(csv.DictReader(io.StringIO(out.getvalue()), delimiter=delimiter)), count


def one(**changes: str) -> dict[str, str]:
    cells = dict(zip(HEADER.split(","), PLAIN, strict=True)) | changes
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells.values())
    (found,), _ = run(f"{HEADER}\n{out.getvalue()}")
    return found


@pytest.fixture(scope="module")
def plain() -> str:
    return one()["predicted_us"]


@pytest.mark.parametrize(
    "shapes",
    [
        "4096,1024;4096,1024", "[4096,1024];[4096,1024]", "[4096, 1024], [4096, 1024]", "[[4096,1024],[4096,1024]]",
        "(4096,1024);(4096,1024)", '"4096,1024;4096,1024"', "4096x1024;4096x1024", "4096 1024;4096 1024",
        " 4096 , 1024 ; 4096 , 1024 ", "4096.0,1024.0;4096.0,1024.0", "4096*1024;4096*1024", "{4096,1024};{4096,1024}",
    ],
)  # fmt: skip
def test_spellings_of_shapes(shapes: str, plain: str) -> None:
    assert one(input_shapes=shapes)["predicted_us"] == plain


@pytest.mark.parametrize(
    "dtypes",
    [
        "DT_BF16;DT_BF16 -> DT_BF16", "BF16;BF16->BF16", "bfloat16;bfloat16 => bfloat16", "DT_BF16", "ACL_BF16",
        "torch.bfloat16", "DT_BFLOAT16", "bf16,bf16 -> bf16", "DT_BF16;DT_BF16 \N{RIGHTWARDS ARROW} DT_BF16",
    ],
)  # fmt: skip
def test_spellings_of_dtypes(dtypes: str, plain: str) -> None:
    found = one(dtypes=dtypes)
    assert (found["predicted_us"], found["assumed"]) == (plain, "")


@pytest.mark.parametrize("formats", ["", "ND", "NCHW", "NHWC", "NZ -> NZ", "FRACTAL_NZ", "NCL;ND -> ND", "WHATEVER"])
def test_formats_of_elementwise_operators_are_all_one(formats: str, plain: str) -> None:
    assert one(formats=formats)["predicted_us"] == plain


@pytest.mark.parametrize(
    ("changes", "assumed"),
    [
        ({"block_dim": "many"}, "block_dim: 'many' left out"),
        ({"block_dim": "-3"}, "block_dim: '-3' left out"),
        ({"freq_mhz": "nan"}, ""),
        ({"freq_mhz": "inf"}, "freq_mhz: 'inf' left out"),
        ({"block_dim": ""}, ""),
        ({"block_dim": "48.0"}, ""),
        ({"dtypes": ""}, "dtypes: none given, FLOAT16 taken"),
        ({"dtypes": "FLOAT99;DT_BF16 -> DT_BF16"}, "dtypes: unknown 'FLOAT99' taken for bf16"),
        ({"dtypes": "QUANT16;DT_BF16 -> DT_BF16"}, "dtypes: unknown 'QUANT16' taken for f16"),
        ({"output_shapes": ""}, "output_shapes: none given, taken from the operands"),
        ({"chip": "910Bx"}, "chip: '910Bx' taken for ascend910b2"),
        ({"op": "NobodyKnowsThis"}, "op: unknown NobodyKnowsThis taken for a few instructions an element"),
        ({"op": "TensorFlipper"}, "op: TensorFlipper taken for a kind of strided"),
    ],
)
def test_what_a_row_leaves_open_is_taken_and_told(changes: dict[str, str], assumed: str) -> None:
    found = one(**changes)
    assert found["reason"] == ""
    assert 0 < float(found["low_us"]) <= float(found["predicted_us"]) <= float(found["high_us"])
    assert found["assumed"] == assumed


def test_a_guessed_chip_has_a_wider_band() -> None:
    known, guessed = one(), one(chip="910Bx")
    assert known["predicted_us"] == guessed["predicted_us"]
    assert float(guessed["high_us"]) == pytest.approx(1.5 * float(known["high_us"]), rel=1e-3)


@pytest.mark.parametrize("chip", ["H100", "", "Ascend310P3", "card"])
def test_chips_like_no_machine_are_declined_unless_they_are_mapped(chip: str) -> None:
    text = f"{HEADER}\n" + ",".join([chip, *(f'"{c}"' for c in PLAIN[1:])]) + "\n"
    (declined,), count = run(text)
    assert declined["reason"].startswith("chip: ") and declined["predicted_us"] == "" and count.estimated == 0
    (any_class,), _ = run(text, {"*": "ascend910b2"})
    assert float(any_class["predicted_us"]) > 0
    if chip:
        (begun,), _ = run(text, {chip[:3]: "ascend910b2"})
        assert begun["predicted_us"] == any_class["predicted_us"]


def test_a_table_without_chips_is_mapped_as_a_whole() -> None:
    (found,), _ = run('op,input_shapes\nCast,"8,8"\n', {"*": "ascend910b1"})
    assert float(found["predicted_us"]) > 0


ROW = '910B2,Cast,"4096,1024","4096,1024",FLOAT -> DT_BF16,ND,,'


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_other_separators_stay(separator: str) -> None:
    out = io.StringIO()
    cells = [HEADER.split(","), PLAIN, PLAIN]
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator="\r\n").writerows(cells)
    estimate_table(io.StringIO(text.getvalue(), newline=""), out, "ops.csv")
    found = list(csv.reader(io.StringIO(out.getvalue()), delimiter=separator))
    assert [r[:8] for r in found] == cells
    assert found[1][8:] == found[2][8:] and float(found[1][8]) > 0


def test_short_and_long_rows_keep_their_place() -> None:
    text = f"{HEADER},note\r\n{ROW},x\r\n910B2,Cast\r\n{ROW},z,,,,\r\n\r\n{ROW},y\r\n"
    rows, count = run("\ufeff" + text)
    assert [r["op"] for r in rows] == ["Cast"] * 4
    assert rows[0]["predicted_us"] == rows[3]["predicted_us"] != ""
    assert rows[1]["assumed"].startswith("2 fields of 9: the others are taken to be empty; dtypes")
    assert rows[1]["predicted_us"] and not rows[1]["reason"]
    assert [r["note"] for r in rows] == ["x", "", "z", "y"]
    assert (count.rows, count.estimated) == (4, 4)


def test_unquoted_shapes_are_declined_with_what_is_left_over() -> None:
    rows, count = run(f"{HEADER}\n910B2,Add,4096,1024;4096,1024,4096,1024,FLOAT,ND,48,1800\n{ROW}\n")
    assert rows[0]["reason"] == (
        "line 2: 11 fields, the header has 8: quote cells that hold ','; left over: ND,48,1800"
    )
    assert rows[1]["predicted_us"] and count.declined == {"line": 1}


def test_a_quote_that_never_closes_spoils_its_own_row_alone() -> None:
    rows, _ = run(f'{HEADER},note\n910B2,Cast,8,8,FLOAT -> DT_BF16,ND,,,"oh\n' + f"{ROW},fine\n" * 200)
    assert len(rows) == 201
    assert rows[0]["note"] == "oh" and rows[0]["assumed"] == "a quote that never closes is left out"
    assert len({r["predicted_us"] for r in rows[1:]}) == 1 and rows[1]["predicted_us"]


def test_quotes_within_cells_are_text() -> None:
    rows, _ = run(f"{HEADER},note\n" + f'{ROW},5" disk\n' * 3 + f'{ROW},"open\n' * 3 + f'{ROW},"a ""b"""\n')
    assert [r["note"] for r in rows] == ['5" disk'] * 3 + ["open"] * 3 + ['a "b"']
    assert len({r["predicted_us"] for r in rows}) == 1 and rows[0]["predicted_us"]


def test_a_cell_may_go_over_lines() -> None:
    rows, _ = run(f'{HEADER},note\n{ROW},"two\nlines"\n{ROW},b\n{ROW},"ends\n"\n{ROW},c\n')
    assert [r["note"] for r in rows] == ["two\nlines", "b", "ends\n", "c"]


def test_columns_called_like_added_ones_get_another_name() -> None:
    rows, count = run(f"{HEADER},model,reason,note,note\n{ROW},Qwen,why,1,2\n")
    assert rows[0]["model_in"] == "Qwen" and rows[0]["reason_in"] == "why" and rows[0]["note"] == "2"
    assert rows[0]["reason"] == "" and float(rows[0]["predicted_us"]) > 0
    assert count.renamed == {"model": "model_in", "reason": "reason_in"}


def test_headers_in_another_case() -> None:
    (found,), _ = run('Chip,OP,Input Shapes,Output Shapes,Dtypes\n910B2,Cast,"8,8","8,8",FLOAT -> DT_BF16\n')
    assert found["predicted_us"]


def test_files_keep_text_that_is_no_utf8(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_bytes(f"{HEADER},note\n{ROW},".encode() + "\N{CJK UNIFIED IDEOGRAPH-5907}".encode("gbk") + b"\n")
    estimate_rows(source, out, ())
    assert "\N{CJK UNIFIED IDEOGRAPH-5907}".encode("gbk") in out.read_bytes()
    source.write_text(f"{HEADER}\n{ROW}\n", encoding="utf-16")
    estimate_rows(source, None, ())
    printed = capfd.readouterr()
    assert printed.out.count("\n") == 2 and "1 of 1 rows estimated" in printed.err


FLOATS = ["FLOAT", "DT_BF16", "FLOAT16", "INT64", "INT32", "INT8", "BOOL", "DOUBLE", "DT_UNDEFINED"]


def test_every_known_operator_takes_any_shapes_without_breaking() -> None:
    """An estimate with its band, or a reason that names the column; never anything else."""
    rng = random.Random(7)
    lines = [HEADER]
    for op in sorted(table()):
        for _ in range(3):
            shapes = [",".join(str(rng.choice([1, 3, 8, 64, 1000])) for _ in range(rng.randint(0, 5))) for _ in "12345"]
            ins, outs = shapes[: rng.randint(1, 4)], shapes[rng.randint(2, 4) :]
            types = f"{';'.join(rng.choices(FLOATS, k=len(ins)))} -> {';'.join(rng.choices(FLOATS, k=len(outs)))}"
            lines.append(f'910B2,{op},"{";".join(ins)}","{";".join(outs)}",{types},ND,{rng.choice(["", "40"])},')
    rows, count = run("\n".join(lines))
    assert len(rows) == count.rows == len(lines) - 1
    for r in rows:
        assert (r["predicted_us"] == "") == (r["reason"] != "")
        assert r["reason"].startswith(("input_shapes: ", "")), r
        if r["predicted_us"]:
            assert 0 < float(r["low_us"]) <= float(r["predicted_us"]) <= float(r["high_us"])


def test_sensible_rows_of_elementwise_row_and_moving_operators_are_all_estimated() -> None:
    lines = [HEADER]
    for op, known in sorted(table().items()):
        if known.family in ("elementwise", "rows", "rotary", "fill", "copy", "strided", "relayout", "sort", "scatter"):
            lines.append(f'910B2,{op},"512,256","512,256",DT_BF16 -> DT_BF16,ND,,')
    rows, count = run("\n".join(lines))
    assert len(rows) > 150 and count.estimated == count.rows, [r["op"] for r in rows if r["reason"]]


ACLNN = """MoeGatingTopKSoftmax MoeGatingTopKSoftmaxV2 MoeGatingTopK MoeComputeExpertTokens MoeInitRouting
MoeInitRoutingV2 MoeInitRoutingV3 MoeInitRoutingV2Grad MoeFinalizeRouting MoeFinalizeRoutingV2 MoeFinalizeRoutingV2Grad
MoeTokenPermute MoeTokenUnpermute MoeTokenPermuteGrad MoeTokenUnpermuteGrad MoeTokenPermuteWithRoutingMap
MoeTokenPermuteWithRoutingMapGrad MoeTokenUnpermuteWithRoutingMap MoeTokenPermuteWithEp MoeTokenUnpermuteWithEp
GroupedMatmulV4 GroupedMatmulV5 GroupedMatmulAdd GroupedMatmulSwigluQuant GroupedMatmulFinalizeRouting SwiGlu SwiGluGrad
RmsNorm RmsNormGrad AddRmsNorm InplaceAddRmsNorm RotaryPositionEmbedding RotaryPositionEmbeddingGrad ApplyRotaryPosEmb
RopeWithSinCosCache InterleaveRope KvRmsNormRopeCache FlashAttentionScore FlashAttentionScoreV2
FlashAttentionVarLenScoreV3 FlashAttentionScoreGrad FlashAttentionUnpaddingScoreGradV3 MlaProlog MoeDistributeDispatch
MoeDistributeCombine MoeDistributeDispatchV2 AlltoAllvGroupedMatMul GroupedMatMulAlltoAllv MatmulReduceScatter
AllGatherMatmul AlltoAllAllGatherBatchMatMul BatchMatMulReduceScatterAlltoAll MoeReRouting"""


@pytest.mark.parametrize("prefix", ["", "aclnn"])
def test_documented_names_are_known(prefix: str) -> None:
    assert [op for op in ACLNN.split() if lookup(prefix + op) is None] == []


def test_all_families_are_used() -> None:
    assert {known.family for known in table().values()} == set(FAMILIES)


CELL = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"), max_size=12),
    st.sampled_from(["8,8", "[8,8];[8]", "", "1e400", "-1", "nan", "\u0664", "FLOAT;FLOAT -> FLOAT", "Add", "MatMulV3",
                     "GroupedMatmul", "FlashAttentionScore", "Conv2D", "910B2", "0", "0,0;0", "99999999999999999999"]),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(CELL, min_size=1, max_size=10), min_size=1, max_size=4))
def test_any_cells_give_as_many_rows(cells: list[list[str]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(HEADER.split(","))
    writer.writerows(cells)
    out = io.StringIO()
    estimate_table(io.StringIO(text.getvalue(), newline=""), out, "ops.csv")
    written = list(csv.reader(io.StringIO(out.getvalue())))
    assert len(written) == len(cells) + 1
    assert all(len(r) == 8 + len(ADDED) for r in written)
    for given_cells, found in zip(cells, written[1:], strict=True):
        assert found[: min(8, len(given_cells))] == given_cells[:8]
        assert bool(found[8]) != bool(found[12])


def test_repeated_rows_repeat_their_estimate() -> None:
    rows, _ = run(f"{HEADER}\n" + f"{ROW}\n" * 50)
    assert all(a == b for a, b in pairwise(rows)) and len(rows) == 50

"""What rows of the vendor's operators are taken to do: FLOP and bytes worked out by hand."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from moec.targets.ascend.opmodel.chip import load_class, machine_of_class
from moec.targets.ascend.opmodel.constants import constants
from moec.targets.ascend.opmodel.cube import gemm_time, read_again
from moec.targets.ascend.opmodel.elementwise import PASSES, run_of
from moec.targets.ascend.opmodel.predict import predict
from moec.targets.ascend.opmodel.rows_in import read_row
from moec.targets.ascend.opmodel.vendor import FAMILIES, HINTS, describe, lookup, table
from moec.targets.ascend.opmodel.work import Work

GIB = 1 << 30


def work(op: str, ins: str, outs: str, dtypes: str, formats: str = "ND") -> Work:
    row = read_row({"op": op, "input_shapes": ins, "output_shapes": outs, "dtypes": dtypes, "formats": formats})
    return describe(row.op, row.ins, row.outs)


BF = "DT_BF16;DT_BF16 -> DT_BF16"
NZ = "FRACTAL_NZ;FRACTAL_NZ -> FRACTAL_NZ"
CONV = "NC1HWC0;FRACTAL_Z -> NC1HWC0"


@pytest.mark.parametrize(
    ("op", "ins", "outs", "dtypes", "formats", "flops"),
    [
        ("MatMulV3", "128,512;512,64", "128,64", BF, "ND", 2 * 128 * 512 * 64),
        ("MatMulV3", "128,512;64,512", "128,64", BF, "ND", 2 * 128 * 512 * 64),
        ("MatMulV2", "512,128;512,64", "128,64", BF, "ND", 2 * 128 * 512 * 64),
        ("MatMulV2", "32,8,16,16;4,32,16,16", "4,8,16,16", BF, NZ, 2 * 128 * 512 * 64),
        ("BatchMatMul", "8,16,128,64;8,16,64,128", "8,16,128,128", BF, "ND", 2 * 128 * 128 * 128 * 64),
        ("BatchMatMul", "8,128,64;64,256", "8,128,256", BF, "ND", 2 * 8 * 128 * 256 * 64),
        ("GroupedMatmul", "4096,1024;16,1024,512;16", "4096,512", "DT_BF16;DT_BF16;INT64 -> DT_BF16", "ND",
         2 * 4096 * 1024 * 512),
        ("GroupedMatmul", "4096,1024;16,512,1024;16", "4096,512", "DT_BF16;DT_BF16;INT64 -> DT_BF16", "ND",
         2 * 4096 * 1024 * 512),
        ("Conv2D", "32,4,56,56,16;36,8,16,16", "32,8,56,56,16", "FLOAT16;FLOAT16 -> FLOAT16", CONV,
         2 * 32 * 56 * 56 * 128 * 64 * 9),
        ("Conv2D", "32,64,56,56;128,64,3,3", "32,128,56,56", "FLOAT16;FLOAT16 -> FLOAT16", "NCHW",
         2 * 32 * 3136 * 128 * 576),
        ("Conv2DBackpropInput", "36,8,16,16;32,8,56,56,16", "32,4,56,56,16", "FLOAT16;FLOAT16 -> FLOAT16",
         "FRACTAL_Z;NC1HWC0 -> NC1HWC0", 2 * 32 * 56 * 56 * 128 * 64 * 9),
        ("Conv2DBackpropFilter", "32,4,56,56,16;32,8,56,56,16", "36,8,16,16", "FLOAT16;FLOAT16 -> FLOAT",
         "NC1HWC0;NC1HWC0 -> FRACTAL_Z", 2 * 32 * 56 * 56 * 128 * 64 * 9),
    ],
)  # fmt: skip
def test_flop_of_products(op: str, ins: str, outs: str, dtypes: str, formats: str, flops: int) -> None:
    assert work(op, ins, outs, dtypes, formats).flops == flops


STATISTICS = ";1,16,1024,8;1,16,1024,8"
FLASH = "DT_BF16;DT_BF16;DT_BF16"


@pytest.mark.parametrize(
    ("ins", "outs"),
    [
        ("1024,1,2048;1024,1,512;1024,1,512", "1024,1,2048" + STATISTICS),  # SBH, four heads of keys
        ("1,1024,2048;1,1024,512;1,1024,512", "1,1024,2048" + STATISTICS),  # BSH
        ("1,16,1024,128;1,4,1024,128;1,4,1024,128", "1,16,1024,128" + STATISTICS),  # BNSD
        ("1,1024,16,128;1,1024,4,128;1,1024,4,128", "1,1024,16,128" + STATISTICS),  # BSND
        ("1024,16,128;1024,4,128;1024,4,128", "1024,16,128;1024,16,8;1024,16,8"),  # TND
    ],
)
def test_layouts_of_attention(ins: str, outs: str) -> None:
    """Sixteen heads of 128 over 1024 queries and keys: two products, 4 x 16 x 1024 x 1024 x 128 FLOP."""
    found = work("FlashAttentionScore", ins, outs, f"{FLASH} -> DT_BF16;FLOAT;FLOAT")
    assert found.flops == 4 * 16 * 1024 * 1024 * 128
    masked = work("FlashAttentionScore", ins + ";2048,2048", outs, f"{FLASH};BOOL -> DT_BF16;FLOAT;FLOAT")
    assert 0.5 < masked.flops / found.flops < 0.6


def test_absent_operands_are_left_out() -> None:
    """An optional operand that is not given has an undefined dtype."""
    with_holes = work("FlashAttentionScore", "64,1,128;64,1,128;64,1,128;;;;2048,2048",
                      "1,1,64,8;1,1,64,8;;64,1,128",
                      FLASH + 3 * ";DT_UNDEFINED" + ";BOOL -> FLOAT;FLOAT;DT_BF16;DT_BF16")  # fmt: skip
    assert with_holes.reads == 3 * 64 * 128 * 2 + 2048 * 2048


def test_bytes_of_what_moves() -> None:
    assert work("TensorMove", "1024,1024", "1024,1024", "FLOAT -> FLOAT").moved == 8 << 20
    assert work("ZerosLike", "1024,1024", "1024,1024", "FLOAT -> FLOAT").moved == 4 << 20
    assert work("ReduceSum", "1024,1024;1", "1024", "FLOAT;INT64 -> FLOAT").moved == (4 << 20) + 4096 + 8
    sliced = work("Slice", "1024,4096;2;2", "1024,1024", "FLOAT;INT64;INT64 -> FLOAT")
    assert (sliced.reads, sliced.writes) == (4 << 20, 4 << 20)
    assert work("ConcatD", "1024,512;1024,512", "1024,1024", "FLOAT;FLOAT -> FLOAT").moved == 8 << 20
    embedded = work("GatherV2", "100000,1024;4096;1", "4096,1024", "FLOAT16;INT64;INT64 -> FLOAT16")
    assert embedded.moved == 2 * (4096 * 1024 * 2) + 4096 * 8 + 8


@pytest.mark.parametrize(
    ("part", "whole", "run"),
    [
        ((4096, 1), (4096, 64), 64),
        ((64,), (4096, 64), 64),
        ((8, 16, 1, 1), (8, 16, 7, 5), 35),
        ((1, 1, 32, 32), (2, 4, 32, 32), 1024),
        ((2, 1, 32), (2, 4, 32), 32),
        ((2, 4, 1), (2, 4, 32), 32),
        ((1,), (), 1),
    ],
)
def test_runs_of_a_broadcast(part: tuple[int, ...], whole: tuple[int, ...], run: int) -> None:
    assert run_of(part, whole) == run


def test_state_of_an_optimizer_comes_from_hbm_and_activations_may_not() -> None:
    update = work("ApplyAdamWV2", "4194304;4194304;4194304;4194304", "4194304;4194304;4194304",
                  "FLOAT;FLOAT;FLOAT;FLOAT -> FLOAT;FLOAT;FLOAT")  # fmt: skip
    assert update.cold == update.moved == 7 << 24
    assert work("Add", "4096,1024;4096,1024", "4096,1024", BF).cold == 0
    main_gradient = work("Add", "4096,1024;4096,1024", "4096,1024", "FLOAT;DT_BF16 -> FLOAT")
    assert main_gradient.cold == 2 * 4096 * 1024 * 4


def test_weights_of_a_single_row_are_read_from_hbm() -> None:
    chip = load_class("910B2-class(24AIC@1800MHz)")
    assert chip is not None
    one = work("MatMulV2", "1,7168;7168,2048", "1,2048", BF)
    assert one.cold == 7168 * 2048 * 2
    assert predict(one, chip).us > one.cold / chip.hbm_peak * 1e6


def test_a_side_that_is_stored_across_k_is_read_in_short_rows() -> None:
    """As in products of weight gradients: [k, m] against [m, k]."""
    chip = load_class("910B4-class(20AIC@1650MHz)")
    assert chip is not None
    plain = work("MatMulV3", "1024,4096;4096,3072", "1024,3072", BF)
    across = work("MatMulV3", "4096,1024;4096,3072", "1024,3072", BF)
    one, other = (gemm_time(w.gemms[0], chip, 20, constants()) for w in (plain, across))
    assert 1.05 < other.load / one.load < 1.6
    assert (plain.cold, across.cold) == (4096 * 3072 * 2, 0)  # weights; two activations of a gradient


def test_operands_beyond_the_l2_are_read_again_for_each_block_of_the_result() -> None:
    """8192^3 of 16 bits on 24 cores: two of 128 MiB; blocks of 4915 of its rows and columns fit into 0.8 of 192 MiB."""
    chip = load_class("910B1(24AIC@1850MHz)")
    assert chip is not None
    (large,) = work("Matmul", "8192,8192;8192,8192", "8192,8192", "FLOAT16;FLOAT16 -> FLOAT16").gemms
    assert read_again(large, chip, 24, constants()) == pytest.approx(2 * (128 << 20) * (8192 / 4915.2 - 1))
    (small,) = work("Matmul", "4096,1024;1024,2048", "4096,2048", BF).gemms
    assert read_again(small, chip, 24, constants()) == 0.0


def test_rows_that_no_load_can_change_to_fractals_are_converted_before() -> None:
    long = work("MatMulV3", "256,70000;70000,512", "256,512", BF)
    assert long.before is not None and long.before.moved == 2 * 256 * 70000 * 2
    assert work("MatMulV3", "256,65535;65535,512", "256,512", BF).before is None
    chip = load_class("910B2")
    assert chip is not None
    assert predict(long, chip).us > predict(replace(long, before=None), chip).us + 10


def test_groups_of_all_sizes_have_a_last_tile_half_full_in_the_mean() -> None:
    chip = load_class("910B2")
    assert chip is not None
    (groups,) = work("GroupedMatmul", "4096,7168;16,7168,2048;16", "4096,2048",
                     "DT_BF16;DT_BF16;INT64 -> DT_BF16").gemms  # fmt: skip
    assert groups.uneven and groups.m == 256
    even = gemm_time(replace(groups, uneven=False), chip, 24, constants())
    assert 1.05 < gemm_time(groups, chip, 24, constants()).load / even.load < 1.3


def test_what_a_fused_name_adds_is_done_by_vector_cores() -> None:
    plain, fused = (work(op, "512,512;512,512", "512,512", BF) for op in ("MatMulV3", "MatmulGelu"))
    assert plain.vector == 0 and fused.vector == PASSES["gelu"] * 512 * 512 / 64
    scaled = work("QuantGroupedMatmul+Gelu", "512,512;4,512,512;4", "512,512", "INT8;INT8;INT64 -> FLOAT16")
    assert scaled.vector == (PASSES["gelu"] + 5) * 512 * 512 / 64


def test_a_convolution_loads_an_element_once_for_all_its_kernel_places() -> None:
    plain = work("Conv2D", "64,64,56,56;64,64,3,3", "64,64,56,56", "FLOAT16;FLOAT16 -> FLOAT16", "NCHW")
    blocked = work("Conv2D", "64,4,56,56,16;36,4,16,16", "64,4,56,56,16", "FLOAT16;FLOAT16 -> FLOAT16", CONV)
    assert plain.gemms[0].a_uses == blocked.gemms[0].a_uses == 9
    chip = load_class("910B2-class(24AIC@1800MHz)")
    assert chip is not None
    once, again = plain.gemms[0], replace(plain.gemms[0], a_uses=1)
    assert gemm_time(once, chip, 24, constants()).load < 0.6 * gemm_time(again, chip, 24, constants()).load


def test_names_with_versions_and_prefixes() -> None:
    assert lookup("MatMulV7") is lookup("MatMul")
    assert lookup("aclnnRmsNorm") is lookup("RmsNorm") is not None
    assert lookup("ForeachMulScalar") is not None
    assert lookup("NobodyKnowsThis") is None
    assert len(table()) > 300


def test_a_name_that_nobody_listed_says_something() -> None:
    product = work("SomeFusedMatMulBiasGelu", "128,512;512,64", "128,64", BF)
    assert (product.kind, product.flops) == ("unknown", 2 * 128 * 512 * 64)
    misfit = work("MatMulOfTomorrow", "128,512;17", "128,64", BF)
    assert (misfit.kind, misfit.flops) == ("unknown", 0)
    assert (
        work("TopKOfTomorrow", "128,512", "128,8", "FLOAT -> FLOAT").vector
        > work("NobodyKnowsThis", "128,512", "128,8", "FLOAT -> FLOAT").vector
    )


def test_every_hint_leads_to_a_description() -> None:
    for pattern, family, kind in HINTS:
        assert re.compile(pattern) and callable(FAMILIES[family](kind)), pattern


def test_a_collective_is_no_kernel() -> None:
    with pytest.raises(ValueError, match="its ranks are not stated"):
        work("hcom_allReduce_", "1024", "1024", "FLOAT -> FLOAT")


@pytest.mark.parametrize(
    ("text", "machine"),
    [
        ("910B4-class(20AIC@1650MHz)", "ascend910b4"),
        ("910B1(24AIC@1850MHz)", "ascend910b1"),
        ("910B2-class(24AIC@1800MHz)", "ascend910b2"),
        ("Ascend910B3", "ascend910b3"),
        ("A2/A3 24AIC (1.85GHz class)", "ascend910b1"),
        ("Ascend910_9382", "ascend910_9381"),
        ("A3 (910C)", "ascend910_9381"),
        ("20AIC@1800MHz", "ascend910b3"),
        ("910B2C", "ascend910b2"),
        ("H100", None),
    ],
)
def test_chip_classes(text: str, machine: str | None) -> None:
    assert machine_of_class(text) == machine

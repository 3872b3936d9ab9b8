"""The cycle model counts the instructions, bytes and FLOP that the emitted kernel executes on the CPU model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from ascend_run import built_kernel, executed

from moec.codegen.capacities import Capacities
from moec.codegen.kernels.grouped import Grouped, grouped_matmul_kernel
from moec.codegen.kernels.matmul import Product, matmul_kernel
from moec.codegen.tiling import CubeTile
from moec.targets.ascend.machine import Machine, load
from moec.targets.ascend.model.scenario import Scenario
from moec.targets.ascend.model.simulate import simulate

CAPS = Capacities(aic=2, aiv=2)
CALLS = (("MTE2", "Nd2Nz"), ("MTE1", "LoadData"), ("M", "Mmad"), ("FIX", "Fixpipe"))


def two_cores() -> Machine:
    b1 = load("ascend910b1")
    return replace(b1, figures={**b1.figures, "cores.aic": replace(b1.figures["cores.aic"], value=2)})


def test_matmul(tmp_path: Path) -> None:
    kernel = matmul_kernel("mm", CAPS, CubeTile(32, 32, 64, 32, 2), Product(None, 50, 100, 1, "f32", "f32"))
    arrays = {"a": np.ones((1, 70, 100), np.float32), "b": np.ones((1, 50, 100), np.float32)}
    ran = executed(built_kernel(kernel, tmp_path), arrays, {"M": 70})
    model = simulate(kernel, two_cores(), {"M": 70})
    assert model.blocks == 2
    assert {op: ran[pipe, op]["count"] for pipe, op in CALLS} == dict(model.instructions)
    assert model.flops == 2 * ran["M", "Mmad"]["mnk"] == 2 * 70 * 50 * 100
    assert model.path_bytes["GM->L1"] == ran["MTE2", "Nd2Nz"]["bytes"]
    assert model.path_bytes["L1->L0A"] + model.path_bytes["L1->L0B"] == ran["MTE1", "LoadData"]["bytes"]
    assert model.path_bytes["L0C->GM"] == ran["FIX", "Fixpipe"]["bytes"]


def test_grouped_matmul_with_empty_experts(tmp_path: Path) -> None:
    kernel = grouped_matmul_kernel("gmm", CAPS, CubeTile(32, 48, 64, 32, 1), Grouped(4, 75, 90, "bf16", "f32"))
    counts = [33, 0, 1, 70]
    arrays = {
        "rows": np.ones((104, 90), "bfloat16"),
        "w": np.ones((4, 75, 90), "bfloat16"),
        "counts": np.array(counts, np.int32),
    }
    ran = executed(built_kernel(kernel, tmp_path), arrays, {"S": 104})
    model = simulate(kernel, two_cores(), {"S": 104}, Scenario({"counts": counts}))
    assert {op: ran[pipe, op]["count"] for pipe, op in CALLS} == dict(model.instructions)
    assert model.flops == 2 * ran["M", "Mmad"]["mnk"]
    assert model.path_bytes["GM->L1"] == ran["MTE2", "Nd2Nz"]["bytes"]
    assert model.hbm_bytes == (104 * 90 + 3 * 75 * 90) * 2 + 104 * 75 * 4  # three of four experts' weights


def test_gathered_rows_of_a_kept_operand(tmp_path: Path) -> None:
    """34 rows of 2 experts, 96 columns in blocks of two tiles: each row is copied once, the weights once a tile."""
    tile = CubeTile(32, 48, 96, 32, 2, 32, keep="a", block_n=96)
    kernel = grouped_matmul_kernel("gmm", CAPS, tile, Grouped(2, 96, 90, "bf16", "f32", gathered_hi=1000))
    counts, source = [33, 1], [(7 * i) % 20 for i in range(34)]
    arrays = {
        "rows": np.ones((20, 90), "bfloat16"),
        "w": np.ones((2, 96, 90), "bfloat16"),
        "counts": np.array(counts, np.int32),
        "source": np.array(source, np.int32),
    }
    sizes = {"S": 34, "R": 20}
    ran = executed(built_kernel(kernel, tmp_path), arrays, sizes)
    model = simulate(kernel, two_cores(), sizes, Scenario({"counts": counts, "source": source}))
    assert {op: ran[pipe, op]["count"] for pipe, op in CALLS} == dict(model.instructions)
    assert model.instructions["Nd2Nz"] == 34 + 3 * 2 * 3  # rows; row tiles, column tiles and pieces of K of the weights
    assert model.path_bytes["GM->L1"] == ran["MTE2", "Nd2Nz"]["bytes"] == (34 * 90 + 3 * 96 * 90) * 2


def test_parts_of_k(tmp_path: Path) -> None:
    """512 of K in two parts: as many bytes in as unsplit, and two results out."""
    tile = CubeTile(32, 32, 64, 32, 2, splits=2)
    kernel = matmul_kernel("mm", CAPS, tile, Product(32, 32, 512, 1, "f16", "f32"))
    arrays = {name: np.ones((1, 32, 512), np.float16) for name in ("a", "b")}
    ran = executed(built_kernel(kernel, tmp_path), arrays, {})
    model = simulate(kernel, two_cores(), {})
    assert model.blocks == 2
    assert {op: ran[pipe, op]["count"] for pipe, op in CALLS} == dict(model.instructions)
    assert model.flops == 2 * ran["M", "Mmad"]["mnk"] == 2 * 32 * 32 * 512
    assert model.path_bytes["GM->L1"] == ran["MTE2", "Nd2Nz"]["bytes"] == 2 * 32 * 512 * 2
    assert model.path_bytes["L0C->GM"] == ran["FIX", "Fixpipe"]["bytes"] == 2 * 32 * 32 * 4

"""What the kernel IR says is issued is what the CPU model executes, and both are what a count by hand gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from ascend_run import built_kernel, executed, issued

from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import Witness
from moec.codegen.kernels.grouped import Grouped, grouped_matmul_kernel
from moec.codegen.kernels.matmul import Product, matmul_kernel
from moec.codegen.tiling import CubeTile

CAPS = Capacities(aic=2, aiv=2)


def test_matmul_by_hand(tmp_path: Path) -> None:
    """[40, 96] by [32, 96] in tiles of 32 x 32, 64 of K in L1, 32 in L0, on 2 cores.

    2 tiles (32 and 8 rows), K in L1 steps of 64 and 32, so 4 L1 loads a tile; L0 steps 2 + 1 = 3 a tile. An L0 step of
    32 f32 is 4 columns of 8, so 4 loads of A and 1 of B. Rows of a tile are padded to 32 and 16.
    """
    kernel = matmul_kernel("mm", CAPS, CubeTile(32, 32, 64, 32, 2), Product(None, 32, 96, 1, "f32", "f32"))
    arrays = {"a": np.ones((1, 40, 96), np.float32), "b": np.ones((1, 32, 96), np.float32)}
    ran = executed(built_kernel(kernel, tmp_path), arrays, {"M": 40})
    assert ran["MTE2", "Nd2Nz"]["count"] == 2 * 4
    assert ran["MTE2", "Nd2Nz"]["bytes"] == (32 + 32 + 8 + 32) * 96 * 4
    assert ran["MTE1", "LoadData"]["count"] == 2 * 3 * (4 + 1)
    assert ran["MTE1", "LoadData"]["bytes"] == (32 + 32 + 16 + 32) * 96 * 4
    assert ran["M", "Mmad"]["count"] == 2 * 3
    assert ran["M", "Mmad"]["mnk"] == (32 + 8) * 32 * 96
    assert ran["FIX", "Fixpipe"]["count"] == 2
    assert ran["FIX", "Fixpipe"]["bytes"] == (32 + 8) * 32 * 4
    # barriers: tiles of 4 and 2 fractals are below 10, one before each Mmad
    assert ran["M", "PipeBarrier"]["count"] == 2 * 3
    assert {k: c for k, (c, _) in issued(kernel, Witness((("M", 40),), 2)).items()} == {
        k: i["count"] for k, i in ran.items()
    }


def test_grouped_matmul_counts_agree(tmp_path: Path) -> None:
    tile = CubeTile(32, 48, 64, 32, 1)
    kernel = grouped_matmul_kernel("gmm", CAPS, tile, Grouped(4, 75, 90, "bf16", "f32"))
    counts = [33, 0, 1, 70]
    rows, w = np.ones((104, 90), "bfloat16"), np.ones((4, 75, 90), "bfloat16")
    arrays = {"rows": rows, "w": w, "counts": np.array(counts, np.int32)}
    ran = executed(built_kernel(kernel, tmp_path), arrays, {"S": 104})
    planned = issued(kernel, Witness((("S", 104),), 2, (("counts", tuple(counts)),)))
    assert {k: c for k, (c, _) in planned.items()} == {k: i["count"] for k, i in ran.items()}
    for moved in (("MTE2", "Nd2Nz"), ("MTE1", "LoadData"), ("FIX", "Fixpipe"), ("S", "GetValue")):
        assert planned[moved][1] == ran[moved]["bytes"]

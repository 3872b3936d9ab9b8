"""Instructions of sorting and folding kernels: a count by hand, the kernel IR and a run on the CPU model agree."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from ascend_run import issued
from vector_moves import module
from vector_run import Layer

from moec.codegen.kernel_ir import Witness
from moec.codegen.program import Launch
from moec.codegen.scalar import Env, evaluate
from moec.ir.symbol import evaluate as number

LINES = [
    ("argsort(%x) {axis = 1, descending = true}", "i64[2, T]"),
    ("reduce_sum(%i) {axes = [1], keepdims = false}", "i64[T]"),
    ("reduce_max(%i) {axes = [0], keepdims = false}", "i64[9]"),
    ("argmax(%x) {axis = 1, keepdims = false, last = false}", "i64[2]"),
]
BY_HAND = [
    # two rows of one block: fetched, keys and places made, NaN looked for, 512 lanes sorted in runs of 32, merged to
    # 128 and 512, copied through the last two levels; records to the workspace and back, split, widened, stored
    {"MTE2 DataCopyPad": 4, "V Duplicate": 2, "V Muls": 2, "V Compare": 2, "V Select": 2, "V ArithProgression": 2,
     "V Sort32": 2, "V MrgSort": 4, "V DataCopy": 4, "V GatherMask": 2, "V Cast": 2, "MTE3 DataCopyPad": 4,
     "S SyncAll": 2},
    # five rows on three cores: each narrowed, added to zeros, halved once; eight lanes read, one number written
    {"MTE2 DataCopyPad": 5, "V Duplicate": 5, "V Cast": 5 + 3, "V Add": 10, "S GetValue": 40, "S SetValue": 5,
     "MTE3 DataCopyPad": 3},
]  # fmt: skip


@pytest.mark.slow
def test_three_counts_agree(tmp_path: Path) -> None:
    """Where a merge takes its records from is in the data: of equal ones it takes those that stand first."""
    layer = Layer(module("%x: f32[2, T], %i: i64[T, 9]", LINES, "T in [1, 100000]"), tmp_path, cores=3)
    kernels = {k.name: k for k in layer.program.kernels}
    launches = [s for s in layer.program.steps if isinstance(s, Launch)]
    for t in (5, 700, 9000):
        stats = tmp_path / "stats.json"
        arrays = {"x": np.zeros((2, t), np.float32), "i": np.ones((t, 9), np.int64)}
        layer.run(arrays, MOEC_CPU_STATS=str(stats))
        ran = json.loads(stats.read_text())["launches"]
        for n, (launch, got) in enumerate(zip(launches, ran, strict=True)):
            kernel = kernels[launch.kernel]
            args = {name: number(dim, {"T": t}) for name, dim in launch.args}
            cores = max(1, min(3, int(evaluate(kernel.blocks, Env({}, args, {})))))
            planned = issued(kernel, Witness(tuple(args.items()), cores))
            have = {(i["pipe"], i["op"]): i["count"] for i in got["instructions"]}
            assert {k: count for k, (count, _) in planned.items()} | {
                k: count for k, count in have.items() if k[1] == "SyncAll"
            } == have, kernel.name
            if t == 5 and n < len(BY_HAND):
                flags = ("SetFlag", "WaitFlag", "PipeBarrier")
                small = {f"{pipe} {op}": count for (pipe, op), count in have.items() if op not in flags}
                assert small == BY_HAND[n], kernel.name

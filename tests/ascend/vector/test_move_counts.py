"""Instructions of kernels that move rows: a count by hand, the kernel IR and a run on the CPU model agree."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from ascend_run import issued
from vector_moves import module
from vector_run import Layer, numbers

from moec.codegen.kernel_ir import Witness
from moec.codegen.program import Launch
from moec.codegen.scalar import Env, evaluate
from moec.ir.symbol import evaluate as number

pytestmark = pytest.mark.slow  # a build for every site or choice

LINES = [
    ("slice(%x) {axis = 2, start = 3, stop = 8, step = 1}", "f32[2, T, 5]"),
    ("transpose(%x) {perm = [0, 2, 1]}", "f32[2, 9, T]"),
    ('rope(%h, %c, %c) {rotary_dim = 8, layout = "half"}', "f32[T, 8]"),
    ("gather(%h, %i) {axis = 0}", "f32[7, 8]"),
    ("iota() {size = T, dtype = !i64}", "i64[T]"),
]
GIVEN = "%x: f32[2, T, 9], %h: f32[T, 8], %c: f32[T, 4], %i: i64[7]"
BY_HAND = [
    # 10 rows of 5 columns in one copy
    {"MTE2 DataCopyPad": 1, "MTE3 DataCopyPad": 1},
    # two matrices, 9 columns each
    {"MTE2 DataCopyPad": 2, "V ArithProgression": 1, "V Gather": 18, "MTE3 DataCopyPad": 2},
    # six buffers filled; both halves and two tables fetched; 4 products, their difference and sum, 2 copies to store
    {"V Duplicate": 6, "MTE2 DataCopyPad": 4, "V Mul": 4, "V Sub": 1, "V Add": 1, "V Muls": 2, "MTE3 DataCopyPad": 2},
    # the indices, a row for each
    {"MTE2 DataCopyPad": 1 + 7, "S GetValue": 7, "MTE3 DataCopyPad": 1},
    {"V ArithProgression": 1, "V Cast": 1, "MTE3 DataCopyPad": 1},
]


def test_three_counts_agree(tmp_path: Path) -> None:
    layer = Layer(module(GIVEN, LINES, "T in [1, 5000]"), tmp_path, cores=3)
    rng = np.random.default_rng(0)
    for t in (5, 700):
        arrays = {"x": numbers(rng, (2, t, 9), "f32"), "h": numbers(rng, (t, 8), "f32")}
        arrays |= {"c": numbers(rng, (t, 4), "f32"), "i": rng.integers(0, t, 7)}
        stats = tmp_path / "stats.json"
        layer.run(arrays, MOEC_CPU_STATS=str(stats))
        ran = json.loads(stats.read_text())["launches"]
        launches = [s for s in layer.program.steps if isinstance(s, Launch)]
        kernels = {k.name: k for k in layer.program.kernels}
        assert len(ran) == len(launches) == len(LINES)
        for launch, got, hand in zip(launches, ran, BY_HAND, strict=True):
            kernel = kernels[launch.kernel]
            args = {name: number(dim, {"T": t}) for name, dim in launch.args}
            cores = min(3, int(evaluate(kernel.blocks, Env({}, args, {}))))
            planned = issued(kernel, Witness(tuple(args.items()), cores))
            have = {(i["pipe"], i["op"]): (i["count"], i["bytes"]) for i in got["instructions"]}
            assert {k: n for k, (n, _) in planned.items()} == {k: n for k, (n, _) in have.items()}, kernel.name
            for key, (_, size) in planned.items():
                if key[1] == "DataCopyPad":
                    assert have[key][1] == size, (kernel.name, key)
            if t == 5:
                flags = ("SetFlag", "WaitFlag", "PipeBarrier")
                small = {f"{pipe} {op}": n for (pipe, op), (n, _) in have.items() if op not in flags}
                assert small == hand, kernel.name

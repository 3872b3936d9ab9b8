"""Estimates of the operator model as they stand. A change here needs a new ``OP_MODEL_VERSION`` and its reason in the
commit.
"""

from __future__ import annotations

from collections.abc import Callable

from moec.targets.ascend.machine import load
from moec.targets.ascend.opmodel.chip import chip_of
from moec.targets.ascend.opmodel.constants import OP_MODEL_VERSION
from moec.targets.ascend.opmodel.host import host_calls
from moec.targets.ascend.opmodel.links import COLLECTIVES, collective_us
from moec.targets.ascend.opmodel.rows_in import read_row
from moec.targets.ascend.opmodel.table import estimate_row

BF, F = "DT_BF16", "FLOAT"
ROWS = [
    ("MatMulV3", "4096,7680;7680,2048", "4096,2048", f"{BF};{BF} -> {BF}"),
    ("MatMulV2", "1,7168;7168,2048", "1,2048", f"{BF};{BF} -> {BF}"),
    ("GroupedMatmul", "32768,7168;64,7168,2048;64", "32768,2048", f"{BF};{BF};INT64 -> {BF}"),
    ("FlashAttentionScore", "1,32,4096,128;1,8,4096,128;1,8,4096,128;2048,2048",
     "1,32,4096,8;1,32,4096,8;1,32,4096,128", f"{BF};{BF};{BF};BOOL -> {F};{F};{BF}"),
    ("RmsNorm", "4096,7680;7680", "4096,7680;4096", f"{BF};{BF} -> {BF};{F}"),
    ("SwiGluGrad", "4096,2048;4096,4096", "4096,4096", f"{BF};{BF} -> {BF}"),
    ("MoeGatingTopK", "4096,256;256", "4096,8;4096,8", f"{F};{F} -> {F};INT32"),
    ("MoeTokenPermute", "4096,7168;4096,8", "32768,7168;32768", f"{BF};INT32 -> {BF};INT32"),
    ("Cast", "4096,7680", "4096,7680", f"{BF} -> {F}"),
    ("Transpose", "4096,7680;2", "7680,4096", f"{BF};INT64 -> {BF}"),
    ("ApplyAdamWV2", "16777216;16777216;16777216;16777216", "16777216;16777216;16777216",
     f"{F};{F};{F};{F} -> {F};{F};{F}"),
    ("TopKV2", "4096,256;1", "4096,8;4096,8", f"{F};INT32 -> {F};INT32"),
    ("Add", "1;1", "1", f"{F};{F} -> {F}"),
    ("NobodyKnowsThis", "4096,4096", "4096,4096", f"{BF} -> {BF}"),
]  # fmt: skip


def test_operators(golden: Callable[[str], None]) -> None:
    lines = [f"model {OP_MODEL_VERSION}"]
    for op, ins, outs, dtypes in ROWS:
        row = read_row({"op": op, "input_shapes": ins, "output_shapes": outs, "dtypes": dtypes})
        lines += ["", f"{op} {ins}"]
        for name in ("ascend910b1", "ascend910b4", "ascend910_9391"):
            e, _ = estimate_row(row, chip_of(load(name)))
            p = e.prediction
            lines.append(f"{name:16} {p.us:>9.2f} us {e.low_us:>9.2f} to {e.high_us:>9.2f} by {p.bound}")
    golden("\n".join(lines) + "\n")


def test_collectives_and_host_calls(golden: Callable[[str], None]) -> None:
    lines = [f"model {OP_MODEL_VERSION}", "", "microseconds of 16 MiB a rank: ranks / ranks a node"]
    for op in COLLECTIVES:
        for name in ("ascend910b1", "ascend910_9391"):
            times = [collective_us(load(name), op, 1 << 24, n, 8) for n in (2, 8, 16, 64)]
            lines.append(f"{op:15} {name:15}" + "".join(f"{us:>10.1f}" for us in times))
    lines += ["", "host calls, us", *(f"{name:12} {call.us:>6.1f}" for name, call in host_calls().items())]
    golden("\n".join(lines) + "\n")

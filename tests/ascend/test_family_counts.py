"""One small case of every family of kernels: calls and bytes as counted by hand, by the CPU model, by the kernel IR and
by the cycle model.

By hand, everything below is of 3 rows of 8 f32 (32 bytes a row, 96 in all) on one core, so each operand that is used
whole comes in one copy. What is written down is (copies, bytes) of MTE2 and MTE3 and the calls that do the work.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from counted import disagreements, integers, run_counted
from family_cases import CASES, arrays, text
from vector_run import Layer

from moec.codegen.lower.base import FAMILIES, RULES, load_rules

SUMMED = ("attention", "attention_grad")
"""Cases that are counted over all of their launches; of the others the last launch is."""
WITHOUT = {"collectives", "host", "swap", "views"}
"""Families that launch nothing."""


def family(call: str) -> str:
    """The module of ``moec.codegen.lower`` that lowers the op."""
    return RULES[call.split("(")[0]].__module__.rsplit(".", 1)[1]


def test_every_family_has_a_case() -> None:
    load_rules()
    assert {family(call) for call, _, _ in CASES} | WITHOUT == set(FAMILIES)


@pytest.mark.slow
def test_four_counts_agree(tmp_path: Path) -> None:
    load_rules()
    layer, given, sizes = Layer(text(), tmp_path, cores=1), arrays(), {"T": 3, "R": 3}
    got, ran = run_counted(layer.project, given, sizes, tmp_path, MOEC_CPU_STRICT="1")
    assert disagreements(layer.program, sizes, ran, integers(layer.program, given, got)) == []
    launches = list(zip(layer.program.launches(), ran, strict=True))
    for line, (call, _, hand) in enumerate(CASES, 4):  # the text has three lines before the first call
        op = call.split("(")[0]
        mine = [r for launch, r in launches if launch.nodes[0].startswith(f"{op} (<text>:{line} ")]
        rows: Counter[str] = Counter()
        for launched in mine if op in SUMMED else mine[-1:]:
            for i in launched["instructions"]:
                rows[f"{i['pipe']} {i['op']}"] += i["count"]
                rows[i["pipe"]] += i["count"] if i["bytes"] else 0
                rows[f"{i['pipe']} bytes"] += i["bytes"]
                rows["mnk"] += i["mnk"]
        have = {k: (rows[k], rows[f"{k} bytes"]) if isinstance(n, tuple) else rows[k] for k, n in hand.items()}
        assert have == hand, op


def test_a_count_that_is_off_is_named(tmp_path: Path) -> None:
    layer = Layer(
        "func main(%x: f32[3, 8]) -> (y: f32[3, 8]) {\n  %y = exp(%x) : f32[3, 8]\n  return %y\n}\n", tmp_path
    )
    _, ran = run_counted(layer.project, {"x": np.ones((3, 8), np.float32)}, {}, tmp_path)
    moved = next(i for i in ran[0]["instructions"] if i["pipe"] == "MTE2")
    for key in ("count", "bytes"):
        moved[key] += 1
        (found,) = disagreements(layer.program, {}, ran, {})
        assert "vector_exp" in found and "MTE2" in found
        moved[key] -= 1

"""Full-size layers as one of their ranks runs them, forward and backward: every op has kernels whose tiles fit, every
launch is timed, and a rank's tensors fit into the chip's memory.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from moec import driver
from moec.codegen.arena import place, temporaries
from moec.ir.symbol import evaluate
from moec.targets.ascend.machine import load

pytestmark = pytest.mark.slow  # most of a minute each

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
OPS = ("attention_grad", "grouped_matmul_dw", "gating_grad", "all_to_all_v")


@pytest.mark.parametrize("name", ["pangu_ultra_moe", "deepseek_v3", "qwen3_235b"])
def test_a_rank_trains_its_layer(name: str) -> None:
    compiled = driver.compile(EXAMPLES / f"{name}_rank.moe", train="")
    program, schedule = compiled.program, compiled.schedule
    assert schedule is not None, compiled.summary["not_lowered"]
    assert len(program.kernels) > 60
    assert all(t.us > 0 and t.us >= t.launch_us for t in schedule.kernels)
    for op in OPS:
        assert any(node.startswith(op) for t in schedule.kernels for node in t.nodes), op
    assert {"d_x", "d_gate_up", "d_down", "d_router"} <= {o.name for o in program.outputs}
    kept = sum(evaluate(t.bytes, schedule.sizes) for t in program.tensors if t.kind in ("input", "weight"))
    peak = place(list(temporaries(program, schedule.sizes).values())).peak
    assert 2**30 < kept + peak < load("ascend910b1")["memory.hbm_bytes"]

"""A whole decoder layer, forward and backward, on the CPU model: as it is, and with activations computed again and
parked on the host as a plan says. Both give what the unplanned graph gives in numpy.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from moec import driver
from moec.eval import run
from moec.execute import Project
from moec.ir.symbol import evaluate
from moec.passes.base import Context, PassManager, train_passes
from moec.sources import read

pytestmark = pytest.mark.slow  # a minute each

LAYER = Path(__file__).parents[1] / "data/layers/qwen3_moe_layer_torchscript_batched_mm-eagerattn_dyn_op17.onnx"
SIZES = {"batch": 2, "seq": 5}


@pytest.mark.parametrize(
    ("memory", "fates"),
    [
        ("", set()),
        ("plan-memory{budget=0.00096,in_flight=4,shards=8,sweep=0}", {"keep", "recompute", "swap"}),
    ],
)
def test_a_layer_with_its_plan_applied_gives_the_unplanned_gradients(
    memory: str, fates: set[str], tmp_path: Path
) -> None:
    plain = read(LAYER).module
    PassManager(train_passes()).run(plain, Context(driver.load_target("ascend910b1"), SIZES))
    rng = np.random.default_rng(0)
    given = {
        v.name: rng.standard_normal(tuple(evaluate(d, SIZES) for d in v.type.dims)).astype(np.float32)
        for v in plain.main.inputs
    }
    expected = run(plain, given)
    compiled = driver.compile(LAYER, tmp_path / "out", set=SIZES, train="", memory=memory)
    assert compiled.schedule is not None, compiled.summary["not_lowered"]
    planned = compiled.summary["memory"]
    assert {t["fate"] for t in planned["tensors"]} == fates if planned is not None else not fates
    got = Project(tmp_path / "out").run(given, {"MOEC_CPU_STRICT": "1"})
    assert len(got) == len(expected) == 15
    for name, array in expected.items():
        scale = max(1.0, float(np.abs(array).max()))
        np.testing.assert_allclose(got[name], array, rtol=0, atol=5e-6 * scale, err_msg=name)

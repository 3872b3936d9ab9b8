"""A constant to the power of a tensor, as rope's inverse frequencies are spelt, on the CPU model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from ascend_run import built

from moec.codegen.capacities import Capacities
from moec.codegen.lower import lower_module
from moec.ir.data import ArrayData
from moec.ir.graph import Graph, Module
from moec.ir.types import F32, TensorType
from moec.ops.build import make_node


def test_a_constant_to_the_power_of_a_tensor(tmp_path: Path) -> None:
    graph, module = Graph("main"), Module()
    y = graph.add_input("y", TensorType(F32, (7, 60)))
    base = graph.insert(make_node("constant", [], {"value": ArrayData(np.array(5e5, np.float32), F32)}), None)
    power = graph.insert(make_node("pow", [base.result, y], {}), None)
    graph.set_outputs([power.result], ["z"])
    module.add(graph)
    project = built(lower_module(module, Capacities(aic=2, aiv=3), {}), tmp_path)
    exponents = -np.random.default_rng(0).random((7, 60)).astype(np.float32)
    # y ln(5e5) is up to 13.1, and rounds to 2^-24 of that
    np.testing.assert_allclose(
        project.outputs({"y": exponents}, {})["z"], 5e5 ** exponents.astype(np.float64), rtol=13.1 * 2.0**-23
    )

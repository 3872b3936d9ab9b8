"""Row kernels of a size that only the run tells have a form for rows that fit into a tile and one for longer ones; the
cycle model times either, at sizes for which the other makes no sense.
"""

from __future__ import annotations

import pytest

from moec.ir.graph import Graph, Module
from moec.ir.symbol import sym
from moec.ir.types import DTYPES, TensorType
from moec.ops.build import Builder
from moec.targets.ascend import load_target


@pytest.mark.parametrize("op", ["reduce_mean", "reduce_max"])
def test_rows_of_any_length_are_timed(op: str) -> None:
    module = Module()
    module.symbols["C"] = (1, 1 << 23)
    graph = module.add(Graph("main"))
    x = graph.add_input("x", TensorType(DTYPES["f32"], (3, sym("C"))))
    graph.set_outputs([Builder(graph).node(op, x, axes=(1,), keepdims=False).result], ["y"])
    target = load_target("ascend910b1")
    program = target.lower(module, {"C": 100})
    times = [target.schedule(program, {"C": c}).us for c in (1, 100, 20_000, 1 << 20)]
    assert times == sorted(times) and times[-1] > times[0]

"""Attention and rope written as ONNX run in onnxruntime to the reference's numbers, whatever their attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

from moec.eval import run
from moec.frontend.onnx_export import to_onnx
from moec.ir.graph import Graph, Module
from moec.ir.symbol import sym
from moec.ir.types import BOOL, F32, DType, TensorType
from moec.ops.build import Builder

B, S, P = sym("B"), sym("S"), sym("P")
PLAIN = {"scale": 0.3, "causal": False, "offset": 0, "window": None, "softcap": None, "empty_rows": "zero"}


def _same(module: Module, sizes: dict[str, int]) -> None:
    rng = np.random.default_rng(0)
    feeds = {}
    for v in module.main.inputs:
        shape = [d if isinstance(d, int) else sum(sizes.get(t, 0) for t in str(d).split(" + ")) for d in v.type.dims]
        values: Any = rng.standard_normal(shape)
        if v.type.dtype is BOOL:
            values = rng.random(shape) < 0.6
            values[..., 0, :] = False
        feeds[v.name] = values.astype(v.type.dtype.carrier)
    model = to_onnx(module).SerializeToString()
    (y,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)
    np.testing.assert_allclose(y, run(module, feeds)["y"], rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    "changed, mask, sinks",
    [
        ({}, None, False),
        ({"causal": True, "offset": P}, None, False),
        ({"causal": True, "offset": P, "window": 3, "softcap": 2.0}, None, True),
        ({"window": 2, "empty_rows": "nan"}, F32, False),
        ({}, BOOL, False),
        ({"empty_rows": "nan"}, BOOL, False),
        ({"causal": True}, BOOL, True),
    ],
)
def test_attention(changed: dict[str, Any], mask: DType | None, sinks: bool) -> None:
    module = Module()
    module.symbols |= {"B": (1, 64), "S": (1, 4096), "P": (0, 4096)}
    graph = module.add(Graph("main"))
    q = graph.add_input("q", TensorType(F32, (B, 4, S, 8)))
    parts = [graph.add_input(f"{n}{t}", TensorType(F32, (B, 2, t, w))) for n, w in (("k", 8), ("v", 6)) for t in (P, S)]
    k, v = (Builder(graph).concat(*pair, axis=2) for pair in (parts[:2], parts[2:]))
    given = None if mask is None else graph.add_input("mask", TensorType(mask, (B, 1, S, S + P)))
    more = graph.add_input("sinks", TensorType(F32, (4,))) if sinks else None
    y = Builder(graph).attention(q, k, v, given, more, **{**PLAIN, **changed})
    graph.set_outputs([y], ["y"])
    _same(module, {"B": 2, "S": 5, "P": 3})


@pytest.mark.parametrize("layout", ["half", "interleaved", "interleaved_to_half"])
@pytest.mark.parametrize("rotary, cos, sin", [(8, 4, 4), (4, 2, 4), (8, 8, 4)])
def test_rope(layout: str, rotary: int, cos: int, sin: int) -> None:
    module = Module()
    module.symbols |= {"B": (1, 64), "S": (1, 4096)}
    graph = module.add(Graph("main"))
    x = graph.add_input("x", TensorType(F32, (B, 4, S, 8)))
    tables = [graph.add_input(n, TensorType(F32, (1, 1, S, w))) for n, w in (("cos", cos), ("sin", sin))]
    graph.set_outputs([Builder(graph).rope(x, *tables, rotary_dim=rotary, layout=layout)], ["y"])
    _same(module, {"B": 2, "S": 5})

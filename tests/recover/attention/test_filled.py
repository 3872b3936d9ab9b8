"""Keys that a model assembles by slice assignment are the concatenation of their parts."""

from __future__ import annotations

import numpy as np
import pytest
from attention_spellings import B, S, number

from moec.eval import run
from moec.ir.data import ArrayData
from moec.ir.graph import Graph, Module, Value
from moec.ir.symbol import Dim
from moec.ir.types import F32, I64, TensorType
from moec.ops.build import Builder
from moec.passes.base import PassManager

N, LEFT, RIGHT = 4, 5, 3


def _by_index(b: Builder, data: Value, part: Value, start: int) -> Value:
    """TorchScript: an index for every element."""
    shape = part.type.dims
    columns = []
    for axis, size in enumerate(shape):
        at: Value = b.iota(size=size, dtype=I64)
        if axis == 3 and start:
            at = b.add(at, number(b, start, I64))
        one: list[Dim] = [1] * 4
        one[axis] = size
        wide = b.expand(b.reshape(at, shape=tuple(one)), shape=shape)
        columns.append(b.reshape(wide, shape=(*shape, 1)))
    return b.scatter_nd(data, b.concat(*columns, axis=4), part, reduction="none")  # type: ignore[no-any-return]


def _by_row(b: Builder, data: Value, part: Value, start: int) -> Value:
    """Dynamo: rows of the transposed tensor."""
    perm = (3, 1, 2, 0)
    count = part.type.dims[3]
    assert isinstance(count, int)
    rows = b.constant(value=ArrayData(np.arange(start, start + count).reshape(-1, 1)))
    moved = b.scatter_nd(b.transpose(data, perm=perm), rows, b.transpose(part, perm=perm), reduction="none")
    return b.transpose(moved, perm=perm)  # type: ignore[no-any-return]


def _module(spell: object, starts: tuple[int, int]) -> Module:
    module = Module()
    module.symbols |= {"B": (1, 64), "S": (1, 4096)}
    graph = module.add(Graph("main"))
    b = Builder(graph)
    left, right = (graph.add_input(n, TensorType(F32, (B, N, S, w))) for n, w in (("left", LEFT), ("right", RIGHT)))
    y = b.expand(number(b, 0.0), shape=(B, N, S, LEFT + RIGHT))
    for part, start in zip((left, right), starts, strict=True):
        y = spell(b, y, part, start)  # type: ignore[operator]
    graph.set_outputs([y], ["y"])
    return module


@pytest.mark.parametrize("spell", [_by_index, _by_row])
@pytest.mark.parametrize("starts", [(0, LEFT), (RIGHT, 0)])
def test_slices_side_by_side(spell: object, starts: tuple[int, int]) -> None:
    module = _module(spell, starts)
    rng = np.random.default_rng(0)
    widths = zip(module.main.inputs, (LEFT, RIGHT), strict=True)
    feeds = {v.name: rng.standard_normal((2, N, 3, w)).astype(np.float32) for v, w in widths}
    expected = run(module, feeds)["y"]
    PassManager.parse("canonicalise,fold,recover-attention,canonicalise,dce").run(module)
    assert [n.op for n in module.main] == ["concat"]
    np.testing.assert_array_equal(run(module, feeds)["y"], expected)


@pytest.mark.parametrize("spell", [_by_index, _by_row])
@pytest.mark.parametrize("starts", [(0, LEFT - 1), (1, 0)])
def test_slices_that_meet_or_leave_a_gap(spell: object, starts: tuple[int, int]) -> None:
    module = _module(spell, starts)
    PassManager.parse("canonicalise,fold,recover-attention,canonicalise,dce").run(module)
    assert sum(n.op == "scatter_nd" for n in module.main) == 2

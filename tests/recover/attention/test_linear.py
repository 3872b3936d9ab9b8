"""The recovery of attention and rope looks at each node a bounded number of times, however long the graph is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attention_spellings import CAUSAL, ROPES, B, S, number

from moec.ir.graph import Graph, Module, Node, Value
from moec.ir.types import F32, TensorType
from moec.ops.build import Builder
from moec.passes.base import PassManager


def stacked(layers: int) -> Module:
    """Layers one on the other, all masked by one mask and rotated by one pair of tables."""
    module = Module()
    module.symbols |= {"B": (1, 64), "S": (1, 4096)}
    graph = module.add(Graph("main"))
    b = Builder(graph)
    x: Value = graph.add_input("x", TensorType(F32, (B, 4, S, 8)))
    cos, sin = (graph.add_input(n, TensorType(F32, (1, 1, S, 4))) for n in ("cos", "sin"))
    mask = CAUSAL["iota and where"].build(b, S, S)
    spell = ROPES["rotated halves"][0]
    for _ in range(layers):
        q, k = spell(b, b.tanh(x), cos, sin), spell(b, b.sigmoid(x), cos, sin)
        scores = b.matmul(q, k, transpose_a=False, transpose_b=True)
        p = b.softmax(b.add(b.mul(scores, number(b, 0.3)), mask), axis=3)
        x = b.add(x, b.matmul(p, x, transpose_a=False, transpose_b=False))
    graph.set_outputs([x], ["y"])
    return module


class Counter:
    """Counts reads of nodes' operands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.reads = 0
        original: Callable[[Node, int], Value] = Node.operand

        def counted(node: Node, index: int) -> Value:
            self.reads += 1
            return original(node, index)

        monkeypatch.setattr(Node, "operand", counted)


@pytest.mark.parametrize("name", ["recover-rope", "recover-attention"])
def test_work_grows_with_the_graph(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[Any] = []
    for layers in (8, 32):
        module = stacked(layers)
        if name == "recover-attention":
            PassManager.parse("recover-rope,dce").run(module)
        with monkeypatch.context() as patch:
            counter = Counter(patch)
            (step,) = PassManager.parse(name).run(module)
        assert step.result.counts() == {name: layers * (2 if name == "recover-rope" else 1)}
        counts.append(counter.reads / layers)
    assert counts[1] <= 1.2 * counts[0]

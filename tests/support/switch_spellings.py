"""Top-1 blocks with a capacity as exporters write them: outputs laid over the block's input, or added to zeros."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from moec.ir.data import ArrayData
from moec.ir.graph import Graph, Module, Value
from moec.ir.symbol import sym
from moec.ir.types import BOOL, F32, I64, TensorType
from moec.ops.build import Builder

E, H, INNER = 4, 8, 6
B, S = sym("B"), sym("S")


@dataclass
class Switch:
    """What varies. ``change`` lets a test replace a value on its way: name -> (builder, value) -> value."""

    capacity: int = 2
    scope: str = "sequence"
    dropped: str = "input"
    count: str = "inclusive"
    """How the running count is written: "inclusive", "exclusive", or "masked" (it stands only at the choice)."""
    choice: str = "argmax"
    """How the choice is written: "argmax" and one-hot, "topk" of one, or "compared" with 0, 1, 2, ..."""
    weighed: str = "after"
    """Whether the routing weight multiplies the sum ("after") or each expert's rows ("before")."""
    experts: Sequence[int] = tuple(range(E))
    baked: Sequence[int] = ()
    """Experts whose number of rows the tracer took for 1."""
    change: dict[str, Callable[[Builder, Value], Value]] = field(default_factory=dict)

    def module(self) -> Module:
        return _Spelling(self).module


class _Spelling:
    def __init__(self, block: Switch):
        self.block = block
        self.module = Module()
        for name in ("B", "S"):
            self.module.symbols[name] = (0, 4096)
        graph = self.module.add(Graph("main"))
        self.b = Builder(graph)
        self.rng = np.random.default_rng(3)
        self.x = graph.add_input("x", TensorType(F32, (B, S, H)))
        graph.set_outputs([self.spelt()], ["y"])

    def weight(self, *shape: int) -> Value:
        array = self.rng.standard_normal(shape).astype(np.float32)
        made: Value = self.b.weight(name="w", dtype=F32, shape=shape, data=ArrayData(array))
        return made

    def number(self, value: Any, dtype: Any = I64) -> Value:
        made: Value = self.b.constant(value=ArrayData(np.array(value, dtype.carrier), dtype))
        return made

    def passed(self, name: str, value: Value) -> Value:
        change = self.block.change.get(name)
        return value if change is None else change(self.b, value)

    def symbol(self, name: str) -> Any:
        self.module.symbols[name] = (0, 1 << 31)
        return sym(name)

    def spelt(self) -> Value:
        b = self.b
        scores = b.softmax(b.matmul(self.x, self.weight(H, E)), axis=2)
        weight, chosen = self.choice(scores)
        kept = b.cast(self.passed("kept", self.kept(chosen)), to=BOOL)
        weight = self.passed("weight", weight)
        y = self.passed("base", self.x) if self.block.dropped == "input" else None
        for e in self.block.experts:
            mask = self.passed(f"mask{e}", b.gather(kept, self.number(e), axis=2))
            at = b.transpose(b.nonzero(mask, count=self.symbol(f"n{e}")), perm=(1, 0))
            rows = b.gather_nd(self.x, at, batch_dims=0)
            out = b.matmul(b.relu(b.matmul(rows, self.weight(H, INNER))), self.weight(INNER, H))
            out = b.mul(out, b.gather_nd(weight, at, batch_dims=0)) if self.block.weighed == "before" else out
            y = (
                self.added(y, at, self.passed(f"out{e}", out))
                if self.block.dropped == "zero"
                else self.over(y, mask, out, e)
            )
        assert y is not None
        made: Value = b.mul(weight, y) if self.block.weighed == "after" else y
        return made

    def choice(self, scores: Value) -> tuple[Value, Value]:
        """The routing weight [B, S, 1] and the one-hot choice [B, S, E]."""
        b, how = self.b, self.block.choice
        if how == "topk":
            weight, index = b.topk(scores, k=1, axis=2, largest=True, sorted=True)
            index = b.reshape(index, shape=(B, S))
        else:
            weight = b.reduce_max(scores, axes=(2,), keepdims=True)
            index = b.argmax(scores, axis=2, keepdims=False, last=False)
        if how == "compared":
            hot = b.cast(b.eq(b.reshape(index, shape=(B, S, 1)), b.iota(size=E, dtype=I64)), to=I64)
        else:
            hot = b.one_hot(index, depth=E, axis=2, dtype=I64)
        return weight, hot

    def kept(self, chosen: Value) -> Value:
        """The one-hot choice within the capacity, [B, S, E]."""
        b, block = self.b, self.block
        flat = block.scope == "tokens"
        hot = b.reshape(chosen, shape=(B * S, E)) if flat else chosen
        exclusive = block.count == "exclusive"
        count = self.passed("count", b.cumsum(hot, axis=0 if flat else 1, exclusive=exclusive, reverse=False))
        count = b.mul(count, hot) if block.count == "masked" else count
        low = b.lt(count, self.number(block.capacity)) if exclusive else b.le(count, self.number(block.capacity))
        kept = b.mul(hot, b.cast(low, to=I64))
        made: Value = b.reshape(kept, shape=(B, S, E)) if flat else kept
        return made

    def over(self, y: Value | None, mask: Value, out: Value, e: int) -> Value:
        """The expert's rows laid over what was there, element by element."""
        b, n, m = self.b, sym(f"n{e}"), self.symbol(f"m{e}")
        mask = self.passed(f"over{e}", mask)
        wide = b.expand(b.reshape(mask, shape=(B, S, 1)), shape=(B, S, H))
        at = b.transpose(b.nonzero(wide, count=m), perm=(1, 0))
        flat = b.reshape(out, shape=(H if e in self.block.baked else H * n,))
        made: Value = b.scatter_nd(y, at, b.slice(flat, axis=0, start=0, stop=m, step=1), reduction="none")
        return made

    def added(self, y: Value | None, at: Value, out: Value) -> Value:
        """The expert's rows added to zeros."""
        b = self.b
        y = b.expand(self.number(0.0, F32), shape=(B, S, H)) if y is None else y
        made: Value = b.scatter_nd(y, at, out, reduction="add")
        return made


def crowded(batch: int, length: int, seed: int = 0) -> np.ndarray:
    """Tokens of which many are alike, so that experts overflow."""
    rng = np.random.default_rng(seed)
    few = rng.standard_normal((5, H)).astype(np.float32)
    return few[rng.integers(0, 5, (batch, length))]

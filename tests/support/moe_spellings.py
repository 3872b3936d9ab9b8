"""One mixture-of-experts block in the spellings of exporters: unrolled over experts, batched gathers of weights, rows
sorted by expert."""

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

E, K, H, INNER = 6, 2, 8, 5
T = sym("T")
LOGIT_SCALE = 1.0


@dataclass
class Block:
    """What varies between blocks. ``change`` lets a test replace a value on its way: (name, builder, value) ->
    value."""

    score: str = "softmax"
    order: str = "before_topk"
    bias: bool = False
    groups: str = ""
    """How the choice is limited to 2 of 3 groups: "" not at all, else how groups score and what is masked becomes."""
    renormalize: bool = True
    eps: float = 0.0
    scale: float = 1.0
    weights_on: str = "output"
    activation: str = "silu"
    glu: str = "chunked"
    clamped: tuple[float, float, float] | None = None
    """alpha, limit and offset of a clamped SwiGLU."""
    expert_bias: bool = False
    shared: str = "no"
    experts: Sequence[int] = tuple(range(E))
    change: dict[str, Callable[[Builder, Value], Value]] = field(default_factory=dict)


BLOCKS = {
    "mixtral": Block(),
    "olmoe": Block(renormalize=False),
    "granite": Block(order="after_topk", renormalize=False),
    "sigmoid": Block(score="sigmoid", eps=1e-3, scale=2.5),
    "deepseek": Block(score="sigmoid", bias=True, scale=2.5),
    "ernie": Block(bias=True),
    "deepseek v2": Block(groups="max zero", renormalize=False),
    "deepseek v3": Block(score="sigmoid", bias=True, groups="sum2 minus_inf", eps=1e-20, scale=2.5),
    "gelu": Block(activation="gelu"),
    "plain": Block(glu="none", activation="relu"),
    "interleaved": Block(glu="interleaved"),
    "biased": Block(expert_bias=True),
    "on input": Block(weights_on="input"),
    "on activation": Block(weights_on="activation"),
    "shared": Block(shared="plain"),
    "qwen2": Block(renormalize=False, shared="gated"),
    "gpt-oss": Block(
        order="after_topk", renormalize=False, glu="interleaved", clamped=(1.702, 0.75, 1.0), expert_bias=True
    ),
}
"""Blocks of published models, and others that differ from them in one property."""


class Spelling:
    """A module under construction whose ``main`` is the block in one spelling."""

    def __init__(self, block: Block):
        self.block = block
        self.module = Module()
        self.module.symbols["T"] = (0, 4096)
        self.graph = self.module.add(Graph("main"))
        self.b = Builder(self.graph)
        self.rng = np.random.default_rng(7)
        self.x = self.graph.add_input("x", TensorType(F32, (T, H)))
        wide = INNER if block.glu == "none" else 2 * INNER
        self.router = self.array(E, H)
        self.gate_up, self.down = self.array(E, wide, H), self.array(E, H, INNER)
        self.gate_up_bias, self.down_bias = self.array(E, wide), self.array(E, H)
        self.score_bias = self.array(E)
        self.shared = [self.array(wide, H), self.array(H, INNER), self.array(1, H)]

    def array(self, *shape: int) -> np.ndarray:
        return (0.5 * self.rng.standard_normal(shape)).astype(np.float32)

    def weight(self, array: np.ndarray, name: str = "w") -> Value:
        array = np.ascontiguousarray(array)
        made: Value = self.b.weight(name=name, dtype=F32, shape=array.shape, data=ArrayData(array))
        return made

    def number(self, value: float, dtype: Any = F32) -> Value:
        made: Value = self.b.constant(value=ArrayData(np.array(value, dtype.carrier), dtype))
        return made

    def passed(self, name: str, value: Value) -> Value:
        """The value, or what the test makes of it."""
        change = self.block.change.get(name)
        return value if change is None else change(self.b, value)

    def route(self) -> tuple[Value, Value]:
        """Routing weights and experts, [T, K]."""
        b, block = self.b, self.block
        logits = b.matmul(self.x, self.weight(self.router), transpose_b=True)
        scored = logits if block.order == "after_topk" else self.scored(logits)
        scored = self.passed("scores", scored)
        choice = b.add(scored, self.weight(self.score_bias)) if block.bias else scored
        choice = self.limited(choice) if block.groups else choice
        values, experts = b.topk(choice, k=K, axis=1, largest=True, sorted=True)
        weights = b.gather_elements(scored, experts, axis=1) if block.bias or block.groups else values
        weights = self.scored(weights) if block.order == "after_topk" else weights
        weights = self.passed("chosen", weights)
        if block.renormalize:
            total = b.reduce_sum(weights, axes=(1,), keepdims=True)
            total = b.add(total, self.number(block.eps)) if block.eps else total
            weights = b.div(weights, self.passed("total", total))
        if block.scale != 1.0:
            weights = b.mul(weights, self.number(block.scale))
        return self.passed("weights", weights), experts

    def limited(self, choice: Value) -> Value:
        """The scores of the two best groups, the others masked, as DeepSeek's routers are exported."""
        b, groups = self.b, 3
        how, fill = self.block.groups.split()
        split = b.reshape(choice, shape=(T, groups, E // groups))
        if how == "max":
            worth = b.reduce_max(split, axes=(2,), keepdims=False)
        else:
            best, _ = b.topk(split, k=2, axis=2, largest=True, sorted=True)
            worth = b.reduce_sum(best, axes=(2,), keepdims=False)
        _, kept = b.topk(worth, k=2, axis=1, largest=True, sorted=False)
        zeros, ones = b.expand(self.number(0.0), shape=(T, groups)), b.expand(self.number(1.0), shape=(T, 2))
        mask = b.reshape(b.scatter_elements(zeros, kept, ones, axis=1, reduction="none"), shape=(T, groups, 1))
        wide = b.reshape(b.expand(mask, shape=(T, groups, E // groups)), shape=(T, E))
        fills = {"zero": 0.0, "minus_inf": -np.inf}
        masked = getattr(b, "not")(b.cast(wide, to=BOOL))
        made: Value = b.select(masked, self.number(fills[fill]), choice)
        return made

    def scored(self, x: Value) -> Value:
        made: Value = self.b.softmax(x, axis=1) if self.block.score == "softmax" else self.b.sigmoid(x)
        return made

    def act(self, h: Value) -> Value:
        b, axis = self.b, h.type.rank - 1
        kind = self.block.activation

        def apply(v: Value) -> Value:
            if kind == "silu":
                return b.mul(v, b.sigmoid(v))
            return b.gelu(v, approximate="none") if kind == "gelu" else getattr(b, kind)(v)

        if self.block.glu == "none":
            return apply(h)
        step = 1 if self.block.glu == "chunked" else 2
        bounds = [(0, INNER), (INNER, 2 * INNER)] if step == 1 else [(0, 2 * INNER), (1, 2 * INNER)]
        gate, up = (b.slice(h, axis=axis, start=s, stop=e, step=step) for s, e in self.halves(bounds))
        if self.block.clamped is not None:
            alpha, limit, offset = self.block.clamped
            gate = b.minimum(gate, self.number(limit))
            up = b.minimum(b.maximum(up, self.number(-limit)), self.passed("high", self.number(limit)))
            scored = b.mul(gate, b.sigmoid(b.mul(gate, self.number(alpha))))
            return b.mul(b.add(up, self.number(offset)), scored)  # type: ignore[no-any-return]
        made: Value = b.mul(apply(gate), up)
        return made

    def halves(self, bounds: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return bounds[::-1] if "swap halves" in self.block.change else bounds

    def unrolled(self) -> Value:
        """A mask, its coordinates, a dense FFN and an add for each expert."""
        b = self.b
        weights, experts = self.route()
        hot = b.transpose(b.one_hot(experts, depth=E, axis=2, dtype=I64), perm=(2, 1, 0))
        y = b.expand(self.number(0.0), shape=(T, H))
        for e in self.block.experts:
            mask = b.gather(hot, self.number(e, I64), axis=0)
            count = sym(f"n{e}")
            self.module.symbols[f"n{e}"] = (0, 4096)
            hits = b.transpose(b.nonzero(mask, count=count), perm=(1, 0))
            choice, token = (b.slice(hits, axis=1, start=j, stop=j + 1, step=1) for j in (0, 1))
            rows = b.gather_nd(self.x, token, batch_dims=0)
            w = b.gather_nd(b.reshape(weights, shape=(T, K, 1)), b.concat(token, choice, axis=1), batch_dims=0)
            rows = b.mul(rows, w) if self.block.weights_on == "input" else rows
            h = self.passed(f"hidden{e}", self.act(self.separate(rows, e)))
            h = b.mul(h, w) if self.block.weights_on == "activation" else h
            out = b.matmul(h, self.weight(self.down[e].T))
            out = b.add(out, self.weight(self.down_bias[e])) if self.block.expert_bias else out
            out = b.mul(out, w) if self.block.weights_on == "output" else out
            y = b.scatter_nd(y, token, self.passed(f"out{e}", out), reduction="add")
        return self.finished(y)

    def active(self) -> Value:
        """One body for each expert that got a token, whose number is data: as many as ``experts``, whichever."""
        b, count = self.b, len(self.block.experts)
        weights, experts = self.route()
        hot = b.transpose(b.one_hot(experts, depth=E + 1, axis=2, dtype=I64), perm=(2, 1, 0))
        taken = b.gt(b.reduce_sum(hot, axes=(1, 2), keepdims=False), self.number(0, I64))
        self.module.symbols["active"] = (0, E + 1)
        numbers = b.reshape(b.nonzero(taken, count=sym("active")), shape=(count, 1))
        gate_up, down = self.weight(self.gate_up), self.weight(self.down)
        y = b.expand(self.number(0.0), shape=(T, H))
        for i in range(count):
            e = b.reshape(b.slice(numbers, axis=0, start=i, stop=i + 1, step=1), shape=())
            self.module.symbols[f"n{i}"] = (0, 4096)
            hits = b.transpose(b.nonzero(b.gather(hot, e, axis=0), count=sym(f"n{i}")), perm=(1, 0))
            choice, token = (b.slice(hits, axis=1, start=j, stop=j + 1, step=1) for j in (0, 1))
            rows = b.gather_nd(self.x, token, batch_dims=0)
            w = b.gather_nd(b.reshape(weights, shape=(T, K, 1)), b.concat(token, choice, axis=1), batch_dims=0)
            h = self.act(b.matmul(rows, b.gather(gate_up, e, axis=0), transpose_b=True))
            out = b.matmul(h, b.transpose(b.gather(down, e, axis=0), perm=(1, 0)))
            y = b.scatter_nd(y, token, b.mul(out, w), reduction="add")
        return self.finished(y)

    def separate(self, rows: Value, e: int) -> Value:
        h = self.b.matmul(rows, self.weight(self.gate_up[e]), transpose_b=True)
        made: Value = self.b.add(h, self.weight(self.gate_up_bias[e])) if self.block.expert_bias else h
        return made

    def batched(self) -> Value:
        """Each slot's own weight matrices gathered, the sum over K by a reduction."""
        b, slots = self.b, T * K
        weights, experts = self.route()
        rows = b.expand(b.reshape(self.x, shape=(T, 1, H)), shape=(T, K, H))
        flat = b.reshape(experts, shape=(slots, 1))
        w = b.reshape(weights, shape=(slots, 1))
        rows = b.reshape(rows, shape=(slots, H))
        rows = b.mul(rows, w) if self.block.weights_on == "input" else rows
        h = self.gathered(rows, self.gate_up, self.gate_up_bias, flat)
        h = self.act(h)
        h = b.mul(h, w) if self.block.weights_on == "activation" else h
        out = self.gathered(h, self.down, self.down_bias, flat)
        out = b.mul(out, w) if self.block.weights_on == "output" else out
        y = b.reduce_sum(b.reshape(out, shape=(T, K, H)), axes=(1,), keepdims=False)
        return self.finished(y)

    def gathered(self, rows: Value, weight: np.ndarray, bias: np.ndarray, flat: Value) -> Value:
        b = self.b
        column = b.reshape(rows, shape=(*rows.type.dims, 1))
        out = b.matmul(b.gather_nd(self.weight(weight), flat, batch_dims=0), column)
        out = b.reshape(out, shape=out.type.dims[:2])
        made: Value = b.add(out, b.gather_nd(self.weight(bias), flat, batch_dims=0)) if self.block.expert_bias else out
        return made

    def sorted(self) -> Value:
        """Rows sorted by expert, one product an expert over its range of rows, and back by the inverse order."""
        b, slots = self.b, T * K
        weights, experts = self.route()
        flat = b.reshape(experts, shape=(slots,))
        order = b.argsort(flat, axis=0, descending=False)
        token = b.div(order, self.number(K, I64))
        ends = b.cast(b.cumsum(b.histogram(flat, bins=E), axis=0, exclusive=False, reverse=False), to=I64)
        rows = b.gather(self.x, token, axis=0)
        w = b.reshape(b.gather(b.reshape(weights, shape=(slots,)), order, axis=0), shape=(slots, 1))
        rows = b.mul(rows, w) if self.block.weights_on == "input" else rows
        h = self.act(self.pieces(rows, ends, self.gate_up, self.gate_up_bias))
        h = b.reshape(h, shape=(slots, INNER))
        h = b.mul(h, w) if self.block.weights_on == "activation" else h
        out = b.reshape(self.pieces(h, ends, self.down, self.down_bias), shape=(slots, H))
        out = b.mul(out, w) if self.block.weights_on == "output" else out
        back = b.gather(out, b.argsort(order, axis=0, descending=False), axis=0)
        return self.finished(b.reduce_sum(b.reshape(back, shape=(T, K, H)), axes=(1,), keepdims=False))

    def pieces(self, rows: Value, ends: Value, weight: np.ndarray, bias: np.ndarray) -> Value:
        b, parts = self.b, []
        start, one = self.number(0, I64), self.number(1, I64)
        for e in self.block.experts:
            stop = b.reshape(b.slice(ends, axis=0, start=e, stop=e + 1, step=1), shape=())
            name = f"r{e}_{weight.shape[1]}"
            self.module.symbols[name] = (0, 4096)
            piece = b.gather(rows, b.range(start, stop, one, count=sym(name)), axis=0)
            out = self.passed(f"piece{e}", b.matmul(piece, self.weight(weight[e].T)))
            parts.append(b.add(out, self.weight(bias[e])) if self.block.expert_bias else out)
            start = stop
        made: Value = b.concat(*parts, axis=0)
        return made

    def finished(self, y: Value) -> Value:
        """With the shared expert, and as the function's output."""
        b = self.b
        if self.block.shared != "no":
            gate_up, down, gate = (self.weight(w) for w in self.shared)
            s = b.matmul(self.act(b.matmul(self.x, gate_up, transpose_b=True)), down, transpose_b=True)
            if self.block.shared == "gated":
                s = b.mul(b.sigmoid(b.matmul(self.x, gate, transpose_b=True)), s)
            y = b.add(y, s)
        self.graph.set_outputs([y], ["y"])
        return y


SPELLINGS = ("unrolled", "batched", "sorted")


def spelt(block: Block, spelling: str) -> Module:
    """The block in one spelling."""
    made = Spelling(block)
    getattr(made, spelling)()
    return made.module

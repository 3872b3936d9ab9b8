"""Attention and rotary embedding in the spellings of exporters, as modules over q, k, v or x, cos, sin."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from moec.ir.data import ArrayData
from moec.ir.graph import Graph, Module, Value
from moec.ir.symbol import Dim, sym
from moec.ir.types import BOOL, F32, I64, DType, TensorType
from moec.ops.build import Builder

B, S, P = sym("B"), sym("S"), sym("P")
D, V = 8, 6
LOWEST = float(np.finfo(np.float32).min)


def number(b: Builder, value: Any, dtype: DType = F32) -> Value:
    """A constant."""
    made: Value = b.constant(value=ArrayData(np.array(value, dtype.carrier), dtype))
    return made


@dataclass
class Mask:
    """How a mask is made: ``build(b, queries, keys)`` gives it; ``select`` has it choose scores, else it is added."""

    build: Callable[[Builder, Dim, Dim], Value]
    select: float | None = None


def _grid(b: Builder, rows: Dim, keys: Dim) -> tuple[Value, Value]:
    """Positions of queries [S, 1] and of keys [1, T]."""
    return (
        b.reshape(b.iota(size=rows, dtype=I64), shape=(rows, 1)),
        b.reshape(b.iota(size=keys, dtype=I64), shape=(1, keys)),
    )


def _ones(b: Builder, rows: Dim, keys: Dim, value: float = 1.0) -> Value:
    made: Value = b.expand(number(b, value), shape=(rows, keys))
    return made


def _not(b: Builder, x: Value) -> Value:
    return b.node("not", x).result


def _trilu_where(b: Builder, rows: Dim, keys: Dim) -> Value:
    lower = b.trilu(_ones(b, rows, keys), upper=False, k=0)
    return b.select(b.eq(lower, number(b, 0.0)), number(b, LOWEST), number(b, 0.0))  # type: ignore[no-any-return]


def _iota_le(b: Builder, rows: Dim, keys: Dim) -> Value:
    query, key = _grid(b, rows, keys)
    shape = (1, 1, rows, keys)
    may = b.node("and", number(b, True, BOOL), b.reshape(b.le(key, query), shape=shape)).result
    return b.select(may, number(b, 0.0), number(b, -math.inf))  # type: ignore[no-any-return]


def _iota_gt(b: Builder, rows: Dim, keys: Dim) -> Value:
    query, key = _grid(b, rows, keys)
    return b.mul(b.cast(b.gt(key, query), to=F32), number(b, LOWEST))  # type: ignore[no-any-return]


def _triu_fill(b: Builder, rows: Dim, keys: Dim) -> Value:
    query, key = _grid(b, rows, keys)
    filled = b.trilu(_ones(b, rows, keys, LOWEST), upper=True, k=1)
    return b.mul(filled, b.cast(b.gt(key, query), to=F32))  # type: ignore[no-any-return]


def _one_minus(b: Builder, rows: Dim, keys: Dim) -> Value:
    lower = b.trilu(_ones(b, rows, keys), upper=False, k=0)
    return b.mul(b.sub(number(b, 1.0), lower), number(b, -10000.0))  # type: ignore[no-any-return]


def _bool(b: Builder, rows: Dim, keys: Dim) -> Value:
    query, key = _grid(b, rows, keys)
    return b.ge(query, key)  # type: ignore[no-any-return]


def _blocked(b: Builder, rows: Dim, keys: Dim) -> Value:
    return _not(b, _bool(b, rows, keys))


def _buffer(b: Builder, rows: Dim, keys: Dim) -> Value:
    """A triangle kept in the model and cut to size."""
    whole = b.constant(value=ArrayData(np.tri(32, dtype=bool).reshape(1, 1, 32, 32), BOOL))
    some = b.slice(whole, axis=2, start=keys - rows, stop=keys, step=1)
    return b.slice(some, axis=3, start=0, stop=keys, step=1)  # type: ignore[no-any-return]


def _behind(b: Builder, rows: Dim, keys: Dim) -> Value:
    """Queries stand behind keys that were there before."""
    query, key = _grid(b, rows, keys)
    position = b.add(query, b.dims(values=(keys - rows,), scalar=True))
    return b.le(key, position)  # type: ignore[no-any-return]


def _packed(b: Builder, rows: Dim, keys: Dim) -> Value:
    """Positions looked up by index, in sequences that start where a position is not the one before plus 1."""
    batch = b.reshape(b.iota(size=B, dtype=I64), shape=(B, 1, 1, 1))
    positions = b.expand(b.reshape(b.iota(size=rows, dtype=I64), shape=(1, rows)), shape=(B, rows))
    first = b.sub(b.slice(positions, axis=1, start=0, stop=1, step=1), number(b, 1, I64))
    before = b.slice(b.concat(first, positions, axis=1), axis=1, start=0, stop=rows, step=1)
    starts = _not(b, b.eq(b.sub(positions, before), number(b, 1, I64)))
    sequence = b.cumsum(b.cast(starts, to=I64), axis=1, exclusive=False, reverse=False)

    def looked_up(x: Value, shape: tuple[Dim, ...]) -> Value:
        at = b.reshape(b.iota(size=rows, dtype=I64), shape=shape)
        columns = [b.reshape(b.expand(c, shape=(B, *shape[1:])), shape=(B, *shape[1:], 1)) for c in (batch, at)]
        return b.gather_nd(x, b.concat(*columns, axis=4), batch_dims=0)  # type: ignore[no-any-return]

    down, across = (1, 1, rows, 1), (1, 1, 1, rows)
    order = b.le(looked_up(positions, across), looked_up(positions, down))
    same = b.eq(looked_up(sequence, down), looked_up(sequence, across))
    return b.node("and", order, same).result


def window(width: int, spelling: str) -> Callable[[Builder, Dim, Dim], Value]:
    """Causal within a window of ``width`` keys."""

    def build(b: Builder, rows: Dim, keys: Dim) -> Value:
        query, key = _grid(b, rows, keys)
        query = query if keys == rows else b.add(query, b.dims(values=(keys - rows,), scalar=True))
        if spelling == "and":
            near = b.gt(key, b.sub(query, number(b, width, I64)))
            return b.node("and", near, b.le(key, query)).result
        far = b.ge(b.sub(query, key), number(b, width, I64))
        return _not(b, b.node("or", far, b.gt(key, query)).result)

    return build


CAUSAL: dict[str, Mask] = {
    "trilu and where": Mask(_trilu_where),
    "iota and where": Mask(_iota_le),
    "iota times lowest": Mask(_iota_gt),
    "triu of lowest": Mask(_triu_fill),
    "one minus tril": Mask(_one_minus),
    "chosen": Mask(_bool, -math.inf),
    "chosen, lowest": Mask(_bool, LOWEST),
    "a buffer": Mask(_buffer, LOWEST),
    "packed sequences": Mask(_packed, LOWEST),
}
BEHIND: dict[str, Mask] = {"positions": Mask(_behind, -math.inf), "a buffer": Mask(_buffer, -math.inf)}


@dataclass
class Attention:
    """What varies between attentions. ``change`` lets a test replace a value on its way."""

    heads: int = 4
    own: int = 2
    scale: float = 0.3
    scale_on: str = "scores"
    keys: str = "flipped"
    """How keys come to the product: flipped, as an argument of it (transposed), or through rank 3 (rank3)."""
    share: str = "expand"
    """How heads share keys: expand, or a product of rank 5 (grouped)."""
    mask: Mask | None = None
    softcap: float | None = None
    sinks: bool = False
    guard: bool = False
    past: bool = False
    wide: bool = False
    """Whether the softmax is taken between casts."""
    dtype: DType = F32
    change: dict[str, Callable[[Builder, Value], Value]] = field(default_factory=dict)


class _Spelt:
    def __init__(self, a: Attention):
        self.a = a
        self.module = Module()
        self.module.symbols |= {"B": (1, 64), "S": (1, 4096), "P": (0, 4096)}
        self.graph = self.module.add(Graph("main"))
        self.b = Builder(self.graph)
        self.rows: Dim = S
        self.keys: Dim = S + P if a.past else S

    def changed(self, name: str, value: Value) -> Value:
        return self.a.change[name](self.b, value) if name in self.a.change else value

    def input(self, name: str, *shape: Dim) -> Value:
        return self.graph.add_input(name, TensorType(self.a.dtype, shape))

    def repeated(self, x: Value) -> Value:
        """Heads shared by ``expand``."""
        a, b, width = self.a, self.b, x.type.dims[-1]
        if a.own == a.heads or a.share != "expand":
            return x
        apart = b.reshape(x, shape=(B, a.own, 1, self.keys, width))
        more = b.expand(apart, shape=(B, a.own, a.heads // a.own, self.keys, width))
        return b.reshape(more, shape=(B, a.heads, self.keys, width))  # type: ignore[no-any-return]

    def scaled(self, x: Value, where: str) -> Value:
        a, b = self.a, self.b
        if a.scale_on == where:
            return b.mul(x, number(b, a.scale, a.dtype))  # type: ignore[no-any-return]
        if a.scale_on == "both" and where in ("q", "k"):
            return b.mul(x, number(b, math.sqrt(a.scale), a.dtype))  # type: ignore[no-any-return]
        if a.scale_on == "divided" and where == "scores":
            return b.div(x, number(b, 1 / a.scale, a.dtype))  # type: ignore[no-any-return]
        return x

    def module_of(self) -> Module:
        a, b = self.a, self.b
        q, k = self.input("q", B, a.heads, S, D), self.input("k", B, a.own, self.keys, D)
        v = self.input("v", B, a.own, self.keys, V)
        k, v, q = self.changed("k", self.repeated(k)), self.repeated(v), self.scaled(q, "q")
        if a.share == "grouped":
            q = b.reshape(q, shape=(B, a.own, a.heads // a.own, S, D))
            k = b.reshape(k, shape=(B, a.own, 1, self.keys, D))
            v = b.reshape(v, shape=(B, a.own, 1, self.keys, V))
        lead = k.type.dims[:-2]
        if a.keys == "rank3":
            flat = b.reshape(k, shape=(B * a.heads, self.keys, D))
            k = b.reshape(b.transpose(flat, perm=(0, 2, 1)), shape=(*lead, D, self.keys))
        elif a.keys == "flipped":
            rank = k.type.rank
            k = b.transpose(k, perm=(*range(rank - 2), rank - 1, rank - 2))
        scores = b.matmul(q, self.scaled(k, "k"), transpose_a=False, transpose_b=a.keys == "transposed")
        scores = self.changed("scores", self.scaled(scores, "scores"))
        if a.softcap is not None:
            cap = number(b, a.softcap, a.dtype)
            scores = b.mul(b.tanh(b.div(scores, cap)), cap)
        if a.wide:
            scores = b.cast(scores, to=F32)
        y = b.matmul(self.weights(self.masked(scores)), v, transpose_a=False, transpose_b=False)
        y = b.reshape(b.transpose(b.reshape(y, shape=(B, a.heads, S, V)), perm=(0, 2, 1, 3)), shape=(B, S, a.heads * V))
        self.graph.set_outputs([y], ["y"])
        return self.module

    def masked(self, scores: Value) -> Value:
        a, b = self.a, self.b
        if a.mask is None:
            return scores
        mask = self.changed("mask", a.mask.build(b, self.rows, self.keys))
        if a.mask.select is None:
            return b.add(scores, mask)  # type: ignore[no-any-return]
        return b.select(mask, scores, number(b, a.mask.select))  # type: ignore[no-any-return]

    def weights(self, scores: Value) -> Value:
        a, b = self.a, self.b
        axis = scores.type.rank - 1
        if a.sinks:
            sinks = b.reshape(self.input("sinks", a.heads), shape=(1, a.heads, 1, 1))
            scores = b.concat(scores, b.expand(sinks, shape=(B, a.heads, S, 1)), axis=axis)
            scores = b.sub(scores, b.reduce_max(scores, axes=(axis,), keepdims=True))
        p = self.changed("weights", b.softmax(scores, axis=axis))
        if a.guard:
            p = b.select(b.is_nan(p), number(b, 0.0), p)
        if a.sinks:
            p = b.slice(p, axis=axis, start=0, stop=self.keys, step=1)
        return b.cast(p, to=a.dtype) if a.wide else p  # type: ignore[no-any-return]


def attention(a: Attention) -> Module:
    """A module whose ``main`` is the attention on q, k and v (and sinks)."""
    return _Spelt(a).module_of()


WIDTH = 8
"""Features of what is rotated."""


def _pairs(b: Builder, x: Value, width: int, interleaved: bool) -> tuple[Value, Value]:
    axis, half = x.type.rank - 1, width // 2
    if interleaved:
        return tuple(b.slice(x, axis=axis, start=i, stop=width, step=2) for i in (0, 1))  # type: ignore[return-value]
    return tuple(b.slice(x, axis=axis, start=i, stop=i + half, step=1) for i in (0, half))  # type: ignore[return-value]


def _woven(b: Builder, one: Value, two: Value) -> Value:
    lead, half = one.type.dims[:-1], one.type.dims[-1]
    apart = [b.reshape(y, shape=(*lead, half, 1)) for y in (one, two)]
    return b.reshape(b.concat(*apart, axis=one.type.rank), shape=(*lead, 2 * half))  # type: ignore[no-any-return]


def _rotate_half(b: Builder, x: Value, cos: Value, sin: Value) -> Value:
    first, second = _pairs(b, x, x.type.dims[-1], False)  # type: ignore[arg-type]
    turned = b.concat(b.neg(second), first, axis=x.type.rank - 1)
    return b.add(b.mul(x, cos), b.mul(turned, sin))  # type: ignore[no-any-return]


def _split_half(b: Builder, x: Value, cos: Value, sin: Value) -> Value:
    first, second = _pairs(b, x, x.type.dims[-1], False)  # type: ignore[arg-type]
    one = b.sub(b.mul(first, cos), b.mul(second, sin))
    two = b.add(b.mul(second, cos), b.mul(first, sin))
    return b.concat(one, two, axis=x.type.rank - 1)  # type: ignore[no-any-return]


def _twice(b: Builder, t: Value) -> Value:
    return b.concat(t, t, axis=t.type.rank - 1)  # type: ignore[no-any-return]


def _twice_each(b: Builder, t: Value) -> Value:
    lead, half = t.type.dims[:-1], t.type.dims[-1]
    more = b.expand(b.reshape(t, shape=(*lead, half, 1)), shape=(*lead, half, 2))
    return b.reshape(more, shape=(*lead, 2 * half))  # type: ignore[no-any-return]


def _rotate_twice(b: Builder, x: Value, cos: Value, sin: Value) -> Value:
    return _rotate_half(b, x, _twice(b, cos), _twice(b, sin))


def _rotate_neighbours(b: Builder, x: Value, cos: Value, sin: Value) -> Value:
    """ERNIE, GPT-J: x cos + rotate_every_two(x) sin with each table element twice."""
    first, second = _pairs(b, x, x.type.dims[-1], True)  # type: ignore[arg-type]
    turned = _woven(b, b.neg(second), first)
    return b.add(b.mul(x, _twice_each(b, cos)), b.mul(turned, _twice_each(b, sin)))  # type: ignore[no-any-return]


def _stacked(b: Builder, x: Value, cos: Value, sin: Value) -> Value:
    first, second = _pairs(b, x, x.type.dims[-1], True)  # type: ignore[arg-type]
    one = b.sub(b.mul(first, cos), b.mul(second, sin))
    return _woven(b, one, b.add(b.mul(second, cos), b.mul(first, sin)))


def _complex(b: Builder, x: Value, cos: Value, sin: Value) -> Value:
    """Real and imaginary parts in the last of two axes, taken out by index."""
    lead, width = x.type.dims[:-1], x.type.dims[-1]
    pairs = b.reshape(x, shape=(*lead, width // 2, 2))
    axis = pairs.type.rank - 1
    real, imaginary = (b.gather(pairs, number(b, i, I64), axis=axis) for i in (0, 1))
    one = b.sub(b.mul(real, cos), b.mul(imaginary, sin))
    return _woven(b, one, b.add(b.mul(real, sin), b.mul(imaginary, cos)))


def _deinterleaved(b: Builder, x: Value, cos: Value, sin: Value) -> Value:
    """DeepSeek-V3: pairs are read as neighbours and written as halves."""
    first, second = _pairs(b, x, x.type.dims[-1], True)  # type: ignore[arg-type]
    one = b.sub(b.mul(first, cos), b.mul(second, sin))
    return b.concat(one, b.add(b.mul(second, cos), b.mul(first, sin)), axis=x.type.rank - 1)  # type: ignore[no-any-return]


def _permuted(b: Builder, x: Value, cos: Value, sin: Value) -> Value:
    """The same by a view, a transpose and rotated halves."""
    lead, width = x.type.dims[:-1], x.type.dims[-1]
    apart = b.reshape(x, shape=(*lead, width // 2, 2))
    rank = apart.type.rank
    flat = b.reshape(b.transpose(apart, perm=(*range(rank - 2), rank - 1, rank - 2)), shape=(*lead, width))
    return _rotate_half(b, flat, _twice(b, cos), _twice(b, sin))


def _signed_table(b: Builder, x: Value, cos: Value, sin: Value) -> Value:
    """Halves exchanged without a sign, which the table of sines has."""
    first, second = _pairs(b, x, x.type.dims[-1], False)  # type: ignore[arg-type]
    axis = x.type.rank - 1
    table = b.concat(b.neg(sin), sin, axis=sin.type.rank - 1)
    return b.add(b.mul(b.concat(second, first, axis=axis), table), b.mul(x, _twice(b, cos)))  # type: ignore[no-any-return]


ROPES: dict[str, tuple[Callable[[Builder, Value, Value, Value], Value], str]] = {
    "rotated halves": (_rotate_twice, "half"),
    "split halves": (_split_half, "half"),
    "signed table": (_signed_table, "half"),
    "rotated neighbours": (_rotate_neighbours, "interleaved"),
    "stacked": (_stacked, "interleaved"),
    "complex": (_complex, "interleaved"),
    "deinterleaved": (_deinterleaved, "interleaved_to_half"),
    "permuted": (_permuted, "interleaved_to_half"),
}
"""Each by the layout that it is; tables are half as wide as what is rotated."""


def rope(
    spell: Callable[[Builder, Value, Value, Value], Value], rotary: int = WIDTH, start: int = 0, table: int = 0
) -> Module:
    """A module of x [B, 4, S, 8] whose elements ``start`` to ``start + rotary`` are rotated, the others kept."""
    module = Module()
    graph = module.add(Graph("main"))
    b = Builder(graph)
    x = graph.add_input("x", TensorType(F32, (B, 4, S, WIDTH)))
    tables = [graph.add_input(n, TensorType(F32, (1, S, table or rotary // 2))) for n in ("cos", "sin")]
    cos, sin = (b.reshape(t, shape=(1, 1, *t.type.dims[1:])) for t in tables)
    cuts = [(0, start), (start, start + rotary), (start + rotary, WIDTH)]
    parts = [b.slice(x, axis=3, start=i, stop=j, step=1) if (i, j) != (0, WIDTH) else x for i, j in cuts if i != j]
    at = 1 if start else 0
    parts[at] = spell(b, parts[at], cos, sin)
    y = parts[0] if len(parts) == 1 else b.concat(*parts, axis=3)
    graph.set_outputs([y], ["y"])
    return module

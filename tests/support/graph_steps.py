"""The steps that random layer IR is drawn from: each makes one op, or a few, on values that it picks from those so far.

Which operands an op gets is decided here by what it needs to mean something; attributes and types are the registry's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from moec.ir.data import ArrayData
from moec.ir.graph import Graph, Module, Value
from moec.ir.symbol import Dim, bounds, exact_div, sym
from moec.ir.types import BF16, BOOL, F16, F32, I32, I64, DType, TensorType
from moec.ops.build import Builder
from moec.ops.registry import OPS

FLOATS = (F32, BF16, F16)
MAX_ELEMENTS = 4096
MAX_RANK = 4

Draw = Callable[[st.SearchStrategy], Any]


class Maker:
    """A graph being drawn: the values so far, and what makers need to extend it."""

    def __init__(self, draw: Draw, module: Module, name: str, floats: tuple[DType, ...]):
        self.draw, self.module, self.floats = draw, module, floats
        self.graph = module.add(Graph(name))
        self.pool: list[Value] = []
        self.b = Builder(self.graph)

    def one_of(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def flag(self) -> bool:
        return bool(self.draw(st.booleans()))

    def pick(self, fits: Callable[[TensorType], bool]) -> Value:
        """A value whose type fits, or StopIteration where the pool has none."""
        options = [v for v in self.pool if fits(v.type)]
        if not options:
            raise StopIteration
        return self.one_of(options)

    def float(self, rank: int = 0) -> Value:
        return self.pick(lambda t: t.dtype.is_float and t.rank >= rank)

    def numeric(self, rank: int = 0) -> Value:
        return self.pick(lambda t: t.dtype is not BOOL and t.rank >= rank)

    def constant(self, dtype: DType, shape: tuple[int, ...], low: int = -2, high: int = 3) -> Value:
        """A constant of small integers in [low, high], drawn by seed."""
        rng = np.random.default_rng(self.draw(st.integers(0, 99)))
        array = rng.integers(low, high + 1, shape).astype(dtype.carrier)
        return self.b.constant(value=ArrayData(array, dtype))

    def weight(self, dtype: DType, shape: tuple[Dim, ...]) -> Value:
        """A weight with numbers where the shape is known, else an input."""
        if not all(isinstance(d, int) for d in shape) or self.graph.name != "main":
            return self.graph.add_input(f"p{len(self.graph.inputs)}", TensorType(dtype, shape))
        name = f"w{sum(n.op == 'weight' for n in self.graph)}"
        rng = np.random.default_rng(len(self.graph))
        array = rng.standard_normal([int(d) for d in shape if isinstance(d, int)]).astype(dtype.carrier)
        return self.b.weight(name=name, dtype=dtype, shape=shape, data=ArrayData(array, dtype))

    def axis(self, x: Value) -> int:
        return int(self.draw(st.integers(0, x.type.rank - 1)))

    def least(self, dim: Dim) -> int:
        return bounds(dim, self.module.symbols)[0]

    def keep(self, *values: Value) -> None:
        """Put results into the pool, unless they are too large for a quick test."""
        for v in values:
            if v.type.rank <= MAX_RANK and bounds(v.type.numel(), self.module.symbols)[1] <= MAX_ELEMENTS:
                self.pool.append(v)


def small(x: Dim) -> bool:
    return isinstance(x, int) and 1 <= x <= 8


def _elementwise(arity: int) -> list[str]:
    return [
        o.name for o in OPS.values() if "elementwise" in o.traits and len(o.signature.operands) == arity and not o.attrs
    ]


UNARY = [n for n in _elementwise(1) if n != "not"]
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
LOGIC = ("and", "or", "xor")
ARITHMETIC = [n for n in _elementwise(2) if n not in (*COMPARE, *LOGIC)]
INTEGER = ("add", "sub", "mul", "minimum", "maximum", *COMPARE)


def unary(m: Maker) -> Any:
    return getattr(m.b, m.one_of(UNARY))(m.float())


def binary(m: Maker) -> Any:
    x = m.numeric()
    name = m.one_of([*ARITHMETIC, *COMPARE] if x.type.dtype.is_float else INTEGER)
    other = m.one_of(["same", "scalar", "last"])
    y = x
    if other == "same":
        y = m.pick(lambda t: t == x.type)
    elif other == "scalar" or not x.type.dims or not isinstance(x.type.dims[-1], int):
        y = m.constant(x.type.dtype, ())
    else:
        y = m.constant(x.type.dtype, (x.type.dims[-1],))
    return getattr(m.b, name)(*((x, y) if m.flag() else (y, x)))


def logic(m: Maker) -> Any:
    x = m.float()
    a, b = m.b.is_nan(x), m.b.gt(x, m.constant(x.type.dtype, ()))
    return m.b.node("not", b).result if m.one_of([0, 1, 2, 3]) == 0 else m.b.node(m.one_of(LOGIC), a, b).result


def select(m: Maker) -> Any:
    cond = m.pick(lambda t: t.dtype is BOOL)
    x = m.pick(lambda t: t.shape == cond.type.shape and t.dtype is not BOOL)
    return m.b.select(cond, x, m.constant(x.type.dtype, ()))


def with_attributes(m: Maker) -> Any:
    x = m.float()
    return m.one_of([
        lambda: m.b.gelu(x, approximate=m.one_of(["none", "tanh"])),
        lambda: m.b.cast(x, to=m.one_of([*m.floats, I32, BOOL])),
        lambda: m.b.mod(x, m.constant(x.type.dtype, (), 1, 3), fmod=m.flag()),
    ])()  # fmt: skip


def cast_integer(m: Maker) -> Any:
    return m.b.cast(m.pick(lambda t: not t.dtype.is_float), to=m.one_of([*m.floats, I64]))


def reduce(m: Maker) -> Any:
    x = m.float(1)
    axes = tuple(sorted(m.draw(st.sets(st.integers(0, x.type.rank - 1), min_size=1))))
    name = m.one_of(["reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"])
    return getattr(m.b, name)(x, axes=axes, keepdims=m.flag())


def along_axis(m: Maker) -> Any:
    x = m.float(1)
    axis = m.axis(x)
    return m.one_of([
        lambda: m.b.softmax(x, axis=axis),
        lambda: m.b.log_softmax(x, axis=axis),
        lambda: m.b.cumsum(x, axis=axis, exclusive=m.flag(), reverse=m.flag()),
        lambda: m.b.argsort(x, axis=axis, descending=m.flag()),
        lambda: m.b.argmax(x, axis=axis, keepdims=m.flag(), last=m.flag()),
        lambda: m.b.argmin(x, axis=axis, keepdims=m.flag(), last=m.flag()),
        lambda: m.b.topk(x, k=max(1, m.least(x.type.dims[axis])), axis=axis, largest=m.flag(), sorted=True),
    ])()  # fmt: skip


def matmul(m: Maker) -> Any:
    x = m.float(2)
    if m.flag():
        return m.b.matmul(x, x, transpose_b=True) if m.flag() else m.b.matmul(x, x, transpose_a=True)
    inner, outer = x.type.dims[-1], m.one_of([1, 3, 4])
    transpose = m.flag()
    return m.b.matmul(x, m.weight(x.type.dtype, (outer, inner) if transpose else (inner, outer)), transpose_b=transpose)


def reshape(m: Maker) -> Any:
    x = m.numeric(1)
    dims = x.type.dims
    i = m.axis(x)
    half = exact_div(dims[i], 2)
    if half is not None and m.flag():
        return m.b.reshape(x, shape=(*dims[:i], half, 2, *dims[i + 1 :]))
    if i + 1 < len(dims):
        return m.b.reshape(x, shape=(*dims[:i], dims[i] * dims[i + 1], *dims[i + 2 :]))
    return m.b.reshape(x, shape=(*dims[:i], 1, *dims[i:]))


def layout(m: Maker) -> Any:
    x = m.numeric(1)
    rank, axis = x.type.rank, m.axis(x)
    dims = x.type.dims
    size = dims[axis]
    start, step = int(m.draw(st.integers(0, min(2, m.least(size))))), m.one_of([1, 2])
    zeros = [0] * rank
    return m.one_of([
        lambda: m.b.transpose(x, perm=tuple(m.draw(st.permutations(range(rank))))),
        lambda: m.b.concat(x, m.pick(lambda t: t == x.type), axis=axis),
        lambda: m.b.slice(x, axis=axis, start=start, stop=size, step=step),
        lambda: m.b.slice(x, axis=axis, start=0, stop=m.least(size), step=1),
        lambda: m.b.pad(x, before=(*zeros[1:], 1), after=(m.one_of([0, 2]), *zeros[1:]), value=1.0),
        lambda: m.b.expand(x, shape=(m.one_of([1, 2]), *dims)),
        lambda: m.b.tile(x, repeats=(2, *[1] * (rank - 1))),
        lambda: m.b.trilu(x, upper=m.flag(), k=m.one_of([-1, 0, 1])) if rank > 1 else m.b.concat(x, axis=0),
    ])()  # fmt: skip


def gather(m: Maker) -> Any:
    x = m.numeric(1)
    axis = m.axis(x)
    last = m.least(x.type.dims[axis]) - 1
    if last < 0:
        raise StopIteration
    if m.flag():
        return m.b.gather(x, m.constant(I64, m.one_of([(), (3,), (2, 2)]), -last - 1, last), axis=axis)
    low = [m.least(d) for d in x.type.dims]
    if m.flag():
        return m.b.gather_elements(x, m.constant(I64, tuple(min(d, 2) for d in low), 0, last), axis=axis)
    first = low[0] - 1
    if first < 0:
        raise StopIteration
    return m.b.gather_nd(x, m.constant(I64, (3, 1), 0, first), batch_dims=0)


def scatter(m: Maker) -> Any:
    x = m.float(1)
    low = [m.least(d) for d in x.type.dims]
    axis = m.axis(x)
    if min(low) < 1:
        raise StopIteration
    how = m.one_of(["none", "add", "mul", "max", "min"])
    if m.flag():
        shape = tuple(min(d, 2) for d in low)
        updates = m.constant(x.type.dtype, shape)
        return m.b.scatter_elements(x, m.constant(I64, shape, 0, low[axis] - 1), updates, axis=axis, reduction=how)
    rest = x.type.dims[1:]
    updates = m.b.expand(m.constant(x.type.dtype, ()), shape=(2, *rest))
    return m.b.scatter_nd(x, m.constant(I64, (2, 1), 0, low[0] - 1), updates, reduction=how)


def indices(m: Maker) -> Any:
    x = m.pick(lambda t: t.dtype in (I32, I64))
    if m.flag():
        return m.b.histogram(x, bins=m.one_of([1, 5]))
    return m.b.one_hot(x, depth=4, axis=m.draw(st.integers(0, x.type.rank)), dtype=m.one_of([F32, I64]))


def nonzero(m: Maker) -> Any:
    x = m.pick(lambda t: t.rank >= 1)
    name = f"n{sum(s.startswith('n') for s in m.module.symbols)}"
    m.module.symbols[name] = (0, bounds(x.type.numel(), m.module.symbols)[1])
    return m.b.nonzero(x, count=sym(name))


def sources(m: Maker) -> Any:
    symbols = [sym(s) for s in m.module.symbols if not s.startswith("n")]
    bound = {str(d) for v in m.graph.inputs for d in v.type.dims}
    free = [s for s in symbols if str(s) in bound]
    size: Dim = m.one_of([3, *free])
    number = lambda n: m.b.constant(value=ArrayData(np.array(n, np.int64), I64))  # noqa: E731
    return m.one_of([
        lambda: m.b.iota(size=size, dtype=m.one_of([F32, I64])),
        lambda: m.b.dims(values=(size, 2 * size), scalar=False),
        lambda: m.b.dims(values=(size + 1,), scalar=True),
        lambda: m.b.range(number(1), number(9), number(3), count=3),
        lambda: m.constant(m.one_of([F32, I64]), m.one_of([(), (4,), (5, 4)])),
        lambda: m.weight(m.one_of(m.floats), m.one_of([(4,), (4, 3)])),
    ])()  # fmt: skip


def norm(m: Maker) -> Any:
    x = m.float(1)
    last = x.type.dims[-1]
    weight = m.weight(x.type.dtype, (last,)) if m.flag() else None
    if m.flag():
        return m.b.rms_norm(x, *([weight] if weight else []), eps=1e-5)
    return m.b.layer_norm(x, *([weight] if weight else []), eps=1e-5, axis=x.type.rank - 1)


def routing(m: Maker, experts: int, grouped: bool) -> dict[str, Any]:
    """Routing attributes for ``experts`` of them; with groups of two where ``grouped``."""
    return {
        "top_k": m.one_of([1, 2]),
        "score": m.one_of(["softmax", "sigmoid"]),
        "score_order": m.one_of(["before_topk", "after_topk"]),
        "groups": experts // 2 if grouped else 1,
        "group_top_k": 1,
        "group_score": m.one_of(["max", "sum2"]) if grouped else "none",
        "group_mask": m.one_of(["zero", "minus_inf"]) if grouped else "none",
        "renormalize": m.flag(),
        "renormalize_eps": m.one_of([0.0, 1e-20]),
        "scale": m.one_of([1.0, 2.5]),
        "score_dtype": m.one_of([F32, BF16]),
        "weights_dtype": F32,
    }


def activation(m: Maker) -> dict[str, Any]:
    return {
        "activation": m.one_of(["silu", "gelu", "gelu_tanh", "relu"]),
        "glu": m.one_of(["chunked", "interleaved", "none"]),
        "alpha": 1.0,
        "limit": m.one_of([None, 7.0]),
        "up_offset": m.one_of([0.0, 1.0]),
    }


def capacity(m: Maker, rank: int) -> dict[str, Any]:
    """No limit mostly, else one of tokens or, where there are sequences, of each of them."""
    if m.flag():
        return {"capacity": None, "capacity_scope": "none", "dropped": "none"}
    scope = m.one_of(["tokens", "sequence"]) if rank > 2 else "tokens"
    return {"capacity": m.one_of([1, 2]), "capacity_scope": scope, "dropped": m.one_of(["zero", "input"])}


def moe(m: Maker) -> Any:
    x = m.pick(lambda t: t.dtype.is_float and t.rank >= 2 and small(t.dims[-1]))
    dtype, hidden, experts, inner = x.type.dtype, x.type.dims[-1], 4, 3
    act = activation(m)
    width = inner if act["glu"] == "none" else 2 * inner
    operands: list[Value | None] = [
        m.weight(dtype, s) for s in ((experts, hidden), (experts, width, hidden), (experts, hidden, inner))
    ]
    if m.flag():
        shared = [m.weight(dtype, (width, hidden)), m.weight(dtype, (hidden, inner))]
        operands += [None, m.weight(dtype, (experts,)) if m.flag() else None, None, None, *shared]
    attrs = {**routing(m, experts, m.flag()), **act, "router_dtype": dtype, **capacity(m, x.type.rank)}
    return m.b.moe(x, *operands, weights_on=m.one_of(["output", "input", "activation"]), **attrs)


def steps(m: Maker) -> Any:
    """The five steps that ``moe`` expands into, one after another."""
    x = m.pick(lambda t: t.dtype.is_float and t.rank == 2 and small(t.dims[-1]))
    dtype, hidden, experts, inner = x.type.dtype, x.type.dims[-1], 4, 3
    act = activation(m)
    width = inner if act["glu"] == "none" else 2 * inner
    logits = m.b.matmul(x, m.weight(dtype, (experts, hidden)), transpose_b=True)
    weights, chosen, counts = m.b.gating(logits, **routing(m, experts, m.flag()))
    rows, positions = m.b.permute(x, chosen, counts)
    h = m.b.swiglu(m.b.grouped_matmul(rows, m.weight(dtype, (experts, width, hidden)), counts), **act)
    rows = m.b.grouped_matmul(h, m.weight(dtype, (experts, hidden, inner)), counts)
    return m.b.unpermute(rows, positions, weights) if m.flag() else m.b.unpermute(rows, positions)


def attention(m: Maker) -> Any:
    x = m.pick(lambda t: t.dtype.is_float and 2 <= t.rank <= 4)
    x = m.b.reshape(x, shape=((1,) * (4 - x.type.rank) + x.type.dims)) if x.type.rank < 4 else x
    mask = m.constant(BOOL, (), 0, 1) if m.flag() else None
    attrs = {"causal": m.flag(), "offset": 0, "window": m.one_of([None, 2]), "softcap": m.one_of([None, 20.0])}
    return m.b.attention(x, x, x, *([mask] if mask else []), scale=0.5, empty_rows="zero", **attrs)


def rope(m: Maker) -> Any:
    x = m.pick(lambda t: t.dtype.is_float and t.rank >= 1 and isinstance(t.dims[-1], int) and t.dims[-1] >= 2)
    tables = [m.constant(x.type.dtype, (1,)) for _ in range(2)]
    return m.b.rope(x, *tables, rotary_dim=2, layout=m.one_of(["half", "interleaved", "interleaved_to_half"]))


def loss(m: Maker) -> Any:
    x = m.pick(lambda t: t.dtype.is_float and t.rank >= 1 and t.dims[-1] == 4)
    labels = m.b.cast(m.constant(I64, (), 0, 3), to=m.one_of([I32, I64]))
    return m.b.cross_entropy(x, m.b.expand(labels, shape=x.type.dims[:-1]), ignore=m.one_of([None, 1]))


MAKERS: tuple[Callable[[Maker], Any], ...] = (
    unary, unary, binary, binary, binary, logic, select, with_attributes, cast_integer, reduce, along_axis, matmul,
    reshape, layout, gather, scatter, indices, nonzero, sources, norm, moe, steps,
    attention, attention, rope, loss,
)  # fmt: skip

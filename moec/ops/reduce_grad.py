"""Gradients of reductions, softmax and scans; computed in f32 for 16-bit."""

from __future__ import annotations

from moec.ir.graph import Node, Value
from moec.ir.symbol import Dim
from moec.ops.tape import Gradients, Tape


def kept(t: Tape, node: Node, value: Value) -> Value:
    """A reduction's result, or its gradient, with the reduced dimensions as 1."""
    axes = node.attrs["axes"]
    return t.reshaped(value, tuple(1 if i in axes else d for i, d in enumerate(node.operand(0).type.dims)))


def _wide_dy(t: Tape, dys: tuple[Value | None, ...]) -> Value:
    dy = dys[0]
    assert dy is not None
    return t.wide(dy)


def reduce_sum(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """dy along the reduced dimensions."""
    dy = dys[0]
    assert dy is not None
    return [t.expanded(t.narrow(kept(t, node, dy), 0), node.operand(0).type.dims)]


def reduce_mean(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """dy over the number of elements, along the reduced dimensions."""
    dims, dy = node.operand(0).type.dims, _wide_dy(t, dys)
    count: Dim = 1
    for axis in node.attrs["axes"]:
        count = count * dims[axis]
    if isinstance(count, int):
        share = t.scaled(dy, 1 / max(count, 1))
    else:
        share = t.div(dy, t.cast(t.dims(values=(count,), scalar=True), to=dy.type.dtype))
    return [t.expanded(t.narrow(kept(t, node, share), 0), dims)]


def reduce_extreme(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """dy where x is the extreme; in equal parts where several are."""
    x, dy = node.operand(0), kept(t, node, _wide_dy(t, dys))
    hit = t.cast(t.eq(x, kept(t, node, node.result)), to=dy.type.dtype)
    among = t.reduce_sum(hit, axes=node.attrs["axes"], keepdims=True)
    return [t.narrow(t.mul(hit, t.div(dy, among)), 0)]


def reduce_prod(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """dy times the product of the other elements, whichever of them are 0."""
    x, dy, axes = t.wide(node.operand(0)), kept(t, node, _wide_dy(t, dys)), node.attrs["axes"]
    zero, one = (t.constant_of(v, x.type.dtype) for v in (0.0, 1.0))
    missing = t.eq(x, zero)
    filled = t.select(missing, one, x)
    rest = t.mul(dy, t.reduce_prod(filled, axes=axes, keepdims=True))
    zeros = t.reduce_sum(t.cast(missing, to=x.type.dtype), axes=axes, keepdims=True)
    alone = t.select(t.eq(zeros, one), rest, zero)
    whole = t.div(t.select(t.eq(zeros, zero), rest, zero), filled)
    return [t.narrow(t.select(missing, alone, whole), 0)]


def softmax(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """y (dy - sum(dy y))."""
    y, dy = t.wide(node.result), _wide_dy(t, dys)
    product = t.mul(dy, y)
    total = t.reduce_sum(product, axes=(node.attrs["axis"],), keepdims=True)
    return [t.narrow(t.sub(product, t.mul(y, total)), 0)]


def log_softmax(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """dy - e^y sum(dy)."""
    y, dy = t.wide(node.result), _wide_dy(t, dys)
    total = t.reduce_sum(dy, axes=(node.attrs["axis"],), keepdims=True)
    return [t.narrow(t.sub(dy, t.mul(t.exp(y), total)), 0)]


def cumsum(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """The running sum of dy from the other end."""
    attrs = {**node.attrs, "reverse": not node.attrs["reverse"]}
    return [t.narrow(t.cumsum(_wide_dy(t, dys), **attrs), 0)]


GRADS = {
    "reduce_sum": reduce_sum,
    "reduce_mean": reduce_mean,
    "reduce_max": reduce_extreme,
    "reduce_min": reduce_extreme,
    "reduce_prod": reduce_prod,
}

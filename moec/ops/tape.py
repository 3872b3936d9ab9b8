"""What a gradient function is given: a builder of backward nodes that knows the node it stands for.

An op declares its gradient on its class::

    @staticmethod
    def grad(t: Tape, node: Node, *dys: Value | None) -> Sequence[Value | None]:
        x = node.operand(0)
        return [t.mul(dys[0], t.cos(x))]

``dys`` holds one gradient a result, None where the loss does not depend on it; at least one is there. What comes back
is one gradient an operand (a variadic one: one each), None where there is none or where ``t.wanted(i)`` is False.
Operands and results of ``node`` are used as they stand: autodiff puts a ``save`` between whatever backward reads of
forward.

A gradient has its operand's shape, whatever the dims are: what an op broadcasts, ``t.summed`` adds up again. It has
the operand's dtype, or that of ``t.dtype(i)`` where the operand is a weight whose gradient is wanted wider. Work on
16-bit floats of more than one rounding is done in f32 between ``t.wide`` and ``t.narrow``.

An op whose results do not vary with its operands (a choice of indices, a count, a step function) says ``nondiff``
instead: no gradient goes through it, which is right. An op whose results do vary but whose gradient is not known
declares ``grad = no_grad(reason)``: a graph that needs it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from moec.ir.data import ArrayData
from moec.ir.graph import NOWHERE, Graph, Node, Origin, Value
from moec.ir.symbol import Shape
from moec.ir.types import F32, DType, TensorType
from moec.ops.build import make_node

Gradients = Sequence[Value | None]
"""One gradient an operand of the node; None where there is none."""


REASON = "no_gradient"


class NoGradient(Exception):
    """A gradient function has none for the node as it is; the text says why."""


def no_grad(reason: str) -> staticmethod[..., Gradients]:
    """A gradient function for an op that has none though its results vary with its operands."""

    def grad(t: Tape, node: Node, *dys: Value | None) -> Gradients:
        raise NoGradient(reason)

    setattr(grad, REASON, reason)
    return staticmethod(grad)


def refusal(grad: Callable[..., Gradients] | None) -> str:
    """Why a gradient function of ``no_grad`` has none; nothing for one that computes."""
    return str(getattr(grad, REASON, ""))


class Tape:
    """Builds nodes at the end of ``graph`` for the backward of ``node``: ``t.mul(a, b)`` as ``Builder`` does.

    ``node``, ``wants`` (an operand's gradient is read) and ``dtypes`` (what it shall be given in) are set before each
    gradient function is called.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self.origin: Origin = NOWHERE
        self.wants: Sequence[bool] = ()
        self.dtypes: Sequence[DType | None] = ()

    def wanted(self, index: int) -> bool:
        """Whether anybody reads the gradient of operand ``index``; False for one that is absent."""
        return index < len(self.wants) and self.wants[index]

    def dtype(self, index: int) -> DType:
        """The dtype in which the gradient of operand ``index`` is wanted."""
        found = self.dtypes[index]
        if found is None:
            raise ValueError(f"operand {index} has no gradient")
        return found

    def node(self, op: str, *operands: Value | None, **attrs: Any) -> Node:
        """Build and append; the node itself."""
        return self.graph.insert(make_node(op, list(operands), attrs, self.origin), None)

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if op.startswith("_"):
            raise AttributeError(op)

        def build(*operands: Value | None, **attrs: Any) -> Any:
            results = self.node(op, *operands, **attrs).results
            return results[0] if len(results) == 1 else tuple(results)

        return build

    def cast_to(self, x: Value, dtype: DType) -> Value:
        """x in ``dtype``; x itself where it has it."""
        if x.type.dtype is dtype:
            return x
        made: Value = self.cast(x, to=dtype)
        return made

    def wide(self, x: Value) -> Value:
        """x in f32 where it is a narrower float, else x itself."""
        return self.cast_to(x, F32) if x.type.dtype.is_float and x.type.dtype.bits < 32 else x

    def narrow(self, g: Value, index: int) -> Value:
        """g in the dtype wanted for the gradient of operand ``index``."""
        return self.cast_to(g, self.dtype(index))

    def constant_of(self, value: float, dtype: DType) -> Value:
        """The number ``value`` as a constant of rank 0."""
        with np.errstate(over="ignore"):
            array = np.array(value, np.float64).astype(dtype.carrier)
        made: Value = self.constant(value=ArrayData(array, dtype))
        return made

    def full(self, value: float, type: TensorType) -> Value:
        """A tensor of ``type`` full of ``value``."""
        scalar = self.constant_of(value, type.dtype)
        made: Value = self.expand(scalar, shape=type.dims) if type.dims else scalar
        return made

    def zeros(self, type: TensorType) -> Value:
        """A tensor of zeros."""
        return self.full(0.0, type)

    def scaled(self, x: Value, factor: float) -> Value:
        """x times a number."""
        if factor == 1.0:
            return x
        made: Value = self.mul(x, self.constant_of(factor, x.type.dtype))
        return made

    def reshaped(self, x: Value, shape: Shape) -> Value:
        """x under another shape; x itself where it has it."""
        made: Value = x if x.type.dims == shape else self.reshape(x, shape=shape)
        return made

    def expanded(self, x: Value, shape: Shape) -> Value:
        """x broadcast to a shape; x itself where it has it."""
        made: Value = x if x.type.dims == shape else self.expand(x, shape=shape)
        return made

    def summed(self, g: Value, like: Value) -> Value:
        """g summed over the dimensions along which ``like`` was broadcast to g's shape; of ``like``'s shape.

        Two sizes that are not the same expression and of which neither is 1 must be equal when it runs.
        """
        have, want = g.type.dims, like.type.dims
        lead = len(have) - len(want)
        axes = (*range(lead), *(i for i, d in enumerate(want, lead) if d == 1 and have[i] != 1))
        if axes:
            g = self.reduce_sum(g, axes=axes, keepdims=len(axes) > lead)
        return self.reshaped(g, want)

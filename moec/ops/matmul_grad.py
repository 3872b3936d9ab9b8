"""Gradients of matrix products: one product for each operand, so that dW and dX are nodes of their own."""

from __future__ import annotations

from moec.ir.graph import Node, Value
from moec.ir.types import F32, DType
from moec.ops.tape import Gradients, Tape


def matmul(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """da = dy b^T and db = a^T dy, summed over the dimensions that were broadcast; transposed operands likewise."""
    a, b, dy = node.operand(0), node.operand(1), dys[0]
    assert dy is not None
    swapped_a, swapped_b = node.attrs["transpose_a"], node.attrs["transpose_b"]
    da = db = None
    if dy.type.dtype is not a.type.dtype and node.attrs["to"] is not None:
        dy = t.cast_to(dy, a.type.dtype) if a.type.dtype.bits < dy.type.dtype.bits else dy
        a, b = (t.cast_to(v, dy.type.dtype) for v in (a, b))
    if t.wanted(0):
        left, right = (b, dy) if swapped_a else (dy, b)
        da = _product(t, left, right, swapped_a and swapped_b, swapped_a or not swapped_b, node, 0)
    if t.wanted(1):
        left, right = (dy, a) if swapped_b else (a, dy)
        db = _product(t, left, right, swapped_b or not swapped_a, swapped_a and swapped_b, node, 1)
    return [da, db]


def _product(t: Tape, a: Value, b: Value, swap_a: bool, swap_b: bool, node: Node, index: int) -> Value:
    """a b as the gradient of operand ``index`` of the product ``node``: written in the dtype that is wanted, or in f32
    where it is then summed over what the operand was broadcast along.

    A weight under a batch of activations takes one product over the batch and the rows, not a batch of products.
    """
    like, want = node.operand(index), t.dtype(index)
    summed = like.type.dims[:-2] != node.result.type.dims[:-2]
    if swap_a and not swap_b and like.type.rank == 2 and a.type.rank == b.type.rank > 2:
        a, b, summed = _flat(t, a), _flat(t, b), False
    made: Value = t.matmul(a, b, transpose_a=swap_a, transpose_b=swap_b, to=_to(a, F32 if summed else want))
    return t.narrow(t.summed(made, like) if summed else made, index)


def _to(a: Value, want: DType) -> DType | None:
    """The result dtype to ask of a product: None for the operands' own; a product does not narrow."""
    return want if want.bits > a.type.dtype.bits else None


def _flat(t: Tape, x: Value) -> Value:
    """x with all dimensions but the last as rows; the leading ones of both factors are the same."""
    rows = x.type.with_shape(x.type.dims[:-1]).numel()
    return t.reshaped(x, (rows, x.type.dims[-1]))

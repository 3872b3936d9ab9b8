"""Einsum as sums, transposes and matrix products, two operands at a time from the left."""

from __future__ import annotations

import math
from collections.abc import Sequence

from moec.frontend.onnx.context import Op
from moec.frontend.onnx.errors import NoForm
from moec.frontend.onnx.nodes.broadcasting import reshaped
from moec.frontend.onnx.table import onnx_op
from moec.ir.graph import Value
from moec.ir.symbol import Dim

Labelled = tuple[Value, str]
"""A value and the label of each of its dimensions."""


@onnx_op("Einsum", first=12, last=28)
def _einsum(op: Op) -> Value:
    values = [op.value(i) for i in range(len(op.node.inputs))]
    terms, result = _labels(str(op.attr("equation", "")), len(values))
    _check(values, terms, result)
    left = (values[0], terms[0])
    for i in range(1, len(values)):
        wanted = result if i + 1 == len(values) else "".join(dict.fromkeys(result + "".join(terms[i + 1 :])))
        left = _contracted(op, left, (values[i], terms[i]), wanted)
    return _ordered(op, _summed(op, left, result), result)


def _labels(equation: str, count: int) -> tuple[list[str], str]:
    """The labels of each operand and of the result, which are those that stand once, sorted, where it is not said."""
    operands, arrow, result = equation.replace(" ", "").partition("->")
    terms = operands.split(",")
    if "." in equation:
        raise NoForm("an ellipsis in the equation is not supported")
    if len(terms) != count:
        raise ValueError(f"the equation '{equation}' has {len(terms)} operands, the node {count}")
    if not arrow:
        result = "".join(sorted(c for c in set(operands) - {","} if operands.count(c) == 1))
    return terms, result


def _check(values: Sequence[Value], terms: Sequence[str], result: str) -> None:
    """A label is one size everywhere and stands once in a term; else NoForm."""
    sizes: dict[str, Dim] = {}
    for value, term in zip(values, terms, strict=True):
        if not value.type.dtype.is_float:
            raise NoForm(f"sums of products of {value.type.dtype} are not supported")
        if len(term) != value.type.rank:
            raise ValueError(f"the labels '{term}' are not those of a tensor of rank {value.type.rank}")
        for label, size in zip(term, value.type.dims, strict=True):
            if sizes.setdefault(label, size) != size:
                raise NoForm(f"the label '{label}' has two sizes, {sizes[label]} and {size}")
    if any(len(set(t)) != len(t) for t in (*terms, result)):
        raise NoForm("a label that stands twice in a term (a diagonal) is not supported")
    if not set(result) <= set(sizes):
        raise ValueError(f"the result's labels '{result}' are not all in '{','.join(terms)}'")


def _summed(op: Op, x: Labelled, kept: str) -> Labelled:
    """The sum over the labels that nobody else has."""
    value, labels = x
    axes = tuple(i for i, c in enumerate(labels) if c not in kept)
    if not axes:
        return x
    return op.emit("reduce_sum", value, axes=axes, keepdims=False), "".join(c for c in labels if c in kept)


def _ordered(op: Op, x: Labelled, labels: str) -> Value:
    perm = tuple(x[1].index(c) for c in labels)
    return x[0] if perm == tuple(range(len(perm))) else op.emit("transpose", x[0], perm=perm)


def _sizes(x: Labelled, labels: str) -> list[Dim]:
    return [x[0].type.dims[x[1].index(c)] for c in labels]


def _contracted(op: Op, a: Labelled, b: Labelled, wanted: str) -> Labelled:
    """The product of two operands, summed over the labels that are not wanted after it."""
    a, b = _summed(op, a, wanted + b[1]), _summed(op, b, wanted + a[1])
    inner = "".join(c for c in a[1] if c in b[1] and c not in wanted)
    batch = "".join(c for c in a[1] if c in b[1] and c in wanted)
    rows, columns = ("".join(c for c in x if c not in inner + batch) for x in (a[1], b[1]))
    labels = batch + rows + columns
    if not inner:
        return op.emit("mul", *(_spread(op, x, labels) for x in (a, b))), labels
    as_stored = b[1] == batch + columns + inner
    left = _flat(op, a, [*batch, rows, inner])
    right = _flat(op, b, [*batch, columns, inner] if as_stored else [*batch, inner, columns])
    y = op.emit("matmul", left, right, transpose_a=False, transpose_b=as_stored)
    return reshaped(op, y, [*_sizes(a, batch + rows), *_sizes(b, columns)]), labels


def _spread(op: Op, x: Labelled, labels: str) -> Value:
    """``x`` with its dimensions in the order of ``labels``, of size 1 where it has none."""
    own = "".join(c for c in labels if c in x[1])
    return reshaped(op, _ordered(op, x, own), [_sizes(x, c)[0] if c in own else 1 for c in labels])


def _flat(op: Op, x: Labelled, groups: Sequence[str]) -> Value:
    """``x`` with one dimension for each group of labels."""
    return reshaped(op, _ordered(op, x, "".join(groups)), [math.prod(_sizes(x, g), start=1) for g in groups])

"""What is known of index tensors: that no element is negative, that every element lies below a bound, that they are a
permutation.
"""

from __future__ import annotations

from moec.ir.graph import Node, Value
from moec.ir.symbol import Dim

DEPTH = 32
"""Chains of ops longer than this are not followed."""

MOVES = ("reshape", "transpose", "expand", "slice", "gather", "gather_nd", "gather_elements", "tile", "save")
"""Ops whose results hold only elements of their first operand."""


def nonnegative(value: Value, depth: int = DEPTH) -> bool:
    """Whether no element of an integer tensor can be negative, by what made it."""
    node = value.producer
    if node is None or depth == 0:
        return False
    if node.op in ("iota", "argsort", "argmax", "argmin", "nonzero", "histogram", "dims"):
        return True
    if _is_choice(value, node):
        return True
    if node.op == "constant":
        return bool((node.attrs["value"].numpy() >= 0).all())
    if node.op in MOVES or node.op == "cast":
        operand = node.operand(0)
        return operand.type.dtype.kind in ("int", "uint", "bool") and nonnegative(operand, depth - 1)
    if node.op in ("add", "mul", "div", "maximum", "minimum", "concat", "cumsum", "reduce_sum"):
        return all(nonnegative(v, depth - 1) for v in node.operands if v is not None)
    if node.op == "mod":
        return nonnegative(node.operand(1), depth - 1) and not node.attrs["fmod"]
    if node.op == "scatter_elements" and node.attrs["reduction"] == "none":
        return nonnegative(node.operand(0), depth - 1) and nonnegative(node.operand(2), depth - 1)
    return False


def below(value: Value, bound: Dim, depth: int = DEPTH) -> bool:
    """Whether every element of an index tensor is less than ``bound``, by what chose it."""
    node = value.producer
    if node is None or depth == 0:
        return False
    if node.op in ("topk", "argmax", "argmin", "argsort") and _is_index(value, node):
        return node.operand(0).type.dims[node.attrs["axis"]] == bound
    if node.op == "gating" and value.index == 1:
        return node.operand(0).type.dims[1] == bound
    if node.op in MOVES or (node.op == "cast" and node.operand(0).type.dtype.is_int):
        return below(node.operand(0), bound, depth - 1)
    return False


def permutation(value: Value, depth: int = DEPTH) -> bool:
    """Whether an index tensor holds each of 0..n-1 once, n being its number of elements, by what made it."""
    node = value.producer
    if node is None or depth == 0:
        return False
    if node.op == "permute":
        return value.index == 1
    if node.op in ("argsort", "iota"):
        return value.type.rank == 1
    if node.op == "scatter_elements" and node.attrs["reduction"] == "none":
        base, at, updates = (node.operand(i) for i in range(3))
        if value.type.rank != 1 or not base.type.dims == at.type.dims == updates.type.dims:
            return False
        return permutation(at, depth - 1) and permutation(updates, depth - 1)
    if node.op in ("reshape", "cast", "save") and node.operand(0).type.dtype.is_int:
        return permutation(node.operand(0), depth - 1)
    if node.op == "gather":
        same = node.operand(0).type.numel() == node.operand(1).type.numel()
        return same and permutation(node.operand(0), depth - 1) and permutation(node.operand(1), depth - 1)
    return False


def _is_choice(value: Value, node: Node) -> bool:
    """Whether the value is a choice or a place that an op of moec's own gives."""
    if node.op == "topk":
        return value.index == 1
    return (node.op == "gating" and value.index >= 1) or (node.op == "permute" and value.index == 1)


def _is_index(value: Value, node: Node) -> bool:
    return node.op != "topk" or value.index == 1

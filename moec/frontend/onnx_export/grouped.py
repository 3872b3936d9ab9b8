"""Work on rows that stand sorted by expert, in standard operators: rows split by the counts, one product or sum an
expert, and one Concat.
"""

from __future__ import annotations

from collections.abc import Callable

from moec.frontend.onnx_export.scope import Scope
from moec.ir.graph import Node
from moec.ir.symbol import Dim
from moec.ir.types import F32, F64, I64


def spell_grouped_matmul(s: Scope, node: Node, x: list[str]) -> list[str]:
    """The result's name; ValueError where the number of experts is not a number."""
    experts = _experts(node, node.operand(1).type.dims[0])
    dtype = node.result.type.dtype
    rows, weight = (_wide(s, name, dtype.name) for name in x[:2])
    rows = _taken(s, rows, x, 4)
    pieces = _pieces(s, rows, x[2], experts)
    turned = s.one("Transpose", weight, perm=[0, 2, 1]) if node.attrs["transpose_weight"] else weight
    sides = s.node("Split", [turned], experts, axis=0, num_outputs=experts)
    products = [s.one("MatMul", p, w) for p, w in zip(pieces, sides, strict=True)]
    if len(x) > 3 and x[3]:
        biases = s.node("Split", [_wide(s, x[3], dtype.name)], experts, axis=0, num_outputs=experts)
        products = [s.one("Add", p, c) for p, c in zip(products, biases, strict=True)]
    joined = s.one("Concat", *products, axis=1)
    return [_narrow(s, s.one("Squeeze", joined, s.ints(0)), node)]


def spell_grouped_matmul_dw(s: Scope, node: Node, x: list[str]) -> list[str]:
    """The result's name; ValueError where the number of experts is not a number."""
    experts = _experts(node, node.operand(2).type.dims[0])
    wide = [_wide(s, name, node.operand(0).type.dtype.name) for name in x[:2]]
    dy, rows = (_pieces(s, name, x[2], experts) for name in (wide[0], _taken(s, wide[1], x, 3)))
    products = [s.one("MatMul", s.one("Transpose", d, perm=[1, 0]), r) for d, r in zip(dy, rows, strict=True)]
    return [_narrow(s, s.one("Concat", *[s.one("Unsqueeze", p, s.ints(0)) for p in products], axis=0), node)]


def spell_segment_sum(s: Scope, node: Node, x: list[str]) -> list[str]:
    """The result's name; ValueError where the number of experts is not a number."""
    experts = _experts(node, node.operand(1).type.dims[0])
    pieces = _pieces(s, _wide(s, x[0], node.operand(0).type.dtype.name), x[1], experts)
    sums = [s.one("ReduceSum", p, s.ints(0), keepdims=1) for p in pieces]
    return [_narrow(s, s.one("Concat", *sums, axis=0), node)]


GROUPED: dict[str, Callable[[Scope, Node, list[str]], list[str]]] = {
    "grouped_matmul": spell_grouped_matmul,
    "grouped_matmul_dw": spell_grouped_matmul_dw,
    "segment_sum": spell_segment_sum,
}
"""The spelling of each op on rows that stand sorted by expert."""


def _experts(node: Node, experts: Dim) -> int:
    if not isinstance(experts, int):
        raise ValueError(f"{node.op} over {experts} experts: the number of experts must be known for export")
    return experts


def _taken(s: Scope, rows: str, x: list[str], source: int) -> str:
    """The rows that operand ``source`` picks, where it is given."""
    return s.one("Gather", rows, x[source], axis=0) if len(x) > source and x[source] else rows


def _pieces(s: Scope, rows: str, counts: str, experts: int) -> list[str]:
    """Each expert's rows."""
    return s.node("Split", [rows, s.one("Cast", counts, to=I64.onnx)], experts, axis=0)


def _wide(s: Scope, name: str, dtype: str) -> str:
    return name if dtype in ("f32", "f64") else s.one("Cast", name, to=F32.onnx)


def _narrow(s: Scope, name: str, node: Node) -> str:
    """The result in its declared dtype, from the one that sums are taken in."""
    summed, dtype = node.operand(0).type.dtype, node.result.type.dtype
    held = summed if summed in (F32, F64) else F32
    return name if dtype is held else s.one("Cast", name, to=dtype.onnx)

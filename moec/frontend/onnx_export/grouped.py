"""grouped_matmul in standard operators: rows split by the counts, one MatMul an expert, and one Concat."""

from __future__ import annotations

from moec.frontend.onnx_export.scope import Scope
from moec.ir.graph import Node
from moec.ir.types import F32, F64, I64


def spell_grouped_matmul(s: Scope, node: Node, x: list[str]) -> list[str]:
    """The result's name; ValueError where the number of experts is not a number."""
    experts, *_ = node.operand(1).type.dims
    dtype = node.result.type.dtype
    if not isinstance(experts, int):
        raise ValueError(f"grouped_matmul over {experts} experts: the number of experts must be known for export")
    rows, weight = (_wide(s, name, dtype.name) for name in x[:2])
    sizes = s.one("Cast", x[2], to=I64.onnx)
    pieces = s.node("Split", [rows, sizes], experts, axis=0)
    sides = s.node("Split", [s.one("Transpose", weight, perm=[0, 2, 1])], experts, axis=0, num_outputs=experts)
    products = [s.one("MatMul", p, w) for p, w in zip(pieces, sides, strict=True)]
    if len(x) > 3 and x[3]:
        biases = s.node("Split", [_wide(s, x[3], dtype.name)], experts, axis=0, num_outputs=experts)
        products = [s.one("Add", p, c) for p, c in zip(products, biases, strict=True)]
    joined = s.one("Concat", *products, axis=1)
    y = s.one("Squeeze", joined, s.ints(0))
    return [y if dtype in (F32, F64) else s.one("Cast", y, to=dtype.onnx)]


def _wide(s: Scope, name: str, dtype: str) -> str:
    return name if dtype in ("f32", "f64") else s.one("Cast", name, to=F32.onnx)

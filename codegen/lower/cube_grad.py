"""Lowering of the gradients of grouped weights."""

from __future__ import annotations

from typing import Any

from moec.codegen.kernels.grouped_dw import GroupedDW, empty_zero_kernel, grouped_dw_kernel
from moec.codegen.lower.base import Lowering, device_dtype, lowering, node_name, where
from moec.codegen.lower.cube import need_cube
from moec.codegen.tiling import cube_tile
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node


@lowering("grouped_matmul_dw")
def grouped_matmul_dw(cx: Lowering, node: Node) -> None:
    dy, rows, counts = node.operand(0), node.operand(1), node.operand(2)
    source = (*node.operands[3:], None)[0]
    dtype = need_cube(node, dy.type, rows.type)
    (s, n), k, experts = dy.type.dims, rows.type.dims[1], counts.type.dims[0]
    if not (isinstance(experts, int) and isinstance(n, int) and isinstance(k, int)):
        what = "grouped_matmul_dw needs weights of known size"
        raise NoKernel(Problem(what, where(node), "give the sizes as numbers"))
    out = device_dtype(node.result.type.dtype)
    per_expert = -(-cx.size(s) // max(experts, 1))
    how: dict[str, Any] = {"out": out, "groups": min(experts, cx.size(s)), "a_by_k": True, "b_by_k": True}
    gathered = "" if source is None else "b"
    tile = cube_tile(n, k, per_expert, dtype, cx.capacities, node_name(node), gathered=gathered, **how)
    hi = None if source is None else cx.bounds(rows.type.dims[0])[1]
    grouped = GroupedDW(experts, n, k, dtype, out, cx.bounds(s)[1], hi)
    kernel = grouped_dw_kernel(f"grouped_matmul_dw_{dtype}", cx.capacities, tile, grouped)
    result = cx.result(node)
    zero = empty_zero_kernel("zero_empty_experts", cx.capacities, experts, n * k, out)
    cx.launch(node, zero, {"counts": cx.tensor(counts), "out": result}, {})
    operands = {"dy": cx.tensor(dy), "rows": cx.tensor(rows), "counts": cx.tensor(counts), "out": result}
    if source is not None:
        operands["source"] = cx.tensor(source)
    cx.launch(node, kernel, operands, {"S": s, "R": rows.type.dims[0]})

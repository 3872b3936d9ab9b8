"""Lowering of matmul and grouped_matmul to the cube kernels."""

from __future__ import annotations

from moec.codegen.kernels.cube import Grouped, Product, grouped_matmul_kernel, matmul_kernel
from moec.codegen.lower.base import Lowering, device_dtype, lowering, node_name, where
from moec.codegen.tiling import cube_tile
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node
from moec.ir.symbol import Dim
from moec.ir.types import TensorType

CUBE = ("f32", "f16", "bf16")


def _need_cube(node: Node, *types: TensorType) -> str:
    names = {t.dtype.name for t in types}
    if len(names) > 1 or not names <= set(CUBE):
        raise NoKernel(
            Problem(f"{node.op} of {', '.join(sorted(names))} has no kernel", where(node), f"one of {', '.join(CUBE)}")
        )
    return names.pop()


def _number(dim: Dim) -> int | None:
    return dim if isinstance(dim, int) else None


def _product_of(dims: tuple[Dim, ...]) -> Dim:
    total: Dim = 1
    for d in dims:
        total = total * d
    return total


@lowering("matmul")
def matmul(cx: Lowering, node: Node) -> None:
    a, b = node.operand(0), node.operand(1)
    dtype = _need_cube(node, a.type, b.type)
    a_dims, b_dims = a.type.dims, b.type.dims
    by_k = not node.attrs["transpose_b"]
    if node.attrs["transpose_a"] and a_dims[-2] != 1:
        raise NoKernel(
            Problem("matmul with a transposed first operand has no kernel", where(node), "transpose it first")
        )
    m, depth = (a_dims[-1], a_dims[-2]) if node.attrs["transpose_a"] else (a_dims[-2], a_dims[-1])
    n = b_dims[-1] if by_k else b_dims[-2]
    batch: Dim = 1
    if len(b_dims) == 2:
        m = _product_of((*a_dims[:-2], m))
    elif a_dims[:-2] == b_dims[:-2]:
        batch = _product_of(a_dims[:-2])
    else:
        what = f"matmul that broadcasts {list(map(str, a_dims))} with {list(map(str, b_dims))} has no kernel"
        raise NoKernel(Problem(what, where(node), "expand the smaller operand first"))
    tile = cube_tile(cx.size(m), cx.size(n), cx.size(depth), dtype, cx.capacities, node_name(node))
    out = device_dtype(node.result.type.dtype)
    sizes = {"B": batch, "M": m, "N": n, "K": depth}
    hi = max(cx.bounds(d)[1] for d in sizes.values())
    product = Product(_number(m), _number(n), _number(depth), _number(batch), dtype, out, by_k, hi)
    kernel = matmul_kernel(f"matmul_{dtype}", cx.capacities, tile, product)
    operands = {"a": cx.tensor(a), "b": cx.tensor(b), "c": cx.result(node)}
    cx.launch(node, kernel, operands, {k: d for k, d in sizes.items() if not isinstance(d, int)})


@lowering("grouped_matmul")
def grouped_matmul(cx: Lowering, node: Node) -> None:
    rows, weight, counts = node.operand(0), node.operand(1), node.operand(2)
    if len(node.operands) > 3 and node.operands[3] is not None:
        raise NoKernel(
            Problem("grouped_matmul with a bias has no kernel", where(node), "add the bias in the activation")
        )
    if not node.attrs["transpose_weight"]:
        what = "grouped_matmul by weights as they are has no kernel"
        raise NoKernel(Problem(what, where(node), "transpose the weights and leave transpose_weight as true"))
    dtype = _need_cube(node, rows.type, weight.type)
    (s, _), (experts, n, depth) = rows.type.dims, weight.type.dims
    if not (isinstance(experts, int) and isinstance(n, int) and isinstance(depth, int)):
        raise NoKernel(Problem("grouped_matmul needs weights of known size", where(node), "give the sizes as numbers"))
    per_expert = -(-cx.size(s) // max(experts, 1))
    tile = cube_tile(per_expert, n, depth, dtype, cx.capacities, node_name(node))
    grouped = Grouped(experts, n, depth, dtype, device_dtype(node.result.type.dtype), cx.bounds(s)[1])
    kernel = grouped_matmul_kernel(f"grouped_matmul_{dtype}", cx.capacities, tile, grouped)
    operands = {
        "rows": cx.tensor(rows),
        "w": cx.tensor(weight),
        "counts": cx.tensor(counts),
        "out": cx.result(node),
    }
    cx.launch(node, kernel, operands, {"S": s})

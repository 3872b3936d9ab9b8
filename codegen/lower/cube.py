"""Lowering of matmul and grouped_matmul to the cube kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from moec.codegen.kernels.grouped import Grouped, grouped_matmul_kernel
from moec.codegen.kernels.matmul import Product, Repeat, matmul_kernel
from moec.codegen.kernels.vector.grouped_bias import GroupedBias, grouped_bias_kernel
from moec.codegen.kernels.vector.parts import parts_kernel
from moec.codegen.lower.base import Lowering, device_dtype, lowering, node_name, where
from moec.codegen.lower.sizes import numel
from moec.codegen.tiling import cube_tile, streamed
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node
from moec.ir.symbol import Dim
from moec.ir.types import TensorType

CUBE = ("f32", "f16", "bf16")


def need_cube(node: Node, *types: TensorType) -> str:
    """The dtype of a product's operands; NoKernel where the cube has none for them."""
    names = {t.dtype.name for t in types}
    if len(names) > 1 or not names <= set(CUBE):
        raise NoKernel(
            Problem(f"{node.op} of {', '.join(sorted(names))} has no kernel", where(node), f"one of {', '.join(CUBE)}")
        )
    return names.pop()


def _number(dim: Dim) -> int | None:
    return dim if isinstance(dim, int) else None


def _repeat(lead: tuple[Dim, ...], own: tuple[Dim, ...], node: Node) -> tuple[Repeat | None, dict[str, Dim]]:
    """How an operand with leading dimensions ``own`` goes through a batch of ``lead``: its items, and for how many
    items of the batch on end each is used."""
    own = (1,) * (len(lead) - len(own)) + own
    if own == lead:
        return None, {}
    there = [i for i, (d, full) in enumerate(zip(own, lead, strict=True)) if d != 1 or full == 1]
    kept = [i for i in there if lead[i] != 1]
    first, last = (kept[0], kept[-1]) if kept else (len(lead), len(lead) - 1)
    if any(own[i] != lead[i] for i in range(first, last + 1)):
        what = f"matmul that repeats {list(map(str, own))} in {list(map(str, lead))} has no kernel"
        raise NoKernel(Problem(what, where(node), "expand the smaller operand first"))
    items, each = numel(lead[first : last + 1]), numel(lead[last + 1 :])
    if not kept:
        items, each = 1, 1
    return Repeat(_number(items), _number(each)), {"Items": items, "Each": each}


@lowering("matmul")
def matmul(cx: Lowering, node: Node) -> None:
    a, b = node.operand(0), node.operand(1)
    dtype = need_cube(node, a.type, b.type)
    a_dims, b_dims = a.type.dims, b.type.dims
    by_k, a_by_k = not node.attrs["transpose_b"], bool(node.attrs["transpose_a"] and a.type.dims[-2] != 1)
    m, depth = (a_dims[-1], a_dims[-2]) if node.attrs["transpose_a"] else (a_dims[-2], a_dims[-1])
    n = b_dims[-1] if by_k else b_dims[-2]
    batch: Dim = 1
    repeats: dict[str, Repeat | None] = {"a": None, "b": None}
    sizes: dict[str, Dim] = {}
    if len(b_dims) == 2 and not a_by_k:
        m = numel((*a_dims[:-2], m))
    else:
        lead = node.result.type.dims[:-2]
        batch = numel(lead)
        for name, own in (("a", a_dims[:-2]), ("b", b_dims[:-2])):
            repeats[name], given = _repeat(lead, own, node)
            sizes |= {f"{name}{what}": d for what, d in given.items()}
    out = device_dtype(node.result.type.dtype)
    typical = cx.size(m), cx.size(n), cx.size(depth)
    how: dict[str, Any] = {
        "out": out,
        "groups": cx.size(batch),
        "a_by_k": a_by_k,
        "b_by_k": by_k,
        "known_k": isinstance(depth, int),
        "may_split": True,
    }
    tile = cube_tile(*typical, dtype, cx.capacities, node_name(node), **how)
    once = "".join(x for x in streamed(tile, _number(m), _number(n)) if repeats[x] is None)
    tile = replace(tile, bypass=once)
    split = tile.splits > 1
    sizes |= {"B": batch, "M": m, "N": n, "K": depth}
    hi = max(cx.bounds(d)[1] for d in sizes.values())
    numbers = _number(m), _number(n), _number(depth), _number(batch)
    held = "f32" if split else out
    product = Product(*numbers, dtype, held, by_k, hi, a_by_k, repeats["a"], repeats["b"])
    kernel = matmul_kernel(f"matmul_{dtype}", cx.capacities, tile, product)
    elements = batch * m * n
    parts = cx.scratch("parts", "f32", (tile.splits, elements)) if split else cx.result(node)
    operands = {"a": cx.tensor(a), "b": cx.tensor(b), "c": parts}
    when: Dim = 1
    if cx.bounds(depth)[0] == 0:  # a sum of nothing: no kernel writes it
        cx.memset(cx.result(node))
        when = depth
    cx.launch(node, kernel, operands, {k: d for k, d in sizes.items() if not isinstance(d, int)}, when)
    if split:
        most = max(cx.bounds(elements)[1], hi)
        summed = parts_kernel("sum_of_parts", cx.capacities, tile.splits, _number(elements), _number(depth), out, most)
        cx.launch(node, summed, {"x": parts, "y": cx.result(node)}, {"n": elements, "K": depth}, when)


@lowering("grouped_matmul")
def grouped_matmul(cx: Lowering, node: Node) -> None:
    rows, weight, counts = node.operand(0), node.operand(1), node.operand(2)
    bias, source = (*node.operands[3:], None, None)[:2]
    by_k = not node.attrs["transpose_weight"]
    dtype = need_cube(node, rows.type, weight.type)
    s, (experts, n, depth) = node.result.type.dims[0], weight.type.dims
    if by_k:
        n, depth = depth, n
    if not (isinstance(experts, int) and isinstance(n, int) and isinstance(depth, int)):
        raise NoKernel(Problem("grouped_matmul needs weights of known size", where(node), "give the sizes as numbers"))
    per_expert = -(-cx.size(s) // max(experts, 1))
    out = device_dtype(node.result.type.dtype)
    how: dict[str, Any] = {
        "out": out if bias is None else "f32",
        "groups": min(experts, cx.size(s)),
        "b_by_k": by_k,
        "known_k": True,
    }
    gathered = "" if source is None else "a"
    tile = cube_tile(per_expert, n, depth, dtype, cx.capacities, node_name(node), gathered=gathered, **how)
    hi = None if source is None else cx.bounds(rows.type.dims[0])[1]
    grouped = Grouped(experts, n, depth, dtype, out if bias is None else "f32", cx.bounds(s)[1], by_k, hi)
    kernel = grouped_matmul_kernel(f"grouped_matmul_{dtype}", cx.capacities, tile, grouped)
    product = cx.result(node) if bias is None else cx.scratch("without_bias", "f32", (s, n))
    operands = {"rows": cx.tensor(rows), "w": cx.tensor(weight), "counts": cx.tensor(counts), "out": product}
    if source is not None:
        operands["source"] = cx.tensor(source)
    cx.launch(node, kernel, operands, {"S": s, "R": rows.type.dims[0]})
    if bias is None:
        return
    added = GroupedBias(experts, n, device_dtype(bias.type.dtype), out, cx.bounds(s)[1])
    operands = {"x": product, "bias": cx.tensor(bias), "counts": cx.tensor(counts), "y": cx.result(node)}
    cx.launch(node, grouped_bias_kernel("grouped_bias", cx.capacities, added), operands, {"S": s})

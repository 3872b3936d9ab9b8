"""Lowering of attention_grad (row sums, then the kernel of dk and dv, that of dq, and the sums that remain) and of
attention_mask_grad (row sums, one kernel, and sums over queries or keys that the mask is broadcast along)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from moec.codegen.kernels.attention_grad import attention_grad_kernel
from moec.codegen.kernels.attention_mask_grad import attention_mask_grad_kernel
from moec.codegen.kernels.attention_rows import delta_kernel, heads_kernel, sinks_kernel
from moec.codegen.kernels.attention_tile import backward_tiles, mask_grad_tile
from moec.codegen.kernels.vector.sums import Sums, sums_kernel
from moec.codegen.lower.attention import described, optional, sequences, workspace
from moec.codegen.lower.base import Lowering, lowering, node_name
from moec.ir.graph import Node
from moec.ir.symbol import Dim

DQ, DK, DV, DSINKS, DQ_ROPE, DK_ROPE = range(6)
"""Results of the op."""
SAVED = {"q": 0, "k": 1, "v": 2, "softmaxMax": 4, "softmaxSum": 5, "dy": 6}
"""Operands that the kernels of both ops read."""


@lowering("attention_grad")
def attention_grad(cx: Lowering, node: Node) -> None:
    a, args = described(node, 7, 9)
    a = replace(a, backward=True)
    queries, keys = node.operand(0).type.dims[2], node.operand(1).type.dims[2]
    tiles = backward_tiles(a, cx.size(queries), cx.size(keys), cx.capacities, node_name(node))
    delta = cx.scratch("delta", "f32", node.operand(4).type.dims)
    inputs = SAVED | {"mask": 7, "qRope": 9, "kRope": 10}
    operands = {n: cx.tensor(v) for n, i in inputs.items() if (v := optional(node, i)) is not None} | {"delta": delta}
    rows = {"y": cx.tensor(node.operand(3)), "dy": operands["dy"], "delta": delta}
    kernel = delta_kernel(f"attention_delta_{a.dtype}", cx.capacities, a)
    cx.launch(node, kernel, rows, args)
    shared = a.rope > 0 and a.rope_heads != a.kv_heads
    batch = node.operand(1).type.dims[0]
    parts = cx.scratch("rope_parts", "f32", (batch, a.kv_heads, keys, a.rope)) if shared else ""
    results = {"dq": DQ, "dk": DK, "dv": DV} | ({"dqRope": DQ_ROPE, "dkRope": DK_ROPE} if a.rope else {})
    operands |= {n: cx.result(node, i) for n, i in results.items()} | sequences(cx, node, a, 11)
    if shared:
        operands["dkRope"] = parts
    for of, tile in tiles.items():
        kernel = attention_grad_kernel(f"attention_{of.name}_{a.dtype}", cx.capacities, tile, a, of)
        mine = operands | workspace(cx, kernel)
        cx.launch(node, kernel, {p.name: mine[p.name] for p in kernel.params}, args)
    if shared:
        kernel = heads_kernel(f"attention_heads_{a.dtype}", cx.capacities, a)
        dims = {p.name: args[p.name] for p in kernel.args}
        cx.launch(node, kernel, {"parts": parts, "out": cx.result(node, DK_ROPE)}, dims)
    if a.sinks:
        sums = {n: operands[n] for n in ("softmaxMax", "softmaxSum", "delta")}
        kernel = sinks_kernel(f"attention_dsinks_{a.sinks}", cx.capacities, a)
        sinks = {"sinks": cx.tensor(node.operand(8)), "dsinks": cx.result(node, DSINKS)}
        cx.launch(node, kernel, sums | sinks, args)


@lowering("attention_mask_grad")
def attention_mask_grad(cx: Lowering, node: Node) -> None:
    q, key, mask = node.operand(0), node.operand(1), node.operand(7)
    a, args = described(node, 7, 8)
    assert a.mask is not None
    queries, keys = q.type.dims[2], key.type.dims[2]
    tile = mask_grad_tile(a, cx.size(queries), cx.size(keys), cx.capacities, node_name(node))
    delta = cx.scratch("delta", "f32", node.operand(4).type.dims)
    operands = {n: cx.tensor(node.operand(i)) for n, i in SAVED.items()} | {"mask": cx.tensor(mask), "delta": delta}
    for index, name in ((8, "qRope"), (9, "kRope")):
        value = optional(node, index)
        if value is not None:
            operands[name] = cx.tensor(value)
    operands |= sequences(cx, node, a, 10)
    rows = {"y": cx.tensor(node.operand(3)), "dy": operands["dy"], "delta": delta}
    cx.launch(node, delta_kernel(f"attention_delta_{a.dtype}", cx.capacities, a), rows, args)
    lead: Dim = (q.type.dims[0] if a.mask.batch else 1) * (a.heads if a.mask.heads else 1)
    sums = [Sum(lead, queries, keys)] if not a.mask.rows else []
    if not a.mask.keys:
        sums.append(Sum(lead * (queries if a.mask.rows else 1), keys, 1))
    wide = (lead, queries, keys)
    dtypes = [*["f32"] * len(sums), a.mask.dtype]
    to = cx.scratch("scores_gradient", "f32", wide) if sums else cx.result(node)
    kernel = attention_mask_grad_kernel(f"attention_dmask_{a.dtype}", cx.capacities, tile, a, dtypes[0])
    cx.launch(node, kernel, operands | {"dmask": to} | workspace(cx, kernel), args)
    for i, step in enumerate(sums):
        last = i == len(sums) - 1
        source, to = to, cx.result(node) if last else cx.scratch("summed", "f32", (step.lead, step.cols))
        _add_up(cx, node, step, source, to, dtypes[i + 1])


@dataclass(frozen=True)
class Sum:
    """[lead, rows, cols] is summed over rows."""

    lead: Dim
    rows: Dim
    cols: Dim


def _add_up(cx: Lowering, node: Node, step: Sum, source: str, to: str, dtype: str) -> None:
    sizes = {"lead": step.lead, "rows": step.rows, "cols": step.cols}
    fixed = {n: d if isinstance(d, int) else None for n, d in sizes.items()}
    most = max(cx.bounds(d)[1] for d in sizes.values())
    sums = Sums(fixed["lead"], fixed["rows"], fixed["cols"], "f32", dtype, hi=min(most, 2**31 - 1))
    cx.launch(
        node,
        sums_kernel(f"attention_sum_{dtype}", cx.capacities, sums),
        {"x": source, "y": to},
        {n: d for n, d in sizes.items() if fixed[n] is None},
    )

"""Lowering of attention_grad: row sums, then the kernel of dk and dv, that of dq, and the sums that remain."""

from __future__ import annotations

from dataclasses import replace

from moec.codegen.kernels.attention_grad import attention_grad_kernel
from moec.codegen.kernels.attention_rows import delta_kernel, heads_kernel, sinks_kernel
from moec.codegen.kernels.attention_tile import backward_tile
from moec.codegen.lower.attention import described, optional, workspace
from moec.codegen.lower.base import Lowering, lowering, node_name
from moec.ir.graph import Node
from moec.ir.symbol import Dim

DQ, DK, DV, DSINKS, DQ_ROPE, DK_ROPE = range(6)
"""Results of the op."""


@lowering("attention_grad")
def attention_grad(cx: Lowering, node: Node) -> None:
    a, args = described(node, 7, False)
    a = replace(a, backward=True)
    queries, keys = node.operand(0).type.dims[2], node.operand(1).type.dims[2]
    tiles = {
        by_keys: backward_tile(a, cx.size(queries), cx.size(keys), cx.capacities, by_keys, node_name(node))
        for by_keys in (True, False)
    }
    delta = cx.scratch("delta", "f32", node.operand(4).type.dims)
    inputs = {"q": 0, "k": 1, "v": 2, "softmaxMax": 4, "softmaxSum": 5, "dy": 6}
    inputs |= {"mask": 7, "qRope": 9, "kRope": 10}
    operands = {n: cx.tensor(v) for n, i in inputs.items() if (v := optional(node, i)) is not None} | {"delta": delta}
    rows = {"y": cx.tensor(node.operand(3)), "dy": operands["dy"], "delta": delta}
    kernel = delta_kernel(f"attention_delta_{a.dtype}", cx.capacities, a)
    cx.launch(node, kernel, rows, args)
    shared = a.rope > 0 and a.rope_heads != a.kv_heads
    batch = node.operand(1).type.dims[0]
    parts = cx.scratch("rope_parts", "f32", (batch, a.kv_heads, keys, a.rope)) if shared else ""
    results = {"dq": DQ, "dk": DK, "dv": DV} | ({"dqRope": DQ_ROPE, "dkRope": DK_ROPE} if a.rope else {})
    operands |= {n: cx.result(node, i) for n, i in results.items()}
    if shared:
        operands["dkRope"] = parts
    for by_keys, name in ((True, "attention_dkv"), (False, "attention_dq")):
        kernel = attention_grad_kernel(f"{name}_{a.dtype}", cx.capacities, tiles[by_keys], a, by_keys)
        mine = operands | workspace(cx, kernel)
        cx.launch(node, kernel, {p.name: mine[p.name] for p in kernel.params}, args)
    if shared:
        kernel = heads_kernel(f"attention_heads_{a.dtype}", cx.capacities, a)
        dims: dict[str, Dim] = {n: args[n] for n in ("B", "T") if n in args}
        cx.launch(node, kernel, {"parts": parts, "out": cx.result(node, DK_ROPE)}, dims)
    if a.sinks:
        sums = {n: operands[n] for n in ("softmaxMax", "softmaxSum", "delta")}
        kernel = sinks_kernel(f"attention_dsinks_{a.sinks}", cx.capacities, a)
        sinks = {"sinks": cx.tensor(node.operand(8)), "dsinks": cx.result(node, DSINKS)}
        cx.launch(node, kernel, sums | sinks, args)

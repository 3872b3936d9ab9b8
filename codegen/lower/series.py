"""Lowering of iota and range."""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernels.vector.series import emit_series
from moec.codegen.lower.base import Lowering, device_dtype, lowering, where
from moec.codegen.lower.sizes import Sizes
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node

MADE = ("f32", "f16", "bf16", "i32", "i64")
STEPPED = ("f32", "i32", "i64")


@lowering("iota")
@lowering("range")
def series(cx: Lowering, node: Node) -> None:
    y = node.result
    given = node.op == "range"
    if y.type.dtype.name not in (STEPPED if given else MADE):
        what = f"{node.op} of {y.type.dtype.name} has no kernel"
        raise NoKernel(Problem(what, where(node), f"{', '.join(STEPPED if given else MADE)} have one"))
    k = KernelBuilder(node.op, "aiv", cx.capacities)
    sizes = Sizes(k, cx)
    dtype = device_dtype(y.type.dtype)
    ends = {"start": node.operand(0), "step": node.operand(2)} if given else {}
    tensors = {name: k.gm(name, dtype, (1,), "in") for name in ends}
    count = sizes.of(y.type.dims[0], "count")
    out = k.gm("y", dtype, (count,), "out")
    blocks = emit_series(k, out, count, tensors.get("start"), tensors.get("step"))
    sizes.witness()
    operands = {name: cx.tensor(v) for name, v in ends.items()} | {"y": cx.result(node)}
    cx.launch(node, k.finish(blocks), operands, sizes.given)

"""Lowering of iota."""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernels.vector.series import emit_series
from moec.codegen.lower.base import Lowering, device_dtype, lowering, where
from moec.codegen.lower.sizes import Sizes
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node

MADE = ("f32", "f16", "bf16", "i32", "i64")


@lowering("iota")
def iota(cx: Lowering, node: Node) -> None:
    y = node.result
    if y.type.dtype.name not in MADE:
        what = f"{node.op} of {y.type.dtype.name} has no kernel"
        raise NoKernel(Problem(what, where(node), f"{', '.join(MADE)} have one"))
    k = KernelBuilder(node.op, "aiv", cx.capacities)
    sizes = Sizes(k, cx)
    count = sizes.of(y.type.dims[0], "count")
    blocks = emit_series(k, k.gm("y", device_dtype(y.type.dtype), (count,), "out"), count, None, None)
    sizes.witness()
    cx.launch(node, k.finish(blocks), {"y": cx.result(node)}, sizes.given)

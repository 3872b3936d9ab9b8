"""Lowering of histogram."""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernels.vector.histogram import emit_histogram
from moec.codegen.lower.base import Lowering, device_dtype, lowering, where
from moec.codegen.lower.sizes import Sizes, numel
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node

MOST_BINS = 16384


@lowering("histogram")
def histogram(cx: Lowering, node: Node) -> None:
    x, bins = node.operand(0), node.attrs["bins"]
    dtype = device_dtype(x.type.dtype)
    if dtype not in ("i32", "i64") or not isinstance(bins, int) or not 0 < bins <= MOST_BINS:
        what = f"histogram of {x.type} with {bins} bins has no kernel"
        raise NoKernel(
            Problem(what, where(node), f"i32 and i64 with a known number of bins up to {MOST_BINS} have one")
        )
    k = KernelBuilder("histogram", "aiv", cx.capacities)
    sizes = Sizes(k, cx)
    count = sizes.of(numel(x.type.dims), "count")
    emit_histogram(
        k, k.gm("x", dtype, (count,), "in", "index"), k.gm("y", "i32", (bins,), "out", "counts"), count, bins
    )
    sizes.witness((1,))
    cx.launch(node, k.finish(1), {"x": cx.tensor(x), "y": cx.result(node)}, sizes.given)

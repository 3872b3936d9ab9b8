"""Lowering of histogram."""

from __future__ import annotations

from collections.abc import Sequence

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernels.vector.histogram import emit_histogram
from moec.codegen.lower.base import Lowering, device_dtype, lowering, where
from moec.codegen.lower.sizes import Sizes, numel
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node
from moec.ir.symbol import Dim

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
    count_into(cx, node, cx.tensor(x), dtype, x.type.dims, bins, cx.result(node))


def count_into(cx: Lowering, node: Node, x: str, dtype: str, shape: Sequence[Dim], bins: int, counts: str) -> None:
    """Launches, for ``node``, the kernel that writes to ``counts`` ([bins] i32) how often each number is in ``x``."""
    k = KernelBuilder("histogram", "aiv", cx.capacities)
    sizes = Sizes(k, cx)
    count = sizes.of(numel(shape), "count")
    emit_histogram(
        k, k.gm("x", dtype, (count,), "in", "index"), k.gm("y", "i32", (bins,), "out", "counts"), count, bins
    )
    sizes.witness((1,))
    cx.launch(node, k.finish(1), {"x": x, "y": counts}, sizes.given)

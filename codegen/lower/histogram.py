"""Lowering of histogram."""

from __future__ import annotations

from collections.abc import Sequence

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernels.vector.histogram import BINS, emit_histogram
from moec.codegen.lower.base import Lowering, device_dtype, lowering, where
from moec.codegen.lower.sizes import Sizes, numel
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node
from moec.ir.symbol import Dim


@lowering("histogram")
def histogram(cx: Lowering, node: Node) -> None:
    x, bins = node.operand(0), node.attrs["bins"]
    dtype = device_dtype(x.type.dtype)
    if dtype not in ("i32", "i64"):
        raise NoKernel(Problem(f"histogram of {x.type} has no kernel", where(node), "i32 and i64 have one"))
    count_into(cx, node, cx.tensor(x), dtype, x.type.dims, bins, cx.result(node))


def count_into(cx: Lowering, node: Node, x: str, dtype: str, shape: Sequence[Dim], bins: Dim, counts: str) -> None:
    """Launches, for ``node``, the kernel that writes to ``counts`` ([bins] i32) how often each number is in ``x``."""
    k = KernelBuilder("histogram", "aiv", cx.capacities)
    sizes = Sizes(k, cx)
    count, each = sizes.of(numel(shape), "count"), sizes.of(bins, "bins")
    tensors = k.gm("x", dtype, (count,), "in", "index"), k.gm("y", "i32", (each,), "out", "counts")
    cores = emit_histogram(k, *tensors, count, each)
    sizes.witness((1,) if isinstance(bins, int) and bins <= BINS else (1, 2))
    cx.launch(node, k.finish(cores), {"x": x, "y": counts}, sizes.given)

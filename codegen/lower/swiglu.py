"""Lowering of gated activations."""

from __future__ import annotations

from moec.codegen.kernels.vector.swiglu import Activation, swiglu_kernel
from moec.codegen.lower.base import Lowering, device_dtype, lowering, where
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node
from moec.ir.symbol import Dim


@lowering("swiglu")
def swiglu(cx: Lowering, node: Node) -> None:
    h, y = node.operand(0), node.result
    width = y.type.dims[-1]
    dtype = h.type.dtype.name
    if not isinstance(width, int) or dtype not in ("f32", "f16", "bf16"):
        what = f"swiglu of {h.type} has no kernel"
        raise NoKernel(Problem(what, where(node), "f32, f16 and bf16 of known width have one"))
    rows: Dim = 1
    for d in y.type.dims[:-1]:
        rows = rows * d
    a = node.attrs
    activation = Activation(a["activation"], a["glu"], a["alpha"], a["limit"], a["up_offset"])
    kernel = swiglu_kernel("swiglu", cx.capacities, width, device_dtype(h.type.dtype), activation, cx.bounds(rows)[1])
    cx.launch(node, kernel, {"h": cx.tensor(h), "y": cx.result(node)}, {"rows": rows})

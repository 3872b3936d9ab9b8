"""Lowering of the gradients of gated activations."""

from __future__ import annotations

from moec.codegen.kernels.vector.swiglu import Activation
from moec.codegen.kernels.vector.swiglu_grad import swiglu_grad_kernel
from moec.codegen.lower.base import Lowering, lowering, where
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node
from moec.ir.symbol import Dim


@lowering("swiglu_grad")
def swiglu_grad(cx: Lowering, node: Node) -> None:
    h, dy = node.operand(0), node.operand(1)
    width = dy.type.dims[-1]
    dtype = h.type.dtype.name
    if not isinstance(width, int) or dtype not in ("f32", "f16", "bf16") or dy.type.dtype.name != dtype:
        what = f"swiglu_grad of {h.type} and {dy.type} has no kernel"
        raise NoKernel(Problem(what, where(node), "f32, f16 and bf16 of one dtype and known width have one"))
    rows: Dim = 1
    for d in dy.type.dims[:-1]:
        rows = rows * d
    a = node.attrs
    activation = Activation(a["activation"], a["glu"], a["alpha"], a["limit"], a["up_offset"])
    kernel = swiglu_grad_kernel("swiglu_grad", cx.capacities, width, dtype, activation, cx.bounds(rows)[1])
    operands = {"h": cx.tensor(h), "dy": cx.tensor(dy), "dh": cx.result(node)}
    cx.launch(node, kernel, operands, {"rows": rows})

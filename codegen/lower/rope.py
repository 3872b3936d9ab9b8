"""Lowering of rope: leading dimensions that x and the tables share are folded, the others walked."""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernels.vector.rope import Lead, Rope, RopeBody
from moec.codegen.lower.base import Lowering, device_dtype, lowering, where
from moec.codegen.lower.sizes import Sizes, numel, strides
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node, Value
from moec.ir.symbol import Dim

MOST_WIDTH = 1024
"""The widest rows taken: a row of each half must be within one repeat stride."""


def _rows_apart(x: Value, table: Value) -> list[Dim] | None:
    """Rows between steps of x's leading dimensions in ``table``; None where it does not broadcast to x."""
    lead, own = x.type.dims[:-1], table.type.dims[:-1]
    own = (1,) * (len(lead) - len(own)) + own
    if len(own) > len(lead) or any(o not in (1, d) for o, d in zip(own, lead, strict=True)):
        return None
    return [0 if o == 1 else s for o, s in zip(own, strides(own), strict=True)]


@lowering("rope")
def rope(cx: Lowering, node: Node) -> None:
    x, cos, sin = (node.operand(i) for i in range(3))
    width, rotary = x.type.dims[-1], node.attrs["rotary_dim"]
    names = {v.type.dtype.name for v in (x, cos, sin)}
    apart = [_rows_apart(x, t) for t in (cos, sin)]
    widths = [t.type.dims[-1] for t in (cos, sin)]
    if (
        not isinstance(width, int)
        or width > MOST_WIDTH
        or not names <= {"f32", "f16", "bf16"}
        or apart[0] is None
        or apart[1] is None
        or any(w not in (rotary, rotary // 2) for w in widths)
    ):
        what = f"rope of {x.type} by {cos.type} and {sin.type} has no kernel"
        todo = f"f32, f16 and bf16 of known width up to {MOST_WIDTH}, with tables that broadcast to x, have one"
        raise NoKernel(Problem(what, where(node), todo))
    leads: list[tuple[Dim, Dim, Dim]] = []
    for size, c, s in zip(x.type.dims[:-1], apart[0], apart[1], strict=True):
        if size == 1:
            continue
        if leads and leads[-1][1] == c * size and leads[-1][2] == s * size:
            leads[-1] = (leads[-1][0] * size, c, s)
        else:
            leads.append((size, c, s))
    k = KernelBuilder(f"rope_{node.attrs['layout']}", "aiv", cx.capacities)
    sizes = Sizes(k, cx)
    dtypes = [device_dtype(v.type.dtype) for v in (x, cos, sin)]
    tensors = [
        k.gm(name, dtype, (sizes.of(numel(v.type.dims), "elems"),), "in")
        for name, v, dtype in zip(("x", "cos", "sin"), (x, cos, sin), dtypes, strict=True)
    ]
    y = k.gm("y", dtypes[0], (sizes.of(numel(x.type.dims), "elems"),), "out")
    walked = [Lead(*(sizes.of(d) for d in lead)) for lead in leads or [(1, 0, 0)]]
    layout, whole = node.attrs["layout"], [w == rotary for w in widths]
    r = Rope(width, rotary // 2, layout, dtypes[0], dtypes[1], dtypes[2], whole[0], whole[1])
    blocks = RopeBody(k, r, tensors[0], tensors[1], tensors[2], y, walked).emit()
    sizes.witness()
    operands = {"x": cx.tensor(x), "cos": cx.tensor(cos), "sin": cx.tensor(sin), "y": cx.result(node)}
    cx.launch(node, k.finish(blocks), operands, sizes.given)

"""Lowering of elementwise ops, softmax and norms, one node a kernel.

An operand whose shape the result's shape has in no way that a kernel can walk (sizes that only the run finds equal, or
to be 1) is expanded first.
"""

from __future__ import annotations

from moec.codegen.lower.base import Lowering, device_dtype, lowering
from moec.codegen.lower.moves import Part, move_kernel, repeated
from moec.codegen.lower.sizes import numel
from moec.codegen.lower.vector import single, vector_kernel
from moec.codegen.lower.vector_tables import BINARY, COMPARE, ROUNDING, UNARY
from moec.ir.graph import Graph, Node, Value
from moec.ops.build import Builder
from moec.ops.rowspace import form

ROWWISE = ("softmax", "log_softmax", "rms_norm", "layer_norm")
OPS = (*BINARY, *COMPARE, *ROUNDING, *UNARY, "and", "or", "xor", "not", "select", "cast", "gelu", "pow", "mod",
       "is_nan", "is_inf")  # fmt: skip


def _fits(value: Value, node: Node) -> bool:
    """Whether a kernel over the result's shape can read ``value`` as it lies."""
    full, dims = node.result.type.dims, value.type.dims
    if not dims or form(dims, full) is not None:
        return True
    own = (1,) * (len(full) - len(dims)) + tuple(dims)
    return own[-1] == full[-1] and all(a in (1, b) for a, b in zip(own, full, strict=True))


def _elementwise(cx: Lowering, node: Node) -> None:
    operands = [v for v in node.operands if v is not None]
    if all(_fits(v, node) for v in operands):
        single(cx, node)
        return
    graph = Graph("expanded")
    known: dict[Value, Value] = {}
    inputs: list[tuple[Value, str]] = []
    build = Builder(graph)
    for v in dict.fromkeys(operands):
        if v.producer is not None and v.producer.op == "constant" and v.type.numel() == 1:
            known[v] = build.node("constant", value=v.producer.attrs["value"]).result
            continue
        tensor, shape = cx.tensor(v), v.type.dims
        if not _fits(v, node):
            shape = node.result.type.dims
            tensor = cx.scratch("expanded", device_dtype(v.type.dtype), shape)
            move_kernel(cx, node, [Part(v, repeated(v, shape))], 0.0, tensor, numel(shape))
        known[v] = graph.add_input(f"x{len(inputs)}", v.type.with_shape(shape))
        inputs.append((known[v], tensor))
    made = build.node(node.op, *(None if v is None else known[v] for v in node.operands), **node.attrs)
    nodes = [n for n in graph if n.op == "constant"] + [made]
    vector_kernel(cx, node, f"vector_{node.op}", nodes, inputs, [(made.result, cx.result(node))])


def _along(cx: Lowering, node: Node) -> None:
    """A softmax over another dimension than the last: that one and the last change places around it."""
    rank = node.operand(0).type.rank
    axis = node.attrs["axis"] % max(rank, 1)
    if axis == rank - 1:
        single(cx, node)
        return
    order = [rank - 1 if d == axis else axis if d == rank - 1 else d for d in range(rank)]

    def turned(b: Builder, x: Value) -> Value:
        rows = b.node(node.op, b.transpose(x, perm=tuple(order)), axis=rank - 1).result
        made: Value = b.transpose(rows, perm=tuple(order))
        return made

    cx.through(node, turned)


for _op in OPS:
    lowering(_op)(_elementwise)
for _op in ROWWISE:
    lowering(_op)(_along if "softmax" in _op else single)

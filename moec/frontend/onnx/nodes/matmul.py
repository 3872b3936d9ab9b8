"""Matrix products: MatMul, Gemm, FusedMatMul."""

from __future__ import annotations

from moec.frontend.onnx.context import Op
from moec.frontend.onnx.errors import NoForm
from moec.frontend.onnx.nodes.broadcasting import reshaped
from moec.frontend.onnx.nodes.elementwise import constant_like
from moec.frontend.onnx.table import onnx_op
from moec.ir.graph import Value


@onnx_op("MatMul", last=13)
def _matmul(op: Op) -> Value:
    return product(op, op.value(0), op.value(1), False, False)


def product(op: Op, a: Value, b: Value, transpose_a: bool, transpose_b: bool) -> Value:
    """a @ b; an operand of rank 1 is a row (left) or a column (right) and its dimension is dropped from the result,
    as in numpy.
    """
    row, column = a.type.rank == 1, b.type.rank == 1
    if row:
        a = reshaped(op, a, (1, *a.type.dims))
    if column:
        b = reshaped(op, b, (*b.type.dims, 1))
    y = op.emit("matmul", a, b, transpose_a=transpose_a and not row, transpose_b=transpose_b and not column)
    if row or column:
        lead = y.type.dims[:-2]
        kept = y.type.dims[-2:][1 if row else 0 : 1 if column else 2]
        y = reshaped(op, y, (*lead, *kept))
    return y


@onnx_op("Gemm", first=7, last=13)
def _gemm(op: Op) -> Value:
    y = op.emit(
        "matmul",
        op.value(0),
        op.value(1),
        transpose_a=bool(op.attr("transA", 0)),
        transpose_b=bool(op.attr("transB", 0)),
    )
    y = _scaled(op, y, op.attr("alpha", 1.0))
    if not op.has(2) or op.attr("beta", 1.0) == 0.0:
        return y
    return op.emit("add", y, _scaled(op, op.value(2), op.attr("beta", 1.0)))


def _scaled(op: Op, x: Value, factor: float) -> Value:
    return x if factor == 1.0 else op.emit("mul", x, constant_like(op, factor, x))


@onnx_op("FusedMatMul", domain="com.microsoft", last=1)
def _fused_matmul(op: Op) -> Value:
    if op.attr("transBatchA", 0) or op.attr("transBatchB", 0):
        raise NoForm("transBatchA and transBatchB are not supported")
    y = product(op, op.value(0), op.value(1), bool(op.attr("transA", 0)), bool(op.attr("transB", 0)))
    return _scaled(op, y, op.attr("alpha", 1.0))

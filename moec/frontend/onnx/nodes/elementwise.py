"""Elementwise operators: arithmetic, comparison, logic, activations, Cast, Where, Clip."""

from __future__ import annotations

from typing import Any

import ml_dtypes

from moec.frontend.onnx.context import Op, Tensor
from moec.frontend.onnx.errors import NoForm
from moec.frontend.onnx.nodes.broadcasting import fitted
from moec.frontend.onnx.table import onnx_op
from moec.ir.graph import Value
from moec.ir.types import DType

_BINARY = {
    "Add": ("add", 14),
    "Sub": ("sub", 14),
    "Mul": ("mul", 14),
    "Div": ("div", 14),
    "And": ("and", 7),
    "Or": ("or", 7),
    "Xor": ("xor", 7),
    "Equal": ("eq", 19),
    "Less": ("lt", 13),
    "LessOrEqual": ("le", 16),
    "Greater": ("gt", 13),
    "GreaterOrEqual": ("ge", 16),
}
_UNARY = {
    "Abs": ("abs", 13),
    "Neg": ("neg", 13),
    "Exp": ("exp", 13),
    "Log": ("log", 13),
    "Sqrt": ("sqrt", 13),
    "Reciprocal": ("reciprocal", 13),
    "Sin": ("sin", 22),
    "Cos": ("cos", 22),
    "Tanh": ("tanh", 13),
    "Erf": ("erf", 13),
    "Floor": ("floor", 13),
    "Ceil": ("ceil", 13),
    "Round": ("round", 22),
    "Sign": ("sign", 13),
    "Sigmoid": ("sigmoid", 13),
    "Relu": ("relu", 14),
    "Softplus": ("softplus", 22),
    "Not": ("not", 1),
    "IsNaN": ("is_nan", 20),
}


def _binary(op: Op) -> Value:
    name = _BINARY[op.node.op_type][0]
    a, b = fitted(op, [op.value(0), op.value(1)])
    return op.emit(name, a, b)


def _unary(op: Op) -> Value:
    return op.emit(_UNARY[op.node.op_type][0], op.value(0))


for _name, (_, _last) in _BINARY.items():
    onnx_op(_name, first=7, last=_last)(_binary)
for _name, (_, _last) in _UNARY.items():
    onnx_op(_name, last=_last)(_unary)


def constant_like(op: Op, number: float, like: Value) -> Value:
    """A scalar constant of ``like``'s dtype."""
    return op.context.scalar(number, like.type.dtype)


@onnx_op("Identity", last=25)
def _identity(op: Op) -> Tensor:
    return op.tensor(0)


@onnx_op("Dropout", first=7, last=22)
def _dropout(op: Op) -> Tensor:
    if len([o for o in op.node.outputs if o]) > 1 or op.has(2):
        raise NoForm("Dropout with a mask output or a training_mode input; export the model for inference")
    return op.tensor(0)


@onnx_op("Pow", first=7, last=15)
def _pow(op: Op) -> Value:
    base, exponent = fitted(op, [op.value(0), op.value(1)])
    if exponent.type.dtype is not base.type.dtype:
        exponent = op.emit("cast", exponent, to=base.type.dtype)
    return op.emit("pow", base, exponent)


@onnx_op("Mod", first=10, last=28)
def _mod(op: Op) -> Value:
    fmod = bool(op.attr("fmod", 0))
    if not fmod and op.dtype(0).is_float and op.opset < 28:
        raise ValueError("Mod of floats needs fmod=1")
    a, b = fitted(op, [op.value(0), op.value(1)])
    return op.emit("mod", a, b, fmod=fmod)


def _chained(op: Op, name: str) -> Value:
    values = fitted(op, [op.value(i) for i in range(len(op.inputs))])
    total = values[0]
    for v in values[1:]:
        total = op.emit(name, total, v)
    return total


@onnx_op("Min", first=8, last=13)
def _min(op: Op) -> Value:
    return _chained(op, "minimum")


@onnx_op("Max", first=8, last=13)
def _max(op: Op) -> Value:
    return _chained(op, "maximum")


@onnx_op("Sum", first=8, last=13)
def _sum(op: Op) -> Value:
    return _chained(op, "add")


@onnx_op("Mean", first=8, last=13)
def _mean(op: Op) -> Value:
    total = _chained(op, "add")
    return op.emit("div", total, constant_like(op, len(op.inputs), total))


@onnx_op("Where", first=9, last=16)
def _where(op: Op) -> Value:
    return op.emit("select", *fitted(op, [op.value(i) for i in range(3)]))


@onnx_op("Cast", first=6, last=28)
def _cast(op: Op) -> Value | Tensor:
    return _cast_to(op, op.dtype_attr("to", 0))


@onnx_op("CastLike", first=15, last=25)
def _cast_like(op: Op) -> Value | Tensor:
    return _cast_to(op, op.dtype(1))


def _cast_to(op: Op, to: DType) -> Value | Tensor:
    if op.dtype(0) is to:
        return op.tensor(0)
    if "opaque" in (to.kind, op.dtype(0).kind) or to.name == "f8e8m0":
        raise NoForm(f"a cast from {op.dtype(0)} to {to} is not supported")
    x = op.value(0)
    if to.is_float and to.bits == 8 and op.attr("saturate", 1):
        top = float(ml_dtypes.finfo(to.carrier).max)  # type: ignore[no-untyped-call, unused-ignore]
        x = op.emit("minimum", op.emit("maximum", x, constant_like(op, -top, x)), constant_like(op, top, x))
    return op.emit("cast", x, to=to)


@onnx_op("Clip", first=6, last=13)
def _clip(op: Op) -> Value:
    x = op.value(0)
    if op.opset < 11:
        low, high = (_bound(op, op.attrs.get(n), x) for n in ("min", "max"))
    else:
        low, high = (op.value(i) if op.has(i) else None for i in (1, 2))
    if low is not None:
        x = op.emit("maximum", x, low)
    return x if high is None else op.emit("minimum", x, high)


def _bound(op: Op, number: Any, x: Value) -> Value | None:
    return None if number is None else constant_like(op, number, x)


@onnx_op("Gelu", first=20, last=20)
def _gelu(op: Op) -> Value:
    return op.emit("gelu", op.value(0), approximate=op.attr("approximate", "none"))


@onnx_op("Swish", first=24, last=24)
def _swish(op: Op) -> Value:
    return scaled_silu(op, op.value(0), float(op.attr("alpha", 1.0)))


@onnx_op("QuickGelu", domain="com.microsoft", last=1)
def _quick_gelu(op: Op) -> Value:
    return scaled_silu(op, op.value(0), float(op.attr("alpha", 1.702)))


def scaled_silu(op: Op, x: Value, alpha: float) -> Value:
    """x * sigmoid(alpha * x)."""
    if alpha == 1.0:
        return op.emit("silu", x)
    return op.emit("mul", x, op.emit("sigmoid", op.emit("mul", x, constant_like(op, alpha, x))))


@onnx_op("LeakyRelu", first=6, last=16)
def _leaky_relu(op: Op) -> Value:
    x = op.value(0)
    zero = constant_like(op, 0, x)
    slope = constant_like(op, op.attr("alpha", 0.01), x)
    return op.emit("select", op.emit("lt", x, zero), op.emit("mul", x, slope), x)


@onnx_op("HardSigmoid", first=6, last=22)
def _hard_sigmoid(op: Op) -> Value:
    x = op.value(0)
    line = op.emit("mul", x, constant_like(op, op.attr("alpha", 0.2), x))
    line = op.emit("add", line, constant_like(op, op.attr("beta", 0.5), x))
    return op.emit("minimum", op.emit("maximum", line, constant_like(op, 0, x)), constant_like(op, 1, x))


@onnx_op("IsInf", first=10, last=20)
def _is_inf(op: Op) -> Value:
    x = op.value(0)
    found = op.emit("is_inf", x)
    for attribute, comparison in (("detect_negative", "ge"), ("detect_positive", "le")):
        if not op.attr(attribute, 1):
            found = op.emit("and", found, op.emit(comparison, x, constant_like(op, 0, x)))
    return found

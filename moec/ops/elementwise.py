"""Elementwise ops: arithmetic, comparison, logic, activations, cast and select. All broadcast as numpy does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from moec.ir.types import BOOL, DType
from moec.ops import elementwise_grad as gradients
from moec.ops.registry import Types, op
from moec.ops.shapes import boolean_dtype, broadcast_operands, common_dtype, compared_dtype, known, same_shape

Array = np.ndarray


_STEPS = dict.fromkeys(("floor", "ceil", "round", "sign"), "a step function")


def _declare(
    name: str,
    operands: str,
    doc: str,
    ref: Callable[..., Any],
    dtype: Any,
    onnx: str | None,
    traits: tuple[str, ...] = (),
) -> None:
    """Declare an elementwise op whose parts follow one scheme; ``operands`` is the signature's inside."""
    unary = "b: any" not in operands
    grad = gradients.UNARY.get(name) or gradients.BINARY.get(name)
    body: dict[str, Any] = {
        "__doc__": doc,
        "dtype": dtype,
        "shape": staticmethod(same_shape if unary else broadcast_operands),
        "ref": staticmethod(ref),
        "cost": "vector",
        "onnx": onnx,
        "traits": ("elementwise", *traits),
    }
    if grad is not None:
        body["grad"] = staticmethod(grad)
    else:
        body["nondiff"] = _STEPS.get(name, "a condition")
    op(f"{name}({operands}) -> any")(type(name, (), body))


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu":
        if np.any(b == 0):
            raise ValueError("integer division by zero")
        quotient = np.floor_divide(a, b)
        return quotient + ((np.remainder(a, b) != 0) & ((a < 0) != (b < 0)))
    with np.errstate(divide="ignore", invalid="ignore"):
        return a / b


def _power(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu":
        return np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        return np.power(a, b)


def _modulo(a: Array, b: Array, *, fmod: bool) -> Array:
    return np.fmod(a, b) if fmod else np.mod(a, b)


_COMMUTES = ("commutative",)
_Binary = tuple[str, str, Callable[..., Any], str | None, tuple[str, ...]]
_ARITHMETIC: list[_Binary] = [
    ("add", "a + b", np.add, "Add", _COMMUTES),
    ("sub", "a - b", np.subtract, "Sub", ()),
    ("mul", "a * b", np.multiply, "Mul", _COMMUTES),
    ("div", "a / b; integers round towards zero, division by 0 is refused for them.", _divide, "Div", ()),
    ("pow", "a ** b, computed in a's dtype.", _power, "Pow", ()),
    ("minimum", "the smaller of a and b; NaN where either is.", np.minimum, "Min", _COMMUTES),
    ("maximum", "the larger of a and b; NaN where either is.", np.maximum, "Max", _COMMUTES),
]
for _name, _doc, _ref, _onnx, _traits in _ARITHMETIC:
    _declare(_name, "a: any, b: any", _doc, _ref, staticmethod(common_dtype), _onnx, _traits)

_declare(
    "mod",
    "a: any, b: any, *, fmod: bool",
    "Remainder of a / b; it has b's sign, or with ``fmod`` a's.",
    _modulo,
    staticmethod(common_dtype),
    "Mod",
)

_COMPARISON: list[_Binary] = [
    ("eq", "a == b", np.equal, "Equal", _COMMUTES),
    ("ne", "a != b", np.not_equal, None, _COMMUTES),
    ("lt", "a < b", np.less, "Less", ()),
    ("le", "a <= b", np.less_equal, "LessOrEqual", ()),
    ("gt", "a > b", np.greater, "Greater", ()),
    ("ge", "a >= b", np.greater_equal, "GreaterOrEqual", ()),
]
for _name, _doc, _ref, _onnx, _traits in _COMPARISON:
    _declare(_name, "a: any, b: any", _doc, _ref, staticmethod(compared_dtype), _onnx, _traits)

_LOGIC: list[_Binary] = [
    ("and", "a and b (bool)", np.logical_and, "And", _COMMUTES),
    ("or", "a or b (bool)", np.logical_or, "Or", _COMMUTES),
    ("xor", "a or b but not both (bool)", np.logical_xor, "Xor", _COMMUTES),
]
for _name, _doc, _ref, _onnx, _traits in _LOGIC:
    _declare(_name, "a: any, b: any", _doc, _ref, staticmethod(boolean_dtype), _onnx, _traits)

_declare("not", "x: any", "not x (bool)", np.logical_not, staticmethod(boolean_dtype), "Not")


def _quiet(fn: Callable[[Array], Array]) -> Callable[[Array], Array]:
    def ref(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return fn(x)

    return ref


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x), without overflow."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(x.dtype, copy=False)


def silu(x: Array) -> Array:
    """x * sigmoid(x)."""
    return x * sigmoid(x)


def erf(x: Array) -> Array:
    """The error function in x's own precision or better."""
    from scipy.special import erf as erf_of  # a third of the time that importing moec takes

    return np.asarray(erf_of(x), x.dtype)


def gelu(x: Array, *, approximate: str) -> Array:
    """x * Phi(x), Phi by erf ("none") or by tanh ("tanh")."""
    if approximate == "tanh":
        inner = x.dtype.type(np.sqrt(2 / np.pi)) * (x + x.dtype.type(0.044715) * x * x * x)
        return x.dtype.type(0.5) * x * (1 + np.tanh(inner))
    return x.dtype.type(0.5) * x * (1 + erf(x / x.dtype.type(np.sqrt(2))))


_UNARY: list[tuple[str, str, Callable[[Array], Array], str | None]] = [
    ("neg", "-x", np.negative, "Neg"),
    ("abs", "|x|", np.abs, "Abs"),
    ("exp", "e^x", np.exp, "Exp"),
    ("log", "natural logarithm; -inf at 0, NaN below", np.log, "Log"),
    ("sqrt", "square root; NaN below 0", np.sqrt, "Sqrt"),
    ("rsqrt", "1 / sqrt(x)", lambda x: 1 / np.sqrt(x), None),
    ("reciprocal", "1 / x", lambda x: 1 / x, "Reciprocal"),
    ("sin", "sine of radians", np.sin, "Sin"),
    ("cos", "cosine of radians", np.cos, "Cos"),
    ("tanh", "hyperbolic tangent", np.tanh, "Tanh"),
    ("erf", "error function 2/sqrt(pi) * integral of e^(-t^2) from 0 to x", erf, "Erf"),
    ("floor", "rounded down", np.floor, "Floor"),
    ("ceil", "rounded up", np.ceil, "Ceil"),
    ("round", "rounded to nearest, halves to even", np.rint, "Round"),
    ("sign", "-1, 0 or 1", np.sign, "Sign"),
    ("sigmoid", "1 / (1 + e^-x)", sigmoid, "Sigmoid"),
    ("silu", "x * sigmoid(x) (swish)", silu, None),
    ("relu", "max(x, 0)", lambda x: np.maximum(x, 0), "Relu"),
    ("softplus", "log(1 + e^x)", lambda x: np.logaddexp(x, x.dtype.type(0)), "Softplus"),
]
for _name, _doc, _fn, _onnx in _UNARY:
    _declare(_name, "x: any", _doc, _quiet(_fn), "x", _onnx)


def _gelu_dtype(types: Types, attrs: dict[str, Any]) -> DType:
    if attrs["approximate"] not in ("none", "tanh"):
        raise ValueError(f"approximate '{attrs['approximate']}' is none of none, tanh")
    return known(types)[0].dtype


_declare(
    "gelu",
    "x: any, *, approximate: str",
    'Gaussian error linear unit: x * Phi(x), Phi by erf ("none") or by the tanh form ("tanh").',
    gelu,
    staticmethod(_gelu_dtype),
    "Gelu",
)
_declare("is_nan", "x: any", "whether x is NaN", np.isnan, "!bool", "IsNaN")
_declare("is_inf", "x: any", "whether x is infinite", np.isinf, "!bool", "IsInf")


@op("cast(x: any, *, to: dtype) -> any")
class Cast:
    """x in another dtype. Float to integer truncates and saturates; to bool is x != 0; between floats rounds to
    nearest even.
    """

    dtype = "=to"
    shape = staticmethod(same_shape)
    cost = "vector"
    onnx = "Cast"
    traits = ("elementwise",)
    grad = staticmethod(gradients.cast)

    @staticmethod
    def ref(x: Array, *, to: DType) -> Array:
        if to is BOOL:
            return x != 0
        if to.is_int and x.dtype.kind == "f":
            info = np.iinfo(to.carrier) if to.bits >= 8 else None
            whole = np.trunc(np.nan_to_num(x, nan=0.0, posinf=np.inf, neginf=-np.inf))
            if info is not None:
                low, high = float(info.min), float(info.max)
                inside = np.where((whole > low) & (whole < high), whole, 0).astype(to.carrier)
                return np.where(whole >= high, info.max, np.where(whole <= low, info.min, inside)).astype(to.carrier)
        return x


@op("select(cond: any, a: any, b: any) -> any")
class Select:
    """a where cond (bool), else b."""

    cost = "vector"
    onnx = "Where"
    traits = ("elementwise",)
    grad = staticmethod(gradients.select)
    shape = staticmethod(broadcast_operands)

    @staticmethod
    def dtype(types: Types, attrs: dict[str, Any]) -> DType:
        cond, *branches = known(types)
        boolean_dtype([cond], attrs)
        return common_dtype(branches, attrs)

    @staticmethod
    def ref(cond: Array, a: Array, b: Array) -> Array:
        return np.where(cond, a, b)

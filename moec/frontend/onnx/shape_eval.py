"""Shape arithmetic done at import: small integer tensors whose elements are dimensions, not data.

Exporters compute the shapes of Reshape, Expand and Slice with operators on int64 tensors (Shape, Gather, Mul, Concat,
...). Here such a tensor is a numpy array of ``Dim`` objects, an operator on it is done at once and leaves no node,
and symbols pass through. An evaluator returns None where the result is not known before the model runs; the operator
then becomes an ordinary node.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from moec.frontend.onnx.facts import Facts
from moec.frontend.onnx.tensors import onnx_dtype
from moec.ir.symbol import Dim, Expr, floordiv, mod
from moec.ir.types import BOOL, DType

LIMIT = 1024
"""Tensors of more elements than this are data, not shapes."""


class Content:
    """The elements of a small integer or bool tensor, each an int, a dimension or a bool."""

    __slots__ = ("items", "dtype")

    def __init__(self, items: np.ndarray, dtype: DType):
        self.items = items
        self.dtype = dtype

    @property
    def is_static(self) -> bool:
        """Whether every element is a number."""
        return not any(isinstance(x, Expr) for x in self.items.flat)

    def dims(self) -> list[Dim]:
        """The elements in order."""
        return list(self.items.flat)

    def __repr__(self) -> str:
        return f"Content({self.items.tolist()})"


def content(values: Any, dtype: DType) -> Content:
    """Content of a nested list, array or single element."""
    return Content(np.asarray(values, dtype=object), dtype)


Args = list[Content | None]
Evaluator = Callable[[Args, dict[str, Any], Facts, int], "list[Content] | None"]
"""``(inputs, attributes, facts, opset) -> outputs``, or None where the outputs are not known."""

EVALUATORS: dict[str, Evaluator] = {}


def evaluates(*ops: str) -> Callable[[Evaluator], Evaluator]:
    def register(fn: Evaluator) -> Evaluator:
        EVALUATORS.update(dict.fromkeys(ops, fn))
        return fn

    return register


MOST_TERMS, MOST_FACTORS = 256, 16
"""Of a size: a longer polynomial is left to be computed when the model runs."""


class Unknown(Exception):
    """An element is not known before the model runs."""


def evaluate(op: str, args: Args, attrs: dict[str, Any], facts: Facts, opset: int) -> list[Content] | None:
    """The outputs of ``op`` if it can be done on contents; None where not, or where they would be large."""
    evaluator = EVALUATORS.get(op)
    if evaluator is None:
        return None
    try:
        outputs = evaluator(args, attrs, facts, opset)
    except Unknown:
        return None
    except IndexError as error:
        raise ValueError(f"{op} of sizes: {error}") from None
    if outputs is None or any(c.items.size > LIMIT or not _moderate(c) for c in outputs):
        return None
    return outputs


def _moderate(found: Content) -> bool:
    """Whether every element is one of its dtype (else the run wraps it around), and none so long a polynomial that
    computing with it takes much.
    """
    low, high = _range_of(found.dtype)
    for dim in found.items.flat:
        if isinstance(dim, Expr):
            if len(dim.terms) > MOST_TERMS or any(len(mono) > MOST_FACTORS for mono, _ in dim.terms):
                return False
        elif not low <= dim <= high:
            return False
    return True


@cache
def _range_of(dtype: DType) -> tuple[int, int]:
    """The least and the largest integer of a dtype."""
    if dtype is BOOL:
        return 0, 1
    info = ml_dtypes.iinfo(dtype.carrier)  # type: ignore[no-untyped-call, unused-ignore]
    return int(info.min), int(info.max)


def first(args: Args) -> Content:
    first = args[0]
    if first is None:
        raise Unknown
    return first


def present(args: Args) -> list[Content]:
    return [a for a in args if a is not None]


def broadcasts(*arrays: np.ndarray) -> bool:
    try:
        return bool(np.prod(np.broadcast_shapes(*(a.shape for a in arrays))) <= LIMIT)
    except ValueError:
        return False


def _truncated(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            raise Unknown
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if b == -1:
        return -1 * a
    if isinstance(b, int) and b < 0:
        raise Unknown
    return floordiv(a, b)


def _divide(a: Dim, b: Dim, facts: Facts) -> Dim:
    if not (isinstance(a, int) and isinstance(b, int)) and not facts.less_equal(0, a):
        raise Unknown
    if b != -1 and not isinstance(b, int) and not facts.less_equal(1, b):
        raise Unknown
    return _truncated(a, b)


def _remainder(a: Dim, b: Dim, facts: Facts, fmod: bool) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            raise Unknown
        return a - b * _truncated(a, b) if fmod else a % b
    if not facts.less_equal(1, b) or (fmod and not facts.less_equal(0, a)):
        raise Unknown
    return mod(a, b)


def _decide(answer: bool | None) -> bool:
    if answer is None:
        raise Unknown
    return answer


_BINARY: dict[str, Callable[[Any, Any, Facts], Any]] = {
    "Add": lambda a, b, f: a + b,
    "Sub": lambda a, b, f: a - b,
    "Mul": lambda a, b, f: a * b,
    "Div": _divide,
    "Equal": lambda a, b, f: _decide(f.equal(a, b)),
    "Less": lambda a, b, f: _decide(f.less_equal(a + 1, b)),
    "LessOrEqual": lambda a, b, f: _decide(f.less_equal(a, b)),
    "Greater": lambda a, b, f: _decide(f.less_equal(b + 1, a)),
    "GreaterOrEqual": lambda a, b, f: _decide(f.less_equal(b, a)),
    "And": lambda a, b, f: bool(a) and bool(b),
    "Or": lambda a, b, f: bool(a) or bool(b),
    "Xor": lambda a, b, f: bool(a) != bool(b),
}
_PREDICATES = {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor"}


def elementwise(fn: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    if all(a.ndim == 0 for a in arrays):
        return np.asarray(fn(*(a[()] for a in arrays)), dtype=object)
    return np.asarray(np.frompyfunc(fn, len(arrays), 1)(*arrays), dtype=object)


def _binary(op: str) -> Evaluator:
    compute = _BINARY[op]

    def evaluator(args: Args, attrs: dict[str, Any], facts: Facts, opset: int) -> list[Content] | None:
        a, b = present(args)
        if not broadcasts(a.items, b.items):
            return None
        items = elementwise(lambda x, y: compute(x, y, facts), a.items, b.items)
        return [Content(items, BOOL if op in _PREDICATES else a.dtype)]

    return evaluator


for _op in _BINARY:
    EVALUATORS[_op] = _binary(_op)


@evaluates("Mod")
def _mod(args: Args, attrs: dict[str, Any], facts: Facts, opset: int) -> list[Content] | None:
    a, b = present(args)
    fmod = bool(attrs.get("fmod", 0))
    if not broadcasts(a.items, b.items):
        return None
    return [Content(elementwise(lambda x, y: _remainder(x, y, facts, fmod), a.items, b.items), a.dtype)]


def _extreme(pick: str) -> Evaluator:
    def evaluator(args: Args, attrs: dict[str, Any], facts: Facts, opset: int) -> list[Content] | None:
        first, *rest = present(args)
        items = first.items
        for other in rest:
            if not broadcasts(items, other.items):
                return None
            items = elementwise(getattr(facts, pick), items, other.items)
        return [Content(items, first.dtype)]

    return evaluator


EVALUATORS["Min"] = _extreme("smaller")
EVALUATORS["Max"] = _extreme("larger")


@evaluates("Identity")
def _identity(args: Args, attrs: dict[str, Any], facts: Facts, opset: int) -> list[Content] | None:
    return [first(args)]


def _unary(fn: Callable[[Any, Facts], Any]) -> Evaluator:
    def evaluator(args: Args, attrs: dict[str, Any], facts: Facts, opset: int) -> list[Content] | None:
        x = first(args)
        return [Content(elementwise(lambda v: fn(v, facts), x.items), x.dtype)]

    return evaluator


def _magnitude(x: Any, facts: Facts) -> Any:
    if facts.less_equal(0, x):
        return x
    if facts.less_equal(x, 0):
        return -1 * x
    raise Unknown


EVALUATORS["Neg"] = _unary(lambda x, f: -1 * x)
EVALUATORS["Not"] = _unary(lambda x, f: not x)
EVALUATORS["Abs"] = _unary(_magnitude)


@evaluates("Where")
def _where(args: Args, attrs: dict[str, Any], facts: Facts, opset: int) -> list[Content] | None:
    cond, a, b = present(args)
    if not broadcasts(cond.items, a.items, b.items):
        return None
    return [Content(elementwise(lambda c, x, y: x if c else y, cond.items, a.items, b.items), a.dtype)]


@evaluates("Cast")
def _cast(args: Args, attrs: dict[str, Any], facts: Facts, opset: int) -> list[Content] | None:
    x, to = first(args), onnx_dtype(attrs["to"])
    if to.is_int and x.dtype is not BOOL:
        return [Content(x.items, to)]
    if to.is_int:
        return [Content(elementwise(int, x.items), to)]
    if to is BOOL:
        return [Content(elementwise(lambda v: not _decide(facts.equal(v, 0)), x.items), to)]
    return None


def axes_of(args: Args, attrs: dict[str, Any], position: int = 1) -> list[int] | None:
    if len(args) > position and args[position] is not None:
        given = args[position]
        assert given is not None
        return [number(v) for v in given.items.flat]
    found = attrs.get("axes")
    return None if found is None else list(found)


def number(value: Any) -> int:
    if not isinstance(value, int):
        raise Unknown
    return int(value)


@evaluates("Range")
def _range(args: Args, attrs: dict[str, Any], facts: Facts, opset: int) -> list[Content] | None:
    start, limit, delta = (number(a.items.ravel()[0]) for a in present(args))
    if delta == 0 or len(range(start, limit, delta)) > LIMIT:
        return None
    return [content(list(range(start, limit, delta)), first(args).dtype)]


def _reduction(fn: Callable[[Any, Any, Facts], Any], empty: int) -> Evaluator:
    def evaluator(args: Args, attrs: dict[str, Any], facts: Facts, opset: int) -> list[Content] | None:
        x, axes = first(args), axes_of(args, attrs)
        if not axes:
            if attrs.get("noop_with_empty_axes", 0):
                return [x]
            axes = list(range(x.items.ndim))
        items, keep = x.items, bool(attrs.get("keepdims", 1))
        for axis in sorted((a % x.items.ndim for a in axes), reverse=True):
            parts = [np.take(items, i, axis) for i in range(items.shape[axis])]
            total = np.asarray(np.full(np.delete(items.shape, axis), empty, dtype=object), dtype=object)
            for part in parts:
                total = elementwise(lambda a, b: fn(a, b, facts), total, np.asarray(part, dtype=object))
            items = np.expand_dims(total, axis) if keep else total
        return [Content(items, x.dtype)]

    return evaluator


EVALUATORS["ReduceSum"] = _reduction(lambda a, b, f: a + b, 0)
EVALUATORS["ReduceProd"] = _reduction(lambda a, b, f: a * b, 1)

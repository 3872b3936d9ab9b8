"""Types as written: of inputs and weights (every dimension known), and of parameters (dimensions that calls bind)."""

from __future__ import annotations

from moec.diagnostics import suggest
from moec.frontend.dsl import tree as t
from moec.frontend.dsl.expr import tensor_or_number
from moec.frontend.dsl.scope import Scope
from moec.frontend.dsl.values import UNKNOWN, is_dim, kind_of
from moec.ir.graph import Value
from moec.ir.symbol import Dim, bounds
from moec.ir.types import DTYPES, DType, TensorType
from moec.ops.signature import Pattern


def resolve(type_: t.Type, scope: Scope) -> TensorType | None:
    """The tensor type; None where it is wrong, which has been reported."""
    dtype = _dtype(type_, scope)
    dims: list[Dim] = []
    whole = True
    for expr in type_.dims:
        if isinstance(expr, t.Rest):
            scope.wrong(expr.at, "'...' stands in the types of parameters only", "write every dimension")
            whole = False
            continue
        dim = _dim(expr, scope)
        whole = whole and dim is not None
        dims.append(0 if dim is None else dim)
    return TensorType(dtype, tuple(dims)) if dtype is not None and whole else None


def note_spelling(type_: t.Type, value: Value, scope: Scope) -> None:
    """Remember how a declared type and its dimensions are written, for messages; a shared layer's words say less than
    numbers.
    """
    if scope.unit.report is not scope.program.report:
        return
    spelling = scope.program.spelling
    text = " ".join(scope.unit.report.source(type_.at).split())
    spelling.declared[value] = text
    written = [w.strip() for w in text[text.index("[") + 1 : -1].split(",")]
    if len(written) == len(type_.dims):
        for size, dim in zip(value.type.dims, written, strict=True):
            spelling.note(size, dim)


def pattern(type_: t.Type, scope: Scope) -> tuple[DType | None, Pattern]:
    """The dtype (None for ``any``) and shape pattern of a parameter; the pattern is None where it is wrong."""
    dtype = None if type_.dtype == "any" else _dtype(type_, scope)
    dims: list[str | Dim] = []
    whole = dtype is not None or type_.dtype == "any"
    for expr in type_.dims:
        if isinstance(expr, t.Rest):
            if any(isinstance(d, str) for d in dims):
                scope.wrong(expr.at, "a second '...' in one type", "leave one out")
                whole = False
            dims.append(f"*{expr.at.start}")
            continue
        dim = _dim(expr, scope, bounded=False)
        whole = whole and dim is not None
        dims.append(0 if dim is None else dim)
    return dtype, tuple(dims) if whole else None


def _dtype(type_: t.Type, scope: Scope) -> DType | None:
    found = DTYPES.get(type_.dtype)
    named = scope.find(type_.dtype) if found is None else None
    if named is not None:
        named.read = True
        if isinstance(named.item, DType) or named.item is UNKNOWN:
            return named.item if isinstance(named.item, DType) else None
        scope.wrong(type_.at, f"'{type_.dtype}' is {kind_of(named.item)}, no dtype", "write DTYPE[DIMS]")
    elif found is None:
        known = [n for n, d in DTYPES.items() if d.kind != "opaque"]
        scope.wrong(
            type_.at, f"unknown dtype '{type_.dtype}'", suggest(type_.dtype, known) or f"dtypes are: {', '.join(known)}"
        )
    return found


def _dim(expr: t.Expr, scope: Scope, bounded: bool = True) -> Dim | None:
    item = tensor_or_number(expr, scope)
    if item is UNKNOWN:
        return None
    if not is_dim(item):
        scope.wrong(expr.at, f"a dimension is an integer, not {kind_of(item)}")
        return None
    low = bounds(item, scope.program.module.symbols)[0] if bounded else 0
    if low < 0:
        scope.wrong(expr.at, f"the dimension {item} can be negative ({low})", "raise the lower bound of its symbols")
        return None
    return item

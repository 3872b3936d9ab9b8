"""Dimensions of the layer IR as scalars of the kernel IR (symbols become run-time arguments)."""

from __future__ import annotations

from moec.codegen.scalar import Arg, Scalar, binary
from moec.ir.symbol import Call, Dim, Expr

_OPS = {"floordiv": "//", "ceildiv": "cdiv", "mod": "%", "min": "min", "max": "max"}


def scalar_of(dim: Dim) -> Scalar:
    """``dim`` with each symbol as ``Arg`` of the same name."""
    if isinstance(dim, int):
        return dim
    assert isinstance(dim, Expr)
    total: Scalar = 0
    for mono, coeff in sorted(dim.terms, key=lambda term: term[1] < 0):
        product: Scalar = abs(coeff)
        for atom in mono:
            product = binary("*", product, _call(atom) if isinstance(atom, Call) else Arg(str(atom)))
        total = binary("-" if coeff < 0 else "+", total, product)
    return total


def _call(call: Call) -> Scalar:
    return binary(_OPS[call.fn], scalar_of(call.a), scalar_of(call.b))

"""Arithmetic progressions: start, start + step, start + 2 step, ... (iota and range)."""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import ITEMSIZE, GmTensor
from moec.codegen.kernels.vector.assemble import balanced
from moec.codegen.scalar import Scalar, Var, both, ceildiv, choose, smax, smin

TILE = 4096
"""Most elements made at once."""


def emit_series(k: KernelBuilder, y: GmTensor, count: Scalar, start: GmTensor | None, step: GmTensor | None) -> Scalar:
    """y[i] = start + i * step, from scalars in device memory (None: 0 and 1). Returns how many cores are wanted.

    Integers are made in 32 bits; floats in f32 from exact positions, rounded once to y's dtype (as i * step and again
    as the sum).
    """
    whole = y.dtype in ("i32", "i64")
    dtype = "i32" if whole else "f32"
    places, made = k.ub("places", "i32", TILE), k.ub("made", y.dtype, TILE, 2)
    work = places if whole else k.ub("work", "f32", TILE)
    first: Var | None = None if start is None else _one(k, start)
    by: Var | None = None if step is None else _one(k, step)
    size = k.let("size", balanced(ceildiv(count, k.cores), TILE, 512))
    with k.loop("t", k.core, ceildiv(count, size), k.cores) as t:
        ping = k.slot(2)
        at = k.let("first", t * size)
        n = k.let("count", smin(size, count - at))
        k.v("ArithProgression", places[0], firstValue=at, diffValue=1, count=n)
        if not whole:
            k.cast(work[0], places[0], n, "RINT")
        if by is not None:
            k.v("Muls", work[0], work[0], scalar=by, count=n)
        if y.dtype == dtype:
            k.v("Adds", made[ping], work[0], scalar=0 if first is None else first, count=n)
        else:
            if first is not None:
                k.v("Adds", work[0], work[0], scalar=first, count=n)
            k.cast(made[ping], work[0], n)
        k.store(y[at], made[ping], n)
    return smax(1, ceildiv(count, TILE))


def emit_range_count(k: KernelBuilder, start: GmTensor, limit: GmTensor, step: GmTensor, y: GmTensor) -> None:
    """y [1] i64 = how many of start, start + step, ... lie before limit (integers)."""
    first, end, by = (_one(k, t) for t in (start, limit, step))
    apart = k.let("apart", choose(by > 0, end - first, first - end))
    size = k.let("size", choose(by > 0, by, 0 - by))
    held = k.ub("held", "i64", 4)
    k.write(held[0], choose(both(apart > 0, size > 0), (apart + size - 1) // size, 0))
    k.store(y[0], held[0], 1)


def _one(k: KernelBuilder, tensor: GmTensor) -> Var:
    """A scalar in device memory."""
    raw = k.ub(tensor.name, tensor.dtype, 32 // ITEMSIZE[tensor.dtype])[0]
    k.load(raw, tensor[0], 1)
    return k.read(f"{tensor.name}_is", raw)

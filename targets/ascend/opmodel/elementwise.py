"""Elementwise operators: vector cycles per 64 elements, casts to f32 and back, broadcasts.

Cycles are those of the measured instruction table (mskpp, 910B1): one a repeat of 256 bytes for one source, two for
two, 2 for exp, ln and sqrt, 4 for div; what is a sequence of instructions is their sum (inferred).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from moec.targets.ascend.opmodel.tensor import Tensor
from moec.targets.ascend.opmodel.work import Work

LANES = 64
"""f32 elements of one repeat of the vector unit."""

PASSES: dict[str, float] = {
    "add": 2, "sub": 2, "mul": 2, "max": 2, "min": 2, "div": 4, "mod": 12, "pow": 20, "neg": 1, "abs": 1, "relu": 1,
    "sign": 4, "floor": 2, "ceil": 2, "round": 2, "trunc": 2, "reciprocal": 4, "exp": 2, "log": 3, "sqrt": 2,
    "rsqrt": 5, "square": 2, "sin": 60, "cos": 60, "tan": 80, "tanh": 9, "erf": 25, "sigmoid": 8, "silu": 10,
    "gelu": 16, "softplus": 8, "clip": 2, "eq": 4, "compare": 4, "logical": 3, "not": 2, "select": 5, "cast": 1.25,
    "copy": 0, "fill": 0.5, "axpy": 3, "lerp": 5, "isfinite": 5, "gelu_grad": 24, "silu_grad": 16, "sigmoid_grad": 6,
    "tanh_grad": 6, "relu_grad": 4, "dropout": 4, "adam": 28, "sgd": 6, "lamb": 30, "other": 6,
    "random": 100, "random_bits": 800,
}  # fmt: skip
"""Cycles per repeat of 64 f32 elements, casts not counted."""

WIDE_INTEGER = {"add": 4.0, "sub": 4.0, "max": 4.0, "min": 4.0, "eq": 1.7, "compare": 2.6, "mul": 9.0, "cast": 0.0}
"""Cycles per element of 64-bit integers, which the vector unit only does piecewise (profiled 20-core rows: Sub 3.9,
compare 2.8; Mul runs on the scalar unit)."""

WIDE = ("i64", "u64", "f64", "c64", "c128")
"""Types that the vector unit does not compute in."""

WIDE_SETUP = 2000.0
"""Cycles that such arithmetic takes however little there is (profiled 20-core rows: scalar Add 3.0 for 0.9 us)."""

BROADCAST_ROW = 60.0
"""Cycles a row and operand that is broadcast within rows (profiled: [4096, 1] x [64] takes about 120 a row)."""

COLD_FLAT = 1 << 20
"""Bytes from which a flat f32 tensor counts as optimizer state, whose last use lies a training step back."""


def lanes_cycles(kind: str, elements: float, dtype: str, casts: float) -> float:
    """Vector cycles of ``elements`` under ``kind``, with ``casts`` conversions to or from 16 bits an element."""
    if dtype in WIDE:
        return elements * WIDE_INTEGER.get(kind, 5.0 if PASSES[kind] else 0.0) + PASSES[kind] * elements / LANES * 2
    if dtype == "f16" and PASSES[kind] <= 4:
        return PASSES[kind] * elements / LANES / 2
    if dtype in ("i8", "u8", "bool", "i16", "u16"):
        casts = casts + 1
    elif kind == "cast":
        casts = 0
    return (PASSES[kind] + casts) * elements / LANES


def elementwise(
    kind: str, ins: Sequence[Tensor], outs: Sequence[Tensor], *, flat_is_cold: bool = True, name: str = "elementwise"
) -> Work:
    """One value out of each place of the operands, ``kind`` being a key of ``PASSES``."""
    elements = max([t.numel for t in outs] + ([] if outs else [t.numel for t in ins]) + [0])
    computed = _compute_dtype(kind, ins, outs)
    scalar = len(ins) > 1 and any(t.numel == 1 for t in ins) and elements > 1
    casts = sum(t.is_float16 for t in (*ins, *outs) if t.numel == elements and t.dtype != computed)
    cycles = lanes_cycles(kind, elements, computed, casts)
    if scalar and PASSES[kind] == 2:
        cycles /= 2
    wide = computed in WIDE and kind != "cast"
    shape = max((t.shape for t in outs or ins), key=prod, default=())
    issue = sum(BROADCAST_ROW * elements / run_of(t.shape, shape) for t in ins if 1 < t.numel < elements)
    return Work(
        name,
        reads=sum(t.bytes for t in ins),
        writes=sum(t.bytes for t in outs),
        cold=_cold(ins, outs) if flat_is_cold else 0,
        vector=cycles,
        issue=issue,
        single=WIDE_SETUP if wide else 0.0,
        units=sum(t.bytes for t in (*ins, *outs)) / 256,
        operands=max(1, len(ins)),
    )


def run_of(part: tuple[int, ...], whole: tuple[int, ...]) -> int:
    """Adjacent places of ``whole`` that take one value of ``part``, or one row of it: the trailing dimensions along
    which it is repeated, or those that it has in full.
    """
    padded = (1,) * (len(whole) - len(part)) + tuple(part)
    repeated = bool(whole) and padded[-1] == 1 != whole[-1]
    run = 1
    for mine, size in zip(reversed(padded), reversed(whole), strict=False):
        if (mine == 1) != repeated and size > 1:
            break
        run *= size
    return max(1, run)


def _cold(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> int:
    """Bytes that come from HBM or push others there: state that is read, and what is written in its place."""
    state = [t for t in ins if is_state(t, ins, outs)]
    return sum(t.bytes for t in (*state, *outs)) if state else 0


def is_state(t: Tensor, ins: Sequence[Tensor], outs: Sequence[Tensor]) -> bool:
    """Whether ``t`` looks like optimizer state or a main gradient: f32 and large, and flat or next to a 16-bit tensor
    of the same size that is added to it.
    """
    if t.dtype != "f32" or t.bytes < COLD_FLAT:
        return False
    added = len(ins) == 2 and ins[0].dtype == "f32" and ins[1].is_float16 and ins[0].numel == ins[1].numel
    return len(t.shape) == 1 or (added and all(o.dtype == "f32" for o in outs))


def _compute_dtype(kind: str, ins: Sequence[Tensor], outs: Sequence[Tensor]) -> str:
    """What the vector unit computes in: the operands' type; bf16 (and f16 of longer formulas) in f32."""
    types = [t.dtype for t in (*ins, *outs) if t.numel > 1] or [t.dtype for t in (*ins, *outs)]
    if kind == "cast":
        return "f32"
    first = (ins or outs)[0].dtype if (ins or outs) else "f32"
    if first in WIDE:
        return first
    if "bf16" in types or "f32" in types or PASSES[kind] > 4:
        return "f32"
    return first


def optimizer(kind: str, ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """An update of parameters in place: all state is read from HBM and written back to it."""
    big = max((t.numel for t in ins), default=1)
    parts = [t for t in ins if t.numel * 2 > big] or list(ins)
    total = sum(t.numel for t in parts) / max(1, round(sum(t.numel for t in parts) / max(1, big)))
    reads = sum(t.bytes for t in ins)
    writes = sum(t.bytes for t in outs) or reads * 3 // 4
    casts = sum(t.is_float16 for t in parts)
    return Work(
        "optimizer",
        reads,
        writes,
        cold=reads + writes,
        vector=lanes_cycles(kind, total, "f32", casts),
        operands=len(ins),
    )


def foreach(kind: str, ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """One elementwise operator over lists of tensors; lists of parameters were last used long ago."""
    reads, writes = sum(t.bytes for t in ins), sum(t.bytes for t in outs)
    writes = writes or reads // 2
    elements = sum(t.numel for t in outs) or sum(t.numel for t in ins) / 2
    casts = 2 if any(t.is_float16 for t in ins) else 0
    cold = reads + writes if reads + writes > COLD_FLAT else 0
    return Work(
        "elementwise", reads, writes, cold, lanes_cycles(kind, elements, "f32", casts), operands=max(1, len(ins) // 4)
    )

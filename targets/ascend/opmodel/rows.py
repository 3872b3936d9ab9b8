"""Operators over rows: norms, softmax, reductions, gated activations, rotary embedding."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from moec.targets.ascend.opmodel.elementwise import LANES
from moec.targets.ascend.opmodel.tensor import Tensor
from moec.targets.ascend.opmodel.work import Work

PER_ELEMENT: dict[str, float] = {
    "rms_norm": 12, "rms_norm_grad": 24, "layer_norm": 16, "layer_norm_grad": 26, "softmax": 12, "softmax_grad": 10,
    "log_softmax": 12, "cross_entropy": 16, "l2_norm": 4, "swiglu": 11, "swiglu_grad": 22, "rope": 9, "rope_grad": 9,
    "quant": 12, "batch_norm": 8, "pool": 20, "pool_grad": 40, "group_norm": 16,
}  # fmt: skip
"""Vector cycles per 64 elements in f32, 16-bit casts not counted: instructions counted in the usual formula, each at
its rate in the measured table."""

PER_ROW: dict[str, float] = {
    "rms_norm": 6, "rms_norm_grad": 18, "layer_norm": 14, "layer_norm_grad": 30, "softmax": 20, "softmax_grad": 15,
    "log_softmax": 25, "cross_entropy": 30, "rope": 4, "rope_grad": 4, "quant": 20, "swiglu": 2, "swiglu_grad": 2,
}  # fmt: skip
"""Vector cycles a row besides: the last steps of its reductions and short instructions (inferred)."""


ACROSS_ROWS = ("batch_norm", "group_norm", "pool", "pool_grad")
"""Kinds that work on many rows at a time, so that short rows cost nothing extra."""


def over_rows(kind: str, ins: Sequence[Tensor], outs: Sequence[Tensor], name: str = "norm") -> Work:
    """``kind`` over the last dimension of the first operand, which is read once."""
    main = max(ins, key=lambda t: t.numel) if ins else outs[0]
    big = [t for t in (*ins, *outs) if 2 * t.numel >= main.numel]
    casts = sum(t.is_float16 for t in big)
    short = main.last < 4 * LANES and kind not in ACROSS_ROWS
    repeats = main.rows * ceil(main.last / LANES) if short else main.numel / LANES
    per_row = 0.0 if kind in ACROSS_ROWS else PER_ROW.get(kind, 10.0)
    vector = (PER_ELEMENT[kind] + casts) * repeats + per_row * main.rows
    return Work(
        name,
        reads=sum(t.bytes for t in ins),
        writes=sum(t.bytes for t in outs),
        vector=vector,
        units=main.rows,
        operands=max(1, len(ins)),
    )


def gated(kind: str, ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """SwiGLU and its like, forward or backward; cycles count per element of a half."""
    half = min((t.numel for t in (*ins, *outs) if t.numel > 1), default=1)
    casts = sum(t.numel / half for t in (*ins, *outs) if t.is_float16)
    rows = min((t.rows for t in (*ins, *outs) if t.numel > 1), default=1)
    vector = (PER_ELEMENT[kind] + casts) * half / LANES + PER_ROW.get(kind, 10.0) * rows
    return Work(
        "gated", sum(t.bytes for t in ins), sum(t.bytes for t in outs), vector=vector, units=rows,
        operands=max(1, len(ins)),
    )  # fmt: skip


def rotary(kind: str, ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """Rotary embedding of one or several tensors: cos and sin are read again for each head that shares them."""
    parts = [t for t in outs if t.numel > 1] or [max(ins, key=lambda t: t.numel)]
    vector = 0.0
    for t in parts:
        casts = 4 if t.is_float16 else 0
        vector += (PER_ELEMENT[kind] + casts) * t.rows * max(1.0, t.last / LANES) + PER_ROW[kind] * t.rows
    return Work(
        "rotary", sum(t.bytes for t in ins), sum(t.bytes for t in outs), vector=vector,
        units=parts[0].rows, operands=max(1, len(ins)),
    )  # fmt: skip


MERGE = 400.0
"""Cycles to put the parts of several cores together (inferred: two copies' latencies)."""


def reduce(ins: Sequence[Tensor], outs: Sequence[Tensor], kind: str = "add") -> Work:
    """A reduction to ``outs[0]``: rows are summed lane by lane, or along rows with one more step a row."""
    source = max(ins, key=lambda t: t.numel) if ins else Tensor(())
    result = outs[0] if outs else Tensor(())
    inner = bool(result.shape) and result.last == source.last and source.last > 1
    casts = 1.0 if source.is_float16 else 0.0
    cycles = (1.5 if inner else 3.0) + casts + (4.0 if kind == "arg" else 0.0)
    kept = max(1, result.numel)
    wide = 3.0 if source.dtype in ("i64", "f64") else 1.0
    length = source.numel / kept
    repeats = source.numel / LANES
    if not inner and length < LANES and kept > 1:
        repeats = kept * ceil(length / LANES)
    ends = 0.0 if inner else 10.0 * kept / 8
    return Work(
        "reduce", sum(t.bytes for t in ins), sum(t.bytes for t in outs),
        vector=cycles * wide * repeats + ends, single=MERGE if kept < source.bytes / 4096 else 0.0,
        units=source.bytes / 4096, operands=max(1, len(ins)),
    )  # fmt: skip

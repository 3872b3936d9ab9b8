"""Operators of the cube: matrix products, grouped ones, convolutions, attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from moec.targets.ascend.opmodel import moves
from moec.targets.ascend.opmodel.elementwise import LANES, PASSES
from moec.targets.ascend.opmodel.tensor import Tensor
from moec.targets.ascend.opmodel.work import Gemm, Work


def matrix(t: Tensor) -> tuple[int, int, int]:
    """Batch, rows and columns; fractal storage [.., N1, M1, 16, k0] counts as [M1 x 16, N1 x k0]."""
    if t.format.upper() in ("FRACTAL_NZ", "NZ") and len(t.shape) >= 4:
        *lead, n1, m1, m0, n0 = t.shape
        return prod(lead), m1 * m0, n1 * n0
    if len(t.shape) == 1:
        return 1, 1, t.shape[0]
    if not t.shape:
        return 1, 1, 1
    *lead, rows, cols = t.shape
    return prod(lead), rows, cols


def matmul(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """A product whose transposes are inferred from its result. Its right operand comes from HBM, as weights were last
    used a pass ago, unless there is one for each batch or the left one is transposed (a weight gradient). ValueError
    where sizes do not fit any.
    """
    (ba, a0, a1), (bb, b0, b1) = matrix(ins[0]), matrix(ins[1])
    sides = [
        (m, k, n, ta, tb)
        for m, k, ta in ((a0, a1, 0), (a1, a0, 1))
        for k2, n, tb in ((b0, b1, 0), (b1, b0, 1))
        if k == k2
    ]
    if outs:
        bo, o0, o1 = matrix(outs[0])
        fits = [s for s in sides if (s[0], s[2]) == (o0, o1)] or [
            s for s in sides if s[0] * s[2] * max(ba, bb) == bo * o0 * o1
        ]
    else:
        fits = sides
    if not fits:
        fits = _folded(ins, outs)
    if not fits:
        raise ValueError(
            f"no product of {_text(ins[0])} and {_text(ins[1])} gives {_text(outs[0]) if outs else 'a result'}"
        )
    m, k, n, ta, _ = fits[0]
    out_item = outs[0].itemsize if outs else ins[0].itemsize
    batch = max(ba, bb)
    if batch > 1 and bb == 1 and not ta:
        m, batch = m * batch, 1
    gemm = Gemm(batch, m, n, k, ins[0].dtype, _row(ins[0]), _row(ins[1]), out_item)
    return Work(
        "matmul" if batch == 1 else "batch_matmul", sum(t.bytes for t in ins),
        sum(t.bytes for t in outs) or int(batch * m * n * out_item), cold=0 if ta or bb > 1 else ins[1].bytes,
        gemms=(gemm,),
        operands=len(ins), before=converted(ins[:2]),
    )  # fmt: skip


FINISHES = ("gelu", "swiglu", "silu", "swish", "relu", "sigmoid")
"""Functions that the name of a fused product ends in, as keys of the vector cycles of elementwise operators."""

SCALED = 5.0
"""Vector cycles per 64 results that are scaled to floats by channel and by token."""


def finished(op: str, work: Work, ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """``work`` with what vector cores do to a product's results in the same kernel: scales of 8-bit operands, and the
    function that the name of ``op`` says. Results go to them through L2.
    """
    name = next((f for f in FINISHES if f in op.lower()), "")
    eight = any(t.dtype in ("i8", "u8", "i4") for t in ins[:2]) and any(t.is_float16 for t in outs)
    if not outs or not (name or eight):
        return work
    each = PASSES.get({"swish": "silu", "swiglu": "silu"}.get(name, name), 0.0) + (SCALED if eight else 0.0)
    results = sum(g.batch * g.m * g.n for g in work.gemms)
    return replace(work, vector=work.vector + each * results / LANES)


LONGEST_ROW = 65535
"""Elements of a stored row up to which a load can change it to fractals: the field of the instruction has 16 bits."""


def converted(sides: Sequence[Tensor]) -> Work | None:
    """The conversion to fractals ahead of a product, of those operands whose rows no load can convert."""
    long = [t for t in sides if t.last > LONGEST_ROW and _row(t)]
    return moves.relayout(long, long) if long else None


def _folded(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> list[tuple[int, int, int, int, int]]:
    """Operands stored with dimensions folded or padded to fractals: k from the element counts, where that is whole."""
    if not outs:
        return []
    a, b, o = ins[0].numel, ins[1].numel, outs[0].numel
    square = a * b / o if o else 0.0
    k = round(square**0.5)
    if k < 1 or abs(k * k - square) > 0.05 * square:
        return []
    return [(max(1, a // k), k, max(1, b // k), 0, 0)]


def _row(t: Tensor) -> float:
    return 0.0 if t.format.upper() in ("FRACTAL_NZ", "NZ", "FRACTAL_Z") else t.last * t.itemsize


def _text(t: Tensor) -> str:
    return "x".join(map(str, t.shape)) or "a scalar"


def grouped_matmul(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """Rows sorted by expert times a weight each, groups of all sizes, weights from HBM as their last use lies a layer
    back; or, per expert, the product over its rows.
    """
    floats = [t for t in ins if t.dtype not in ("i64",) and len(t.shape) >= 2]
    cold = 0
    stacked = next((t for t in floats if len(t.shape) >= 3), None)
    out = outs[0] if outs else None
    if stacked is not None:
        if stacked.format.upper() in ("FRACTAL_NZ", "NZ") and len(stacked.shape) >= 5:
            experts, k, n = matrix(stacked)
        else:
            experts, (k, n) = prod(stacked.shape[:-2]), stacked.shape[-2:]
        x = next((t for t in floats if t is not stacked), floats[0])
        rows, width = x.rows, x.last
        if width != k and width == n:
            k, n = n, k
        gemm = Gemm(experts, max(1, -(-rows // experts)), n, k, x.dtype, _row(x), _row(stacked), (out or x).itemsize)
        used = min(experts, max(1, rows))
        gemm = Gemm(
            used, max(1, -(-rows // used)), n, k, x.dtype, gemm.a_row, gemm.b_row, gemm.out_itemsize, uneven=used > 1
        )
        idle = stacked.bytes * (experts - used) // experts
        reads = sum(t.bytes for t in ins) - idle
        cold = stacked.bytes - idle
    elif out is not None and len(out.shape) >= 3 and len(floats) >= 2:
        experts, m, n = prod(out.shape[:-2]), out.shape[-2], out.shape[-1]
        rows = floats[0].numel // m if floats[0].numel % m == 0 else floats[0].rows
        gemm = Gemm(
            experts,
            m,
            n,
            max(1, -(-rows // experts)),
            floats[0].dtype,
            m * floats[0].itemsize,
            _row(floats[1]),
            out.itemsize,
        )
        reads = sum(t.bytes for t in ins)
    elif len(floats) >= 2:
        half = len(floats) // 2
        gemms = tuple(g for a, b in zip(floats[:half], floats[half:], strict=False) for g in matmul([a, b], []).gemms)
        written = sum(t.bytes for t in outs)
        return Work("grouped_matmul", sum(t.bytes for t in ins), written, gemms=gemms, operands=len(ins))
    else:
        raise ValueError("a grouped product needs rows and weights")
    writes = sum(t.bytes for t in outs) or int(gemm.batch * gemm.m * gemm.n * gemm.out_itemsize)
    return Work("grouped_matmul", reads, writes, cold, gemms=(gemm,), operands=len(ins))


def across_ranks(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """A product that is fused with an exchange between ranks: as many rows as the longer of operand and result has; the
    exchange itself is not in it, as the row does not say how many ranks there are.
    """
    (_, _, k), (_, b0, b1) = matrix(ins[0]), matrix(ins[1])
    if k not in (b0, b1):
        raise ValueError(f"no product of {_text(ins[0])} and {_text(ins[1])}")
    n = b1 if k == b0 else b0
    m = max(ins[0].numel // max(1, k), max((t.rows for t in outs), default=1), 1)
    gemm = Gemm(1, m, n, k, ins[0].dtype, _row(ins[0]), _row(ins[1]), ins[0].itemsize)
    reads, writes = sum(t.bytes for t in ins), sum(t.bytes for t in outs)
    return Work("unknown", reads, writes, gemms=(gemm,), operands=len(ins))


def projections(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """Tokens through several weights one after the other in one kernel (MlaProlog): each weight is read from HBM."""
    tokens = max(1, ins[0].rows)
    weights = [t for t in ins[1:] if len(t.shape) in (2, 3) or t.format.upper() in ("FRACTAL_NZ", "NZ")]
    if not weights:
        raise ValueError("projections need weights")
    gemms = tuple(Gemm(1, tokens, n, max(1, b * k), t.dtype, 0, 0, 2) for t in weights for b, k, n in [matrix(t)])
    cold = sum(t.bytes for t in weights)
    return Work(
        "unknown", ins[0].bytes + cold, sum(t.bytes for t in outs if t.rows == tokens), cold, gemms=gemms,
        operands=len(ins), mixed=True,
    )  # fmt: skip


FORWARD_CYCLES, BACKWARD_CYCLES = 8.3, 21.0
"""Vector cycles per 64 scores: forward scale, mask, row maximum, subtract, exp, sum, cast, and rescaling of the sum;
backward recomputes them and adds the products with dP. Instructions counted at the rates of the measured table; forward
then reaches 47 % of the cube's peak at 8192 keys of width 128, as a published kernel does (pto-isa documentation: 172
TFLOPS on 24 cores)."""


def attention(
    b: int, n: int, s: int, t: int, d: int, v: int, dtype: str, moved: tuple[int, int], visible: float
) -> Work:
    """Flash attention forward; ``visible``: the part of the scores that masks leave."""
    scores = b * n * s * t * visible
    rows = d * 2.0
    gemms = (
        Gemm(b * n, s, max(1, round(t * visible)), d, dtype, rows, rows, 4),
        Gemm(b * n, s, v, max(1, round(t * visible)), dtype, rows, rows, 4),
    )
    vector = FORWARD_CYCLES * scores / LANES + 8.0 * b * n * s * (v / LANES) * max(1.0, t * visible / 1024)
    return Work(
        "attention", moved[0], moved[1], vector=vector, gemms=gemms, fixpipe=4 * scores + 4.0 * b * n * s * v,
        mixed=True, operands=4, units=max(1, b * n * -(-s // 128)),
    )  # fmt: skip


def attention_grad(
    b: int, n: int, s: int, t: int, d: int, v: int, dtype: str, moved: tuple[int, int], visible: float
) -> Work:
    """Its gradient: five products, and f32 sums of dq, dk and dv that blocks of 128 scores each add to memory."""
    scores = b * n * s * t * visible
    seen = max(1, round(t * visible))
    rows = d * 2.0
    gemms = (
        Gemm(b * n, s, seen, d, dtype, rows, rows, 4), Gemm(b * n, s, seen, v, dtype, rows, rows, 4),
        Gemm(b * n, s, d, seen, dtype, rows, rows, 4), Gemm(b * n, seen, d, s, dtype, rows, rows, 4),
        Gemm(b * n, seen, v, s, dtype, rows, rows, 4),
    )  # fmt: skip
    partial = 4.0 * scores / 128 * (2 * d + v) / 2
    vector = BACKWARD_CYCLES * scores / LANES + 12.0 * b * n * (s * (d + v) + t * (d + v)) / LANES
    return Work(
        "attention_grad", moved[0], moved[1] * 3, vector=vector, gemms=gemms, fixpipe=8.0 * scores + partial,
        mixed=True, operands=6, units=max(1, b * n * -(-s // 128)),
    )  # fmt: skip

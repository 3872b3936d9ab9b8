"""moec's ops as quantities of work: by family where the op is known, by its cost class where it is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from moec.targets.ascend.opmodel import index, moves, products, rows
from moec.targets.ascend.opmodel.attention import causal_part
from moec.targets.ascend.opmodel.elementwise import PASSES, elementwise
from moec.targets.ascend.opmodel.tensor import Tensor
from moec.targets.ascend.opmodel.vendor import Describe, unknown
from moec.targets.ascend.opmodel.work import Gemm, Work

Operands = Sequence[Tensor | None]

ELEMENTWISE = {
    "minimum": "min", "maximum": "max", "ne": "eq", "lt": "compare", "le": "compare", "gt": "compare", "ge": "compare",
    "and": "logical", "or": "logical", "xor": "logical", "is_inf": "isfinite", "is_nan": "isfinite", "trilu": "select",
    "seed": "fill",
}  # fmt: skip

ROWS = {"rms_norm": "rms_norm", "layer_norm": "layer_norm", "softmax": "softmax", "log_softmax": "log_softmax",
        "cross_entropy": "cross_entropy", "cumsum": "softmax"}  # fmt: skip

FAMILIES: dict[str, Describe] = {
    "swiglu": lambda i, o: rows.gated("swiglu", i, o), "swiglu_grad": lambda i, o: rows.gated("swiglu_grad", i, o),
    "rope": lambda i, o: rows.rotary("rope", i, o), "gating": index.gating, "gating_grad": index.gating,
    "permute": index.permute, "unpermute": index.unpermute, "unpermute_grad": index.unpermute,
    "topk": index.topk, "argsort": index.sort, "nonzero": index.sort, "histogram": index.sort,
    "argmax": lambda i, o: rows.reduce(i, o, "arg"), "argmin": lambda i, o: rows.reduce(i, o, "arg"),
    "gather": index.gather, "gather_elements": index.gather, "gather_nd": index.gather,
    "scatter_elements": index.scatter, "scatter_nd": index.scatter, "segment_sum": rows.reduce,
    "transpose": moves.transpose, "slice": moves.strided, "concat": moves.strided, "pad": moves.strided,
    "expand": moves.broadcast, "tile": moves.broadcast, "iota": moves.fill, "range": moves.fill, "one_hot": moves.fill,
    "to_device": moves.copy, "read_start": moves.copy,
}  # fmt: skip


def work_of(op: str, cost: str, operands: Operands, results: Sequence[Tensor], attrs: Mapping[str, Any]) -> Work | None:
    """The work of one op; None where it moves and computes nothing. ``cost``: its class in the registry, "" for an op
    that is not registered.
    """
    ins = [t for t in operands if t is not None]
    if cost in ("view", "scalar"):
        return None
    if op in ("attention", "attention_stats", "attention_grad", "attention_mask_grad"):
        return _attention(op, operands, results, attrs)
    if op == "matmul":
        return _matmul(operands, results, attrs)
    if op == "grouped_matmul":
        return _grouped(operands, results, bool(attrs.get("transpose_weight", True)))
    if op == "grouped_matmul_dw":
        return _grouped_dw(operands, results)
    if op.startswith("reduce_"):
        return rows.reduce(ins, results)
    if op in FAMILIES:
        return FAMILIES[op](ins, results)
    if op in ROWS:
        return rows.over_rows(ROWS[op], ins, results)
    kind = ELEMENTWISE.get(op, op)
    if kind in PASSES:
        return elementwise(kind, ins, results, flat_is_cold=False)
    return _by_class(cost, ins, results)


def _by_class(cost: str, ins: Sequence[Tensor], results: Sequence[Tensor]) -> Work:
    """An op that no family knows: a product, a copy, or a few vector instructions an element."""
    if cost == "cube" and len(ins) >= 2:
        m, n = (ins[0].rows, ins[1].rows)
        gemm = Gemm(1, max(1, m), max(1, n), max(1, min(ins[0].last, ins[1].last)), ins[0].dtype)
        return Work(
            "unknown", sum(t.bytes for t in ins), sum(t.bytes for t in results), gemms=(gemm,), operands=len(ins)
        )
    if cost == "copy":
        return moves.strided(ins, results)
    return unknown(ins, results)


def _matmul(operands: Operands, results: Sequence[Tensor], attrs: Mapping[str, Any]) -> Work:
    a, b = operands[0], operands[1]
    assert a is not None and b is not None
    out = results[0]
    m, k = (a.shape[-1], a.shape[-2]) if attrs.get("transpose_a") else (a.shape[-2], a.shape[-1])
    n = out.shape[-1]
    batch = prod(out.shape[:-2])
    if prod(b.shape[:-2]) == 1 and not attrs.get("transpose_a"):
        m, batch = m * batch, 1
    gemm = Gemm(batch, m, n, k, a.dtype, a.last * a.itemsize, b.last * b.itemsize, out.itemsize)
    cold = 0 if attrs.get("transpose_a") or prod(b.shape[:-2]) > 1 else b.bytes
    return Work("matmul", a.bytes + b.bytes, out.bytes, cold, gemms=(gemm,), operands=2)


def _grouped(operands: Operands, results: Sequence[Tensor], transposed: bool) -> Work:
    x, w = operands[0], operands[1]
    assert x is not None and w is not None
    experts, n, k = w.shape
    if not transposed:
        n, k = k, n
    rows = results[0].rows  # more or fewer than x has where they are gathered
    used = max(1, min(experts, rows))
    gemm = Gemm(
        used, max(1, -(-rows // used)), n, k, x.dtype, x.last * x.itemsize, w.last * w.itemsize, results[0].itemsize
    )
    reads = x.bytes + w.bytes * used // max(1, experts)
    return Work("grouped_matmul", reads, results[0].bytes, gemms=(gemm,), operands=3)


def _grouped_dw(operands: Operands, results: Sequence[Tensor]) -> Work:
    dy, x = operands[0], operands[1]
    assert dy is not None and x is not None
    experts, n, k = results[0].shape
    each = max(1, -(-dy.rows // max(1, experts)))
    gemm = Gemm(experts, n, k, each, x.dtype, n * dy.itemsize, k * x.itemsize, results[0].itemsize)
    return Work("grouped_matmul", dy.bytes + x.bytes, results[0].bytes, gemms=(gemm,), operands=3)


_Q_ROPE = {"attention_grad": 9, "attention_mask_grad": 8}
"""Where the rotary part of queries stands among the operands of an attention op; of others it is operand 5."""


def _attention(op: str, operands: Operands, results: Sequence[Tensor], attrs: Mapping[str, Any]) -> Work:
    q, k, v = operands[0], operands[1], operands[2]
    assert q is not None and k is not None and v is not None
    at = _Q_ROPE.get(op, 5)
    rope = operands[at] if len(operands) > at else None
    b, n, s, d = q.shape
    t = k.shape[2]
    d += rope.last if rope is not None else 0
    seen = causal_part(s, t) if attrs.get("causal") else 1.0
    window = attrs.get("window")
    if isinstance(window, int):
        seen = min(seen, (window + 128) / max(1, t))
    ins = [x for x in operands if x is not None]
    moved = sum(x.bytes for x in ins), sum(x.bytes for x in results)
    make = products.attention_grad if op == "attention_grad" else products.attention
    return make(b, n, s, t, d, v.last, q.dtype, moved, seen)

"""Whether an operator's shapes agree with one another, and the results of a row that does not state them.

Only what no version of an operator allows counts as a contradiction; padded storage formats are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from moec.targets.ascend.opmodel.tensor import Tensor

Operands = Sequence[Tensor]

PADDED = ("NC1HWC0", "FRACTAL_NZ", "NZ", "FRACTAL_Z", "FRACTAL_Z_3D", "NDC1HWC0", "C1HWNCOC0")
"""Formats whose shapes are those of storage, not of the tensor."""

LOOSE = ("dropout", "random", "random_bits")
"""Elementwise kinds whose operands are masks, seeds or shapes."""


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The common shape of ``shapes``, None where they have none."""
    rank = max((len(s) for s in shapes), default=0)
    result = []
    for dims in zip(*((1,) * (rank - len(s)) + tuple(s) for s in shapes), strict=True):
        size = {d for d in dims if d != 1}
        if len(size) > 1:
            return None
        result.append(size.pop() if size else 1)
    return tuple(result)


def contradiction(family: str, kind: str, op: str, ins: Operands, outs: Operands) -> str:
    """What is wrong with the shapes of ``op``, "" where nothing is."""
    check = CHECKS.get(family)
    if check is None or not ins or not outs or any(t.format.upper() in PADDED for t in (*ins, *outs)):
        return ""
    return "" if check(kind, op.lower(), ins, outs) else f"{_texts(ins)} do not give {_texts(outs)} under {op}"


def _texts(tensors: Operands) -> str:
    return " and ".join("x".join(map(str, t.shape)) or "a scalar" for t in tensors[:6])


def _elementwise(kind: str, op: str, ins: Operands, outs: Operands) -> bool:
    if kind in LOOSE or op.startswith(("where", "maskedscatter", "addn", "binarycross", "mseloss", "smoothl1")):
        return True
    out = max(outs, key=lambda t: t.numel)
    most = max(t.numel for t in ins)
    shared = broadcast([t.shape for t in ins])
    return out.numel in (most, prod(shared) if shared is not None else most) and all(_spreads(t, out) for t in ins)


def _spreads(t: Tensor, out: Tensor) -> bool:
    """Whether each place of ``out`` has one of ``t``, counting vectors along any dimension and other views."""
    if t.numel in (1, out.numel) or (len(t.shape) == 1 and t.numel in out.shape):
        return True
    return broadcast([t.shape, out.shape]) == out.shape


def _rows(kind: str, op: str, ins: Operands, outs: Operands) -> bool:
    if kind not in ("rms_norm", "layer_norm", "softmax", "log_softmax"):
        return True
    main = max(ins, key=lambda t: t.numel)
    same = any(t.numel == main.numel for t in outs)
    if kind not in ("rms_norm", "layer_norm") or len(ins) < 2:
        return same
    trailing = {prod(main.shape[i:]) for i in range(len(main.shape) + 1)}
    return same and any(t.numel in trailing for t in ins if t is not main)


def _gated(kind: str, op: str, ins: Operands, outs: Operands) -> bool:
    if kind.endswith("_grad") or len(outs) > 1:
        return True
    return 2 * outs[0].numel == max(t.numel for t in ins) or len(ins) > 1


def _copy(kind: str, op: str, ins: Operands, outs: Operands) -> bool:
    return op not in ("tensormove", "identity") or any(t.numel == outs[0].numel for t in ins)


def _transpose(kind: str, op: str, ins: Operands, outs: Operands) -> bool:
    return max(t.numel for t in ins) == outs[0].numel


def _strided(kind: str, op: str, ins: Operands, outs: Operands) -> bool:
    given, made = sum(t.numel for t in ins), sum(t.numel for t in outs)
    if op.startswith(("concat", "pack", "stack", "cat")):
        return given >= made
    return not op.startswith(("slice", "split", "stridedslice", "chunk", "unpack")) or "grad" in op or made <= given


def _shrinks(kind: str, op: str, ins: Operands, outs: Operands) -> bool:
    return outs[0].numel <= max(t.numel for t in ins)


def _sorts(kind: str, op: str, ins: Operands, outs: Operands) -> bool:
    return not op.startswith("sort") or outs[0].numel == max(t.numel for t in ins)


def _grouped(kind: str, op: str, ins: Operands, outs: Operands) -> bool:
    weight = next((t for t in ins if len(t.shape) == 3), None)
    rows = next((t for t in ins if len(t.shape) == 2), None)
    return weight is None or rows is None or rows.last in weight.shape[1:]


def _routed(kind: str, op: str, ins: Operands, outs: Operands) -> bool:
    """Rows keep their width."""
    source, result = max(ins, key=lambda t: t.numel), max(outs, key=lambda t: t.numel)
    return source.last == result.last or min(len(source.shape), len(result.shape)) < 2


CHECKS: dict[str, Callable[[str, str, Operands, Operands], bool]] = {
    "elementwise": _elementwise, "rows": _rows, "gated": _gated, "copy": _copy, "transpose": _transpose,
    "strided": _strided, "reduce": _shrinks, "topk": _shrinks, "sort": _sorts, "grouped_matmul": _grouped,
    "permute": _routed, "unpermute": _routed,
}  # fmt: skip
"""What must hold of operators of a family: variant, name in lower case, operands, results."""


def results(family: str, kind: str, op: str, ins: Operands, dtype: str) -> tuple[Tensor, ...]:
    """The results of an operator whose row states none, of ``dtype`` where that is known; () where they cannot be told
    or are beside the point.
    """
    big = [t for t in ins if t.numel > 1]
    if not big or op.lower().startswith("readonly"):
        return ()
    main = max(big, key=lambda t: t.numel)
    kept = dtype or main.dtype
    if family == "elementwise":
        shape = broadcast([t.shape for t in ins])
        kept = dtype or ("bool" if kind in ("eq", "compare", "logical", "not", "isfinite") else main.dtype)
        return (Tensor(main.shape if shape is None else shape, kept),)
    if family == "gated" and not kind.endswith("_grad"):
        return (Tensor((*main.shape[:-1], max(1, main.last // 2)), kept),)
    if family in ("rows", "gated", "fill", "copy", "rotary", "transpose", "relayout", "scatter"):
        return (Tensor(main.shape, kept),)
    if family == "attention":
        return (Tensor(ins[0].shape, kept),)
    if family in ("gather", "permute"):
        index = [t for t in ins if t.dtype in ("i32", "i64") and t is not ins[0]]
        places = max((t.numel for t in index), default=0)
        return (Tensor((places, main.last), kept),) if places else ()
    return ()

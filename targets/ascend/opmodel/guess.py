"""What an operator that nobody described does, by the form of its operands and results."""

from __future__ import annotations

from collections.abc import Sequence

from moec.targets.ascend.opmodel.agree import broadcast
from moec.targets.ascend.opmodel.tensor import Tensor


def by_form(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> tuple[str, str, str]:
    """Family and variant of the likeliest description, and what it is taken for in words."""
    if len(ins) >= 2 and outs and _contracts(ins[0], ins[1], outs[0]):
        return "matmul", "", "a product of matrices"
    if ins and outs:
        main, result = max(ins, key=lambda t: t.numel), max(outs, key=lambda t: t.numel)
        if _picks(ins, outs):
            return "gather", "", "a selection by index"
        if 2 * result.numel <= main.numel and result.numel < main.rows + main.last:
            return "reduce", "add", "a reduction"
        if _moves(main, result, ins):
            return "transpose", "", "a movement of data"
    return "elementwise", "other", "a few instructions an element"


def _contracts(a: Tensor, b: Tensor, out: Tensor) -> bool:
    """Whether ``out`` is a x b with some sides transposed, and is no broadcast of both."""
    if min(len(a.shape), len(b.shape), len(out.shape)) < 2 or broadcast([a.shape, b.shape]) == out.shape:
        return False
    m, n = out.shape[-2:]
    return any(
        (m2, n2) == (m, n) and k == k2 and k > 1
        for m2, k in (a.shape[-2:], a.shape[-2:][::-1])
        for k2, n2 in (b.shape[-2:], b.shape[-2:][::-1])
    )


def _picks(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> bool:
    """Rows of the first operand at as many places as an index has."""
    index = [t for t in ins[1:] if t.dtype in ("i32", "i64") and t.numel > 1]
    first, result = ins[0], outs[0]
    return bool(index) and len(first.shape) >= 2 and any(result.numel == t.numel * first.last for t in index)


def _moves(main: Tensor, result: Tensor, ins: Sequence[Tensor]) -> bool:
    """The same elements with their dimensions in another order."""
    return (
        len(ins) == 1
        and main.dtype == result.dtype
        and main.shape != result.shape
        and sorted(main.shape) == sorted(result.shape)
    )

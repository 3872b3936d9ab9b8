"""Rules that take rows sorted or gathered for a grouped product into the product, which then gathers them itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moec.ir.types import I32, DType
from moec.rewrite.rule import Rule, miss, near, rule
from moec.rewrite.term import T, Term, require

_SORTED = "x: [{t}, 3]; experts: i32[{t}, {k}] in 0..{last}; counts: i32[{e}] in {each}..{each}; "
_PRODUCT = "weight: [{e}, 5, 3]; groups: i32[{e}] in {each}..{each}; transpose_weight = true"
_TURNED = "weight: [{e}, 3, 5]; groups: i32[{e}] in {each}..{each}; transpose_weight = false"
_DW = 'dy: [{s}, 5]; groups: i32[{e}] in {each}..{each}; name = "rows"; to = {to}'


def _case(text: str, t: int, k: int, e: int, **more: Any) -> str:
    return text.format(t=t, k=k, e=e, s=t * k, last=e - 1, each=t * k // e, **more)


def sources(x: Term, experts: Term, counts: Term) -> tuple[Term, Term]:
    """For each sorted row which row of x it is (i32 [T*K]), and positions [T, K] as ``permute`` gives them."""
    tokens, k = experts.shape
    numbers = T.reshape(T.iota(size=tokens, dtype=I32), shape=(tokens, 1))
    rows, at = T.permute(numbers, experts, counts)
    return T.reshape(rows, shape=(tokens * k,)), at


def _sorted_rows(biased: bool) -> Rule:
    @rule(
        "gather-sorted-rows" + ("-biased" if biased else ""),
        exactness="exact",
        why="the s-th sorted row is a row of x; sorting the numbers of the rows moves 4 bytes instead of each row",
        operands={
            "x": "[T, H]",
            "experts": "[T, K]",
            "counts": "[E]",
            "weight": "[E, N, C]",
            "groups": "[E]",
            **({"bias": "[E, O]"} if biased else {}),
        },
        cases=[
            _case(_SORTED + _PRODUCT, 4, 2, 2) + ("; bias: [2, 5]" if biased else ""),
            _case(_SORTED + _PRODUCT, 1, 1, 1) + ("; bias: [1, 5]" if biased else ""),
            _case(_SORTED + _TURNED, 3, 2, 3) + ("; bias: [3, 5]" if biased else ""),
        ],
    )
    def sorted_rows(
        x: Term, experts: Term, counts: Term, weight: Term, groups: Term, *bias: Term, transpose_weight: bool
    ) -> Iterator[Any]:
        rows, at = T.permute(x, experts, counts)
        added = bias[0] if bias else None
        yield T.grouped_matmul(rows, weight, groups, added, transpose_weight=transpose_weight), at
        source, places = sources(x, experts, counts)
        yield T.grouped_matmul(x, weight, groups, added, source, transpose_weight=transpose_weight), places
        changed = T.grouped_matmul(T.tanh(rows), weight, groups, added, transpose_weight=transpose_weight)
        yield miss("something happens to the rows before the product", changed, at)

    return sorted_rows


@rule(
    "gather-sorted-rows-dw",
    exactness="exact",
    why="the gradient reads the rows that forward read: x and their numbers are kept for it instead of the rows",
    operands={"x": "[T, H]", "experts": "[T, K]", "counts": "[E]", "dy": "[S, N]", "groups": "[E]"},
    cases=[
        _case(_SORTED + _DW, 4, 2, 2, to="none"),
        _case(_SORTED + _DW, 1, 1, 1, to="!f32"),
        _case(_SORTED + _DW, 3, 2, 3, to="!f32"),
    ],
)
def sorted_rows_dw(
    x: Term, experts: Term, counts: Term, dy: Term, groups: Term, *, name: str, to: DType | None
) -> Iterator[Any]:
    rows, at = T.permute(x, experts, counts)
    yield T.grouped_matmul_dw(dy, T.save(rows, name=name), groups, to=to), at
    source, places = sources(x, experts, counts)
    kept = T.save(x, name=f"{name}.tokens"), T.save(source, name=f"{name}.source")
    yield T.grouped_matmul_dw(dy, kept[0], groups, kept[1], to=to), places
    yield miss("the rows are the other operand", T.grouped_matmul_dw(T.save(rows, name=name), dy, groups, to=to), at)


def _gathered_rows(biased: bool) -> Rule:
    sizes = (
        "x: [4, 3]; i: {i}[6] in 0..3; weight: [2, 5, 3]; groups: i32[2] in 3..3; transpose_weight = true; axis = {a}"
    )
    sizes += "; bias: [2, 5]" if biased else ""

    @rule(
        "gather-gathered-rows" + ("-biased" if biased else ""),
        exactness="exact",
        why="the product reads the rows where they are",
        operands={
            "x": "[R, H]",
            "i": "[S]",
            "weight": "[E, N, C]",
            "groups": "[E]",
            **({"bias": "[E, O]"} if biased else {}),
        },
        cases=[sizes.format(i="i32", a=0), sizes.format(i="i64", a=0)],
        near=[near("columns", sizes.format(i="i64", a=1).replace("x: [4, 3]", "x: [6, 4]").replace("[6]", "[3]"))],
    )
    def gathered_rows(
        x: Term, i: Term, weight: Term, groups: Term, *bias: Term, axis: int, transpose_weight: bool
    ) -> Iterator[Any]:
        added = bias[0] if bias else None
        rows = T.gather(x, i, axis=axis)
        yield T.grouped_matmul(rows, weight, groups, added, transpose_weight=transpose_weight)
        require(axis == 0, "columns are gathered", i)
        source = i if i.dtype is I32 else T.cast(i, to=I32)
        yield T.grouped_matmul(x, weight, groups, added, source, transpose_weight=transpose_weight)

    return gathered_rows


PRODUCT_RULES = [*(_sorted_rows(b) for b in (False, True)), *(_gathered_rows(b) for b in (False, True))]
DW_RULES = [sorted_rows_dw]

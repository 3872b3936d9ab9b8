"""Rules on the rows of a dispatch: tokens repeated and then sorted are gathered once, and rows gathered, weighted and
summed are one ``unpermute``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from moec.ir.symbol import Dim
from moec.ir.types import I32
from moec.rewrite.rule import Rule, miss, near, rule
from moec.rewrite.term import T, Term, require, splat

ROWS = ("f32", "bf16")


@rule(
    "gather-of-repeat",
    exactness="exact",
    why="row i of the tokens repeated K times is token i // K, so each row is moved once",
    dtypes=ROWS,
    operands={"x": "[T, H]"},
    cases=["x: [4, 3]; i: i64[9] in 0..7; one = [4, 1, 3]; many = [4, 2, 3]; flat = [8, 3]; axis = 0"],
    near=[
        near("along 1", "x: [4, 8]; i: i64[9] in 0..7; one = [4, 1, 8]; many = [4, 2, 8]; flat = [8, 8]; axis = 1"),
        near(
            "to [2, 4, 3]", "x: [4, 3]; i: i64[9] in 0..7; one = [1, 4, 3]; many = [2, 4, 3]; flat = [8, 3]; axis = 0"
        ),
        near("as [4, 6]", "x: [4, 3]; i: i64[9] in 0..3; one = [4, 1, 3]; many = [4, 2, 3]; flat = [4, 6]; axis = 0"),
    ],
    escape="refuse",
)
def gather_of_repeat(
    x: Term, i: Term, *, one: Sequence[Dim], many: Sequence[Dim], flat: Sequence[Dim], axis: int
) -> Iterator[Any]:
    repeated = T.expand(T.reshape(x, shape=one), shape=many)
    yield T.gather(T.reshape(repeated, shape=flat), i, axis=axis)
    tokens, width = x.shape
    require(axis == 0, f"the rows are gathered along {axis}", i)
    by_token = len(one) == len(many) == 3 and tuple(one) == (tokens, 1, width) and isinstance(many[1], int)
    require(by_token and (many[0], many[2]) == (tokens, width), f"the tokens are repeated to {_text(many)}", repeated)
    times = many[1]
    require(tuple(flat) == (tokens * times, width), f"the rows are laid out as {_text(flat)}", repeated)
    yield T.gather(x, i / splat(times, i), axis=0)


def _combine(weighted: bool, flat: str) -> Rule:
    """Rows gathered, weighted and summed over each token's K. ``flat``: the gather gives [T*K, H] ("rows", reshaped
    before the sum; "split", reshaped before the product) or [T, K, H] ("tokens").
    """
    name = "unpermute-of-" + ("weighted-" if weighted else "") + flat
    places = "[8]" if flat != "tokens" else "[4, 2]"
    shape = "" if flat == "tokens" else "; shape = [4, 2, 3]"
    weights = {"rows": "[8, 1]", "split": "[4, 2, 1]", "tokens": "[4, 2, 1]"}[flat]

    def case(
        axes: str, keep: str, rows: str = "[8, 3]", places: str = places, shape: str = shape, w: str = weights
    ) -> str:
        p = f"; p: {w}" if weighted else ""
        return f"rows: {rows}; i: i64{places} in 0..7{p}{shape}; axes = {axes}; keepdims = {keep}"

    refused = [
        near("over [2]", case("[2]", "false")),
        near("kept", case("[1]", "true")),
        near("8 of 9 rows", case("[1]", "false", rows="[9, 3]")),
    ]
    if flat != "tokens":
        wide = "[8, 1]" if flat == "rows" else "[4, 3, 1]"
        refused.append(near("it sums", case("[1]", "false", shape="; shape = [4, 3, 2]", w=wide)))

    @rule(
        name,
        exactness="reassociated",
        why="the same sum over each token's K rows, accumulated in f32 and rounded once",
        dtypes=ROWS,
        operands={
            "rows": "[S, H]",
            "i": "[T, K]" if flat == "tokens" else "[N]",
            **({"p": {"rows": "[N, 1]", "split": "[T, K, 1]", "tokens": "[T, K, 1]"}[flat]} if weighted else {}),
        },
        cases=[case("[1]", "false")],
        near=refused,
        escape="refuse",
        more_attrs=[] if flat == "tokens" else ["shape"],
    )
    def combine(rows: Term, i: Term, *p: Term, axes: Sequence[int], keepdims: bool, **more: Any) -> Iterator[Any]:
        gathered = T.gather(rows, i, axis=0)
        if flat == "split":
            gathered = T.reshape(gathered, shape=more["shape"])
        if weighted:
            gathered = gathered * p[0]
        if flat == "rows":
            gathered = T.reshape(gathered, shape=more["shape"])
        yield T.reduce_sum(gathered, axes=axes, keepdims=keepdims)
        require(tuple(axes) == (1,), f"the sum is over {list(axes)} of {gathered.type}", gathered)
        require(not keepdims, "the summed dimension is kept", gathered)
        if flat != "tokens":
            by_token = gathered.rank == 3 and gathered.shape[2] == rows.shape[1]
            require(by_token, f"it sums {gathered.type}", gathered)
        slots = gathered.shape[:2]
        each = f"{slots[0] * slots[1]} of {rows.shape[0]} rows are gathered, so not each once"
        require(slots[0] * slots[1] == rows.shape[0], each, rows)
        at = T.cast(i if flat == "tokens" else T.reshape(i, shape=slots), to=I32)
        yield T.unpermute(rows, at, T.reshape(p[0], shape=slots) if weighted else None)
        other = T.reduce_sum(T.exp(gathered), axes=axes, keepdims=keepdims)
        yield miss("something between the rows and the sum", other)

    return combine


ROW_RULES = [
    gather_of_repeat,
    *(
        _combine(weighted, flat)
        for weighted in (True, False)
        for flat in ("rows", "split", "tokens")
        if weighted or flat != "split"
    ),
]
"""Rules on rows, in the order in which they are tried."""


def _text(dims: Sequence[Dim]) -> str:
    return "[" + ", ".join(map(str, dims)) + "]"

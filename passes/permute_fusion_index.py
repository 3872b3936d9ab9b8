"""Rules on the index tensors of a dispatch: one spelling for sorts and row gathers, inverses without a second sort,
gathers composed, scatters by a permutation as gathers.

The inverse of a permutation is a scatter of 0, 1, ...: linear, where a second sort is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from moec.ir.symbol import Dim
from moec.ir.types import BOOL, I32, I64
from moec.rewrite.rule import Rule, miss, near, rule
from moec.rewrite.term import T, Term, require, splat

KEYS = ("i64", "f32", "bf16")
"""Dtypes of keys to sort by."""
ROWS = ("f32", "bf16")


def inverse(order: Term) -> Term:
    """The inverse of the permutation ``order`` [N] of 0..N-1."""
    n = T.iota(size=order.shape[0], dtype=order.dtype)
    found: Term = T.scatter_elements(n, order, n, axis=0, reduction="none")
    return found


@rule(
    "sort-by-topk",
    exactness="exact",
    why="the best k of k elements, in order, are all of them, sorted; both are stable",
    dtypes=KEYS,
    operands={"e": "[N]"},
    cases=["e: [7] in 0..3; k = 7; axis = 0; largest = false", "e: [5] in 0..3; k = 5; axis = 0; largest = true"],
    near=[near("takes 6 of 7", "e: i64[7]; k = 6; axis = 0; largest = false")],
)
def sort_by_topk(e: Term, *, k: Dim, axis: int, largest: bool) -> Iterator[Any]:
    values, indices = T.topk(e, k=k, axis=axis, largest=largest, sorted=True)
    yield indices, values
    require(k == e.shape[0], f"the top-k takes {k} of {e.shape[0]}", e)
    order = T.argsort(e, axis=0, descending=largest)
    yield order, T.gather(e, order, axis=0)
    unordered = T.topk(e, k=k, axis=axis, largest=largest, sorted=False)
    yield miss("the order is not asked for", unordered[1], unordered[0])


@rule(
    "rows-by-gather-nd",
    exactness="exact",
    why="index tuples of one element pick rows",
    dtypes=("f32", "bf16", "i64"),
    cases=[
        "x: [4, 3]; i: i64[6] in 0..3; shape = [6, 1]",
        "x: [4]; i: i64[2] in 0..3; shape = [2, 1]",
        "x: [4, 3]; i: i64[3, 2] in 0..3; shape = [6, 1]",
    ],
    near=[near("tuples of [1, 2]", "x: [4, 3]; i: i64[2] in 0..2; shape = [1, 2]")],
)
def rows_by_gather_nd(x: Term, i: Term, *, shape: Sequence[Dim]) -> Iterator[Any]:
    yield T.gather_nd(x, T.reshape(i, shape=shape), batch_dims=0)
    require(len(shape) == 2 and shape[1] == 1, f"the indices are tuples of {_text(shape)}", i)
    flat = (shape[0],)
    yield T.gather(x, i if i.shape == flat else T.reshape(i, shape=flat), axis=0)


@rule(
    "floor-div-of-index",
    exactness="exact",
    why="rounding an index that is not negative towards zero rounds it down",
    dtypes=("i64",),
    cases=["x: i64[7] in 0..9; n = 2; k = 2; zero = 0"],
    near=[
        near("divided by 3", "x: i64[7] in 0..9; n = 2; k = 3; zero = 0"),
        near("below 1", "x: i64[7] in 0..9; n = 2; k = 2; zero = 1"),
        near("positive", "x: i64[7] in 0..9; n = -2; k = -2; zero = 0"),
    ],
)
def floor_div_of_index(x: Term, *, n: int, k: int, zero: int) -> Iterator[Any]:
    negative = T.eq(T.lt(x, splat(zero, x)), splat(True, BOOL))
    rest = T.cast(T.mod(x, splat(n, x), fmod=False), to=BOOL)
    yield x / splat(k, x) - T.cast(T.and_(negative, rest), to=I64)
    require(n == k, f"the remainder of {n} corrects what is divided by {k}", x)
    require(zero == 0, f"it is corrected below {zero}", x)
    require(k > 0, f"{k} is not positive", x)
    yield x / splat(k, x)


@rule(
    "inverse-by-scatter-nd",
    exactness="exact",
    why="a permutation writes every place once, so what was there does not matter",
    dtypes=KEYS,
    operands={"base": "[M]", "e": "[N]"},
    cases=["base: i64[7]; e: [7] in 0..3; descending = false; shape = [7, 1]; size = 7"],
    near=[near("7 of 8 places", "base: i64[8]; e: i64[7] in 0..3; descending = false; shape = [7, 1]; size = 7")],
)
def inverse_by_scatter_nd(base: Term, e: Term, *, descending: bool, shape: Sequence[Dim], size: Dim) -> Iterator[Any]:
    order = T.argsort(e, axis=0, descending=descending)
    yield T.scatter_nd(base, T.reshape(order, shape=shape), T.iota(size=size, dtype=I64), reduction="none")
    require(base.shape == e.shape, f"it writes {e.shape[0]} of {base.shape[0]} places", base)
    yield inverse(T.argsort(e, axis=0, descending=descending))
    chosen = T.argmax(T.reshape(e, shape=shape), axis=1, keepdims=False, last=False)
    wrong = T.scatter_nd(base, T.reshape(chosen, shape=shape), T.iota(size=size, dtype=I64), reduction="none")
    yield miss("the places are no permutation", wrong)


def _argsort_of_argsort(narrow: bool) -> Rule:
    @rule(
        "argsort-of-argsort" + ("-narrow" if narrow else ""),
        exactness="exact",
        why="the order that sorts a permutation is its inverse: a scatter of 0, 1, ..., linear where a sort is not",
        dtypes=KEYS,
        operands={"e": "[N]"},
        cases=["e: [7] in 0..3; d = false; back = false", "e: [6] in 0..2; d = true; back = false"],
        near=[near("sorted downwards", "e: i64[7] in 0..3; d = false; back = true")],
    )
    def argsort_of_argsort(e: Term, *, d: bool, back: bool) -> Iterator[Any]:
        order = T.argsort(e, axis=0, descending=d)
        yield T.argsort(T.cast(order, to=I32) if narrow else order, axis=0, descending=back)
        require(not back, "the order is sorted downwards", order)
        yield inverse(T.argsort(e, axis=0, descending=d))
        yield miss(
            "what is sorted twice is no permutation", T.argsort(T.gather(e, order, axis=0), axis=0, descending=d)
        )

    return argsort_of_argsort


@rule(
    "gather-of-gather",
    exactness="exact",
    why="x[a][b] is x[a[b]]: indices are moved, and each row once",
    dtypes=ROWS,
    operands={"x": "any", "a": "[M]"},
    cases=[
        "x: [5, 3]; a: i64[6] in -5..4; b: i64[4] in -6..5; axis = 0; over = 0",
        "x: [2, 5, 3]; a: i64[4] in 0..4; b: i64[3, 2] in 0..3; axis = 1; over = 1",
    ],
    near=[
        near("along 0 and 1", "x: [4, 4]; a: i64[4] in 0..3; b: i64[4] in 0..3; axis = 0; over = 1"),
        near("no rows", "x: [5]; a: i64[6] in 0..4; b: i64[4] in 0..5; axis = 0; over = 0"),
    ],
    escape="refuse",
)
def gather_of_gather(x: Term, a: Term, b: Term, *, axis: int, over: int) -> Iterator[Any]:
    yield T.gather(T.gather(x, a, axis=axis), b, axis=over)
    require(axis == over, f"the gathers are along {axis} and {over}", x)
    require(x.rank > 1, "its elements are no rows, so that nothing is saved", x)
    yield T.gather(x, T.gather(a, b, axis=0), axis=axis)


def _scatter(elements: bool, inverted: bool, added: bool) -> Rule:
    """A scatter of whole rows by a permutation (that which sorts e, or its inverse): rows are gathered instead."""
    spelt = "elements" if elements else "nd"
    name = f"scatter-{spelt}-by-{'inverse' if inverted else 'order'}" + ("-added" if added else "")
    attrs = ["tuples", *(["wide"] if elements else []), *(["size"] if inverted else []), *(["filled"] if added else [])]
    size = "; size = 5" if inverted else ""

    def case(base: str, tuples: str, wide: str) -> str:
        start = f"filled = {base}" if added else f"base: {base}"
        shape = f"; wide = {wide}" if elements else ""
        return f"e: i64[5] in 0..3; rows: {wide}; {start}; d = false; tuples = {tuples}{shape}{size}"

    refused = [near("of [6, 3]", case("[6, 3]", "[5, 1]", "[5, 3]"))]
    if elements:
        refused.append(near("one for each column", case("[5, 5]", "[1, 5]", "[5, 5]")))

    @rule(
        name,
        exactness="reassociated" if added else "exact",
        why="every row is written once, so each can be read from where it comes, without atomics"
        + ("; only -0 becomes 0 where it is added" if added else ""),
        dtypes=ROWS,
        operands={"e": "[N]", "rows": "any", **({} if added else {"base": "any"})},
        cases=[case("[5, 3]", "[5, 1]", "[5, 3]")],
        near=refused,
        more_attrs=attrs,
    )
    def scatter(e: Term, rows: Term, *base: Term, d: bool, **shapes: Any) -> Iterator[Any]:
        order = T.argsort(e, axis=0, descending=d)
        n = T.iota(size=shapes["size"], dtype=I64) if inverted else None
        places = T.scatter_elements(n, order, n, axis=0, reduction="none") if inverted else order
        start = T.expand(splat(0.0, rows), shape=shapes["filled"]) if added else base[0]
        at, how = T.reshape(places, shape=shapes["tuples"]), "add" if added else "none"
        if elements:
            yield T.scatter_elements(start, T.expand(at, shape=shapes["wide"]), rows, axis=0, reduction=how)
        else:
            yield T.scatter_nd(start, at, rows, reduction=how)
        require(rows.shape == start.shape, f"it writes {_text(rows.shape)} of {_text(start.shape)}", rows)
        if elements:
            by_row = tuple(shapes["tuples"]) == (e.shape[0], 1)
            require(by_row, f"the places are {_text(shapes['tuples'])}, one for each column", e)
        yield T.gather(rows, order if inverted else inverse(order), axis=0)

    return scatter


INDEX_RULES = [
    sort_by_topk,
    rows_by_gather_nd,
    floor_div_of_index,
    inverse_by_scatter_nd,
    *(_argsort_of_argsort(narrow) for narrow in (False, True)),
    gather_of_gather,
    *(
        _scatter(elements, inverted, added)
        for elements in (False, True)
        for inverted in (False, True)
        for added in (False, True)
    ),
]
"""Rules on indices, in the order in which they are tried."""


def _text(dims: Sequence[Dim]) -> str:
    return "[" + ", ".join(map(str, dims)) + "]"

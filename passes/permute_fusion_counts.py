"""Rules on how many rows go where: one-hot sums and running sums become a histogram and its prefix sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from moec.ir.symbol import Dim
from moec.ir.types import I64, DType
from moec.passes.permute_fusion_index import inverse
from moec.rewrite.rule import Rule, miss, near, rule
from moec.rewrite.term import T, Term, require, splat

INTEGERS = ("i64", "i32")


@rule(
    "histogram-of-one-hot",
    exactness="exact",
    why="a one-hot tensor summed over its places counts each index",
    dtypes=("i64",),
    cases=[
        "e: i64[7] in 0..3; depth = 4; axis = 1; dtype = !i64; axes = [0]",
        "e: i64[3, 2] in 0..3; depth = 4; axis = 2; dtype = !f32; axes = [0, 1]",
    ],
    near=[
        near("summed over [0]", "e: i64[3, 4] in 0..3; depth = 4; axis = 2; dtype = !i64; axes = [0]"),
        near("stands at 0", "e: i64[7] in 0..3; depth = 4; axis = 0; dtype = !i64; axes = [0]"),
        near("may not hold", "e: i64[7] in 0..3; depth = 4; axis = 1; dtype = !bf16; axes = [0]"),
    ],
    escape="refuse",
)
def histogram_of_one_hot(e: Term, *, depth: Dim, axis: int, dtype: DType, axes: Sequence[int]) -> Iterator[Any]:
    yield T.reduce_sum(T.one_hot(e, depth=depth, axis=axis, dtype=dtype), axes=axes, keepdims=False)
    require(axis == e.rank, f"the one-hot dimension stands at {axis} of {e.rank + 1}", e)
    require(tuple(axes) == tuple(range(e.rank)), f"it is summed over {list(axes)} of {e.rank + 1}", e)
    require(dtype.name in ("i64", "i32", "f32"), f"{dtype} may not hold the counts", e)
    yield T.cast(T.histogram(e, bins=depth), to=dtype)


@rule(
    "histogram-of-sorted",
    exactness="exact",
    why="a permutation changes no count, so that counting need not wait for the sort",
    dtypes=("i64", "i32"),
    operands={"e": "[N]"},
    cases=["e: [9] in 0..3; d = false; axis = 0; bins = 4"],
)
def histogram_of_sorted(e: Term, *, d: bool, axis: int, bins: Dim) -> Iterator[Any]:
    yield T.histogram(T.gather(e, T.argsort(e, axis=axis, descending=d), axis=axis), bins=bins)
    yield T.histogram(e, bins=bins)
    chosen = T.gather(e, e, axis=axis)
    yield miss("what is gathered is no permutation", T.histogram(chosen, bins=bins))


@rule(
    "exclusive-prefix-sum",
    exactness="exact",
    why="a running sum of integers less the element itself is the one that leaves it out",
    dtypes=INTEGERS,
    cases=[
        "x: [5]; axis = 0; exclusive = false; reverse = false",
        "x: [3, 4]; axis = 1; exclusive = false; reverse = true",
    ],
    near=[
        near("leaves it out already", "x: i64[5]; axis = 0; exclusive = true; reverse = false"),
        near("f32 rounds", "x: f32[5]; axis = 0; exclusive = false; reverse = false"),
    ],
    escape="refuse",
)
def exclusive_prefix_sum(x: Term, *, axis: int, exclusive: bool, reverse: bool) -> Iterator[Any]:
    yield T.cumsum(x, axis=axis, exclusive=exclusive, reverse=reverse) - x
    require(not exclusive, "the running sum leaves it out already", x)
    require(x.dtype.is_int, f"{x.dtype} rounds", x)
    yield T.cumsum(x, axis=axis, exclusive=True, reverse=reverse)


def _rank_in_expert(exclusive: bool) -> Rule:
    """Which of its expert's rows each slot is: by a running sum over the one-hot choices, [N, E] long."""

    @rule(
        "rank-in-expert" + ("-from-0" if exclusive else ""),
        exactness="exact",
        why="a slot's place among its expert's is its place among all sorted slots less where the expert starts",
        dtypes=("i64",),
        operands={"e": "[N]"},
        cases=["e: i64[9] in 0..3; depth = 4; axis = 1; dtype = !i64; along = 0; axes = [1]"],
        near=[
            near("along 1", "e: i64[4] in 0..3; depth = 4; axis = 1; dtype = !i64; along = 1; axes = [1]"),
            near("over [0]", "e: i64[4] in 0..3; depth = 4; axis = 1; dtype = !i64; along = 0; axes = [0]"),
            near("stands at 0", "e: i64[4] in 0..3; depth = 4; axis = 0; dtype = !i64; along = 0; axes = [1]"),
            near("may not hold", "e: i64[4] in 0..3; depth = 4; axis = 1; dtype = !f16; along = 0; axes = [1]"),
        ],
        escape="refuse",
    )
    def rank_in_expert(
        e: Term, *, depth: Dim, axis: int, dtype: DType, along: int, axes: Sequence[int]
    ) -> Iterator[Any]:
        chosen = T.one_hot(e, depth=depth, axis=axis, dtype=dtype)
        running = T.cumsum(chosen, axis=along, exclusive=exclusive, reverse=False)
        yield T.reduce_sum(running * chosen, axes=axes, keepdims=False)
        require(axis == 1, f"the one-hot dimension stands at {axis}", e)
        require(along == 0, f"the running sum is along {along}", e)
        require(tuple(axes) == (1,), f"the sum is over {list(axes)}", e)
        require(dtype.name in ("i64", "i32", "f32"), f"{dtype} may not hold the counts", e)
        place = inverse(T.argsort(e, axis=0, descending=False))
        starts = T.cumsum(T.cast(T.histogram(e, bins=depth), to=I64), axis=0, exclusive=True, reverse=False)
        rank = place - T.gather(starts, e, axis=0)
        rank = rank if exclusive else rank + splat(1, rank)
        yield rank if dtype is I64 else T.cast(rank, to=dtype)

    return rank_in_expert


COUNT_RULES = [
    histogram_of_one_hot,
    histogram_of_sorted,
    exclusive_prefix_sum,
    _rank_in_expert(False),
    _rank_in_expert(True),
]
"""Rules on counts, in the order in which they are tried."""

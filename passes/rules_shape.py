"""Rules on ops that move or view elements: identities and compositions. All are exact, for every dtype."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from moec.ir.symbol import Dim
from moec.rewrite.rule import Rule, miss, near, rule
from moec.rewrite.term import T, Term, require

ANY = ("f32", "bf16", "i64", "bool")
"""Dtypes to try rules with that never look at the numbers."""


@rule(
    "reshape-identity",
    exactness="exact",
    why="it is already of that shape",
    dtypes=ANY,
    cases=["x: [2, 3]; shape = [2, 3]", "x: []; shape = []"],
    near=[near("from [2, 3] to [3, 2]", "x: [2, 3]; shape = [3, 2]")],
)
def reshape_identity(x: Term, *, shape: Sequence[Dim]) -> Iterator[Any]:
    yield T.reshape(x, shape=shape)
    require(shape == x.shape, f"the reshape goes from {_text(x.shape)} to {_text(shape)}", x)
    yield x


@rule(
    "reshape-reshape",
    exactness="exact",
    why="the order of the elements never changes",
    dtypes=ANY,
    cases=["x: [2, 6]; inner = [3, 4]; outer = [12]", "x: [4]; inner = [1, 4]; outer = [2, 2]"],
)
def reshape_reshape(x: Term, *, inner: Sequence[Dim], outer: Sequence[Dim]) -> Iterator[Any]:
    yield T.reshape(T.reshape(x, shape=inner), shape=outer)
    yield T.reshape(x, shape=outer)
    turned = T.transpose(T.reshape(x, shape=inner), perm=tuple(reversed(range(len(inner)))))
    yield miss("a transpose in between moves elements", T.reshape(turned, shape=outer))


@rule(
    "transpose-identity",
    exactness="exact",
    why="no dimension moves",
    dtypes=ANY,
    cases=["x: [2, 3, 4]; perm = [0, 1, 2]"],
    near=[near("is not the identity", "x: [3, 3]; perm = [1, 0]")],
)
def transpose_identity(x: Term, *, perm: Sequence[int]) -> Iterator[Any]:
    yield T.transpose(x, perm=perm)
    require(perm == tuple(range(len(perm))), f"perm {_text(perm)} is not the identity", x)
    yield x


@rule(
    "transpose-transpose",
    exactness="exact",
    why="two permutations compose to one",
    dtypes=ANY,
    cases=[
        "x: [2, 3, 4]; inner = [1, 2, 0]; outer = [2, 1, 0]",
        "x: [2, 3, 4, 5]; inner = [3, 0, 2, 1]; outer = [1, 3, 0, 2]",
    ],
)
def transpose_transpose(x: Term, *, inner: Sequence[int], outer: Sequence[int]) -> Iterator[Any]:
    yield T.transpose(T.transpose(x, perm=inner), perm=outer)
    yield T.transpose(x, perm=tuple(inner[i] for i in outer))


@rule(
    "transpose-of-ones",
    exactness="exact",
    why="only dimensions of size 1 move, so the elements keep their order",
    dtypes=ANY,
    cases=["x: [3, 1, 4]; perm = [1, 0, 2]", "x: [1, 5, 1]; perm = [1, 2, 0]"],
    near=[near("other than of size 1", "x: [3, 1, 4]; perm = [2, 1, 0]")],
)
def transpose_of_ones(x: Term, *, perm: Sequence[int]) -> Iterator[Any]:
    moved = T.transpose(x, perm=perm)
    yield moved
    kept = [i for i in perm if x.shape[i] != 1]
    require(kept == sorted(kept), f"perm {_text(perm)} of {x.type} moves dimensions other than of size 1", x)
    yield T.reshape(x, shape=moved.shape)


@rule(
    "slice-all",
    exactness="exact",
    why="the slice takes every element",
    dtypes=ANY,
    cases=["x: [3, 4]; axis = 1; start = 0; stop = 4; step = 1"],
    near=[
        near("takes [1:4:1] of 4", "x: [3, 4]; axis = 1; start = 1; stop = 4; step = 1"),
        near("takes [0:3:1] of 4", "x: [3, 4]; axis = 1; start = 0; stop = 3; step = 1"),
        near("takes [0:4:2] of 4", "x: [3, 4]; axis = 1; start = 0; stop = 4; step = 2"),
    ],
)
def slice_all(x: Term, *, axis: int, start: Dim, stop: Dim, step: int) -> Iterator[Any]:
    yield T.slice(x, axis=axis, start=start, stop=stop, step=step)
    size = x.shape[axis]
    require((start, stop, step) == (0, size, 1), f"the slice takes [{start}:{stop}:{step}] of {size}", x)
    yield x


@rule(
    "slice-slice",
    exactness="exact",
    why="a slice of a slice without step is a slice",
    dtypes=ANY,
    cases=[
        "x: [2, 9]; axis = 1; a = 1; b = 8; start = 2; stop = 6; step = 1",
        "x: [9, 2]; axis = 0; a = 3; b = 9; start = 1; stop = 6; step = 2",
    ],
)
def slice_slice(x: Term, *, axis: int, a: Dim, b: Dim, start: Dim, stop: Dim, step: int) -> Iterator[Any]:
    yield T.slice(T.slice(x, axis=axis, start=a, stop=b, step=1), axis=axis, start=start, stop=stop, step=step)
    yield T.slice(x, axis=axis, start=a + start, stop=a + stop, step=step)
    strided = T.slice(x, axis=axis, start=0, stop=x.shape[axis], step=2)
    yield miss("the inner slice has a step", T.slice(strided, axis=axis, start=0, stop=1, step=1))
    if x.rank > 1:
        inner = T.slice(x, axis=1 - axis, start=0, stop=1, step=1)
        yield miss("the slices are along different axes", T.slice(inner, axis=axis, start=0, stop=1, step=1))


@rule(
    "concat-one",
    exactness="exact",
    why="nothing is appended",
    dtypes=ANY,
    cases=["x: [2, 3]; axis = 0"],
)
def concat_one(x: Term, *, axis: int) -> Iterator[Any]:
    yield T.concat(x, axis=axis)
    yield x
    yield miss("two operands", T.concat(x, x, axis=axis))


@rule(
    "concat-of-split",
    exactness="exact",
    why="the parts of a split, put together again in order, are what was split",
    dtypes=ANY,
    cases=["x: [2, 7]; axis = 1; at = 3; end = 7", "x: [6, 2]; axis = 0; at = 1; end = 6"],
    near=[near("stops at 6 of 7", "x: [2, 7]; axis = 1; at = 3; end = 6")],
)
def concat_of_split(x: Term, *, axis: int, at: Dim, end: Dim) -> Iterator[Any]:
    lo = T.slice(x, axis=axis, start=0, stop=at, step=1)
    hi = T.slice(x, axis=axis, start=at, stop=end, step=1)
    yield T.concat(lo, hi, axis=axis)
    require(end == x.shape[axis], f"the second part stops at {end} of {x.shape[axis]}", x)
    yield x
    yield miss("the parts are swapped", T.concat(hi, lo, axis=axis))


@rule(
    "slice-of-concat-first",
    exactness="exact",
    why="the slice is the first operand",
    dtypes=ANY,
    cases=["x: [2, 3]; y: [2, 4]; axis = 1; stop = 3"],
    near=[near("stops at 4, the first operand at 3", "x: [2, 3]; y: [2, 4]; axis = 1; stop = 4")],
)
def slice_of_concat_first(x: Term, y: Term, *, axis: int, stop: Dim) -> Iterator[Any]:
    yield T.slice(T.concat(x, y, axis=axis), axis=axis, start=0, stop=stop, step=1)
    require(stop == x.shape[axis], f"the slice stops at {stop}, the first operand at {x.shape[axis]}", x)
    yield x


@rule(
    "slice-of-concat-second",
    exactness="exact",
    why="the slice is the second operand",
    dtypes=ANY,
    cases=["x: [2, 3]; y: [2, 4]; axis = 1; start = 3; stop = 7"],
    near=[
        near("is [2:7]", "x: [2, 3]; y: [2, 4]; axis = 1; start = 2; stop = 7"),
        near("is [3:6]", "x: [2, 3]; y: [2, 4]; axis = 1; start = 3; stop = 6"),
    ],
)
def slice_of_concat_second(x: Term, y: Term, *, axis: int, start: Dim, stop: Dim) -> Iterator[Any]:
    yield T.slice(T.concat(x, y, axis=axis), axis=axis, start=start, stop=stop, step=1)
    first, second = x.shape[axis], y.shape[axis]
    require(
        start == first and stop == first + second,
        f"the slice is [{start}:{stop}], the second operand [{first}:{first + second}]",
        y,
    )
    yield y


@rule(
    "expand-identity",
    exactness="exact",
    why="it is already of that shape",
    dtypes=ANY,
    cases=["x: [2, 3]; shape = [2, 3]"],
    near=[near("from [1, 3] to [2, 3]", "x: [1, 3]; shape = [2, 3]")],
)
def expand_identity(x: Term, *, shape: Sequence[Dim]) -> Iterator[Any]:
    yield T.expand(x, shape=shape)
    require(shape == x.shape, f"the expand goes from {_text(x.shape)} to {_text(shape)}", x)
    yield x


@rule(
    "expand-expand",
    exactness="exact",
    why="broadcasting is transitive",
    dtypes=ANY,
    cases=["x: [1, 3]; inner = [2, 3]; outer = [4, 2, 3]"],
)
def expand_expand(x: Term, *, inner: Sequence[Dim], outer: Sequence[Dim]) -> Iterator[Any]:
    yield T.expand(T.expand(x, shape=inner), shape=outer)
    yield T.expand(x, shape=outer)


@rule(
    "pad-nothing",
    exactness="exact",
    why="no element is added",
    dtypes=ANY,
    cases=["x: [2, 3]; before = [0, 0]; after = [0, 0]; value = 0.0"],
    near=[near("adds", "x: [2, 3]; before = [0, 0]; after = [0, 1]; value = 0.0")],
)
def pad_nothing(x: Term, *, before: Sequence[Dim], after: Sequence[Dim], value: float) -> Iterator[Any]:
    yield T.pad(x, before=before, after=after, value=value)
    require(all(n == 0 for n in (*before, *after)), f"the pad adds {_text(before)} before, {_text(after)} after", x)
    yield x


@rule(
    "tile-once",
    exactness="exact",
    why="one repeat of everything is everything",
    dtypes=ANY,
    cases=["x: [2, 3]; repeats = [1, 1]"],
    near=[near("[1, 2] times", "x: [2, 3]; repeats = [1, 2]")],
)
def tile_once(x: Term, *, repeats: Sequence[Dim]) -> Iterator[Any]:
    yield T.tile(x, repeats=repeats)
    require(all(n == 1 for n in repeats), f"x is repeated {_text(repeats)} times", x)
    yield x


def _reduce_of_ones(op: str, exactness: str, why: str) -> Rule:
    @rule(
        f"{op}-of-ones",
        exactness=exactness,
        why=why,
        dtypes=("f32", "bf16", "i64"),
        cases=[
            "x: [3, 1, 4]; axes = [1]; keepdims = false",
            "x: [3, 1]; axes = [1]; keepdims = true",
            "x: [3]; axes = []; keepdims = true",
        ],
        near=[near("reduces more than size 1", "x: [3, 2]; axes = [1]; keepdims = true")],
    )
    def reduce_of_ones(x: Term, *, axes: Sequence[int], keepdims: bool) -> Iterator[Any]:
        reduced = getattr(T, op)(x, axes=axes, keepdims=keepdims)
        yield reduced
        require(all(x.shape[a] == 1 for a in axes), f"{op} of {x.type} over {_text(axes)} reduces more than size 1", x)
        yield x if reduced.shape == x.shape else T.reshape(x, shape=reduced.shape)

    return reduce_of_ones


_SIGN = "; only -0 becomes 0 in the sum"
_ONE = "a reduction over dimensions of size 1 takes each element on its own"
REDUCE_OF_ONES = [
    *(_reduce_of_ones(op, "exact", _ONE) for op in ("reduce_max", "reduce_min", "reduce_prod")),
    *(_reduce_of_ones(op, "reassociated", _ONE + _SIGN) for op in ("reduce_sum", "reduce_mean")),
]


def _text(dims: Sequence[Dim]) -> str:
    return "[" + ", ".join(map(str, dims)) + "]"


SHAPE_RULES = [
    reshape_identity,
    reshape_reshape,
    transpose_identity,
    transpose_transpose,
    transpose_of_ones,
    slice_all,
    slice_slice,
    concat_one,
    concat_of_split,
    slice_of_concat_first,
    slice_of_concat_second,
    expand_identity,
    expand_expand,
    pad_nothing,
    tile_once,
    *REDUCE_OF_ONES,
]

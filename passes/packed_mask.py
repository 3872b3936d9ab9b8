"""Attention over sequences that stand packed one behind the other, whose mask compares their numbers: it is told where
sequences start instead.

An exporter numbers the sequences by a running sum over flags, one where a sequence starts, and lets a query see the
keys of its own number. Whatever the flags are, such numbers never fall, so positions of one number stand together:
``cu_seqlens`` says the same, its starts being the flagged positions, sorted, with all others behind the end as empty
sequences. Kernels then leave out the tiles of other sequences, and no mask of S x S is made or read. Numbers that are
given as they are may come back to an earlier one: of those nothing can be proven.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moec.ir.types import BOOL, I32, I64
from moec.passes.base import register_pass
from moec.passes.price import PricedRulePass
from moec.passes.rope_concat_forms import ATTRS, VARIANTS, name_of
from moec.rewrite.rule import Rule, miss, near, rule
from moec.rewrite.term import T, Term, require, splat

SET = 'scale = 0.3; causal = {causal}; offset = 0; window = none; softcap = none; empty_rows = "zero"'
NUMBERS = "to = !i64; axis = {axis}; exclusive = false; reverse = {reverse}; rows = [1, 1, 5, 1]; columns = {columns}"


def _case(
    more: bool,
    sinks: bool,
    flags: str = "bool[1, 5]",
    axis: int = 1,
    reverse: str = "false",
    columns: str = "[1, 1, 1, 5]",
) -> str:
    parts = ["q: [2, 4, 5, 3]; k: [2, 2, 5, 3]; v: [2, 2, 5, 6]", f"flags: {flags}"]
    parts += ["also: bool[1, 1, 5, 5]"] if more else []
    parts += ["sinks: [4]"] if sinks else []
    numbers = NUMBERS.format(axis=axis, reverse=reverse, columns=columns)
    return "; ".join([*parts, numbers, SET.format(causal="true")])


def _rule(more: bool, sinks: bool) -> Rule:
    """``more``: the mask holds something else besides, which stays a mask."""

    @rule(
        name_of("packed-mask", False, more, sinks),
        exactness="reassociated",
        why="a running sum of flags never falls, so that positions of one number stand together",
        dtypes=("f32", "bf16"),
        operands={"q": "any", "k": "any", "v": "any", "flags": "any"}
        | ({"also": "any"} if more else {})
        | ({"sinks": "any"} if sinks else {}),
        cases=[_case(more, sinks), _case(more, sinks, "bool[5]", 0)],
        near=[
            near("counted from the end", _case(more, sinks, reverse="true")),
            near("numbers of i32[1, 5], not flags", _case(more, sinks, "i32[1, 5]")),
            near("numbered along 0", _case(more, sinks, axis=0)),
            near("are not flags of 5 positions", _case(more, sinks, "bool[5, 1]")),
            near("numbers are compared as", _case(more, sinks, columns="[1, 1, 5, 1]")),
        ],
        more_attrs=("to", "axis", "exclusive", "reverse", "rows", "columns", *ATTRS),
    )
    def packed(q: Term, k: Term, v: Term, flags: Term, *rest: Term, **given: Any) -> Iterator[Any]:
        to, rows, columns = (given.pop(n) for n in ("to", "rows", "columns"))
        how = {n: given.pop(n) for n in ("axis", "exclusive", "reverse")}
        also, sink = (rest[0] if more else None), (rest[-1] if sinks else None)
        number = T.cumsum(T.cast(flags, to=to), **how)
        same = T.eq(T.reshape(number, shape=rows), T.reshape(number, shape=columns))
        yield T.attention(q, k, v, same if also is None else getattr(T, "and")(same, also), sink, None, None, **given)
        length = q.shape[2]
        require(flags.dtype is BOOL, f"{flags.type} are numbers of {flags.type}, not flags", flags)
        require(not how["reverse"] and not how["exclusive"], "sequences are counted from the end, or one late", flags)
        require(how["axis"] == flags.rank - 1, f"positions are numbered along {how['axis']} of {flags.type}", flags)
        one = flags.shape[-1] == length and all(d == 1 for d in flags.shape[:-1])
        require(one, f"{flags.type} are not flags of {length} positions", flags)
        square = tuple(rows[-2:]) == (length, 1) and tuple(columns[-2:]) == (1, length) and k.shape[2] == length
        require(square, f"numbers are compared as {list(map(str, rows))} and {list(map(str, columns))}", q, k)
        position = T.iota(size=length, dtype=I64)
        end = splat(length, position) if isinstance(length, int) else T.dims(values=(length,), scalar=True)
        starts = T.select(T.reshape(flags, shape=(length,)), position, end)
        inner = T.gather(starts, T.argsort(starts, axis=0, descending=False), axis=0)
        first, last = (T.expand(x, shape=(1,)) for x in (splat(0, position), end))
        cu = T.cast(T.concat(first, inner, last, axis=0), to=I32)
        yield T.attention(q, k, v, also, sink, None, None, cu, **given)
        unlike = T.ne(T.reshape(number, shape=rows), T.reshape(number, shape=columns))
        yield miss("a query sees the keys of other sequences", T.attention(q, k, v, unlike, sink, None, None, **given))

    return packed


PACKED_RULES = [_rule(*variant) for variant in VARIANTS]
"""Masks of packed sequences with and without something else in the mask, with and without sinks."""


@register_pass
class PackedMask(PricedRulePass):
    """Tell attention where packed sequences start in the place of a mask that compares their numbers, where numbers are
    a running sum of flags and the target says that this is no slower."""

    name = "packed-mask"

    @classmethod
    def rules(cls) -> list[Rule]:
        return PACKED_RULES

"""The spellings of attention over queries and keys that were put together: sizes to try the rules with, and guards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moec.rewrite.rule import Near, near
from moec.rewrite.term import T, Term, require

ATTRS = ("scale", "causal", "offset", "window", "softcap", "empty_rows")
"""The attributes of attention, all of which a rewrite keeps."""
SET = 'scale = 0.3; causal = true; offset = 1; window = 3; softcap = 2.5; empty_rows = "zero"'
VARIANTS = [(mask, sinks) for mask in (False, True) for sinks in (False, True)]
"""With and without an added mask, with and without sinks."""

Sizes = dict[str, str]


def sizes(mask: bool, sinks: bool, shared: bool, backward: bool) -> Sizes:
    """Operands of a case: 4 query and 2 key heads, 3 queries and 4 keys, parts of 5 and 2 columns, values of 6.

    ``shared``: the rotary key is one head for all.
    """
    found = {"qn": "[2, 4, 3, 5]", "qr": "[2, 4, 3, 2]", "kn": "[2, 2, 4, 5]"}
    found |= {"kr": "[2, 1, 4, 2]" if shared else "[2, 2, 4, 2]", "v": "[2, 2, 4, 6]"}
    rows = {"top": "f32[2, 4, 3] in 2..4", "total": "f32[2, 4, 3] in 1..2"}
    found |= {"y": "[2, 4, 3, 6]", **rows, "dy": "[2, 4, 3, 6]"} if backward else {}
    found |= {"mask": "[2, 1, 3, 4]"} if mask else {}
    return found | ({"sinks": "[4]"} if sinks else {})


def case(of: Sizes, own: Sizes, **changed: str) -> str:
    """The text of a case: operands ``of`` and attributes ``own``, some of either ``changed``."""
    parts = [f"{name}: {changed.get(name, shape)}" for name, shape in of.items()]
    return "; ".join([*parts, *(f"{n} = {changed.get(n, v)}" for n, v in own.items()), SET])


def joined(first: bool, qn: Term, qr: Term, kn: Term, kr: Term, axes: tuple[Any, Any], wide: Any) -> tuple[Term, Term]:
    """Queries and keys put together. ``first``: the rotary parts stand first, the key's expanded to all heads."""
    if first:
        return T.concat(qr, qn, axis=axes[0]), T.concat(T.expand(kr, shape=wide), kn, axis=axes[1])
    return T.concat(qn, qr, axis=axes[0]), T.concat(kn, kr, axis=axes[1])


def joined_axes(first: bool) -> Sizes:
    """The attributes of ``joined`` in a case."""
    return {"qaxis": "3", "kaxis": "3"} | ({"wide": "[2, 2, 4, 2]"} if first else {})


def joined_near(of: Sizes, first: bool) -> list[Near]:
    """Near-misses of queries and keys put together in another way."""
    own = joined_axes(first)
    tall = {"kn": "[2, 2, 3, 7]", "kr": "[2, 1, 1, 7]" if first else "[2, 2, 1, 7]", "wide": "[2, 2, 1, 7]"}
    uneven = {"kn": "[2, 2, 4, 4]", "kr": of["kr"].replace(" 2]", " 3]"), "wide": "[2, 2, 4, 3]"}
    found = [
        near("the queries are put together along 2", case(of, own, qaxis="2", qn="[2, 4, 2, 7]", qr="[2, 4, 1, 7]")),
        near("the keys are put together along 2", case(of, own, kaxis="2", **tall)),
        near("cut at 5 and 4 columns", case(of, own, **uneven)),
    ]
    if first:
        found.append(near("is not one head for all", case(of, own, kr="[1, 2, 4, 2]")))
    return found


def check_joined(first: bool, qn: Term, qr: Term, kn: Term, kr: Term, axes: tuple[Any, Any]) -> None:
    """The guards of ``joined``."""
    require(axes[0] == 3, f"the queries are put together along {axes[0]}", qn)
    require(axes[1] == 3, f"the keys are put together along {axes[1]}", kn)
    same = (qn.shape[3], qr.shape[3]) == (kn.shape[3], kr.shape[3])
    require(same, f"queries and keys are cut at {qn.shape[3]} and {kn.shape[3]} columns", qn, kn)
    if first:
        check_shared(kn, kr)


def check_shared(k: Term, kr: Term) -> None:
    """The guard that ``kr`` is one head that stands for all of ``k``'s."""
    shared = kr.rank == 4 and (k.shape[0], 1, k.shape[2]) == tuple(kr.shape[:3])
    require(shared, f"the rotary key {kr.type} is not one head for all of {k.type}", kr)


def name_of(what: str, first: bool, mask: bool, sinks: bool) -> str:
    """A rule's name from its variant."""
    return "-".join([what, *(["first"] if first else []), *(["mask"] if mask else []), *(["sinks"] if sinks else [])])


def placed(rest: Sequence[Term], mask: bool, sinks: bool) -> list[Term | None]:
    """The mask and the sinks, or None in their places."""
    given = list(rest)
    return [given.pop(0) if mask else None, given.pop(0) if sinks else None]

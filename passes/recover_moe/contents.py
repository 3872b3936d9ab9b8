"""What a tensor inside a mixture-of-experts block means: the abstract values that recovery follows through the graph.

T tokens choose K of E experts each; a *slot* is a pair (token, k). Rows of a tensor are tokens, slots, the slots of
one expert, or slots sorted by expert; which of these, its axes say. The content says what stands in a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from moec.ir.graph import Node, Value
from moec.passes.recover_moe.axes import Atom, Axes


@dataclass(frozen=True)
class Limit:
    """The first ``capacity`` slots of an expert, in the order of tokens; ``scope``: of all "tokens" or of each
    "sequence"."""

    capacity: int
    scope: str


@dataclass(frozen=True, eq=False)
class Space:
    """A set of rows that data decides. ``kind`` "hits": the slots of ``expert`` (within ``limit``), in the order of
    ``node``, which walks ``order``; "sorted": all slots sorted by expert; "piece": the rows of expert ``expert`` in
    the sorted space ``whole``."""

    kind: str
    node: Node
    expert: Any = None
    whole: Space | None = None
    limit: Limit | None = None
    order: tuple[Atom, ...] = ()


@dataclass(frozen=True)
class Expert:
    """The expert that a slot chose."""


@dataclass(frozen=True, eq=False)
class OfExpert:
    """A function of the expert that a slot chose: ``table[e]`` for expert e."""

    table: np.ndarray


@dataclass(frozen=True)
class Token:
    """The token that a row belongs to; ``times`` K where it is multiplied by the number of choices."""

    times: int = 1


@dataclass(frozen=True)
class Choice:
    """Which of its token's K choices a row is."""


@dataclass(frozen=True)
class Slot:
    """A row's slot number, token * K + choice."""


@dataclass(frozen=True)
class Rank:
    """Where a slot stands in the sorted order ``space``."""

    space: Space


@dataclass(frozen=True)
class Iota:
    """0, 1, 2, ... along the axis."""


@dataclass(frozen=True)
class OneHot:
    """1 where a slot's expert is the index along the expert axis, and the slot is within ``limit``."""

    limit: Limit | None = None


@dataclass(frozen=True)
class Mask:
    """Non-zero where a slot's expert is ``expert``, a number, or a value where the expert number is itself data; and
    the slot is within ``limit``."""

    expert: Any
    limit: Limit | None = None


@dataclass(frozen=True)
class Running:
    """How many slots up to this one, itself left out if ``exclusive``, chose the expert of the axis; ``scope``: among
    all "tokens" or those of its "sequence"."""

    scope: str
    exclusive: bool


@dataclass(frozen=True)
class Within:
    """Whether a slot is within ``limit`` if it chose the expert of the axis."""

    limit: Limit


@dataclass(frozen=True)
class Taken:
    """How many slots each expert takes within a limit."""


@dataclass(frozen=True)
class Coordinate:
    """Where a row's token stands along one of the axes that tokens have."""

    axis: int


@dataclass(frozen=True)
class Lane:
    """Which of its row's features an element is."""


@dataclass(frozen=True)
class Columns:
    """Several index contents along one axis: index tuples."""

    columns: tuple[Any, ...]


@dataclass(frozen=True)
class Number:
    """A constant of one element."""

    value: Any


@dataclass(frozen=True)
class Zero:
    """All zeros."""


@dataclass(frozen=True)
class Truth:
    """A bool known to be the same everywhere."""

    value: bool


@dataclass(frozen=True)
class Opaque:
    """Something of rows that nothing more is known of."""


@dataclass(frozen=True)
class Active:
    """Whether an expert got any token; ``number``: the numbers of those that did, which are data."""

    number: bool = False


@dataclass(frozen=True)
class BelowEdges:
    """Whether a slot's expert is below each of ``edges`` (along the axis that has no rows)."""

    edges: tuple[int, ...]


@dataclass(frozen=True)
class Offsets:
    """How many slots have an expert below each of ``edges``: where each expert's rows start in sorted order."""

    edges: tuple[int, ...]


@dataclass(frozen=True)
class Counts:
    """How many slots have an expert in each of ``spans`` (low, high)."""

    spans: tuple[tuple[int, int], ...]


def every_count(experts: int) -> Counts:
    """How many slots each expert has."""
    return Counts(tuple((e, e + 1) for e in range(experts)))


@dataclass(frozen=True)
class Range:
    """Sorted positions of the rows of experts ``low`` up to ``high``."""

    low: int
    high: int


@dataclass(frozen=True)
class Route:
    """The routing weight of a slot; ``value`` holds it as [T, K]. ``per_token``: something computed from a token's
    weights."""

    value: Value
    per_token: bool = False


@dataclass(frozen=True)
class Chosen:
    """1 where a token chose the expert of the axis, else 0."""


@dataclass(frozen=True)
class Spread:
    """The routing weights over an axis of experts, ``value`` with whatever layout: where a token did not choose the
    expert 0 if ``zero``, else minus infinity (then they are logits)."""

    value: Value
    zero: bool


@dataclass(frozen=True)
class Masked:
    """The routing weight of a slot whose expert is ``expert``, else 0; per token where ``summed`` over its slots."""

    expert: int
    value: Value
    summed: bool


@dataclass(frozen=True, eq=False)
class Part:
    """Per token what ``expert`` adds to the sum: ``tree``, or 0 where it was not chosen."""

    expert: int
    tree: Tree


@dataclass(frozen=True)
class Quotient:
    """A slot number over the number of choices, not yet rounded down."""


@dataclass(frozen=True)
class Sign:
    """0 for slot 0, else 1: what an exporter's truncating division multiplies by."""


@dataclass(frozen=True, eq=False)
class Tree:
    """What a row of floats is computed as. Leaves: "x" (the token's features), "route", "number", "weight"."""

    op: str
    args: tuple[Tree, ...] = ()
    attrs: Any = None


@dataclass(frozen=True, eq=False)
class Row:
    """A function of the row's token, expert and routing weight."""

    tree: Tree


@dataclass(frozen=True, eq=False)
class Combined:
    """Per token, the sum over its slots: ``parts`` of an expert each, or one part under "all"; plus a shared expert's
    output. Slots above ``limit`` give nothing, or what ``dropped`` says; ``factor`` multiplies the sum, a value of each
    token; ``weighed``: the only weight of each token multiplied it after the sum."""

    parts: dict[Any, Tree]
    shared: Tree | None = None
    limit: Limit | None = None
    dropped: str = "zero"
    factor: Value | None = None
    weighed: bool = False


@dataclass(frozen=True, eq=False)
class Overlay:
    """Per token its only slot's row: that of its expert among ``parts``, the token itself where none of them took
    it."""

    parts: dict[Any, Tree]
    limit: Limit | None


@dataclass(frozen=True, eq=False)
class Abstract:
    """An abstract value: what its axes range over and what stands in it."""

    axes: Axes
    content: Any


X = Tree("x")

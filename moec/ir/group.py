"""Groups of ranks: a module is the program of every rank; in a group, ranks exchange tensors.

Ranks are numbered from 0. A group of ``size`` and ``stride`` splits them into sets of ``size`` ranks that stand
``stride`` apart: with tp = @tp(8, 1) ranks 0..7 are one set, with @ep(4, 8) ranks 0, 8, 16, 24 are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moec.ir.symbol import Dim, evaluate, substitute


@dataclass(frozen=True, slots=True)
class Group:
    """A group by name; ``size`` ranks in a set, ``stride`` ranks from one member to the next."""

    name: str
    size: Dim
    stride: Dim

    def __str__(self) -> str:
        return f"@{self.name}({self.size}, {self.stride})"

    @property
    def extent(self) -> Dim:
        """Ranks from the first member of a set to the end of the last one's stride."""
        return self.size * self.stride

    def at(self, sizes: Mapping[str, int]) -> Group:
        """The group with numbers for symbols; KeyError names a symbol that has none."""
        return Group(self.name, evaluate(self.size, sizes), evaluate(self.stride, sizes))

    def substitute(self, sizes: Mapping[str, Dim]) -> Group:
        """The group with other dims for symbols."""
        return Group(self.name, substitute(self.size, sizes), substitute(self.stride, sizes))

    def place(self, rank: int) -> int:
        """Which member of its set ``rank`` is. The group has numbers."""
        assert isinstance(self.size, int) and isinstance(self.stride, int)
        return rank // self.stride % self.size

    def members(self, rank: int) -> tuple[int, ...]:
        """The ranks of the set that ``rank`` is in, in order. The group has numbers."""
        assert isinstance(self.size, int) and isinstance(self.stride, int)
        first = rank - self.place(rank) * self.stride
        return tuple(first + i * self.stride for i in range(self.size))


@dataclass(frozen=True, slots=True)
class Shard:
    """How a whole tensor lies over ranks: the members of ``group`` have equal parts of it along ``axis``, in order."""

    group: Group
    axis: int

"""The syntax tree of the layer language. Every node knows its ``at``; ``depth`` bounds how deeply the lowering
recurses.
"""

from __future__ import annotations

from dataclasses import dataclass

from moec.frontend.dsl.report import Span


@dataclass(frozen=True, slots=True)
class Name:
    """A name that stands for a dimension, constant, input, weight, parameter, earlier result or dtype."""

    at: Span
    text: str
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Literal:
    """An int, float, string, bool, ``none`` or ``inf``."""

    at: Span
    value: int | float | str | bool | None
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Items:
    """``[a, b]``: axes, dimensions, or the numbers of a tensor."""

    at: Span
    items: tuple[Expr, ...]
    depth: int


@dataclass(frozen=True, slots=True)
class Fields:
    """``{name = value, ...}``: attributes that several calls share."""

    at: Span
    fields: tuple[tuple[Name, Expr], ...]
    depth: int


@dataclass(frozen=True, slots=True)
class Unary:
    """``-x`` or ``~x``."""

    at: Span
    op: str
    operand: Expr
    depth: int


@dataclass(frozen=True, slots=True)
class Binary:
    """``left op right``; ``at`` is the operator. Chains of operators lean left and count as one level of depth."""

    at: Span
    op: str
    left: Expr
    right: Expr
    depth: int


@dataclass(frozen=True, slots=True)
class Member:
    """``x.T``, ``x.shape``, ``x.dtype``."""

    at: Span
    base: Expr
    name: str
    depth: int


@dataclass(frozen=True, slots=True)
class Part:
    """``start:stop:step`` of a subscript, each possibly absent."""

    at: Span
    start: Expr | None
    stop: Expr | None
    step: Expr | None
    depth: int


@dataclass(frozen=True, slots=True)
class Rest:
    """``...``: all the dimensions between."""

    at: Span
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Subscript:
    """``x[i, a:b, ...]``."""

    at: Span
    base: Expr
    items: tuple[Expr | Part | Rest, ...]
    depth: int


@dataclass(frozen=True, slots=True)
class Call:
    """``f(a, b, name = c, **attributes)`` of an op, a function or layer of the file or a built-in function;
    ``layer[3:61](a, b)`` has ``instances``.
    """

    at: Span
    fn: str
    args: tuple[Expr, ...]
    keywords: tuple[tuple[Name, Expr], ...]
    spreads: tuple[Expr, ...]
    depth: int
    instances: tuple[Expr | Part | Rest, ...] = ()


Expr = Name | Literal | Items | Fields | Unary | Binary | Member | Subscript | Call


@dataclass(frozen=True, slots=True)
class Type:
    """``bf16[T, H]``; ``...`` among the dimensions stands for any number of them (parameters of functions only)."""

    at: Span
    dtype: str
    dims: tuple[Expr | Rest, ...]


@dataclass(frozen=True, slots=True)
class Dim:
    """``dim T in [1, 8192] = 4096``: a size left open, its bounds, and the value to tune for."""

    at: Span
    name: str
    low: Expr
    high: Expr
    tune: Expr | None


@dataclass(frozen=True, slots=True)
class Group:
    """``group tp = 8``, ``group ep in [1, 64] = 32 over tp``: ranks that communicate; ``over`` names the group in whose
    groups its members hold the same place.
    """

    at: Span
    name: str
    low: Expr | None
    high: Expr | None
    size: Expr
    over: Name | None


@dataclass(frozen=True, slots=True)
class Sharding:
    """``sharded(tp, axis = 0)``: each rank of the group has its part of the whole tensor."""

    at: Span
    group: Name
    axis: Expr


@dataclass(frozen=True, slots=True)
class Declared:
    """One declared tensor: ``name: type``, how it is sharded, and for a weight the name it has in files of numbers."""

    at: Span
    name: str
    type: Type
    shardings: tuple[Sharding, ...]
    stored: str


@dataclass(frozen=True, slots=True)
class Input:
    at: Span
    items: tuple[Declared, ...]


@dataclass(frozen=True, slots=True)
class Weight:
    at: Span
    items: tuple[Declared, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """``output y``, ``output y = x + h``."""

    at: Span
    items: tuple[tuple[Name, Expr | None], ...]


@dataclass(frozen=True, slots=True)
class Assign:
    at: Span
    targets: tuple[Name, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Return:
    at: Span
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Param:
    """A function's parameter: a tensor of ``type`` (any where None), or a value known at compile time of ``kind``."""

    at: Span
    name: str
    type: Type | None
    kind: str


@dataclass(frozen=True, slots=True)
class Broken:
    """A statement that could not be read; the names it would have defined are not reported as unknown."""

    at: Span
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Use:
    """``use linear, norm``: those of the shared functions, layers and records that the file takes."""

    at: Span
    names: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class Fn:
    """A function: dimension names that its calls bind, parameters, declared results (None where not), statements. A
    layer is one that has weights; ``stored`` begins their names in files of numbers, and is None for a function.
    ``shared`` tells one of the shared layers from one of the file.
    """

    at: Span
    name: str
    dims: tuple[Name, ...]
    params: tuple[Param, ...]
    results: tuple[Type, ...] | None
    stored: str | None = None
    body: tuple[Statement, ...] = ()
    shared: bool = False

    @property
    def key(self) -> str:
        """What tells it from all others that a file calls, the shared ones included."""
        return f"use {self.name}" if self.shared else self.name

    @property
    def word(self) -> str:
        """``layer`` or ``function``."""
        return "function" if self.stored is None else "layer"


@dataclass(frozen=True, slots=True)
class For:
    """``for i in 0:36 { ... }``: the statements once for each i, which is known at compile time."""

    at: Span
    name: Name
    start: Expr
    stop: Expr
    body: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True)
class Host:
    """``host { ... }``: statements that run on the host."""

    at: Span
    body: tuple[Statement, ...] = ()


Statement = Use | Dim | Group | Input | Weight | Output | Assign | Return | Fn | For | Host | Broken

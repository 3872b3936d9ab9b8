"""Op signatures as text: operands with shapes, attributes with kinds, results with shapes.

``rms_norm(x: [*B, D], weight: [D], *, eps: float) -> [*B, D]``

- ``name?: [...]`` is an optional operand (None where absent), ``name...: [...]`` takes any number of operands and
  stands last.
- A shape is ``any`` (no constraint) or a list of dimensions; one ``*B`` matches any number of them. A dimension is a
  number, a
  name, or a multiple of a name (``2*I``). A name that stands twice must be the same dimension twice.
- Attribute kinds: ``int float bool str fn dtype dim dims ints strs floats tensor group``; ``kind?`` also takes
  ``none``; ``= value`` gives what the builder fills in.
- ``-> any`` leaves the result's shape to the op's ``shape`` function.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moec.ir.data import TensorData
from moec.ir.group import Group
from moec.ir.symbol import Dim, Expr, Shape, exact_div, parse_dim, substitute, symbols_of
from moec.ir.types import DType

MISSING: Any = object()
"""The default of an attribute that has none."""

Pattern = tuple[str | Dim, ...] | None
"""A shape pattern: ``"*B"`` for a run of dimensions, else a dimension over pattern names; None for any shape."""


@dataclass(frozen=True)
class Operand:
    """A declared operand or result."""

    name: str
    pattern: Pattern
    optional: bool = False
    variadic: bool = False


@dataclass(frozen=True)
class Attr:
    """A declared attribute."""

    name: str
    kind: str
    optional: bool
    default: Any

    def accepts(self, value: Any) -> bool:
        """Whether ``value`` is of this attribute's kind."""
        return (self.optional and value is None) or KINDS[self.kind](value)


def _is_int(v: Any) -> bool:
    return isinstance(v, int) and not isinstance(v, bool)


def _is_dim(v: Any) -> bool:
    return _is_int(v) or isinstance(v, Expr)


def _is_float(v: Any) -> bool:
    return isinstance(v, float)


KINDS: dict[str, Any] = {
    "int": _is_int,
    "float": _is_float,
    "bool": lambda v: isinstance(v, bool),
    "fn": lambda v: isinstance(v, str),
    "str": lambda v: isinstance(v, str),
    "dtype": lambda v: isinstance(v, DType),
    "dim": _is_dim,
    "dims": lambda v: isinstance(v, tuple) and all(map(_is_dim, v)),
    "ints": lambda v: isinstance(v, tuple) and all(map(_is_int, v)),
    "floats": lambda v: isinstance(v, tuple) and all(map(_is_float, v)),
    "strs": lambda v: isinstance(v, tuple) and all(isinstance(s, str) for s in v),
    "tensor": lambda v: isinstance(v, TensorData),
    "group": lambda v: isinstance(v, Group),
}


@dataclass(frozen=True)
class Signature:
    """A parsed signature."""

    name: str
    operands: tuple[Operand, ...]
    attrs: tuple[Attr, ...]
    results: tuple[Operand, ...]

    @property
    def variadic(self) -> bool:
        return bool(self.operands) and self.operands[-1].variadic


_HEAD = re.compile(r"\s*(\w+)\((.*)\)\s*->\s*(.+?)\s*\Z", re.S)


def parse_signature(text: str) -> Signature:
    """The signature that ``text`` spells; ValueError says what is wrong with it."""
    match = _HEAD.match(text)
    if match is None:
        raise ValueError(f"not a signature: {text}")
    operands, attrs, keyword = [], [], False
    for part in _split(match[2]):
        if part == "*":
            keyword = True
        elif keyword:
            attrs.append(_attr(part))
        else:
            operands.append(_operand(part))
    result = match[3]
    if result.startswith("("):
        results = [_operand(p) for p in _split(result[1:-1])]
    else:
        results = [Operand("result", _pattern(result))]
    return Signature(match[1], tuple(operands), tuple(attrs), tuple(results))


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text + ","):
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            if part := text[start:i].strip():
                parts.append(part)
            start = i + 1
    return parts


def _operand(text: str) -> Operand:
    name, _, shape = text.partition(":")
    name = name.strip()
    bare = name.rstrip("?.")
    return Operand(bare, _pattern(shape.strip() or "any"), name.endswith("?"), name.endswith("..."))


def _pattern(text: str) -> Pattern:
    if text == "any":
        return None
    return tuple(d if d.startswith("*") else parse_dim(d) for d in _split(text[1:-1]))


def _attr(text: str) -> Attr:
    name, _, rest = text.partition(":")
    kind, _, default = (s.strip() for s in rest.partition("="))
    if kind.rstrip("?") not in KINDS:
        raise ValueError(f"unknown attribute kind '{kind}' in '{text}'")
    value = ast.literal_eval(default) if default else MISSING
    return Attr(name.strip(), kind.rstrip("?"), kind.endswith("?"), value)


Bindings = dict[str, Any]
"""Pattern names to dimensions; ``*B`` names to shapes."""


def match_shape(pattern: Pattern, shape: Shape, bound: Bindings) -> bool:
    """Match a shape and record what the names stand for; False where it cannot be."""
    if pattern is None:
        return True
    star = next((i for i, p in enumerate(pattern) if isinstance(p, str)), None)
    if star is None:
        return len(pattern) == len(shape) and all(map(lambda p, d: _match_dim(p, d, bound), pattern, shape))
    tail = len(pattern) - star - 1
    if len(shape) < star + tail:
        return False
    run = shape[star : len(shape) - tail]
    if bound.setdefault(str(pattern[star]), run) != run:
        return False
    ends = (*shape[:star], *shape[len(shape) - tail :])
    return all(map(lambda p, d: _match_dim(p, d, bound), (*pattern[:star], *pattern[star + 1 :]), ends))


def _match_dim(pattern: Any, dim: Dim, bound: Bindings) -> bool:
    if isinstance(pattern, int):
        return pattern == dim
    names = list(symbols_of(pattern))
    if len(names) == 1 and names[0] not in bound:
        unit = substitute(pattern, {names[0]: 1})
        value = exact_div(dim, unit) if pattern == unit * _symbol(names[0]) else None
        if value is None:
            return False
        bound[names[0]] = value
        return True
    return all(n in bound for n in names) and substitute(pattern, bound) == dim


def _symbol(name: str) -> Expr:
    return Expr((((name,), 1),))


def build_shape(pattern: Pattern, bound: Mapping[str, Any]) -> Shape:
    """The shape that a result pattern stands for; KeyError names an unbound name."""
    dims: list[Dim] = []
    for p in pattern or ():
        if isinstance(p, str):
            dims.extend(bound[p])
        else:
            dims.append(substitute(p, bound))
    return tuple(dims)


def pattern_text(pattern: Pattern) -> str:
    """The pattern as it stands in a signature."""
    return "any" if pattern is None else "[" + ", ".join(map(str, pattern)) + "]"


def signature_text(s: Signature) -> str:
    """The canonical text of a signature, for listings."""

    def operand(o: Operand) -> str:
        return f"{o.name}{'?' if o.optional else ''}{'...' if o.variadic else ''}: {pattern_text(o.pattern)}"

    def attr(a: Attr) -> str:
        default = "" if a.default is MISSING else f" = {a.default!r}"
        return f"{a.name}: {a.kind}{'?' if a.optional else ''}{default}"

    parts: Sequence[str] = [operand(o) for o in s.operands]
    if s.attrs:
        parts = [*parts, "*", *map(attr, s.attrs)]
    results = s.results
    out = pattern_text(results[0].pattern) if len(results) == 1 else "(" + ", ".join(map(operand, results)) + ")"
    return f"{s.name}({', '.join(parts)}) -> {out}"

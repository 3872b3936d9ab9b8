"""Scalar expressions for the model: specialised, compiled, reduced to what a piece of a kernel depends on.

A ``Root`` is a quantity whose value decides what some statements do: ``Root(expr, 0)`` is the value of ``expr``,
``Root(expr, m)`` is ``expr % m`` (an address enters the cost of a copy only modulo a line). Two runs of the same
statements with equal roots do the same work. ``decompose`` rewrites roots that depend on volatile variables (a loop's
own variable, variables it assigns) into roots of the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from moec.codegen.kernel_ir import GmRef, Ref
from moec.codegen.scalar import Arg, Bin, Choose, Core, Expr, Number, Scalar, Var, binary, choose
from moec.targets.ascend.model.source import NUMBERS, Load, function_of, operands_of, source


@dataclass(frozen=True, slots=True)
class Root:
    """``expr % modulus``, or ``expr`` where the modulus is 0."""

    expr: Scalar
    modulus: int = 0


CORE_NAMES = {"idx": "core.idx", "sub": "core.sub"}
"""What a core knows of itself, as variables; names with a dot cannot clash with a kernel's own."""

SIZE_LIMIT = 120
"""Nodes of an expression beyond which its variables stand for it."""


def load_of(ref: Ref) -> Load:
    """The value a LoadScalar of ``ref`` gives. On-chip values are the scenario's word for the buffer as a whole."""
    return Load(ref.tensor, ref.offset) if isinstance(ref, GmRef) else Load(ref.buffer, 0)


def substitute(s: Scalar, known: Mapping[str, Scalar]) -> Scalar:
    """``s`` with the named variables, arguments (``arg.NAME``) and core facts (``core.NAME``) replaced."""
    if isinstance(s, Var):
        return known.get(s.name, s)
    if isinstance(s, Bin):
        a, b = substitute(s.a, known), substitute(s.b, known)
        return s if a is s.a and b is s.b else binary(s.op, a, b)
    if isinstance(s, Arg):
        return known.get(f"arg.{s.name}", s)
    if isinstance(s, Core):
        name = f"core.{s.which}"
        return known.get(name, Var(name))
    if isinstance(s, Choose):
        return choose(substitute(s.cond, known), substitute(s.a, known), substitute(s.b, known))
    if isinstance(s, Load):
        return Load(s.tensor, substitute(s.offset, known))
    return s


@lru_cache(maxsize=65536)
def variables(s: Scalar) -> frozenset[str]:
    """Variables that ``s`` reads."""
    if isinstance(s, Var):
        return frozenset((s.name,))
    return frozenset().union(*(variables(p) for p in operands_of(s))) if isinstance(s, Expr) else frozenset()


@lru_cache(maxsize=65536)
def size(s: Scalar) -> int:
    """Nodes of the tree."""
    return 1 + sum(size(p) for p in operands_of(s)) if isinstance(s, Expr) else 1


def _terms(s: Scalar, coefficient: int, out: dict[Scalar, int]) -> None:
    """Adds ``coefficient * s`` to ``out`` as a sum of coefficient times atom; the atom 1 holds the constant."""
    if isinstance(s, int):
        out[1] = out.get(1, 0) + coefficient * s
    elif isinstance(s, Bin) and s.op in ("+", "-"):
        _terms(s.a, coefficient, out)
        _terms(s.b, coefficient if s.op == "+" else -coefficient, out)
    elif isinstance(s, Bin) and s.op == "*" and isinstance(s.b, int):
        _terms(s.a, coefficient * s.b, out)
    elif isinstance(s, Bin) and s.op == "*" and isinstance(s.a, int):
        _terms(s.b, coefficient * s.a, out)
    else:
        out[s] = out.get(s, 0) + coefficient


def modulo(s: Scalar, modulus: int) -> Root | None:
    """The root ``s % modulus``, without what the modulus removes; None if nothing is left."""
    out: dict[Scalar, int] = {}
    _terms(s, 1, out)
    total: Scalar = 0
    for atom, coefficient in out.items():
        if coefficient % modulus and atom != 1:
            total = binary("+", total, binary("*", atom, coefficient % modulus))
    return Root(total, modulus) if isinstance(total, Expr) else None


def constant_term(s: Scalar) -> int:
    """The constant that ``s``, written as a sum, contains."""
    out: dict[Scalar, int] = {}
    _terms(s, 1, out)
    return out.get(1, 0)


def without(s: Scalar, name: str) -> Scalar | None:
    """``s`` less the variable ``name``, where it is that variable and something added that does not depend on it."""
    out: dict[Scalar, int] = {}
    _terms(s, 1, out)
    rest: Scalar = 0
    for atom, coefficient in out.items():
        if isinstance(atom, Var) and atom.name == name:
            if coefficient != 1:
                return None
        elif name in variables(atom):
            return None
        else:
            rest = binary("+", rest, binary("*", atom, coefficient))
    return rest if name in variables(s) else None


def exact(s: Scalar) -> Iterator[Root]:
    """The root ``s`` itself, or its variables where it is too large; nothing for a literal."""
    if not isinstance(s, Expr):
        return
    if size(s) > SIZE_LIMIT:
        for name in sorted(variables(s)):
            yield Root(Var(name))
    else:
        yield Root(s)


def decompose(root: Root, volatile: frozenset[str]) -> Iterator[Root]:
    """Roots that, with the values a volatile variable runs through, determine ``root``.

    A volatile variable itself comes back as ``Root(Var(name), modulus)``: the caller says what determines it.
    """
    if not variables(root.expr) & volatile:
        yield root
    elif root.modulus:
        out: dict[Scalar, int] = {}
        _terms(root.expr, 1, out)
        rest: Scalar = 0
        for atom, coefficient in out.items():
            if atom == 1 or not variables(atom) & volatile:
                rest = binary("+", rest, binary("*", atom, coefficient))
            elif isinstance(atom, Var):
                yield Root(atom, root.modulus)
            elif isinstance(atom, Bin) and atom.op == "*":
                for factor in (atom.a, atom.b):
                    inner = modulo(binary("*", factor, coefficient if factor is atom.a else 1), root.modulus)
                    if inner is not None:
                        yield from decompose(inner, volatile)
            else:
                yield from decompose(Root(atom), volatile)
        left = modulo(rest, root.modulus)
        if left is not None:
            yield left
    elif isinstance(root.expr, Var):
        yield root
    elif isinstance(root.expr, Bin) and root.expr.op == "%" and isinstance(root.expr.b, int) and root.expr.b > 0:
        inner = modulo(root.expr.a, root.expr.b)
        if inner is not None:
            yield from decompose(inner, volatile)
    else:
        for part in operands_of(root.expr):
            if isinstance(part, Expr):
                yield from decompose(Root(part), volatile)


def unique(roots: Iterable[Root]) -> tuple[Root, ...]:
    """The roots, each once, in order of first sight."""
    return tuple(dict.fromkeys(roots))


Values = list[Number]
"""Values of the variables by slot."""


@dataclass(frozen=True)
class Slots:
    """Where each variable of a kernel lives in the list of values."""

    index: dict[str, int]
    read: Callable[[str, int], Number]
    """What the scenario has at (tensor, element)."""

    def compile(self, *parts: Scalar) -> Callable[[Values], tuple[Any, ...]]:
        """A function from the values to the tuple of ``parts``. The source is made from trees, never from user text."""
        if not any(isinstance(p, Expr) for p in parts):
            return lambda v: parts
        return function_of(*source(parts, self._leaf, NUMBERS), {"read": self.read})

    def _leaf(self, s: Expr, offset: str) -> str:
        if isinstance(s, Var):
            return f"v[{self.index[s.name]}]"
        assert isinstance(s, Load)
        return f"read({s.tensor!r}, {offset})"

    def key(self, roots: Iterable[Root]) -> Callable[[Values], tuple[Any, ...]]:
        """A function from the values to the values of ``roots``."""
        return self.compile(*(binary("%", r.expr, r.modulus) if r.modulus else r.expr for r in roots))

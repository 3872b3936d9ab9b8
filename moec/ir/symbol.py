"""Integer dimensions: numbers, named symbols, and arithmetic on them in one normal form.

A dimension is an ``int`` or an ``Expr``. An ``Expr`` is a polynomial with integer coefficients over atoms; an atom is a
symbol (its name) or one of the non-polynomial functions ``floordiv``, ``ceildiv``, ``mod``, ``min``, ``max`` of
dimensions.
Because the polynomial is kept sorted, equal polynomials are equal objects: ``2*T == T + T`` and ``(T+1)*2 == 2*T + 2``.
An expression without symbols collapses to ``int``, so shape code never meets a constant in disguise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

DEFAULT_BOUND = (0, 2**31 - 1)
"""Bounds of a symbol that nobody bounded: a size that fits the 32-bit loop counters of the kernels."""

MAX_DEPTH = 64
"""Levels of brackets in the text of a dimension."""

Bounds = tuple[int, int]


def _cdiv(a: int, b: int) -> int:
    return -((-a) // b)


FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b,
    "ceildiv": _cdiv,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}


class Call:
    """A non-polynomial atom: ``fn(a, b)`` for a ``fn`` of ``FUNCTIONS`` whose arguments are dimensions."""

    __slots__ = ("fn", "a", "b", "text")

    def __init__(self, fn: str, a: Dim, b: Dim):
        self.fn, self.a, self.b = fn, a, b
        self.text = f"{fn}({a}, {b})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Call) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


Atom = str | Call
Monomial = tuple[Atom, ...]
Terms = tuple[tuple[Monomial, int], ...]


class Expr:
    """An immutable polynomial over atoms: ``terms`` is sorted, without zero coefficients, never a lone constant."""

    __slots__ = ("terms", "_hash", "_text")

    def __init__(self, terms: Terms):
        self.terms = terms
        self._hash = hash(terms)
        self._text = ""

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Expr) and self._hash == other._hash and self.terms == other.terms)

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Dim) -> Dim:
        return _make(_sum(self.terms, _terms(other)))

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + -1 * other

    def __rsub__(self, other: Dim) -> Dim:
        return -1 * self + other

    def __mul__(self, other: Dim) -> Dim:
        product: dict[Monomial, int] = {}
        for left, c in self.terms:
            for right, d in _terms(other):
                key = tuple(sorted(left + right, key=str))
                product[key] = product.get(key, 0) + c * d
        return _make(product)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return mod(self, other)

    def __str__(self) -> str:
        if not self._text:
            self._text = self._spell()
        return self._text

    def _spell(self) -> str:
        parts: list[str] = []
        for mono, coeff in self.terms:
            factors = [str(a) for a in mono]
            if not factors or abs(coeff) != 1:
                factors.insert(0, str(abs(coeff)))
            parts.append((" - " if coeff < 0 else " + ") + "*".join(factors))
        text = "".join(parts)
        return text[3:] if text.startswith(" + ") else "-" + text[3:]

    def __repr__(self) -> str:
        return f"Expr({self})"


Dim = int | Expr
"""A size: a number or an expression over symbols."""

Shape = tuple[Dim, ...]


def _terms(dim: Dim) -> Terms:
    if isinstance(dim, Expr):
        return dim.terms
    return (((), int(dim)),) if dim else ()


def _sum(left: Terms, right: Terms) -> dict[Monomial, int]:
    total = dict(left)
    for mono, coeff in right:
        total[mono] = total.get(mono, 0) + coeff
    return total


def _order(item: tuple[Monomial, int]) -> tuple[int, list[str]]:
    return (-len(item[0]), [str(a) for a in item[0]])


def _make(terms: Mapping[Monomial, int]) -> Dim:
    kept = [(m, c) for m, c in terms.items() if c]
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    kept.sort(key=_order)
    return Expr(tuple(kept))


def sym(name: str) -> Expr:
    """The symbol ``name`` as a dimension."""
    return Expr((((name,), 1),))


def floordiv(a: Dim, b: Dim) -> Dim:
    """``a // b`` rounded down; exact polynomial division where every coefficient divides. ``b`` must be positive."""
    quotient = exact_div(a, b)
    return quotient if quotient is not None else _call("floordiv", a, b)


def ceildiv(a: Dim, b: Dim) -> Dim:
    """``a / b`` rounded up. ``b`` must be positive."""
    quotient = exact_div(a, b)
    return quotient if quotient is not None else _call("ceildiv", a, b)


def mod(a: Dim, b: Dim) -> Dim:
    """``a`` modulo ``b``; 0 where ``b`` divides every term of ``a``."""
    return 0 if exact_div(a, b) is not None else _call("mod", a, b)


def dmin(a: Dim, b: Dim) -> Dim:
    """The smaller of two dimensions."""
    return a if a == b else _call("min", *sorted((a, b), key=str))


def dmax(a: Dim, b: Dim) -> Dim:
    """The larger of two dimensions."""
    return a if a == b else _call("max", *sorted((a, b), key=str))


def _call(fn: str, a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return FUNCTIONS[fn](a, b)
    return Expr((((Call(fn, a, b),), 1),))


def exact_div(a: Dim, b: Dim) -> Dim | None:
    """``a / b`` if it is a polynomial with integer coefficients whatever the symbols are, else None.

    Dividing by zero gives None, so the caller's ``floordiv`` keeps the expression (and evaluating it raises).
    """
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and a % b == 0 else None
    divisor = _terms(b)
    if len(divisor) != 1:
        if len(_terms(a)) != len(divisor):
            return None
        first = exact_div(_make(dict(_terms(a)[:1])), _make(dict(divisor[:1])))
        return first if first is not None and first * b == a else None
    mono, coeff = divisor[0]
    result: dict[Monomial, int] = {}
    for m, c in _terms(a):
        rest = list(m)
        for atom in mono:
            if atom not in rest:
                return None
            rest.remove(atom)
        if c % coeff:
            return None
        result[tuple(rest)] = c // coeff
    return _make(result)


def evaluate(dim: Dim, env: Mapping[str, int]) -> int:
    """The number that ``dim`` stands for when each symbol has its value in ``env``; KeyError names a missing symbol."""
    if isinstance(dim, int):
        return dim
    total = 0
    for mono, coeff in dim.terms:
        for atom in mono:
            coeff *= env[atom] if isinstance(atom, str) else _evaluate_call(atom, env)
        total += coeff
    return total


def _evaluate_call(call: Call, env: Mapping[str, int]) -> int:
    return FUNCTIONS[call.fn](evaluate(call.a, env), evaluate(call.b, env))


def substitute(dim: Dim, env: Mapping[str, Dim]) -> Dim:
    """``dim`` with each symbol of ``env`` replaced; other symbols stay."""
    if isinstance(dim, int):
        return dim
    total: Dim = 0
    for mono, coeff in dim.terms:
        product: Dim = coeff
        for atom in mono:
            product = product * _substitute_atom(atom, env)
        total = total + product
    return total


def _substitute_atom(atom: Atom, env: Mapping[str, Dim]) -> Dim:
    if isinstance(atom, str):
        return env.get(atom, sym(atom))
    build = {"floordiv": floordiv, "ceildiv": ceildiv, "mod": mod, "min": dmin, "max": dmax}[atom.fn]
    return build(substitute(atom.a, env), substitute(atom.b, env))


def symbols_of(dim: Dim) -> Iterator[str]:
    """The names of the symbols in ``dim``, in the order of the printed form, possibly repeated."""
    if isinstance(dim, Expr):
        for mono, _ in dim.terms:
            for atom in mono:
                if isinstance(atom, str):
                    yield atom
                else:
                    yield from symbols_of(atom.a)
                    yield from symbols_of(atom.b)


def bounds(dim: Dim, table: Mapping[str, Bounds]) -> Bounds:
    """An interval that holds ``dim`` when each symbol lies within ``table`` (``DEFAULT_BOUND`` where absent)."""
    if isinstance(dim, int):
        return dim, dim
    low = high = 0
    for mono, coeff in dim.terms:
        term = (coeff, coeff)
        for atom in mono:
            term = _interval("mul", term, _atom_bounds(atom, table))
        low, high = low + term[0], high + term[1]
    return low, high


def _atom_bounds(atom: Atom, table: Mapping[str, Bounds]) -> Bounds:
    if isinstance(atom, str):
        return table.get(atom, DEFAULT_BOUND)
    return _interval(atom.fn, bounds(atom.a, table), bounds(atom.b, table))


def _interval(fn: str, a: Bounds, b: Bounds) -> Bounds:
    if fn == "mod":
        return 0, max(0, b[1] - 1)
    if fn == "mul":
        corners = [x * y for x in a for y in b]
    else:
        divides = fn in ("floordiv", "ceildiv")
        corners = [FUNCTIONS[fn](x, max(1, y) if divides else y) for x in a for y in b]
    return min(corners), max(corners)


_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_][\w.]*)|([()+*,-]))")


class _Parser:
    """Recursive descent over the printed form of dimensions."""

    def __init__(self, text: str):
        self.text, self.tokens, self.at = text, [], 0
        self.depth = 0
        end = 0
        stripped = text.rstrip()
        while end < len(stripped):
            match = _TOKEN.match(stripped, end)
            if not match:
                raise ValueError(f"not a dimension: {text!r} (at column {end + 1})")
            self.tokens.append(match.group().strip())
            end = match.end()

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if not token or (expected and token != expected):
            raise ValueError(f"not a dimension: {self.text!r} ({expected or 'more'} expected)")
        self.at += 1
        return token

    def sum(self) -> Dim:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ValueError(f"not a dimension: nested deeper than {MAX_DEPTH}")
        total: Dim = -self.product() if self.peek() == "-" and self.take() else self.product()
        while self.peek() in ("+", "-"):
            sign = 1 if self.take() == "+" else -1
            total = total + sign * self.product()
        self.depth -= 1
        return total

    def product(self) -> Dim:
        total = self.atom()
        while self.peek() == "*":
            self.take()
            total = total * self.atom()
        return total

    def atom(self) -> Dim:
        token = self.take()
        if token.isdigit():
            return int(token)
        if token == "(":
            inner = self.sum()
            self.take(")")
            return inner
        if self.peek() == "(":
            return self.call(token)
        if not (token[0].isalpha() or token[0] == "_"):
            raise ValueError(f"not a dimension: {self.text!r} (unexpected {token!r})")
        return sym(token)

    def call(self, fn: str) -> Dim:
        build: dict[str, Any] = {"floordiv": floordiv, "ceildiv": ceildiv, "mod": mod, "min": dmin, "max": dmax}
        if fn not in build:
            raise ValueError(f"not a dimension: {self.text!r} (unknown function {fn!r}; known: {', '.join(build)})")
        self.take("(")
        a = self.sum()
        self.take(",")
        b = self.sum()
        self.take(")")
        try:
            result: Dim = build[fn](a, b)
        except ZeroDivisionError:
            raise ValueError(f"not a dimension: {self.text!r} (division by zero)") from None
        return result


def parse_dim(text: str) -> Dim:
    """The dimension that ``text`` (the printed form, or any sum/product of it) stands for; ValueError says why not."""
    if text.isdigit():
        return int(text)
    parser = _Parser(text)
    result = parser.sum()
    if parser.peek():
        raise ValueError(f"not a dimension: {text!r} (unexpected {parser.peek()!r})")
    return result

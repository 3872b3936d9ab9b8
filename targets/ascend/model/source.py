"""Python source of many scalars at once, in which what occurs twice is worked out once.

Keys of units are long tuples over few common quantities (how many rows of a tile are left, say): written out, the same
minimum stands in them dozens of times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

from moec.codegen.scalar import Bin, Choose, Expr, Scalar


@dataclass(frozen=True, slots=True)
class Load(Expr):
    """One element of device memory (``tensor``, offset in elements) or an on-chip buffer, as the scenario has it."""

    tensor: str
    offset: Scalar


def operands_of(s: Scalar) -> tuple[Scalar, ...]:
    """What ``s`` is worked out from."""
    if isinstance(s, Bin):
        return (s.a, s.b)
    if isinstance(s, Choose):
        return (s.cond, s.a, s.b)
    if isinstance(s, Load):
        return (s.offset,)
    return ()


@dataclass(frozen=True)
class Dialect:
    """How operations are written over ``{a}`` and ``{b}`` (``choose``: also the condition ``{c}``): ``ops`` those by
    numbers that are known, ``run_time`` divisions by others, which may be 0. ``named``: operations that write an
    operand more than once."""

    ops: Mapping[str, str]
    run_time: Mapping[str, str]
    choose: str
    named: frozenset[str]


_PLAIN = {op: f"({{a}} {op} {{b}})" for op in ("+", "-", "*", "//", "/", "%")} | {"cdiv": "(-(-{a} // {b}))"}
NUMBERS = Dialect(
    {
        **_PLAIN,
        **{op: f"(1 if {{a}} {op} {{b}} else 0)" for op in ("<", "<=", ">", ">=", "==", "!=", "and", "or")},
        "min": "({b} if {b} < {a} else {a})",
        "max": "({b} if {b} > {a} else {a})",
    },
    {op: f"({_PLAIN[op][1:-1]} if {{b}} else 0)" for op in ("//", "/", "%", "cdiv")},
    "({a} if {c} else {b})",
    frozenset(("min", "max")),
)
"""Over numbers."""
ARRAYS = Dialect(
    {
        **_PLAIN,
        **{op: f"(({{a}} {op} {{b}}) * 1)" for op in ("<", "<=", ">", ">=", "==", "!=")},
        "and": "((({a} != 0) & ({b} != 0)) * 1)",
        "or": "((({a} != 0) | ({b} != 0)) * 1)",
        "min": "minimum({a}, {b})",
        "max": "maximum({a}, {b})",
    },
    {op: f"divide({op!r}, {{a}}, {{b}})" for op in ("//", "/", "%", "cdiv")},
    "where({c}, {a}, {b})",
    frozenset(),
)
"""Over numpy arrays, with ``minimum``, ``maximum``, ``where`` and ``divide`` in scope."""


def source(parts: Sequence[Scalar], leaf: Callable[[Expr, str], str], dialect: Dialect) -> tuple[list[str], list[str]]:
    """Assignments to names ``t0``, ``t1``, ... of what occurs more than once, and the source of each of ``parts`` after
    them. ``leaf`` gives the source of a variable, and of a load whose offset has the given source."""
    known: dict[int, int | str] = {}  # by identity: parts keep their trees alive
    same: dict[tuple[Any, ...], int] = {}
    nodes: list[tuple[Expr, tuple[int | str, ...]]] = []  # operands: number of a node, or text of a literal

    def number(s: Scalar) -> int | str:
        if not isinstance(s, Expr):
            return repr(s)
        found = known.get(id(s))
        if found is None:
            operands = tuple(number(p) for p in operands_of(s))
            key = (type(s), getattr(s, "op", ""), getattr(s, "name", ""), getattr(s, "tensor", ""), operands)
            if key not in same:
                same[key] = len(nodes)
                nodes.append((s, operands))
            found = known[id(s)] = same[key]
        return found

    roots = [number(p) for p in parts]
    uses = [0] * len(nodes)
    for s, operands in nodes:
        twice = isinstance(s, Bin) and (s.op in dialect.named or (s.op in dialect.run_time and isinstance(s.b, Expr)))
        for o in operands:
            if isinstance(o, int):
                uses[o] += 2 if twice else 1
    for r in roots:
        if isinstance(r, int):
            uses[r] += 1
    lines: list[str] = []
    text: list[str] = []
    for i, (s, operands) in enumerate(nodes):
        code = _code(s, [text[o] if isinstance(o, int) else o for o in operands], leaf, dialect)
        if uses[i] > 1:
            lines.append(f"t{i} = {code}")
            code = f"t{i}"
        text.append(code)
    return lines, [text[r] if isinstance(r, int) else r for r in roots]


def _code(s: Expr, operands: Sequence[str], leaf: Callable[[Expr, str], str], dialect: Dialect) -> str:
    if isinstance(s, Choose):
        c, a, b = operands
        return dialect.choose.format(a=a, b=b, c=c)
    if isinstance(s, Bin):
        forms = dialect.run_time if s.op in dialect.run_time and isinstance(s.b, Expr) else dialect.ops
        return forms[s.op].format(a=operands[0], b=operands[1])
    return leaf(s, operands[0] if operands else "")


Function = Callable[[Any], tuple[Any, ...]]


def function_of(lines: Sequence[str], results: Sequence[str], scope: dict[str, Any]) -> Function:
    """A function from ``v`` to the tuple of ``results`` after ``lines``, with the names of ``scope``. The source is
    made from trees, never from user text."""
    body = "".join(f" {line}\n" for line in lines)
    exec(_compiled(f"def function(v):\n{body} return ({''.join(f'{r}, ' for r in results)})\n"), scope)
    function: Function = scope["function"]
    return function


@lru_cache(maxsize=4096)
def _compiled(text: str) -> CodeType:
    """Kernels of a layer have most of their scalars in common."""
    return compile(text, "<scalars>", "exec")

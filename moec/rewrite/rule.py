"""A rewrite rule, declared once as two terms: ``@rule(...)`` on a generator function.

::

    @rule("double-neg", exactness="exact", why="negation flips the sign bit and nothing else", cases=["x: [3, 5]"])
    def double_neg(x):
        yield -(-x)
        yield x

The function's positional parameters are operands, its keyword-only parameters are attributes that the match binds (by
name, from the before term's attributes, or from the dimension names of ``operands`` patterns). It yields the *before*
term, then (after guards: ``require(condition, reason, terms to blame)``) the *after* term, then any number of
``miss(reason, term)``: near-misses, which must not match. A tuple of terms stands for several results; the first is the
root and all others must lie below it.

The function runs with variables that have no types to make the pattern; for a match it runs again with the matched
types and attributes, so guards and the after term are ordinary Python over known numbers. The law tests run it with
those of ``cases``.

``cases`` are sizes to try the rule on, as text: ``"x: [3, 5]; i: i64[4] in 0..3; k = 2"`` (see ``moec.rewrite.case``).

``exactness``: ``exact`` (bit-identical, NaN for NaN), ``reassociated`` (equal up to rounding) or ``approximate`` with
``bound``, the largest relative error. ``escape``: whether a value inside the pattern may have readers outside;
``"keep"`` leaves its node standing, ``"refuse"`` does not apply the rule, for rules that would then compute something
twice. Views and casts may always escape.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moec.ir.symbol import symbols_of
from moec.ir.types import TensorType
from moec.ops.signature import Pattern, parse_signature
from moec.rewrite.case import Case, parse_case
from moec.rewrite.term import Apply, AttrVar, NoMatch, Splat, Term, applies, restart_guards, term_lines, variable

EXACTNESS = ("exact", "reassociated", "approximate")
FLOATS = ("f32", "bf16", "f16")
"""The dtypes that law tests sweep unless a rule says otherwise."""


@dataclass(frozen=True)
class Miss:
    """A near-miss: ``outputs`` must not match, for ``reason``."""

    reason: str
    outputs: tuple[Term, ...]


def miss(reason: str, *outputs: Term) -> Miss:
    """Declare a near-miss inside a rule: a term that looks alike and must not match."""
    return Miss(reason, outputs)


@dataclass(frozen=True)
class Near:
    """A near-miss of the before term itself under other sizes, dtypes or attributes; ``reason`` is a part of the
    guard's reason."""

    reason: str
    case: Case


def near(reason: str, case: str) -> Near:
    """Declare that the before term under ``case`` must be refused by a guard whose reason contains ``reason``."""
    return Near(reason, parse_case(case))


@dataclass(frozen=True)
class Instance:
    """A rule under known types and attributes: both sides and the near-misses."""

    before: tuple[Term, ...]
    after: tuple[Term, ...]
    misses: tuple[Miss, ...]


Body = Callable[..., Iterator[Any]]


@dataclass(frozen=True, eq=False)
class Rule:
    """A declared rule; see the module's docstring. ``before`` is the pattern, ``attrs`` the names of bound
    attributes."""

    name: str
    exactness: str
    why: str
    body: Body
    operands: Mapping[str, Pattern]
    attrs: tuple[str, ...]
    before: tuple[Term, ...]
    cases: tuple[Case, ...]
    dtypes: tuple[str, ...]
    bound: float
    escape: str
    near: tuple[Near, ...]
    size: int = field(default=0)
    """Number of op applications in the pattern."""

    @property
    def root(self) -> Apply:
        """The op application that a match starts from."""
        found = self.before[0].apply
        assert found is not None
        return found

    def instantiate(self, types: Mapping[str, TensorType], attrs: Mapping[str, Any]) -> Instance:
        """Both sides with operands of ``types`` and ``attrs``; NoMatch where a guard refuses."""
        before, rest = self._start(types, attrs)
        after = _outputs(next(rest))
        return Instance(before, after, tuple(rest))

    def pattern_for(self, types: Mapping[str, TensorType], attrs: Mapping[str, Any]) -> tuple[Term, ...]:
        """The before side alone, guards not asked."""
        return self._start(types, attrs)[0]

    def _start(
        self, types: Mapping[str, TensorType], attrs: Mapping[str, Any]
    ) -> tuple[tuple[Term, ...], Iterator[Any]]:
        restart_guards()
        generator = self.body(*(variable(n, types[n]) for n in self.operands), **{k: attrs[k] for k in self.attrs})
        return _outputs(next(generator)), generator

    def text(self) -> str:
        """Documentation: name, class, why, both sides (the after side as it is for the first case) and near-misses.

        ValueError where the rule refuses its own first case.
        """
        bound = f", relative error at most {self.bound:g} beyond rounding" if self.bound else ""
        example = self.cases[0]
        try:
            instance = self.instantiate(example.types(self.dtypes[0]), example.for_dtype(self.dtypes[0]))
        except NoMatch as refused:
            raise ValueError(f"rule {self.name} refuses its own first case: {refused.reason}") from refused
        after = term_lines(instance.after)
        lines = [f"{self.name} ({self.exactness}{bound}): {self.why}"]
        lines += [f"      {line}" for line in term_lines(self.before)]
        lines += [f"   => {after[0]}", *(f"      {line}" for line in after[1:])]
        lines.append(f"      where {example.text}")
        lines += [f"  not if {reason}" for reason in dict.fromkeys(map(self._reason, self.near))]
        lines += [f"  not if {reason}" for reason in dict.fromkeys(m.reason for m in instance.misses)]
        return "\n".join(lines)

    def _reason(self, near: Near) -> str:
        """The guard's own words for a near-miss."""
        try:
            self.instantiate(near.case.types(self.dtypes[0]), near.case.for_dtype(self.dtypes[0]))
        except NoMatch as refused:
            return refused.reason
        return near.reason


def _pattern(text: str) -> Pattern:
    return parse_signature(f"rule(x: {text}) -> any").operands[0].pattern


def _outputs(yielded: Any) -> tuple[Term, ...]:
    return yielded if isinstance(yielded, tuple) else (yielded,)


RULES: dict[str, Rule] = {}
"""Every declared rule by name, for documentation and the law tests."""


def rule(
    name: str,
    *,
    exactness: str,
    why: str,
    cases: Sequence[str],
    operands: Mapping[str, str] | None = None,
    dtypes: Sequence[str] = FLOATS,
    bound: float = 0.0,
    escape: str = "keep",
    near: Sequence[Near] = (),
    more_attrs: Sequence[str] = (),
) -> Callable[[Body], Rule]:
    """Declare a rule; TypeError where the declaration is incomplete, contradicts itself or its name is taken.

    A body with ``*operands`` takes those of ``operands`` that it does not name; one with ``**attrs``, ``more_attrs``.
    """

    def declare(body: Body) -> Rule:
        if exactness not in EXACTNESS or (exactness == "approximate") != (bound > 0):
            raise TypeError(f"rule {name}: exactness is one of {', '.join(EXACTNESS)}; only 'approximate' has a bound")
        if not why or not cases or escape not in ("keep", "refuse"):
            raise TypeError(f"rule {name} needs a why, at least one case, and escape 'keep' or 'refuse'")
        inputs, attrs = _parameters(body, operands or {}, more_attrs)
        patterns = {n: _pattern((operands or {}).get(n, "any")) for n in inputs}
        before = _outputs(next(body(*map(variable, inputs), **{a: AttrVar(a) for a in attrs})))
        size = _check(name, before, patterns, attrs)
        tried = tuple(map(parse_case, cases))
        made = Rule(
            name, exactness, why, body, patterns, attrs, before, tried, tuple(dtypes), bound, escape, tuple(near), size
        )
        if name in RULES and RULES[name].body.__module__ != body.__module__:
            raise TypeError(f"rule '{name}' is declared twice")
        RULES[name] = made
        return made

    return declare


def _parameters(body: Body, operands: Mapping[str, str], more: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Names of operands and attributes: the parameters; ``*operands`` takes the further ones of ``operands``, and
    ``**attrs`` those of ``more_attrs``.
    """
    parameters = inspect.signature(body).parameters.values()
    inputs = [p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        inputs += [name for name in operands if name not in inputs]
    attrs = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    return inputs, (*attrs, *more)


def _check(name: str, before: tuple[Term, ...], operands: Mapping[str, Pattern], attrs: tuple[str, ...]) -> int:
    """The number of op applications in the before side; TypeError where the declaration does not hold together."""
    if before[0].apply is None:
        raise TypeError(f"rule {name}: the before term must apply an op")
    below = list(applies(before[:1]))
    if any(t.apply not in below for t in before):
        raise TypeError(f"rule {name}: every result of the before side must lie below the first")
    terms = [t for a in below for t in a.operands if t is not None and t.apply is None]
    used = {t.name for t in terms}
    if unused := [n for n in operands if n not in used]:
        raise TypeError(f"rule {name}: the before term does not use {', '.join(unused)}")
    values = [v for a in below for v in a.attrs.values()] + [t.value for t in terms if isinstance(t, Splat)]
    bound = {v.name for v in values if isinstance(v, AttrVar)}
    dims = [d for p in operands.values() for d in p or ()]
    bound |= {s.lstrip("*") for d in dims for s in ([d] if isinstance(d, str) else symbols_of(d))}
    if unbound := [a for a in attrs if a not in bound]:
        raise TypeError(f"rule {name}: nothing in the before term binds {', '.join(unbound)}")
    return len(below)

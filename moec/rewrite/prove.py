"""Law tests out of a rule's declaration, and witnesses for a single match.

A law: the before side, as a module of its own, is evaluated; the rule is applied to it by the same matcher and builder
that passes use; the result is evaluated on the same inputs and compared as the exactness class demands, in fp64 and in
the declared dtype.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from moec import eval as reference
from moec.diagnostics import CheckFailed, Refusal
from moec.ir.graph import NOWHERE, Graph, Module
from moec.ir.symbol import Expr, evaluate, symbols_of
from moec.ir.types import DType, TensorType
from moec.rewrite.case import Case
from moec.rewrite.engine import Outcome, build_terms, rewrite
from moec.rewrite.match import Match, Missed, match_at
from moec.rewrite.rule import Rule
from moec.rewrite.term import NoMatch, Term

Arrays = dict[str, np.ndarray]
WITNESS_ELEMENTS = 1 << 16
"""Matches on operands larger than this are not evaluated one by one; the check of the whole module covers them."""
ROUNDINGS = 16
"""How many units in the last place a reassociated result may differ by, relative to the largest magnitude in the
result."""


@dataclass(frozen=True)
class Law:
    """A rule under one case and dtype: an instance to test."""

    rule: Rule
    case: Case
    dtype: str

    @property
    def name(self) -> str:
        return f"{self.rule.name}-{self.dtype}-{self.case.text}"

    def types(self) -> dict[str, TensorType]:
        return self.case.types(self.dtype)

    def module(self) -> Module:
        """The before side as a module, guards not asked."""
        terms = self.rule.pattern_for(self.types(), self.case.for_dtype(self.dtype))
        return module_of(terms, self.types())

    def inputs(self, seed: int) -> Arrays:
        """Random operands: special values too for exact rules on floats, since those must hold for them as well."""
        ranges = {name: (low, high) for name, (_, _, low, high) in self.case.operands.items()}
        return draw(self.types(), seed, self.rule.exactness == "exact", ranges)


def laws(rule: Rule) -> Iterator[Law]:
    """All cases times all dtypes; a case that names every operand's dtype is tried once."""
    for case in rule.cases:
        swept = any(not kind for kind, *_ in case.operands.values()) or "swept" in case.attrs.values()
        for name in rule.dtypes if swept else rule.dtypes[:1]:
            yield Law(rule, case, name)


def module_of(terms: Sequence[Term], types: Mapping[str, TensorType]) -> Module:
    """A module whose ``main`` takes the variables and returns the terms."""
    module = Module()
    graph = module.add(Graph("main"))
    operands = {name: graph.add_input(name, type_) for name, type_ in types.items()}
    built = build_terms(terms, operands, graph, None, NOWHERE)
    graph.set_outputs([built.values[t] for t in terms], [f"out{i}" for i in range(len(terms))])
    return module


def apply_to(rule: Rule, module: Module) -> Outcome:
    """Apply one rule to ``main``."""
    return rewrite(module.main, [rule])


_SPECIAL = (0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 65504.0, 6e-8, -2.5)


def draw(
    types: Mapping[str, TensorType],
    seed: int,
    special: bool,
    ranges: Mapping[str, tuple[float | None, float | None]] | None = None,
) -> Arrays:
    """Operands of ``types`` by name, the same for the same seed: normal floats, small integers, or within a range."""
    rng = np.random.default_rng(seed)
    out: Arrays = {}
    for name, t in types.items():
        low, high = (ranges or {}).get(name, (None, None))
        shape = tuple(evaluate(d, {}) for d in t.dims)
        out[name] = _draw(t.dtype, shape, low, high, special, rng)
    return out


def _draw(
    d: DType, shape: tuple[int, ...], low: float | None, high: float | None, special: bool, rng: np.random.Generator
) -> np.ndarray:
    if d.kind == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if d.is_int:
        low = (-20 if d.kind == "int" else 0) if low is None else low
        return rng.integers(int(low), int(20 if high is None else high) + 1, shape).astype(d.carrier)
    if low is not None and high is not None:
        return rng.uniform(low, high, shape).astype(d.carrier)
    values = np.asarray(rng.normal(0, 2, shape))
    if special and values.size:
        flat = values.reshape(-1)
        at = rng.permutation(flat.size)[: min(len(_SPECIAL), max(1, flat.size // 2))]
        flat[at] = rng.permutation(_SPECIAL)[: len(at)]
    with np.errstate(over="ignore"):
        return values.astype(d.carrier)


def compare(rule: Rule, before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray], fp64: bool) -> str:
    """What differs between two sets of outputs beyond the rule's exactness class; the empty string for nothing."""
    for name, old in before.items():
        new = after[name]
        if old.shape != new.shape or old.dtype != new.dtype:
            return f"{name}: {old.dtype}{list(old.shape)} became {new.dtype}{list(new.shape)}"
        exact = rule.exactness == "exact" or old.dtype.kind in "iub"
        wrong = _bits_differ(old, new) if exact else _far(rule, old, new, fp64)
        if wrong:
            return f"{name}: {wrong}"
    return ""


def _bits_differ(old: np.ndarray, new: np.ndarray) -> str:
    both_nan = (old != old) & (new != new)
    same = old.view(_unsigned(old)) == new.view(_unsigned(new)) if old.size else np.ones(old.shape, bool)
    bad = np.argwhere(~(same | both_nan))
    if not len(bad):
        return ""
    at = tuple(int(i) for i in bad[0])
    return f"{len(bad)} of {old.size} elements are not bit-identical, first at {list(at)}: {old[at]} became {new[at]}"


def _unsigned(a: np.ndarray) -> Any:
    return {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[a.dtype.itemsize]


def _far(rule: Rule, old: np.ndarray, new: np.ndarray, fp64: bool) -> str:
    a, b = old.astype(np.float64), new.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)):
        return "other elements are finite"
    scale = float(np.max(np.abs(a[finite]), initial=0.0)) or 1.0
    error = float(np.max(np.abs(a - b)[finite], initial=0.0)) / scale
    allowed = rule.bound + (1e-12 if fp64 else ROUNDINGS * _epsilon(old))
    return f"relative error {error:.3g}, allowed {allowed:.3g}" if error > allowed else ""


def _epsilon(a: np.ndarray) -> float:
    return float(ml_dtypes.finfo(a.dtype).eps)  # type: ignore[no-untyped-call]


def check_law(law: Law, seeds: Sequence[int]) -> str:
    """Run one law: it must match, and before and after must agree; the empty string, or what is wrong."""
    before, after = law.module(), law.module()
    if not apply_to(law.rule, after).applied:
        return f"the rule does not match its own before side: {why_not(law.rule, law.module())}"
    for seed in seeds:
        inputs = law.inputs(seed)
        for fp64 in (True, False):
            with np.errstate(all="ignore"):
                old, new = (reference.run(m, inputs, fp64=fp64) for m in (before, after))
            if wrong := compare(law.rule, old, new, fp64):
                return f"seed {seed}{', fp64' if fp64 else ''}: {wrong}"
    return ""


def why_not(rule: Rule, module: Module) -> str:
    """The reason of the furthest failed match in ``main``."""
    tried = [match_at(rule, n) for n in module.main if n.op == rule.root.op]
    missed = [m for m in tried if isinstance(m, Missed)]
    return max(missed, key=lambda m: (m.guard, m.matched)).reason if missed else f"no {rule.root.op} in it"


class Witness:
    """A prover for the engine: evaluates both sides of each distinct match on random operands before it is committed.

    Symbols get small sizes. A match on large operands is left to the check of the whole module.
    """

    def __init__(self, seed: int = 0):
        self.seed = seed
        self.known: dict[str, str] = {}

    def __call__(self, match: Match) -> str:
        types = {n: v.type for n, v in match.operands.items()}
        key = f"{match.rule.name} {sorted(types.items())} {sorted(match.attrs.items(), key=lambda i: i[0])}"
        if key not in self.known:
            self.known[key] = self.evaluate(match, types)
        return self.known[key]

    def operands(self, match: Match, types: dict[str, TensorType]) -> Arrays:
        """Operands of ``types`` to evaluate a match on: any, unless a pass knows in which range they lie."""
        return draw(types, self.seed, False)

    def evaluate(self, match: Match, types: dict[str, TensorType]) -> str:
        names = {s for t in types.values() for d in t.dims for s in symbols_of(d)}
        names |= {s for v in match.attrs.values() for s in _symbols(v)}
        env = {name: 3 + zlib.crc32(name.encode()) % 5 for name in sorted(names)}
        shapes = {n: tuple(evaluate(d, env) for d in t.dims) for n, t in types.items()}
        if any(_elements(s) > WITNESS_ELEMENTS or min(s, default=0) < 0 for s in shapes.values()):
            return ""
        sizes = {n: TensorType(t.dtype, shapes[n]) for n, t in types.items()}
        try:
            instance = match.rule.instantiate(sizes, {k: _concrete(v, env) for k, v in match.attrs.items()})
            inputs = self.operands(match, sizes)
            old = reference.run(module_of(instance.before, sizes), inputs)
        except (NoMatch, Refusal, CheckFailed):
            return ""  # sizes that hang together cannot be chosen freely; the check of the whole module covers them
        return compare(match.rule, old, reference.run(module_of(instance.after, sizes), inputs), False)


def _symbols(value: Any) -> list[str]:
    if isinstance(value, tuple):
        return [s for v in value for s in _symbols(v)]
    return list(symbols_of(value)) if isinstance(value, Expr) else []


def _concrete(value: Any, env: Mapping[str, int]) -> Any:
    if isinstance(value, tuple):
        return tuple(_concrete(v, env) for v in value)
    return evaluate(value, env) if isinstance(value, Expr) else value


def _elements(shape: Sequence[int]) -> int:
    return prod(max(d, 1) for d in shape)

"""Matching a rule's before side, rooted at a node, over def-use chains.

The pattern is a DAG: a term that stands twice must meet the same value twice. Commutative ops are tried in both orders
here, so rules never list orders; an order is tried only if both operands can have the shape of their patterns, and a
budget of steps per root keeps even patterns that are symmetric throughout from growing exponentially. A failed match
says why, and blames the nodes where the pattern that got furthest stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from moec.diagnostics import CheckFailed, Diagnosis
from moec.ir.attrs import print_attr
from moec.ir.data import TensorData
from moec.ir.graph import Graph, Node, Value
from moec.ir.types import TensorType
from moec.ops.registry import opdef
from moec.ops.signature import match_shape, pattern_text
from moec.rewrite.rule import Instance, Rule
from moec.rewrite.term import Apply, AttrVar, NoMatch, Splat, Term, applies

STEPS_PER_TERM = 64
"""Budget of a match: this many steps for each op application in the pattern."""

MAY_ESCAPE = ("view", "source")
"""Traits of ops whose values may have other readers though a rule refuses escapes: keeping them costs nothing."""


@dataclass(frozen=True)
class Missed:
    """A match that failed: ``reason``, ``nodes`` to blame, and how many op applications had ``matched`` before."""

    rule: Rule
    reason: str
    nodes: tuple[Node, ...]
    matched: int
    guard: bool = False
    """Whether the whole pattern matched and a guard refused."""


@dataclass(frozen=True)
class Match:
    """A rule matched at ``root``: what operands and attributes are bound to, and the matched ``nodes``, operands
    first."""

    rule: Rule
    root: Node
    operands: Mapping[str, Value]
    attrs: Mapping[str, Any]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    """The values that the before side's results are."""
    instance: Instance


def match(rules: Iterable[Rule], graph: Graph) -> Iterator[Match]:
    """Every place in ``graph`` where one of ``rules`` applies, in execution order; nothing is rewritten."""
    index = RuleIndex(rules)
    for node in graph:
        for rule in index.at(node):
            found = match_at(rule, node)
            if isinstance(found, Match):
                yield found


class RuleIndex:
    """Rules by the op of their root and the ops of its operands, so that a node meets only rules that may match it."""

    def __init__(self, rules: Iterable[Rule]):
        self.table: dict[str, list[tuple[Rule, frozenset[str]]]] = {}
        self.depth = 1
        """The most op applications in a pattern."""
        for rule in rules:
            self.table.setdefault(rule.root.op, []).append((rule, _operand_ops(rule)))
            self.depth = max(self.depth, rule.size)

    def at(self, node: Node) -> Iterator[Rule]:
        """The rules worth trying at ``node``: of those that want ops above their root, at least one is there."""
        entries = self.table.get(node.op)
        if not entries:
            return
        above = {v.producer.op for v in node.operands if v is not None and v.producer is not None}
        for rule, wanted in entries:
            if not wanted or not wanted.isdisjoint(above):
                yield rule


def _operand_ops(rule: Rule) -> frozenset[str]:
    """The ops that the pattern wants directly above its root."""
    terms = [t for t in rule.root.operands if t is not None]
    wanted = ["constant" if isinstance(t, Splat) else t.apply.op if t.apply else "" for t in terms]
    return frozenset(filter(None, wanted))


def match_at(rule: Rule, node: Node) -> Match | Missed:
    """Match one rule with its root at ``node``."""
    return _Matcher(rule, node).run()


@dataclass
class _State:
    """Bindings so far; copied where an order of a commutative op has to be guessed."""

    values: dict[str, Value]
    attrs: dict[str, Any]
    nodes: dict[Apply, Node]

    def copy(self) -> _State:
        return _State(dict(self.values), dict(self.attrs), dict(self.nodes))


Goal = tuple[Term, Value]
Pair = tuple[Term | None, Value | None]


class _Matcher:
    def __init__(self, rule: Rule, root: Node):
        self.rule, self.root = rule, root
        self.steps = STEPS_PER_TERM * rule.size
        self.fits: dict[tuple[Term, Value], bool] = {}
        self.furthest: tuple[int, str, tuple[Node, ...]] = (-1, "", ())

    def run(self) -> Match | Missed:
        term, value = self.rule.before[0], self.root.results[self.rule.before[0].index]
        state = self.solve([(term, value)], _State({}, {}, {}))
        if state is None:
            matched, reason, nodes = self.furthest
            return Missed(self.rule, reason, nodes, max(matched, 0))
        try:
            return self.finish(state)
        except NoMatch as refused:
            blamed = [self.node_of(t, state) for t in refused.terms]
            nodes = tuple(dict.fromkeys(n for n in blamed if n is not None)) or (self.root,)
            return Missed(self.rule, refused.reason, nodes, self.rule.size, guard=True)

    def node_of(self, term: Term, state: _State) -> Node | None:
        """The node that a term stands for: by its variable, or by its op."""
        if term.apply is None:
            value = state.values.get(term.name)
            return None if value is None else value.producer
        same_op = [n for a, n in state.nodes.items() if a.op == term.apply.op]
        return same_op[0] if same_op else None

    def finish(self, state: _State) -> Match:
        attrs = state.attrs
        for name, pattern in self.rule.operands.items():
            type_ = state.values[name].type
            if pattern is None:
                continue
            if type_.shape is None or not match_shape(pattern, type_.shape, attrs):
                raise NoMatch(f"{name} is {type_}, expected {pattern_text(pattern)}")
        attrs = {k.lstrip("*"): v for k, v in attrs.items()}
        types = {n: state.values[n].type for n in self.rule.operands}
        instance = self.instance(types, attrs)
        outputs = tuple(state.nodes[t.apply].results[t.index] for t in self.rule.before if t.apply is not None)
        nodes = tuple(dict.fromkeys(state.nodes[a] for a in applies(self.rule.before)))
        if self.rule.escape == "refuse":
            self.check_escapes(nodes, outputs)
        for old, new in zip(outputs, instance.after, strict=True):
            if self.type_of(new) != old.type:
                raise NoMatch(f"the result would be {new.type}, not {old.type}")
        return Match(self.rule, self.root, state.values, attrs, nodes, outputs, instance)

    def instance(self, types: dict[str, TensorType], attrs: dict[str, Any]) -> Instance:
        """The rule under the match's types and attributes; CheckFailed where its own code fails on them."""
        try:
            made = self.rule.instantiate(types, attrs)
        except (NoMatch, Diagnosis):
            raise
        except StopIteration:
            fault = "it yields no after term"
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
        else:
            if len(made.after) == len(self.rule.before):
                return made
            fault = f"its after side has {len(made.after)} results, its before side {len(self.rule.before)}"
        raise CheckFailed(f"rule {self.rule.name} fails at {self.root.origin}: {fault}")

    def type_of(self, term: Term) -> TensorType:
        """The type of a part of the after side; CheckFailed where the rule built something ill-typed."""
        try:
            return term.type
        except ValueError as error:
            origin = self.root.origin
            raise CheckFailed(f"rule {self.rule.name} builds an ill-typed result at {origin}: {error}") from error

    def check_escapes(self, nodes: Sequence[Node], outputs: Sequence[Value]) -> None:
        inside = set(nodes)
        for node in nodes:
            if opdef(node.op).traits.intersection(MAY_ESCAPE) or node.op == "cast":
                continue
            for value in node.results:
                readers = [] if value in outputs else [u for u in value.uses if u not in inside]
                if readers:
                    raise NoMatch(f"{node.op} inside the pattern is also read by {readers[0].op}")

    def solve(self, goals: list[Goal], state: _State) -> _State | None:
        """Meet all goals, or None. Iterates; recurses only where an order must be guessed."""
        while goals:
            self.steps -= 1
            if self.steps < 0:
                self.fail(state, "the pattern has too many symmetric readings here", self.root)
                return None
            term, value = goals.pop()
            if term.apply is None:
                if not self.bind_leaf(term, value, state):
                    return None
                continue
            node = value.producer
            if term.apply in state.nodes:
                if state.nodes[term.apply] is not node or value.index != term.index:
                    self.fail(state, f"two uses of {term.apply.op} in the pattern are different nodes", node)
                    return None
                continue
            if node is None or not self.enter(term, value, node, state):
                if node is None:
                    self.fail(state, f"expected {term.apply.op}, found an input", *value.uses)
                return None
            pairs = list(zip(term.apply.operands, _padded(node.operands, len(term.apply.operands)), strict=True))
            orders = self.orders(term.apply, pairs)
            for order in orders[:-1]:
                found = self.solve([*goals, *reversed(order)], state.copy())
                if found is not None:
                    return found
            goals.extend(reversed(orders[-1]))
        return state

    def enter(self, term: Term, value: Value, node: Node, state: _State) -> bool:
        """Check op, result, operand count and attributes; bind the node."""
        apply = term.apply
        assert apply is not None
        if node.op != apply.op or value.index != term.index:
            self.fail(state, f"expected {apply.op}, found {node.op}", node)
            return False
        present = [v is not None for v in _padded(node.operands, max(len(apply.operands), len(node.operands)))]
        if present != [t is not None for t in apply.operands] + [False] * (len(present) - len(apply.operands)):
            self.fail(state, f"{node.op} has other optional operands than the pattern", node)
            return False
        for name, wanted in apply.attrs.items():
            if not self.bind_attr(wanted, node.attrs[name], state):
                known = state.attrs[wanted.name] if isinstance(wanted, AttrVar) else wanted
                shown = f"{print_attr(node.attrs[name])}, not {print_attr(known)}"
                self.fail(state, f"attribute {name} of {node.op} is {shown}", node)
                return False
        state.nodes[apply] = node
        return True

    def bind_attr(self, wanted: Any, actual: Any, state: _State) -> bool:
        if isinstance(wanted, AttrVar):
            if wanted.name not in state.attrs:
                state.attrs[wanted.name] = actual
                return True
            wanted = state.attrs[wanted.name]
        return same_attr(wanted, actual)

    def bind_leaf(self, term: Term, value: Value, state: _State) -> bool:
        if isinstance(term, Splat):
            number = splat_value(value)
            if number is None or not self.bind_attr(term.value, number, state):
                self.fail(state, f"expected a constant {term.value}", *_around(value))
                return False
            return True
        known = state.values.setdefault(term.name, value)
        if known is not value:
            self.fail(state, f"the two places of {term.name} are different values", *_around(value))
        return known is value

    def orders(self, apply: Apply, pairs: list[Pair]) -> list[list[Goal]]:
        """The orders of the operands that can fit, or the best one where none can, so that the reason lies deeper."""
        if not self.commutes(apply, pairs):
            return [[(t, v) for t, v in pairs if t is not None and v is not None]]
        ways = [[(t, v) for t, v in way if t is not None and v is not None] for way in (pairs, _swapped(pairs))]
        scores = [sum(self.can_fit(t, v) for t, v in way) for way in ways]
        best = max(scores)
        found = [way for way, score in zip(ways, scores, strict=True) if score == best]
        return found if best == len(pairs) else found[:1]

    @staticmethod
    def commutes(apply: Apply, pairs: Sequence[Pair]) -> bool:
        return len(pairs) == 2 and "commutative" in apply.definition.traits

    def can_fit(self, term: Term, value: Value) -> bool:
        """Whether ``value`` has the ops and literals of ``term``, bindings aside; each pair is worked out once."""
        if isinstance(term, Splat):
            number = splat_value(value)
            return number is not None and (isinstance(term.value, AttrVar) or same_attr(term.value, number))
        if term.apply is None:
            return True
        key = (term, value)
        if key not in self.fits:
            self.fits[key] = self.has_shape(term, term.apply, value)
        return self.fits[key]

    def has_shape(self, term: Term, apply: Apply, value: Value) -> bool:
        node = value.producer
        if node is None or node.op != apply.op or value.index != term.index:
            return False
        literals = ((k, v) for k, v in apply.attrs.items() if not isinstance(v, AttrVar))
        if not all(same_attr(v, node.attrs[k]) for k, v in literals):
            return False
        operands = _padded(node.operands, len(apply.operands))
        if any(v is not None for v in node.operands[len(apply.operands) :]):
            return False
        pairs = list(zip(apply.operands, operands, strict=True))
        ways = [pairs, _swapped(pairs)] if self.commutes(apply, pairs) else [pairs]
        return any(all(self.both_fit(t, v) for t, v in way) for way in ways)

    def both_fit(self, term: Term | None, value: Value | None) -> bool:
        """``can_fit`` for an optional operand: absent on both sides or on neither."""
        if term is None or value is None:
            return term is None and value is None
        return self.can_fit(term, value)

    def fail(self, state: _State, reason: str, *nodes: Node | None) -> None:
        if len(state.nodes) > self.furthest[0]:
            blamed = tuple(n for n in nodes[:3] if n is not None) or (self.root,)
            self.furthest = (len(state.nodes), reason, blamed)


def _around(value: Value) -> tuple[Node, ...]:
    return tuple(value.uses) if value.producer is None else (value.producer,)


def _swapped(pairs: Sequence[Pair]) -> list[Pair]:
    return [(pairs[0][0], pairs[1][1]), (pairs[1][0], pairs[0][1])]


def _padded(operands: Sequence[Value | None], length: int) -> list[Value | None]:
    return [*operands[:length], *[None] * (length - len(operands))]


def same_attr(a: Any, b: Any) -> bool:
    """Equality of attribute values that tells 1 from True and from 1.0, and 0.0 from -0.0; NaN equals NaN."""
    if isinstance(a, float) and isinstance(b, float):
        return np.float64(a).tobytes() == np.float64(b).tobytes() or (a != a and b != b)
    if isinstance(a, (bool, int, float)) or isinstance(b, (bool, int, float)):
        return type(a) is type(b) and a == b
    return bool(a == b)


def splat_value(value: Value) -> bool | int | float | None:
    """The number that all elements of a constant are, bit for bit; None if ``value`` is no such constant."""
    node = value.producer
    if node is None or node.op != "constant":
        return None
    data: TensorData = node.attrs["value"]
    if data.size == 0 or data.dtype.kind not in ("float", "int", "uint", "bool"):
        return None
    return _splat_of(data)


def _splat_of(data: TensorData) -> bool | int | float | None:
    flat = np.ascontiguousarray(data.numpy()).reshape(-1)
    first = flat[:1]
    if flat.size > 1 and flat.view(np.uint8).tobytes() != first.tobytes() * flat.size:
        return None
    if data.dtype.kind == "bool":
        return bool(first[0])
    return float(first[0]) if data.dtype.is_float else int(first[0])

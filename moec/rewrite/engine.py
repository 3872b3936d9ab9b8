"""Applying rules to a function until none applies.

The first round tries every node; a later one only nodes near what the round before changed, so the work is linear in
the graph for rules that come to an end. What a rewrite makes carries the provenance of all that it replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from moec.diagnostics import CheckFailed
from moec.ir.data import ArrayData
from moec.ir.graph import Graph, Node, Origin, Value, merged_origin
from moec.ops.build import make_node
from moec.rewrite.match import Match, Missed, RuleIndex, match_at
from moec.rewrite.rule import Rule
from moec.rewrite.term import Apply, NoMatch, Splat, Term, applies

Prover = Callable[[Match], str]
"""Evaluates both sides of a match on witnesses; the empty string, or what went wrong."""


@dataclass
class Outcome:
    """What a run of rules did: what was applied and the provenance of what it made, misses, and match attempts."""

    applied: list[tuple[Rule, Origin]] = field(default_factory=list)
    missed: list[Missed] = field(default_factory=list)
    attempts: int = 0


class Gate(Protocol):
    """Says how many rules may still be applied."""

    @property
    def open(self) -> bool: ...

    def count(self) -> None: ...


def rewrite(graph: Graph, rules: Iterable[Rule], prover: Prover | None = None, gate: Gate | None = None) -> Outcome:
    """Apply ``rules`` to ``graph`` until none applies or ``gate`` closes; with ``prover`` each match is evaluated
    before it is committed.

    CheckFailed where a rule is wrong for a match, or where rules undo one another without end.
    """
    return _Engine(graph, rules, prover, gate).run()


class _Engine:
    def __init__(self, graph: Graph, rules: Iterable[Rule], prover: Prover | None, gate: Gate | None):
        self.graph, self.prover, self.gate = graph, prover, gate
        self.index = RuleIndex(rules)
        self.limit = 16 * len(graph) + 1000
        self.outcome = Outcome()
        self.missed: dict[tuple[str, Node], Missed] = {}

    def run(self) -> Outcome:
        work: Iterable[Node] = self.graph
        while True:
            seeds: dict[Node, None] = {}
            for node in work:
                self.visit(node, seeds)
            if not seeds:
                break
            work = self.near(seeds)
        self.outcome.missed = [m for (_, root), m in self.missed.items() if root.graph is not None]
        return self.outcome

    def visit(self, node: Node, seeds: dict[Node, None]) -> None:
        """Try all rules at ``node`` and at whatever they make there."""
        stack = [node]
        while stack:
            root = stack.pop()
            if root.graph is not self.graph:
                continue
            for rule in self.index.at(root):
                made = self.attempt(rule, root, seeds)
                if made is not None:
                    stack.extend(reversed(made))
                    break

    def attempt(self, rule: Rule, root: Node, seeds: dict[Node, None]) -> list[Node] | None:
        self.outcome.attempts += 1
        found = match_at(rule, root)
        if isinstance(found, Match):
            if self.gate is not None and not self.gate.open:
                return None
            try:
                made = apply_match(found, self.graph, self.prover)
            except NoMatch as refused:
                found = Missed(rule, refused.reason, (root,), rule.size, guard=True)
            else:
                self.applied(found, made, seeds)
                return made
        if rule.size > 1 and (found.guard or found.matched >= max(3, rule.size - 1)):
            self.missed[rule.name, root] = found
        return None

    def applied(self, found: Match, made: list[Node], seeds: dict[Node, None]) -> None:
        if self.gate is not None:
            self.gate.count()
        self.outcome.applied.append((found.rule, merged_origin(found.nodes, found.rule.name)))
        if len(self.outcome.applied) > self.limit:
            last = ", ".join(r.name for r, _ in self.outcome.applied[-4:])
            raise CheckFailed(f"rules undo one another without end in function {self.graph.name}: {last}, ...")
        seeds.update(dict.fromkeys(made))
        for value in found.operands.values():
            seeds.update(dict.fromkeys(value.uses))
            if value.producer is not None:
                seeds[value.producer] = None

    def near(self, seeds: dict[Node, None]) -> list[Node]:
        """The nodes that read, over at most as many steps as a pattern is deep, what ``seeds`` make."""
        level = [n for n in seeds if n.graph is self.graph and n is not self.graph.ret]
        reached = dict.fromkeys(level)
        for _ in range(self.index.depth - 1):
            following = [u for n in level for v in n.results for u in v.uses if u is not self.graph.ret]
            level = [u for u in dict.fromkeys(following) if u not in reached]
            if not level:
                break
            reached.update(dict.fromkeys(level))
        return list(reached)


def apply_match(match: Match, graph: Graph, prover: Prover | None = None) -> list[Node]:
    """Replace what ``match`` matched; the new nodes. NoMatch where the results are needed before the root stands."""
    if prover is not None and (wrong := prover(match)):
        raise CheckFailed(f"rule {match.rule.name} changes results at {match.root.origin}: {wrong}")
    move = _readers_before_root(match)
    origin = merged_origin(match.nodes, match.rule.name)
    made = build_terms(match.instance.after, match.operands, graph, match.root, origin)
    for old, term in zip(match.outputs, match.instance.after, strict=True):
        new = made.values[term]
        old.replace_with(new)
        if new.producer in made.nodes and not new.name:
            new.name = old.name
    anchor = match.root.next
    for node in move:
        graph.move(node, anchor)
    for node in reversed(match.nodes):
        if not any(v.uses for v in node.results):
            graph.erase(node)
    return made.nodes


@dataclass
class Built:
    """Terms made real: the value of each output term, and the new nodes in order."""

    values: dict[Term, Value]
    nodes: list[Node]


def build_terms(
    terms: Sequence[Term], operands: Mapping[str, Value], graph: Graph, before: Node | None, origin: Origin
) -> Built:
    """Build ``terms`` before a node; variables stand for ``operands`` by name, numbers become constants."""
    made: dict[Apply, Node] = {}
    constants: dict[tuple[str, str], Node] = {}
    nodes: list[Node] = []

    def value_of(term: Term) -> Value:
        if isinstance(term, Splat):
            dtype = term.type.dtype
            key = dtype.name, repr(term.value)
            if key not in constants:
                data = ArrayData(np.array(term.value).astype(dtype.carrier), dtype)
                constants[key] = graph.insert(make_node("constant", [], {"value": data}, origin), before)
                nodes.append(constants[key])
            return constants[key].result
        if term.apply is None:
            return operands[term.name]
        return made[term.apply].results[term.index]

    for apply in applies(terms):
        inputs = [None if t is None else value_of(t) for t in apply.operands]
        try:
            node = make_node(apply.op, inputs, apply.attrs, origin)
        except ValueError as error:
            raise CheckFailed(f"a rewrite built an ill-typed {apply.op} at {origin}: {error}") from error
        made[apply] = graph.insert(node, before)
        nodes.append(node)
    return Built({t: value_of(t) for t in terms}, nodes)


def _readers_before_root(match: Match) -> list[Node]:
    """Nodes between the first result and the root that need a result, to be moved behind the root; in order.

    NoMatch if an operand of the match is among what depends on its own results.
    """
    if len(match.outputs) == 1:
        return []
    window: list[Node] = []
    wanted = {v.producer for v in match.outputs}
    node: Node | None = match.root
    while node is not None and wanted:
        window.append(node)
        wanted.discard(node)
        node = node.prev
    tainted = set(match.outputs)
    move: list[Node] = []
    for node in reversed(window):
        if node is not match.root and any(v in tainted for v in node.operands if v is not None):
            tainted.update(node.results)
            move.append(node)
    if any(v in tainted for v in match.operands.values()):
        raise NoMatch("an operand of the pattern depends on one of its results")
    return move

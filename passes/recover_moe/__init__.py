"""Mixture-of-experts blocks in whatever spelling an exporter gave them, recovered as one canonical ``moe`` node.

For each top-k, or choice of the best, by a router's scores: what tensors mean is followed forward from the choice
(``interpret`` and the ``*_rules``), until a tensor means "per token, the sum over its experts". How the experts compute
is then read from that (``ffn``), how they are chosen and weighted from the router (``router``, ``weighting``), and the
whole is evaluated on random tokens (``witness``) before it takes the place of the nodes. Nothing is taken from names,
and what only looks like such a block stays as it is and is reported with the reason, as does one whose products would
be computed a second time for what else reads them (``escapes``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moec.ir.graph import Graph, Module, Node, Value, merged_origin
from moec.ir.symbol import Expr, symbols_of
from moec.ops.build import Builder
from moec.passes.base import Context, Pass, Result, register_pass
from moec.passes.recover_moe import index_rules, move_rules, row_rules, step_rules
from moec.passes.recover_moe.assemble import Block, Incomplete, assembled
from moec.passes.recover_moe.axes import Atom, Axes, feature
from moec.passes.recover_moe.chain import NoRouter
from moec.passes.recover_moe.contents import Abstract, Combined, Expert, Route, Row, X, every_count
from moec.passes.recover_moe.escapes import computed_twice
from moec.passes.recover_moe.ffn import NoExpert
from moec.passes.recover_moe.interpret import OUTSIDE, UNKNOWN, Interpreter
from moec.passes.recover_moe.retold import epsilon_of
from moec.passes.recover_moe.router import Router, find_router
from moec.passes.recover_moe.static import Statics, weight_parameters
from moec.passes.recover_moe.witness import Mismatch, check, region

_RULES = (index_rules, move_rules, row_rules, step_rules)
SHOWN = 4
"""Nodes that a near miss blames at most."""

UNTOLD = (OUTSIDE, UNKNOWN)
"""Reasons that say nothing by themselves."""


@register_pass
class RecoverMoE(Pass):
    """Recover mixture-of-experts blocks as one ``moe`` node each, whatever way they are spelt."""

    name = "recover-moe"

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        number = 0
        parameters = weight_parameters(module)
        for graph in module.functions.values():
            order = {n: i for i, n in enumerate(graph)}
            statics = Statics(parameters)
            choices = [n for n in graph if n.op in ("topk", "gating", "argmax")]
            for topk in sorted(choices, key=lambda n: n.op != "gating"):
                if topk.graph is not graph:
                    continue
                try:
                    router = find_router(topk, statics)
                except NoRouter as reason:
                    result.miss(self.name, str(reason), _blamed(topk, [reason.node]), graph)
                    continue
                if router is not None:
                    attempt = _Attempt(module, graph, order, statics, router)
                    number += attempt.recover(result, f"moe{number}")
        if result.changed:
            _forget_symbols(module)
        return result


class _Attempt:
    """The recovery of one router's block."""

    def __init__(self, module: Module, graph: Graph, order: Mapping[Node, int], statics: Statics, router: Router):
        self.module, self.graph, self.order, self.statics, self.router = module, graph, order, statics, router
        self.x, self.lead = _token_source(router.tokens)
        tokens = tuple(a for axis in self.lead for a in axis)
        self.interpreter = Interpreter(order, statics, tokens, router.top_k, router.expert_count)

    def recover(self, result: Result, prefix: str) -> bool:
        """Put the canonical node in place of the block, or report why not."""
        topk = self.router.topk
        blame: list[Node] = [topk]
        try:
            y, combined = self._find()
            blame = _blamed(topk, [y.producer])
            block = assembled(self.router, combined, self.statics)
            nodes = region([y], self.x, self.order, self.statics.parameters)
            twice = computed_twice(nodes, y, self._product())
            if twice is not None:
                raise NoExpert(twice)
            check(nodes, y, self.x, block, self.module.symbols, self.interpreter.unstated)
        except _NotFound as missing:
            result.miss(RecoverMoE.name, str(missing), _blamed(topk, missing.nodes), self.graph)
            return False
        except Incomplete as reason:
            why = [f"{n.op} ({n.origin}): {told}" for n, told in self._told() if told not in UNTOLD]
            result.miss(RecoverMoE.name, "; ".join([str(reason), *why[:1]]), blame, self.graph)
            return False
        except (NoExpert, Mismatch) as reason:
            result.miss(RecoverMoE.name, str(reason), blame, self.graph)
            return False
        except NoRouter as reason:
            result.miss(RecoverMoE.name, str(reason), _blamed(topk, [reason.node]), self.graph)
            return False
        self._commit(y, block, nodes, result, prefix)
        return True

    def _find(self) -> tuple[Value, Combined]:
        """The first value that is the whole sum over the experts, a shared expert included."""
        i = self.interpreter
        indices = self.router.indices
        i.start(self.x, Abstract((*self.lead, feature(self.x.type.dims[-1])), Row(X)))
        rank = indices.type.rank - (0 if self.router.one else 1)
        spread = rank > 1
        if spread and len(self.lead) != rank:
            raise _NotFound(self.router, [])
        lead = self.lead if spread else (i.tokens,)
        chosen = lead if self.router.one else (*lead, i.choices)
        i.start(indices, Abstract(chosen, Expert()))
        if not self.router.one:
            values, _, *counts = self.router.topk.results
            i.start(values, Abstract(chosen, Route(values)))
            for value in counts:
                i.start(value, Abstract((feature(i.expert_count),), every_count(i.expert_count)))
        for user in list(indices.uses):
            if user.op == "gather_elements" and user.operand(1) is indices:
                i.start(user.result, Abstract(chosen, Route(user.result)))
        self._start_sums(lead)
        i.run()
        found = [(v, m.content) for v, m in i.meaning.items() if isinstance(m.content, Combined)]
        typed = [(v, c) for v, c in found if v.type.dtype is self.x.type.dtype and self._whole(c)]
        if not typed:
            raise _NotFound(self.router, self._told())
        whole = max((c for _, c in typed), key=_extent)
        same = [v for v, c in typed if _extent(c) == _extent(whole) and c.shared is whole.shared]
        return min(same, key=self._position), whole

    def _whole(self, found: Combined) -> bool:
        """Whether what multiplies the sum, if anything, belongs to the block."""
        if found.factor is None:
            return True
        told = self.router.told
        return told is not None and epsilon_of(found.factor, told[1], self.statics) is not None

    def _start_sums(self, lead: Axes) -> None:
        """The largest score of a choice of one is its weight; the sum of the chosen scores that an operator was told
        is something of each token."""
        told = self.router.told
        op, source = ("reduce_max", self.router.scores) if told is None else ("reduce_sum", told[1])
        if told is None and not self.router.one:
            return
        for user in list(source.uses):
            if user.op == op and user.attrs["axes"] == (source.type.rank - 1,):
                axes = (*lead, ()) if user.attrs["keepdims"] else lead
                self.interpreter.start(user.result, Abstract(axes, Route(user.result, per_token=told is not None)))

    def _product(self) -> Node | None:
        """The router's own product."""
        node = self.router.logits.producer
        while node is not None and node.op in ("reshape", "cast", "add"):
            node = node.operand(0).producer
        return node

    def _told(self) -> list[tuple[Node, str]]:
        """Where the meaning was lost after the choice, the router's own nodes left out."""
        choice = self.order[self.router.topk]
        return [(n, why) for n, why in self.interpreter.lost if self.order[n] > choice]

    def _position(self, value: Value) -> int:
        return -1 if value.producer is None else self.order[value.producer]

    def _commit(self, y: Value, block: Block, nodes: list[Node], result: Result, prefix: str) -> None:
        """Replace ``y``, take out what nobody reads any more, and let other readers of the logits read the block's."""
        assert y.producer is not None
        telling = sorted(nodes, key=lambda n: n.op in ("constant", "weight"))
        origin = merged_origin([self.router.topk, *telling], RecoverMoE.name)
        b = Builder(self.graph, y.producer, origin)
        made = block.build(b, self.x, prefix)
        new, logits = made.results
        new.name = y.name
        for user in list(y.uses):
            if user.op == "reshape" and user.attrs["shape"] == new.type.dims:
                user.result.replace_with(new)
                self.graph.erase(user)
        if y.uses:
            y.replace_with(new if new.type.dims == y.type.dims else b.reshape(new, shape=y.type.dims))
        _erase_dead(self.graph, nodes)
        old = self.router.logits
        if old.uses and old.type == logits.type and all(self._after(user, y) for user in old.uses):
            old.replace_with(logits)
            _erase_dead(self.graph, nodes)
        result.apply(RecoverMoE.name, origin, self.graph)

    def _after(self, user: Node, y: Value) -> bool:
        return user is self.graph.ret or self.order.get(user, -1) > self._position(y)


def _blamed(topk: Node, nodes: Sequence[Node | None]) -> list[Node]:
    """The choice, which names the block, and what is to blame."""
    return list(dict.fromkeys([topk, *(n for n in nodes if n is not None)]))


class _NotFound(Exception):
    """No value is the sum over a router's experts; ``nodes`` are where the meaning was lost."""

    def __init__(self, router: Router, lost: list[tuple[Node, str]]):
        told = [(n, why) for n, why in lost if why != OUTSIDE] or lost
        self.nodes = [n for n, _ in told[:SHOWN]]
        where = "; ".join(f"{n.op} ({n.origin}): {why}" for n, why in told[:SHOWN]) or "nothing reads the choice"
        super().__init__(
            f"a router chooses {router.top_k} of {router.expert_count} experts, but no sum over them was found: {where}"
        )


def _extent(sum_: Combined) -> tuple[int, bool, bool, bool]:
    """How much of a block a sum is."""
    return len(sum_.parts), sum_.weighed, sum_.shared is not None, sum_.factor is not None


def _token_source(tokens: Value) -> tuple[Value, Axes]:
    """What the router's tokens [T, H] are a reshape of, and its leading axes; one of size 1 counts nothing."""
    hidden = tokens.type.dims[-1]
    source = tokens
    while source.producer is not None and (source.producer.op == "reshape" or _widens(source.producer)):
        inner = source.producer.operand(0)
        if inner.type.shape is None or not inner.type.shape or inner.type.dims[-1] != hidden:
            break
        source = inner
    lead = source.type.dims[:-1]
    axes = tuple(() if d == 1 else (Atom("token", j, d),) for j, d in enumerate(lead))
    return source, axes if any(axes) else (*axes[:-1], (Atom("token", 0, 1),))


def _widens(node: Node) -> bool:
    """Whether it holds the same numbers in more bits, as a router does that computes in f32."""
    if node.op != "cast":
        return False
    before, after = node.operand(0).type.dtype, node.result.type.dtype
    return before.is_float and after.is_float and before.bits < after.bits


def _erase_dead(graph: Graph, nodes: list[Node]) -> None:
    for node in reversed(nodes):
        if node.graph is graph and not any(v.uses for v in node.results):
            graph.erase(node)


def _forget_symbols(module: Module) -> None:
    """Drop symbols that nothing mentions any more."""
    used: set[str] = set()
    for graph in module.functions.values():
        types = [v.type for v in graph.inputs] + [v.type for n in graph for v in n.results]
        used.update(s for t in types for d in t.shape or () for s in symbols_of(d))
        for node in graph:
            for value in node.attrs.values():
                dims = value if isinstance(value, tuple) else (value,)
                used.update(s for d in dims if isinstance(d, Expr) for s in symbols_of(d))
    for name in [s for s in module.symbols if s not in used]:
        del module.symbols[name]

"""Routing weights before the down-projection, so that the experts' outputs are not saved for backward.

Without an output bias, sum over k of w W2 a = sum over k of W2 (w a). Weighting the outputs needs them in backward
(dw = <dy, W2 a>); weighting the activations a does not: dw = <W2^T dy, a>, and a is there for dW2 anyway. The outputs
are the widest rows of a block (Megatron calls this memory-efficient permutation, arXiv 2603.07685).

Forward: ``prob-placement`` moves the weights; the product is taken in f32 and rounded once, autodiff does the rest. In
the joint graph ``prob-placement-product`` makes that product again rather than save it. A joint graph of outputs that
are weighted is placed in backward alone: ``prob-placement-weights`` takes the weights' gradient from the activations,
``prob-placement-input`` moves the weights behind the gradient by the down-projection, which the first wants unweighted.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from moec.ir.graph import Graph, Module, Node
from moec.ir.types import F32, DType
from moec.passes.base import Context, Result, register_pass
from moec.passes.cse import attr_key
from moec.passes.price import price
from moec.passes.rule_pass import RulePass, run_rules, witness_prover
from moec.rewrite.engine import Prover
from moec.rewrite.match import Match
from moec.rewrite.prove import module_of
from moec.rewrite.rule import FLOATS, Rule, miss, near, rule
from moec.rewrite.term import NoMatch, T, Term, require, splat

_BLOCK = "x: [{t}, 3]; experts: i32[{t}, {k}] in 0..{last}; counts: i32[{e}] in {each}..{each}; h: [{s}, 5]; "
_BLOCK += "down: [{e}, {out}, 5]; weights: {w}[{t}, {k}]"
_OPERANDS = {
    "x": "[T, C]",
    "experts": "[T, K]",
    "counts": "[E]",
    "h": "[S, I]",
    "down": "[E, N, I]",
    "weights": "[T, K]",
}


def _case(t: int, k: int, e: int, w: str = "", out: int = 6, more: str = "") -> str:
    s = t * k
    return _BLOCK.format(t=t, k=k, e=e, s=s, last=e - 1, each=s // e, w=w, out=out) + more


def _as(x: Term, dtype: DType) -> Term:
    found: Term = x if x.dtype is dtype else T.cast(x, to=dtype)
    return found


def _weighted(rows: Term, weights: Term) -> Term:
    """Rows times a weight each, in f32 and rounded once."""
    return _as(_as(rows, F32) * _as(weights, F32), rows.dtype)


def _down(rows: Term, down: Term, counts: Term, *, transpose: bool = True, bias: Term | None = None) -> Term:
    made: Term = T.grouped_matmul(rows, down, counts, bias, transpose_weight=transpose)
    return made


@rule(
    "prob-placement",
    exactness="reassociated",
    why="a product without a bias is linear in the activation that the weight scales",
    operands=_OPERANDS,
    cases=[_case(3, 2, 3), _case(3, 2, 3, "f32"), _case(1, 1, 1), _case(5, 1, 5, "bf16"), _case(2, 4, 2)],
    near=[near("are no wider than", _case(3, 2, 3, out=5))],
)
def forward(x: Term, experts: Term, counts: Term, h: Term, down: Term, weights: Term) -> Iterator[Any]:
    at = T.permute(x, experts, counts)[1]
    outputs = _down(h, down, counts)
    yield T.unpermute(outputs, at, weights)
    wide, inner = outputs.shape[1], h.shape[1]
    require(_may_exceed(wide, inner), f"the outputs [S, {wide}] are no wider than the activations [S, {inner}]", down)
    slots = (weights.shape[0] * weights.shape[1], 1)
    each = T.permute(T.reshape(weights, shape=slots), T.reshape(experts, shape=slots), counts)[0]
    yield T.unpermute(_down(_weighted(h, each), down, counts), at, None)
    bias = T.reduce_sum(down, axes=(2,), keepdims=False)
    yield miss("the down-projection has a bias", T.unpermute(_down(h, down, counts, bias=bias), at, weights))
    yield miss("something else happens to the outputs", T.unpermute(T.tanh(outputs), at, weights))
    yield miss("the weights are applied already", T.unpermute(outputs, at, None))
    yield miss("the rows are not summed as they were sorted", T.unpermute(outputs, experts, weights))


def _may_exceed(wide: Any, inner: Any) -> bool:
    return wide > inner if isinstance(wide, int) and isinstance(inner, int) else wide != inner


_SAVED = '; dy: [{t}, {out}]; at_name = "a"; out_name = "b"; h_name = "c"; groups_name = "d"'


def _joint(t: int, k: int, e: int, w: str = "", out: int = 6, to: str = "none") -> str:
    return _case(t, k, e, w, out, _SAVED.format(t=t, out=out) + f"; to = {to}")


def _backward_weights(mixed: bool) -> Rule:
    """The rule for weights of the rows' dtype, or of another: 16-bit rows were rounded elsewhere then than their f32
    gradient tells.
    """
    cases = [_joint(3, 2, 2, "f32", to="!f32"), _joint(5, 1, 5, "f32")]
    own = [_joint(3, 2, 3), _joint(1, 1, 1), _joint(4, 2, 2, to="!f32")]

    @rule(
        "prob-placement-weights" + ("-mixed" if mixed else ""),
        exactness="approximate" if mixed else "reassociated",
        bound=2.0**-6 if mixed else 0.0,
        why="<dy, W2 a> is <W2^T dy, a>" + ("; each is rounded to 16 bit before the product" if mixed else ""),
        operands={**_OPERANDS, "dy": "[T, N]"},
        cases=cases if mixed else own,
        dtypes=("bf16", "f16") if mixed else FLOATS,
        near=[near("the weights are", own[0])] if mixed else [near("the weights are", _joint(3, 2, 3, "bf16"))],
    )
    def backward_weights(
        x: Term,
        experts: Term,
        counts: Term,
        h: Term,
        down: Term,
        weights: Term,
        dy: Term,
        *,
        at_name: str,
        out_name: str,
        h_name: str,
        groups_name: str,
        to: DType | None,
    ) -> Iterator[Any]:
        at = T.save(T.permute(x, experts, counts)[1], name=at_name)
        rows, groups = T.save(h, name=h_name), T.save(counts, name=groups_name)
        outputs = _down(h, down, counts)
        drows, dweights = T.unpermute_grad(dy, T.save(outputs, name=out_name), at, weights)
        yield T.grouped_matmul_dw(drows, rows, groups, to=to), drows, dweights
        require(
            (weights.dtype is not h.dtype) == mixed, f"the weights are {weights.dtype}, the rows {h.dtype}", weights
        )
        moved = T.unpermute_grad(dy, None, at, weights)[0]
        back = _down(T.unpermute_grad(dy, None, at, None)[0], down, groups, transpose=False)
        each = T.reduce_sum(_as(back, F32) * _as(rows, F32), axes=(1,), keepdims=False)
        yield T.grouped_matmul_dw(moved, rows, groups, to=to), moved, _as(T.gather(each, at, axis=0), weights.dtype)
        bias = T.reduce_sum(down, axes=(2,), keepdims=False)
        for reason, other in (
            ("the down-projection has a bias", _down(h, down, counts, bias=bias)),
            ("something else happens to the outputs", T.tanh(outputs)),
        ):
            made = T.unpermute_grad(dy, T.save(other, name=out_name), at, weights)[0]
            yield miss(reason, T.grouped_matmul_dw(made, rows, groups, to=to))

    return backward_weights


_BACKWARD_WEIGHTS = [_backward_weights(mixed) for mixed in (False, True)]


@rule(
    "prob-placement-input",
    exactness="reassociated",
    why="W2^T (w dy) is w (W2^T dy)",
    operands={"dy": "[T, N]", "at": "[T, K]", "weights": "[T, K]", "down": "[E, N, I]", "groups": "[E]"},
    cases=[
        "dy: [3, 6]; at: i32[3, 2] in 0..5; weights: [3, 2]; down: [2, 6, 5]; groups: i32[2] in 3..3",
        "dy: [3, 6]; at: i32[3, 2] in 0..5; weights: f32[3, 2]; down: [3, 6, 5]; groups: i32[3] in 2..2",
        "dy: [1, 6]; at: i32[1, 1] in 0..0; weights: bf16[1, 1]; down: [1, 6, 2]; groups: i32[1] in 1..1",
    ],
)
def backward_input(dy: Term, at: Term, weights: Term, down: Term, groups: Term) -> Iterator[Any]:
    yield _down(T.unpermute_grad(dy, None, at, weights)[0], down, groups, transpose=False)
    ones = T.expand(splat(1.0, F32), shape=(dy.shape[0], 1))
    each = T.unpermute_grad(ones, None, at, weights)[0]
    yield _weighted(_down(T.unpermute_grad(dy, None, at, None)[0], down, groups, transpose=False), each)
    yield miss("there are no weights", _down(T.unpermute_grad(dy, None, at, None)[0], down, groups, transpose=False))


def _backward_product(rows16: bool, weights16: bool) -> Rule:
    """The weighted activations made again from their parts, where rows or weights have 16 bit or f32."""
    name = "prob-placement-product" + ("" if rows16 else "-f32-rows") + ("-16-bit-weights" if weights16 else "")
    each = "bf16" if weights16 else "f32"
    sizes = 'drows: {d}[6, 5]; h: {d}[6, 4]; each: {w}[6, 1]; groups: i32[{e}] in {c}..{c}; name = "a"; to = {to}'
    sizes += "; rounded = !{d}" if rows16 else ""

    @rule(
        name,
        exactness="exact",
        why="the same product of values that the gradients of its parts read anyway",
        operands={"drows": "[S, N]", "h": "[S, I]", "each": "[S, 1]", "groups": "[E]"},
        cases=[
            sizes.format(d="bf16" if rows16 else "f32", w=each, e=2, c=3, to="none"),
            sizes.format(d="f16" if rows16 else "f32", w=each, e=3, c=2, to="!f32"),
        ],
        more_attrs=("rounded",) if rows16 else (),
    )
    def backward_product(
        drows: Term, h: Term, each: Term, groups: Term, *, name: str, to: DType | None, **more: DType
    ) -> Iterator[Any]:
        def product(h: Term, each: Term) -> Term:
            wide = (T.cast(h, to=F32) if rows16 else h) * (T.cast(each, to=F32) if weights16 else each)
            made: Term = T.cast(wide, to=more["rounded"]) if rows16 else wide
            return made

        yield T.grouped_matmul_dw(drows, T.save(product(h, each), name=name), groups, to=to)
        saved = product(T.save(h, name=f"{name}.rows"), T.save(each, name=f"{name}.weights"))
        yield T.grouped_matmul_dw(drows, saved, groups, to=to)
        yield miss("it is not saved", T.grouped_matmul_dw(drows, product(h, each), groups, to=to))

    return backward_product


_PRODUCTS = [_backward_product(r, w) for w in (True, False) for r in (True, False)]


@register_pass
class ProbPlacement(RulePass):
    """Apply routing weights before the down-projection instead of behind it, so that the experts' outputs need not be
    saved: in forward, or in the backward of a joint graph. Where a target is given, only if this adds less time than
    computing the outputs again in backward would take, the other way not to save them.

    A layer that a joint graph calls as a function is placed before it is differentiated.
    """

    name = "prob-placement"

    @classmethod
    def rules(cls) -> list[Rule]:
        return [forward, *_BACKWARD_WEIGHTS, backward_input, *_PRODUCTS]

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        prover = _Cheaper(context, witness_prover(context))
        for graph in module.functions.values():
            joint = any(n.op == "save" for n in graph)
            placed = run_rules(_BACKWARD_WEIGHTS if joint else [forward], graph, context, result, prover)
            if placed and joint:
                run_rules([backward_input], graph, context, result)
            if joint:
                placed |= run_rules(_PRODUCTS, graph, context, result, prover)
            if placed:
                _merge(graph)
        return result


class _Cheaper:
    """Refuses matches that add more time than the grouped product in them takes (of the outputs, or that reads the
    weighted activations), and those in forward whose outputs others read, so that they would be computed twice; then
    asks ``then``.

    What the after side writes down again of the before side counts nothing, since it is merged with it; neither does
    the gradient by the down-projection, which ``prob-placement-input`` shares.
    """

    def __init__(self, context: Context, then: Prover | None):
        self.context, self.then = context, then

    def __call__(self, match: Match) -> str:
        product = [n for n in match.nodes if n.op == "grouped_matmul"] or [match.root]
        others = [u.op for n in product for u in n.result.uses if u is not match.root]
        if match.rule is forward and others:
            raise NoMatch(f"the outputs are also read by {', '.join(dict.fromkeys(others))}")
        after = module_of(match.instance.after, {name: v.type for name, v in match.operands.items()}).main
        shared = [n for n in after if n.op == "permute" and n.operand(0) is after.inputs[0]]
        if match.rule in _BACKWARD_WEIGHTS:
            shared += [n for n in after if n.op == "grouped_matmul"]
        old = price([n for n in match.nodes if n.op != "permute"], self.context)
        new = price([n for n in after if n not in shared], self.context)
        again = price(product, self.context)
        if old is not None and new is not None and again is not None and new - old > again:
            raise NoMatch(
                f"on {self.context.target.name} it would add {new - old:.1f} us, and the grouped product, which could "
                f"be computed again in backward, takes {again:.1f} us"
            )
        return self.then(match) if self.then is not None else ""


_MERGED = ("cast", "constant", "expand", "grouped_matmul", "permute", "reshape", "save", "unpermute_grad")
"""Ops that the rules write down again."""


def _merge(graph: Graph) -> None:
    """Let what the rules wrote down again be the node that was there, put saves right behind what they save, and erase
    what nobody reads any more.
    """
    seen: dict[Hashable, Node] = {}
    for node in list(graph):
        if node.op not in _MERGED:
            continue
        first = seen.setdefault(_key(node), node)
        if not any(r.startswith(ProbPlacement.name) for r in node.origin.rewrites):
            continue
        if first is not node:
            for old, new in zip(node.results, first.results, strict=True):
                old.replace_with(new)
            graph.erase(node)
        elif node.op == "save":
            producer = node.operand(0).producer
            if producer is not None:
                graph.move(node, producer.next)
            node.result.name = node.attrs["name"]
    for node in reversed(graph):
        if node.op in _MERGED and not any(v.uses for v in node.results):
            graph.erase(node)


def _key(node: Node) -> Hashable:
    """What equal nodes have in common; a value is saved once, whatever the save is called."""
    attrs = () if node.op == "save" else tuple((k, attr_key(v)) for k, v in node.attrs.items())
    return node.op, tuple(node.operands), attrs

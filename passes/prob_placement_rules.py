"""The rules that put routing weights before the down-projection, in forward and in the backward of a joint graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moec.ir.types import F32, DType
from moec.rewrite.rule import FLOATS, Rule, miss, near, rule
from moec.rewrite.term import T, Term, require, splat

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
        sibling = "prob-placement-weights" + ("" if mixed else "-mixed")
        require(
            (weights.dtype is not h.dtype) == mixed,
            f"the weights are {weights.dtype}, the rows {h.dtype}: that is for {sibling}",
            weights,
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


BACKWARD_WEIGHTS = [_backward_weights(mixed) for mixed in (False, True)]


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


PRODUCTS = [_backward_product(r, w) for w in (True, False) for r in (True, False)]

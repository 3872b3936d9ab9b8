"""The same on products: what was put together along the summed dimension is multiplied apart and added, what was put
together along a kept one and cut again is multiplied alone, and a sum over heads moves into the product, which need not
be transposed first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from moec.ir.symbol import Dim
from moec.ir.types import F32, DType
from moec.rewrite.rule import Rule, miss, near, rule
from moec.rewrite.term import T, Term, require


def _product(shared: str) -> Rule:
    """matmul(concat(a, b), concat(c, d)^T). ``shared``: "" or which of c and d is one head expanded to all."""
    first = {"": "[2, 3, 4, 5]", "second": "[2, 3, 4, 5]", "first": "[2, 1, 4, 5]"}[shared]
    second = {"": "[2, 3, 4, 2]", "second": "[2, 1, 4, 2]", "first": "[2, 3, 4, 2]"}[shared]
    wide = {"": "", "second": "; wide = [2, 3, 4, 2]", "first": "; wide = [2, 3, 4, 5]"}[shared]

    def of(
        a: str = "[2, 3, 6, 5]",
        b: str = "[2, 3, 6, 2]",
        c: str = first,
        d: str = second,
        w: str = wide,
        left: int = 3,
        right: int = 3,
    ) -> str:
        return f"a: {a}; b: {b}; c: {c}; d: {d}{w}; left = {left}; right = {right}; to = none"

    uneven = {
        "first": of(c=first.replace("5]", "4]"), d=second.replace("2]", "3]"), w="; wide = [2, 3, 4, 4]"),
        "second": of(c=first.replace("5]", "4]"), d=second.replace("2]", "3]"), w="; wide = [2, 3, 4, 3]"),
        "": of(c=first.replace("5]", "4]"), d=second.replace("2]", "3]")),
    }[shared]

    @rule(
        "product-of-concats" + (f"-{shared}-shared" if shared else ""),
        exactness="reassociated",
        why="the products of the parts add up to the product of the whole",
        cases=[of()],
        near=[
            near("cut at 5 and 4", uneven),
            near("along 2 and 3", of(a="[2, 3, 2, 7]", b="[2, 3, 4, 7]", left=2)),
        ],
        more_attrs=["wide"] if shared else [],
    )
    def product(
        a: Term, b: Term, c: Term, d: Term, *, left: int, right: int, to: DType | None, **more: Any
    ) -> Iterator[Any]:
        keys = [T.expand(x, shape=more["wide"]) if shared == n else x for n, x in (("first", c), ("second", d))]
        x = T.concat(a, b, axis=left)
        whole = T.matmul(x, T.concat(*keys, axis=right), transpose_a=False, transpose_b=True, to=to)
        yield whole
        last = (left, right) == (a.rank - 1, c.rank - 1)
        require(last, f"the factors are put together along {left} and {right}", a, c)
        cut = (a.shape[-1], b.shape[-1]) == (c.shape[-1], d.shape[-1])
        require(cut, f"the factors are cut at {a.shape[-1]} and {c.shape[-1]}", a, c)
        wide = F32 if whole.dtype.bits < 32 else to
        parts = [T.matmul(x, y, transpose_a=False, transpose_b=True, to=wide) for x, y in ((a, c), (b, d))]
        total = parts[0] + parts[1]
        yield total if wide is to else T.cast(total, to=whole.dtype)
        turned = T.concat(b, a, axis=left)
        other = T.matmul(turned, T.concat(*keys, axis=right), transpose_a=False, transpose_b=True, to=to)
        yield miss("the parts stand in another order", other)

    return product


@rule(
    "product-with-concat",
    exactness="reassociated",
    why="every column of a product is a product with one column: those of both parts stand side by side",
    cases=[
        "x: [2, 3, 4, 6]; c: [2, 3, 6, 5]; d: [2, 3, 6, 2]; axis = 3; flip = false; to = none",
        "x: [6, 4]; c: [6, 5]; d: [6, 2]; axis = 1; flip = true; to = !f32",
    ],
    near=[near("along 0, which", "x: [4, 6]; c: [4, 5]; d: [2, 5]; axis = 0; flip = false; to = none")],
)
def product_with_concat(x: Term, c: Term, d: Term, *, axis: int, flip: bool, to: DType | None) -> Iterator[Any]:
    yield T.matmul(x, T.concat(c, d, axis=axis), transpose_a=flip, transpose_b=False, to=to)
    require(axis == c.rank - 1, f"the factor is put together along {axis}, which is summed over", c)
    parts = [T.matmul(x, part, transpose_a=flip, transpose_b=False, to=to) for part in (c, d)]
    yield T.concat(*parts, axis=max(x.rank, c.rank) - 1)


@rule(
    "product-of-copies",
    exactness="exact",
    why="a product repeats a factor over leading dimensions by itself",
    cases=[
        "x: [2, 3, 4, 6]; y: [2, 1, 6, 5]; shape = [2, 3, 6, 5]; flip = false; turn = false; to = none",
        "x: [3, 6, 4]; y: [5, 6]; shape = [3, 5, 6]; flip = true; turn = true; to = none",
    ],
    near=[near("copies rows", "x: [3, 4, 1]; y: [1, 5]; shape = [3, 4, 5]; flip = true; turn = false; to = none")],
)
def product_of_copies(
    x: Term, y: Term, *, shape: Sequence[Dim], flip: bool, turn: bool, to: DType | None
) -> Iterator[Any]:
    yield T.matmul(x, T.expand(y, shape=shape), transpose_a=flip, transpose_b=turn, to=to)
    whole = y.rank > 1 and tuple(shape[-2:]) == y.shape[-2:]
    require(whole, f"the expansion of {y.type} to {_text(shape)} copies rows or columns", y)
    yield T.matmul(x, y, transpose_a=flip, transpose_b=turn, to=to)


def _turned(view: bool) -> Rule:
    """A transposed product. ``view``: its leading dimensions stand under another shape in between."""
    shape = "; shape = [2, 3, 4, 5]" if view else ""

    def of(x: str = "[6, 4, 7]", y: str = "[6, 7, 5]", perm: str = "[0, 2, 1]", shape: str = shape) -> str:
        perm = "[0, 1, 3, 2]" if view and perm == "[0, 2, 1]" else perm
        return f"x: {x}; y: {y}{shape}; perm = {perm}; flip = false; turn = false; to = none"

    other = "[0, 2, 1, 3]" if view else "[1, 0, 2]"
    refused = [near("moves more than the last two", of(perm=other))]
    if view:
        refused.append(near("rows and columns are taken apart", of(shape="; shape = [6, 2, 2, 5]")))

    @rule(
        "product-turned" + ("-view" if view else ""),
        exactness="reassociated",
        why="the transpose of a product is the product of the transposed factors in the other order",
        cases=[of(), of(x="[6, 7, 4]").replace("flip = false", "flip = true")],
        near=refused,
        escape="refuse",
        more_attrs=["shape"] if view else [],
    )
    def turned(
        x: Term, y: Term, *, perm: Sequence[int], flip: bool, turn: bool, to: DType | None, **more: Any
    ) -> Iterator[Any]:
        product = T.matmul(x, y, transpose_a=flip, transpose_b=turn, to=to)
        seen = T.reshape(product, shape=more["shape"]) if view else product
        yield T.transpose(seen, perm=perm)
        last = len(perm) - 2
        swapped = tuple(perm) == (*range(last), last + 1, last)
        require(swapped, f"the transpose {list(perm)} moves more than the last two dimensions", product)
        if view:
            kept = tuple(more["shape"][-2:]) == product.shape[-2:]
            require(kept, f"rows and columns are taken apart: {product.type} as {_text(more['shape'])}", product)
        other = T.matmul(y, x, transpose_a=not turn, transpose_b=not flip, to=to)
        yield T.reshape(other, shape=(*more["shape"][:-2], *other.shape[-2:])) if view else other

    return turned


def _head_sum(flat: bool) -> Rule:
    """Products of each head summed over the heads. ``flat``: batch and heads are one dimension of the product."""
    x, q = ("[6, 4, 5]", "[6, 4, 2]") if flat else ("[2, 3, 4, 5]", "[2, 3, 4, 2]")
    shape = "; shape = [2, 3, 5, 2]" if flat else ""

    def of(axes: str = "[1]", keep: str = "true", x: str = x, q: str = q, shape: str = shape) -> str:
        return f"x: {x}; q: {q}{shape}; axes = {axes}; keepdims = {keep}; to = none"

    refused = [near("over [2]", of(axes="[2]"))]
    if flat:
        refused.append(near("[6, 10, 1] of", of(shape="; shape = [6, 10, 1]", axes="[0]")))
    else:
        refused.append(near("one for all", of(q="[3, 4, 2]")))

    @rule(
        "head-sum-inside" + ("-flat" if flat else ""),
        exactness="reassociated",
        why="a sum of products over heads is one product over heads and positions together",
        cases=[of(), of(keep="false")],
        near=refused,
        escape="refuse",
        more_attrs=["shape"] if flat else [],
    )
    def head_sum(
        x: Term, q: Term, *, axes: Sequence[int], keepdims: bool, to: DType | None, **more: Any
    ) -> Iterator[Any]:
        each = T.matmul(x, q, transpose_a=True, transpose_b=False, to=to)
        if flat:
            each = T.reshape(each, shape=more["shape"])
        summed = T.reduce_sum(each, axes=axes, keepdims=keepdims)
        yield summed
        require(tuple(axes) == (each.rank - 3,), f"the sum is over {list(axes)} of {each.rank} dimensions", each)
        if flat:
            rows, cols = x.shape[-1], q.shape[-1]
            require(each.shape[-2:] == (rows, cols), f"it sums {_text(each.shape)} of [{rows}, {cols}] products", each)
        else:
            require(
                x.shape[:-1] == q.shape[:-1], f"{x.type} and {q.type} are not each head's own but one for all", x, q
            )
        *lead, heads, _, _ = each.shape
        together = (*lead, heads * x.shape[-2])
        one = T.matmul(
            T.reshape(x, shape=(*together, x.shape[-1])),
            T.reshape(q, shape=(*together, q.shape[-1])),
            transpose_a=True,
            transpose_b=False,
            to=to,
        )
        yield T.reshape(one, shape=summed.shape) if keepdims else one
        yield miss("something between product and sum", T.reduce_sum(T.exp(each), axes=axes, keepdims=keepdims))

    return head_sum


PRODUCT_RULES = [
    *(_product(shared) for shared in ("second", "first", "")),
    product_with_concat,
    product_of_copies,
    *(_turned(view) for view in (False, True)),
    *(_head_sum(flat) for flat in (False, True)),
]
"""Rules on products, in the order in which they are tried."""


def _text(dims: Sequence[Dim]) -> str:
    return "[" + ", ".join(map(str, dims)) + "]"

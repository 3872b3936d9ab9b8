"""Rules that find norms in further primitive forms: centred ones, means by division, powers, and 16-bit ones in f32."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from moec.ir.types import DType
from moec.rewrite.rule import Rule, miss, near, rule
from moec.rewrite.term import T, Term, require, splat

ROUNDED_ONCE = "the same value, rounded once where the primitive ops round after each step"


def _layer_norm(weighted: bool) -> Rule:
    weight = "; weight: [16]" if weighted else ""

    @rule(
        "layer-norm" + ("-weight" if weighted else ""),
        exactness="reassociated",
        why=ROUNDED_ONCE,
        operands={"x": "[*B, D]", **({"weight": "[D]"} if weighted else {})},
        cases=[f"x: [3, 16]{weight}; axes = [1]; eps = 1e-06", f"x: [2, 3, 16]{weight}; axes = [2]; eps = 0.001"],
        near=[near("the mean is over [0]", f"x: [16, 16]{weight}; axes = [0]; eps = 1e-06")],
        escape="refuse",
    )
    def layer_norm(x: Term, *weight: Term, axes: Sequence[int], eps: float) -> Iterator[Any]:
        centred = x - T.reduce_mean(x, axes=axes, keepdims=True)
        yield T.rms_norm(centred, weight[0] if weight else None, eps=eps)
        require(tuple(axes) == (x.rank - 1,), f"the mean is over {list(axes)}, not the last of {x.rank}", x)
        yield T.layer_norm(x, weight[0] if weight else None, None, eps=eps, axis=x.rank - 1)
        yield miss("centred by a sum", T.rms_norm(x - T.reduce_sum(x, axes=axes, keepdims=True), None, eps=eps))

    return layer_norm


@rule(
    "layer-norm-affine",
    exactness="reassociated",
    why=ROUNDED_ONCE,
    operands={"x": "[*B, D]", "weight": "[D]"},
    cases=["x: [3, 16]; weight: [16]; eps = 1e-06; axis = 1"],
    near=[
        near("axis is 0", "x: [16, 16]; weight: [16]; eps = 1e-06; axis = 0"),
        near("expected [D]", "x: [16, 16]; weight: [16, 16]; eps = 1e-06; axis = 1"),
    ],
    escape="refuse",
)
def layer_norm_affine(x: Term, weight: Term, *, eps: float, axis: int) -> Iterator[Any]:
    yield T.layer_norm(x, None, None, eps=eps, axis=axis) * weight
    require(axis == x.rank - 1, f"axis is {axis} of {x.rank}", x)
    yield T.layer_norm(x, weight, None, eps=eps, axis=axis)


@rule(
    "layer-norm-bias",
    exactness="reassociated",
    why=ROUNDED_ONCE,
    operands={"x": "[*B, D]", "weight": "[D]", "bias": "[D]"},
    cases=["x: [3, 16]; weight: [16]; bias: [16]; eps = 1e-06; axis = 1"],
    near=[
        near("axis is 0", "x: [16, 16]; weight: [16]; bias: [16]; eps = 1e-06; axis = 0"),
        near("expected [D]", "x: [16, 16]; weight: [16]; bias: [16, 16]; eps = 1e-06; axis = 1"),
    ],
    escape="refuse",
)
def layer_norm_bias(x: Term, weight: Term, bias: Term, *, eps: float, axis: int) -> Iterator[Any]:
    yield T.layer_norm(x, weight, None, eps=eps, axis=axis) + bias
    require(axis == x.rank - 1, f"axis is {axis} of {x.rank}", x)
    yield T.layer_norm(x, weight, bias, eps=eps, axis=axis)


@rule(
    "pow-minus-half",
    exactness="reassociated",
    why="both are the reciprocal square root, rounded",
    cases=["x: [3, 16] in 0.25..4; half = -0.5"],
    near=[near("the exponent is", "x: [3] in 0.25..4; half = -0.25")],
)
def pow_minus_half(x: Term, *, half: float) -> Iterator[Any]:
    yield T.pow(x, splat(half, x))
    require(half == -0.5, f"the exponent is {half}", x)
    yield T.rsqrt(x)


def _mean_of_sum(name: str, divided: bool) -> Rule:
    good, bad = ("n = 16.0", "n = 15.0") if divided else ("n = 0.0625", "n = 0.0627")

    @rule(
        name,
        exactness="reassociated",
        why="the sum divided by how many there are is the mean",
        cases=[f"x: [3, 16]; axes = [1]; keepdims = true; {good}", f"x: [16, 3]; axes = [0]; keepdims = false; {good}"],
        near=[near("of 16 elements", f"x: [3, 16]; axes = [1]; keepdims = true; {bad}")],
        escape="refuse",
    )
    def mean_of_sum(x: Term, *, axes: Sequence[int], keepdims: bool, n: float) -> Iterator[Any]:
        total = T.reduce_sum(x, axes=axes, keepdims=keepdims)
        yield total / splat(n, x) if divided else total * splat(n, x)
        count: Any = 1
        for a in axes:
            count = count * x.shape[a]
        right = isinstance(count, int) and count > 1 and n == (count if divided else 1.0 / count)
        require(right and x.dtype.is_float, f"a sum of {count} elements times or by {n}", x)
        yield T.reduce_mean(x, axes=axes, keepdims=keepdims)

    return mean_of_sum


@rule(
    "rms-norm-weight-narrow",
    exactness="exact",
    why="the norm of a 16-bit tensor is computed in f32 and rounded once by definition",
    dtypes=("bf16", "f16"),
    operands={"x": "[*B, D]", "weight": "[D]"},
    cases=['x: [3, 16]; weight: [16]; wide = !f32; to = "swept"; eps = 1e-06'],
    near=[
        near("computed in f16", "x: bf16[3, 16]; weight: bf16[16]; wide = !f16; to = !bf16; eps = 1e-06"),
        near("and rounded to f32", "x: bf16[3, 16]; weight: bf16[16]; wide = !f32; to = !f32; eps = 1e-06"),
        near("weighted by f16", "x: bf16[3, 16]; weight: f16[16]; wide = !f32; to = !bf16; eps = 1e-06"),
    ],
    escape="refuse",
)
def rms_norm_weight_narrow(x: Term, weight: Term, *, wide: DType, to: DType, eps: float) -> Iterator[Any]:
    yield T.cast(T.rms_norm(T.cast(x, to=wide), T.cast(weight, to=wide), eps=eps), to=to)
    ok = x.dtype.name in ("bf16", "f16") and wide.name == "f32" and to is x.dtype and weight.dtype is x.dtype
    require(ok, f"the norm of {x.dtype} is computed in {wide} and rounded to {to}, weighted by {weight.dtype}", x)
    yield T.rms_norm(x, weight, eps=eps)


@rule(
    "layer-norm-narrow",
    exactness="exact",
    why="the norm of a 16-bit tensor is computed in f32 and rounded once by definition",
    dtypes=("bf16", "f16"),
    cases=['x: [3, 16]; wide = !f32; to = "swept"; eps = 1e-06; axis = 1'],
    near=[
        near("computed in f16", "x: bf16[3, 16]; wide = !f16; to = !bf16; eps = 1e-06; axis = 1"),
        near("and rounded to f32", "x: bf16[3, 16]; wide = !f32; to = !f32; eps = 1e-06; axis = 1"),
    ],
    escape="refuse",
)
def layer_norm_narrow(x: Term, *, wide: DType, to: DType, eps: float, axis: int) -> Iterator[Any]:
    yield T.cast(T.layer_norm(T.cast(x, to=wide), None, None, eps=eps, axis=axis), to=to)
    ok = x.dtype.name in ("bf16", "f16") and wide.name == "f32" and to is x.dtype
    require(ok, f"the norm of {x.dtype} is computed in {wide} and rounded to {to}", x)
    yield T.layer_norm(x, None, None, eps=eps, axis=axis)


NORM_RULES = [
    _layer_norm(False),
    _layer_norm(True),
    layer_norm_affine,
    layer_norm_bias,
    pow_minus_half,
    _mean_of_sum("mean-of-sum-divided", True),
    _mean_of_sum("mean-of-sum-scaled", False),
    rms_norm_weight_narrow,
    layer_norm_narrow,
]
"""Rules by which ``canonicalise`` finds further norms."""

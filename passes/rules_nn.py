"""Rules that find activations, gated activations, norms and transposed products in the primitive ops of exporters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from moec.ir.symbol import Dim
from moec.ir.types import F32, DType
from moec.rewrite.rule import Rule, miss, near, rule
from moec.rewrite.term import T, Term, require, splat

ROUNDED_ONCE = "the same value, rounded once where the primitive ops round after each step"


@rule("silu", exactness="reassociated", why=ROUNDED_ONCE, cases=["x: [3, 16]"], escape="refuse")
def silu(x: Term) -> Iterator[Any]:
    yield x * T.sigmoid(x)
    yield T.silu(x)
    yield miss("the sigmoid of something else", x * T.sigmoid(-x))


def _sigmoid(name: str, form: Callable[[Term], Term]) -> Rule:
    @rule(name, exactness="reassociated", why=ROUNDED_ONCE, cases=["x: [3, 16]"], escape="refuse")
    def sigmoid(x: Term) -> Iterator[Any]:
        yield form(x)
        yield T.sigmoid(x)
        yield miss("the argument is not negated", T.reciprocal(T.exp(x) + 1.0))

    return sigmoid


SIGMOID = [_sigmoid("sigmoid-reciprocal", lambda x: T.reciprocal(T.exp(-x) + 1.0))]


def _gelu(name: str, form: Callable[[Term, Term, Term, Term], Term], constant: float) -> Rule:
    """gelu by erf; ``form`` is given x, 0.5, 1 and the constant of its argument."""

    @rule(
        name,
        exactness="approximate",
        bound=1e-7,
        why="the exporter's constant is sqrt(2) rounded to f32",
        cases=[f"x: f32[3, 16]; half = 0.5; one = 1.0; c = {constant!r}"],
        near=[
            near("scaled by", f"x: f32[3]; half = 0.5; one = 1.0; c = {constant * 1.01!r}"),
            near("too coarse", "x: bf16[3]; half = 0.5; one = 1.0; c = 1.4140625"),
            near("half is 0.25", f"x: f32[3]; half = 0.25; one = 1.0; c = {constant!r}"),
            near("one is 2.0", f"x: f32[3]; half = 0.5; one = 2.0; c = {constant!r}"),
        ],
        escape="refuse",
    )
    def gelu(x: Term, *, half: float, one: float, c: float) -> Iterator[Any]:
        yield form(x, splat(half, x), splat(one, x), splat(c, x))
        require(x.dtype is F32, f"{x.dtype} constants are too coarse to tell sqrt(2)", x)
        require(math.isclose(c, constant, rel_tol=2e-7), f"the argument of erf is scaled by {c}, not {constant}", x)
        require(half == 0.5, f"half is {half}", x)
        require(one == 1.0, f"one is {one}", x)
        yield T.gelu(x, approximate="none")

    return gelu


def _gelu_rules() -> list[Rule]:
    """Every association of x * 0.5 * (1 + erf(x / sqrt 2)), with the argument divided or multiplied."""
    arguments: list[tuple[str, Callable[[Term, Term], Term], float]] = [
        ("div", lambda x, c: x / c, math.sqrt(2)),
        ("mul", lambda x, c: x * c, 1 / math.sqrt(2)),
    ]
    rules = []
    for word, scaled, constant in arguments:

        def phi(x: Term, one: Term, c: Term, scaled: Callable[[Term, Term], Term] = scaled) -> Term:
            return T.erf(scaled(x, c)) + one

        def left(x: Term, half: Term, one: Term, c: Term, phi: Callable[..., Term] = phi) -> Term:
            return (x * half) * phi(x, one, c)

        def right(x: Term, half: Term, one: Term, c: Term, phi: Callable[..., Term] = phi) -> Term:
            return x * (phi(x, one, c) * half)

        def outer(x: Term, half: Term, one: Term, c: Term, phi: Callable[..., Term] = phi) -> Term:
            return (x * phi(x, one, c)) * half

        rules += [_gelu(f"gelu-{word}-{f.__name__}", f, constant) for f in (left, right, outer)]
    return rules


def _gelu_tanh(name: str, form: Callable[[Term, Term, Term], Term]) -> Rule:
    """gelu by tanh; ``form`` is given x, 0.5 and 1 + tanh(...)."""
    root = math.sqrt(2 / math.pi)
    good = {"half": 0.5, "one": 1.0, "three": 3.0, "k": 0.044715, "c": root}

    def case(**changed: float) -> str:
        return "x: f32[3, 16]; " + "; ".join(f"{n} = {v!r}" for n, v in {**good, **changed}.items())

    @rule(
        name,
        exactness="approximate",
        bound=1e-7,
        why="the exporter's constants are rounded to f32",
        cases=[case()],
        near=[
            *(near(f"{n} is {v}", case(**{n: v})) for n, v in {"half": 0.25, "one": 2.0, "three": 2.0}.items()),
            near("k is 0.05", case(k=0.05)),
            near("c is 0.8", case(c=0.8)),
            near("too coarse", case().replace("f32", "bf16")),
        ],
        escape="refuse",
    )
    def gelu_tanh(x: Term, *, half: float, one: float, three: float, k: float, c: float) -> Iterator[Any]:
        inner = (x + T.pow(x, splat(three, x)) * splat(k, x)) * splat(c, x)
        yield form(x, splat(half, x), T.tanh(inner) + splat(one, x))
        require(x.dtype is F32, f"{x.dtype} constants are too coarse to tell this from another curve", x)
        require(half == 0.5, f"half is {half}", x)
        require(one == 1.0, f"one is {one}", x)
        require(three == 3.0, f"three is {three}", x)
        require(math.isclose(k, 0.044715, rel_tol=2e-7), f"k is {k}, not 0.044715", x)
        require(math.isclose(c, root, rel_tol=2e-7), f"c is {c}, not {root}", x)
        yield T.gelu(x, approximate="tanh")

    return gelu_tanh


GELU_TANH = [
    _gelu_tanh("gelu-tanh-left", lambda x, half, phi: (x * half) * phi),
    _gelu_tanh("gelu-tanh-right", lambda x, half, phi: x * (phi * half)),
    _gelu_tanh("gelu-tanh-outer", lambda x, half, phi: (x * phi) * half),
]


ACTIVATIONS: dict[str, Callable[[Term], Term]] = {
    "silu": T.silu,
    "gelu": lambda x: T.gelu(x, approximate="none"),
    "gelu_tanh": lambda x: T.gelu(x, approximate="tanh"),
    "relu": T.relu,
    "sigmoid": T.sigmoid,
}


def _gated(activation: str, glu: str) -> Rule:
    """act(gate) * up with gate and up the halves of one tensor (chunked) or its even and odd columns (interleaved)."""
    act, step = ACTIVATIONS[activation], 1 if glu == "chunked" else 2
    sizes = "gate = 0; mid = 4; up = 4; end = 8" if step == 1 else "gate = 0; mid = 8; up = 1; end = 8"
    wrong = "gate = 4; mid = 8; up = 0; end = 4" if step == 1 else "gate = 1; mid = 8; up = 0; end = 8"
    short = "gate = 0; mid = 3; up = 3; end = 6" if step == 1 else "gate = 0; mid = 6; up = 1; end = 6"

    @rule(
        f"{activation}-glu-{glu}",
        exactness="reassociated",
        why=ROUNDED_ONCE,
        cases=[f"h: [3, 8]; axis = 1; {sizes}", f"h: [2, 3, 8]; axis = 2; {sizes}"],
        near=[
            near("the gate is [", f"h: [3, 8]; axis = 1; {wrong}"),
            near("the gate is [", f"h: [3, 8]; axis = 1; {short}"),
            near("dimension 0 of 2", f"h: [8, 3]; axis = 0; {sizes}"),
        ],
        escape="refuse",
    )
    def gated(h: Term, *, axis: int, gate: Dim, mid: Dim, up: Dim, end: Dim) -> Iterator[Any]:
        first = T.slice(h, axis=axis, start=gate, stop=mid, step=step)
        second = T.slice(h, axis=axis, start=up, stop=end, step=step)
        yield act(first) * second
        require(axis == h.rank - 1, f"gate and up lie along dimension {axis} of {h.rank}", h)
        width = h.shape[-1]
        halves = (0, mid, mid, 2 * mid) if step == 1 else (0, width, 1, width)
        wanted = f"[{gate}:{mid}:{step}] and up [{up}:{end}:{step}] of {width}"
        require((gate, mid, up, end) == halves and end == width, f"the gate is {wanted}", h)
        yield T.swiglu(h, activation=activation, glu=glu, alpha=1.0, limit=None, up_offset=0.0)

    return gated


GATED = [_gated(a, glu) for a in ACTIVATIONS for glu in ("chunked", "interleaved")]


@rule(
    "rms-norm",
    exactness="reassociated",
    why=ROUNDED_ONCE,
    cases=["x: [3, 16]; axes = [1]; eps = 1e-06", "x: [2, 3, 16]; axes = [2]; eps = 0.001"],
    near=[near("the mean is over [0], not the last", "x: [3, 16]; axes = [0]; eps = 1e-06")],
    escape="refuse",
)
def rms_norm(x: Term, *, axes: Sequence[int], eps: float) -> Iterator[Any]:
    yield x * T.rsqrt(T.reduce_mean(x * x, axes=axes, keepdims=True) + splat(eps, x))
    require(tuple(axes) == (x.rank - 1,), f"the mean is over {list(axes)}, not the last of {x.rank}", x)
    yield T.rms_norm(x, None, eps=eps)
    yield miss("a sum, not a mean", x * T.rsqrt(T.reduce_sum(x * x, axes=axes, keepdims=True) + eps))
    yield miss("the square of something else", x * T.rsqrt(T.reduce_mean(x * -x, axes=axes, keepdims=True) + eps))


@rule(
    "rms-norm-weight",
    exactness="reassociated",
    why=ROUNDED_ONCE,
    operands={"x": "[*B, D]", "weight": "[D]"},
    cases=["x: [3, 16]; weight: [16]; eps = 1e-06"],
    near=[near("expected [D]", "x: [16, 16]; weight: [16, 16]; eps = 1e-06")],
    escape="refuse",
)
def rms_norm_weight(x: Term, weight: Term, *, eps: float) -> Iterator[Any]:
    yield T.rms_norm(x, None, eps=eps) * weight
    yield T.rms_norm(x, weight, eps=eps)
    yield miss("weighted already", T.rms_norm(x, weight, eps=eps) * weight)


@rule(
    "rms-norm-narrow",
    exactness="exact",
    why="the norm of a 16-bit tensor is computed in f32 and rounded once by definition",
    dtypes=("bf16", "f16"),
    cases=['x: [3, 16]; wide = !f32; to = "swept"; eps = 1e-06'],
    near=[
        near("computed in f16", "x: bf16[3, 16]; wide = !f16; to = !bf16; eps = 1e-06"),
        near("and rounded to f32", "x: bf16[3, 16]; wide = !f32; to = !f32; eps = 1e-06"),
        near("of f32", "x: f32[3, 16]; wide = !f32; to = !f32; eps = 1e-06"),
    ],
    escape="refuse",
)
def rms_norm_narrow(x: Term, *, wide: DType, to: DType, eps: float) -> Iterator[Any]:
    yield T.cast(T.rms_norm(T.cast(x, to=wide), None, eps=eps), to=to)
    ok = x.dtype.name in ("bf16", "f16") and wide.name == "f32" and to is x.dtype
    require(ok, f"the norm of {x.dtype} is computed in {wide} and rounded to {to}", x)
    yield T.rms_norm(x, None, eps=eps)


_TRANSPOSED = {
    "a": ["x: [5, 4] in -2..2; y: [5, 3] in -2..2; ta = false", "x: [2, 4, 5] in -2..2; y: [5, 3] in -2..2; ta = true"],
    "b": ["x: [4, 5] in -2..2; y: [3, 5] in -2..2; tb = false", "x: [4, 5] in -2..2; y: [2, 5, 3] in -2..2; tb = true"],
}
_OTHER = {"a": "tb = false", "b": "ta = false"}


def _matmul_transposed(side: str) -> Rule:
    def case(sizes: str) -> str:
        batched = sizes.count(",") > 2
        return f"{sizes}; {_OTHER[side]}; to = none; perm = {'[0, 2, 1]' if batched else '[1, 0]'}"

    flags = "ta = false; tb = false; to = none"

    @rule(
        f"matmul-transposed-{side}",
        exactness="exact",
        why="the same products are summed in the same order",
        cases=[case(sizes) for sizes in _TRANSPOSED[side]],
        near=[
            near("more than the last two", f"x: [2, 4, 4, 4]; y: [2, 4, 4, 4]; {flags}; perm = [0, 2, 3, 1]"),
            near("more than the last two", f"x: [4, 4, 4]; y: [4, 4, 4]; {flags}; perm = [1, 0, 2]"),
        ],
    )
    def matmul_transposed(
        x: Term, y: Term, *, ta: bool, tb: bool, to: DType | None, perm: Sequence[int]
    ) -> Iterator[Any]:
        a, b = (T.transpose(x, perm=perm), y) if side == "a" else (x, T.transpose(y, perm=perm))
        yield T.matmul(a, b, transpose_a=ta, transpose_b=tb, to=to)
        n = len(perm)
        swapped = (*range(n - 2), n - 1, n - 2)
        require(tuple(perm) == swapped, f"perm {list(perm)} moves more than the last two dimensions", a, b)
        yield T.matmul(x, y, transpose_a=ta != (side == "a"), transpose_b=tb != (side == "b"), to=to)

    return matmul_transposed


NN_RULES = [
    silu,
    *SIGMOID,
    *_gelu_rules(),
    *GELU_TANH,
    *GATED,
    rms_norm,
    rms_norm_weight,
    rms_norm_narrow,
    _matmul_transposed("a"),
    _matmul_transposed("b"),
]

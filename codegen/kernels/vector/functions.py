"""Functions that the vector unit has no instruction for, composed of those it has.

Errors are against f64 over f32 of all sizes, measured with correctly rounded steps; the chip's exp and ln may add.
Reciprocal and Rsqrt are not used: the vendor states no error for them; Div and Sqrt are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from moec.codegen.kernels.vector.values import Number, Val, Values

# erf(x) / x as a ratio of polynomials in x^2 on |x| <= 4, fitted to 2.5e-8 relative (least squares on Chebyshev
# points, iterated towards equal errors); from 3.93 on erf rounds to 1 in f32, and so does this.
ERF_RANGE = 3.93
ERF_P = (
    1.1283791065216064,
    0.19353599846363068,
    0.053100258111953735,
    0.0038828698452562094,
    0.000284541689325124,
    1.9866829461534508e-06,
)
ERF_Q = (
    1.0,
    0.504849374294281,
    0.11534599214792252,
    0.015206320211291313,
    0.0011854303302243352,
    3.741785621969029e-05,
)
# tanh(x) / x - 1 over x^2 on |x| <= 0.625 (polynomial of Cephes' tanhf, Moshier).
TANH_SMALL = 0.625
TANH_P = (
    -3.33332819422e-1,
    1.33314422036e-1,
    -5.37397155531e-2,
    2.06390887954e-2,
    -5.70498872745e-3,
)


def polynomial(v: Values, x: Val, coefficients: Sequence[float]) -> Val:
    """c0 + x (c1 + x (...)): two instructions a coefficient."""
    y = v.scalar("Adds", v.scalar("Muls", x, coefficients[-1]), coefficients[-2])
    for c in coefficients[-3::-1]:
        y = v.scalar("Adds", v.mul(y, x), c)
    return y


def sigmoid(v: Values, x: Val) -> Val:
    """1 / (1 + e^-x): e^-x may overflow to infinity, of which the reciprocal is the right 0. 3 ulp."""
    return v.div(1.0, _one_plus_exp(v, x, -1.0))


def silu(v: Values, x: Val, alpha: float = 1.0) -> Val:
    """x / (1 + e^-(alpha x)). 3 ulp."""
    return v.div(x, _one_plus_exp(v, x, -alpha))


def _one_plus_exp(v: Values, x: Val, factor: float) -> Val:
    return v.scalar("Adds", v.unary("Exp", v.scalar("Muls", x, factor)), 1.0)


def tanh(v: Values, x: Val) -> Val:
    """A polynomial up to 0.625, beyond it sign(x) (1 - 2 / (e^2|x| + 1)). 3 ulp."""
    square = v.mul(x, x)
    small = v.add(v.mul(v.mul(polynomial(v, square, TANH_P), square), x), x)
    size = v.unary("Abs", x)
    tail = v.div(2.0, v.scalar("Adds", v.unary("Exp", v.scalar("Muls", size, 2.0)), 1.0))
    large = v.scalar("Adds", v.scalar("Muls", tail, -1.0), 1.0)
    signed = v.select(v.compare("LT", x, 0.0), v.scalar("Muls", large, -1.0), large)
    return v.select(v.compare("LE", size, TANH_SMALL), small, signed)


def erf(v: Values, x: Val) -> Val:
    """x P(x^2) / Q(x^2) with x held in [-3.93, 3.93], and the result in [-1, 1]. 6 ulp."""
    held = v.scalar("Maxs", v.scalar("Mins", x, ERF_RANGE), -ERF_RANGE)
    square = v.mul(held, held)
    y = v.div(v.mul(held, polynomial(v, square, ERF_P)), polynomial(v, square, ERF_Q))
    return v.scalar("Maxs", v.scalar("Mins", y, 1.0), -1.0)


def gelu(v: Values, x: Val) -> Val:
    """0.5 x (1 + erf(x / sqrt 2)); absolute error 2e-7 max(1, |x|), as 1 + erf cancels for negative x."""
    inner = v.scalar("Adds", erf(v, v.scalar("Muls", x, math.sqrt(0.5))), 1.0)
    return v.mul(v.scalar("Muls", x, 0.5), inner)


def gelu_tanh(v: Values, x: Val) -> Val:
    """0.5 x (1 + tanh u) = x / (1 + e^-2u) with u = sqrt(2/pi) (x + 0.044715 x^3), so nothing cancels."""
    square = v.mul(x, x)
    factor = -2 * math.sqrt(2 / math.pi)
    inner = v.mul(v.scalar("Adds", v.scalar("Muls", square, 0.044715 * factor), factor), x)
    return v.div(x, v.scalar("Adds", v.unary("Exp", inner), 1.0))


def softplus(v: Values, x: Val) -> Val:
    """max(x, 0) + ln(1 + e^-|x|), the logarithm corrected for what 1 + y lost: ln(u) y / (u - 1). 3 ulp."""
    y = v.unary("Exp", v.scalar("Muls", v.unary("Abs", x), -1.0))
    u = v.scalar("Adds", y, 1.0)
    lost = v.scalar("Adds", u, -1.0)
    exact = v.div(v.mul(v.unary("Ln", u), y), lost)
    log1p = v.select(v.compare("GT", lost, 0.0), exact, y)
    return v.add(v.unary("Relu", x), log1p)


def rsqrt(v: Values, x: Val) -> Val:
    return v.div(1.0, v.unary("Sqrt", x))


def sign(v: Values, x: Val) -> Val:
    """-1, 0 or 1; 0 for NaN."""
    one = v.fill(1.0, x)
    up = v.select(v.compare("GT", x, 0.0), one, 0.0)
    down = v.select(v.compare("LT", x, 0.0), one, 0.0)
    return v.sub(up, down)


def relu(v: Values, x: Val) -> Val:
    return v.unary("Relu", x)


ACTIVATIONS: dict[str, Callable[[Values, Val], Val]] = {
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "relu": relu,
    "sigmoid": sigmoid,
    "identity": lambda v, x: x,
}


def softmax(v: Values, x: Val) -> Val:
    """e^(x - max) times 1 / sum along the row (a division a row instead of one an element: half an ulp more)."""
    e = v.unary("Exp", v.sub(x, v.row_reduce("Max", x)))
    return v.mul(e, v.div(1.0, v.row_reduce("Sum", e)))


def log_softmax(v: Values, x: Val) -> Val:
    """x - max - ln(sum of e^(x - max)) along the row."""
    shifted = v.sub(x, v.row_reduce("Max", x))
    return v.sub(shifted, v.unary("Ln", v.row_reduce("Sum", v.unary("Exp", shifted))))


def mean(v: Values, x: Val, count: Number) -> Val:
    """Mean of each row of ``count`` elements."""
    return v.div(v.row_reduce("Sum", x), count)


def rms_norm(v: Values, x: Val, weight: Val | None, eps: float, count: Number) -> Val:
    """x / sqrt(mean(x^2) + eps) * weight."""
    y = v.mul(x, rsqrt(v, v.scalar("Adds", mean(v, v.mul(x, x), count), eps)))
    return y if weight is None else v.mul(y, weight)


def layer_norm(v: Values, x: Val, weight: Val | None, bias: Val | None, eps: float, count: Number) -> Val:
    """(x - mean) / sqrt(var + eps) * weight + bias; the variance is taken of the centred row."""
    centred = v.sub(x, mean(v, x, count))
    y = v.mul(centred, rsqrt(v, v.scalar("Adds", mean(v, v.mul(centred, centred), count), eps)))
    y = y if weight is None else v.mul(y, weight)
    return y if bias is None else v.add(y, bias)

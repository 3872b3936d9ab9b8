"""AdamW as vector programs: what of a step all elements share, and the update of each.

1 - beta^t is taken as -(e^x - 1) with x = t ln beta, by its series where x is small, so that the second moment's, of
0.001 at the first step, keeps its digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from moec.codegen.kernels.vector.functions import polynomial
from moec.codegen.kernels.vector.values import Scaled, Val, Values

SERIES = tuple(1.0 / math.factorial(i) for i in range(1, 10))
"""(e^x - 1) / x to a ten-millionth of itself for |x| <= 0.5."""
NEAR = 0.5


@dataclass(frozen=True)
class AdamW:
    """The constants of a step."""

    beta1: float
    beta2: float
    eps: float
    weight_decay: float


def _unbiased(v: Values, step: Val, beta: float) -> Val:
    """1 - beta^step."""
    x = v.scalar("Muls", step, math.log(beta))
    near = v.mul(x, polynomial(v, x, SERIES))
    far = v.scalar("Adds", v.unary("Exp", x), -1.0)
    return v.scalar("Muls", v.select(v.compare("GE", x, -NEAR), near, far), -1.0)


def step_numbers(v: Values, a: AdamW, step: Val, lr: Val) -> tuple[Val, Val, Val]:
    """lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t) and 1 - lr weight_decay, of ``step`` in f32."""
    size = v.div(lr, _unbiased(v, step, a.beta1))
    root = v.div(1.0, v.unary("Sqrt", _unbiased(v, step, a.beta2)))
    return size, root, v.scalar("Adds", v.scalar("Muls", lr, -a.weight_decay), 1.0)


def update(
    v: Values, a: AdamW, master: Val, m: Val, s: Val, grad: Val, numbers: tuple[Val, Val, Val]
) -> tuple[Val, Val, Val]:
    """The new master, first and second moment, all f32; ``numbers`` are scalars as ``step_numbers`` gives them."""
    size, root, kept = (Scaled(n) for n in numbers)
    m = v.add(v.scalar("Muls", m, a.beta1), v.scalar("Muls", grad, 1 - a.beta1))
    s = v.add(v.scalar("Muls", s, a.beta2), v.scalar("Muls", v.mul(grad, grad), 1 - a.beta2))
    below = v.scalar("Adds", v.scalar("Muls", v.unary("Sqrt", s), root), a.eps)
    change = v.scalar("Muls", v.div(m, below), size)
    return v.sub(v.scalar("Muls", master, kept), change), m, s

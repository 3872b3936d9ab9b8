"""The optimiser's step: what becomes of a weight and its moments once its gradient is there."""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ir.symbol import Shape
from moec.ir.types import F32, DType
from moec.ops.registry import Types, op
from moec.ops.shapes import known

Array = np.ndarray


@op(
    "apply_adamw(master: any, m: any, v: any, grad: any, step: [], lr: [], *, beta1: float, beta2: float, eps: float, "
    "weight_decay: float, to: dtype) -> (param: any, master: any, m: any, v: any)"
)
class ApplyAdamW:
    """AdamW (arXiv 1711.05101, algorithm 2) on an f32 master weight and f32 moments, and the weight in dtype ``to``.

    m <- beta1 m + (1 - beta1) g; v <- beta2 v + (1 - beta2) g^2; master <- master (1 - lr weight_decay) - lr
    (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps); param is the new master, rounded. ``step`` is t, an integer
    from 1; ``lr`` an f32. CANN has it as aclnnApplyAdamWV2.
    """

    dtype = ("=to", "!f32", "!f32", "!f32")
    cost = "vector"
    nondiff = "an optimiser's step"

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        master, m, v, grad, step, lr = known(types)
        if not master.shape == m.shape == v.shape == grad.shape:
            raise ValueError(f"master {master}, m {m}, v {v} and grad {grad} must have one shape")
        if not {master.dtype, m.dtype, v.dtype, lr.dtype} == {F32} or not step.dtype.is_int or not grad.dtype.is_float:
            raise ValueError(f"master, m, v and lr are f32, step an integer, grad of floats; {step} and {grad} given")
        return [master.shape] * 4

    @staticmethod
    def ref(
        master: Array,
        m: Array,
        v: Array,
        grad: Array,
        step: Array,
        lr: Array,
        *,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
        to: DType,
    ) -> tuple[Array, ...]:
        number = m.dtype.type
        t, rate = float(step), float(lr)
        g = grad.astype(m.dtype)
        m = number(beta1) * m + number(1 - beta1) * g
        v = number(beta2) * v + number(1 - beta2) * g * g
        root = np.sqrt(v) * number(_unbiased(beta2, t) ** -0.5) + number(eps)
        master = master * number(1 - rate * weight_decay) - m / root * number(rate / _unbiased(beta1, t))
        return master, master, m, v


def _unbiased(beta: float, step: float) -> float:
    """1 - beta^step"""
    return float(-np.expm1(step * np.log(beta)))

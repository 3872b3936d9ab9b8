"""Sizes while a module runs: symbols get their numbers from the shapes that turn up."""

from __future__ import annotations

from typing import Any

from moec.ir.group import Group
from moec.ir.symbol import Dim, Expr, evaluate, exact_div, symbols_of
from moec.ir.types import TensorType

Env = dict[str, int]
"""What each symbol stands for, as far as is known."""


def bind(type_: TensorType, shape: tuple[int, ...], env: Env) -> bool:
    """Bind symbols that are still free so that ``type_`` has ``shape``; False where it cannot.

    A dimension with one free symbol in it binds it where the equation has an integer solution (``2*T`` against 6
    gives T = 3).
    """
    if type_.shape is None:
        return True
    if len(type_.shape) != len(shape):
        return False
    return all(bind_dim(d, n, env) for d, n in zip(type_.shape, shape, strict=True))


def bind_dim(dim: Dim, size: int, env: Env) -> bool:
    """Bind the one symbol of ``dim`` that is still free so that it is ``size``; False where it cannot be."""
    if isinstance(dim, int):
        return dim == size
    free = [s for s in dict.fromkeys(symbols_of(dim)) if s not in env]
    if not free:
        return evaluate(dim, env) == size
    if len(free) > 1:
        return True
    constant = evaluate(dim, {**env, free[0]: 0})
    slope = evaluate(dim, {**env, free[0]: 1}) - constant
    solution = exact_div(size - constant, slope) if slope else None
    if isinstance(solution, int) and evaluate(dim, {**env, free[0]: solution}) == size:
        env[free[0]] = solution
        return True
    return False


def bound_text(env: Env) -> str:
    """The known sizes for a message, or nothing."""
    return " with " + ", ".join(f"{k} = {v}" for k, v in env.items()) if env else ""


def concrete(value: Any, env: Env) -> Any:
    """Attribute values with dimensions as numbers; None for one that only this node's result will tell."""
    if isinstance(value, Expr):
        try:
            return evaluate(value, env)
        except KeyError:
            return None
    if isinstance(value, Group):
        return value.at(env)
    if isinstance(value, tuple):
        return tuple(concrete(v, env) for v in value)
    return value

"""Which elementwise ops the vector unit has, in which instruction or composition, and of which dtypes."""

from __future__ import annotations

from collections.abc import Callable

from moec.codegen.kernels.vector import functions as fn
from moec.codegen.kernels.vector import integers, trigonometry
from moec.codegen.kernels.vector.values import Val, Values
from moec.codegen.lower.base import where
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node

FLOATS = ("f32", "f16", "bf16")
INTEGERS = ("i32", "i64")
SMALL = ("i16", "i8", "u8")
"""Integers that are computed with in 32 bits where the result is none of another size: not in sums and products."""
BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "minimum": "Min", "maximum": "Max"}
COMPARE = {"eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE"}
EXACT = frozenset({"neg", "abs", "relu", "minimum", "maximum", "select", "floor", "ceil", "round", "sign", "expand"})
"""Ops whose result needs no rounding when their operands need none."""
ROUNDING = {"floor": "FLOOR", "ceil": "CEIL", "round": "RINT"}

UNARY: dict[str, Callable[[Values, Val], Val]] = {
    "neg": lambda v, x: v.scalar("Muls", x, -1.0),
    "abs": lambda v, x: v.unary("Abs", x),
    "exp": lambda v, x: v.unary("Exp", x),
    "log": lambda v, x: v.unary("Ln", x),
    "sqrt": lambda v, x: v.unary("Sqrt", x),
    "rsqrt": fn.rsqrt,
    "reciprocal": lambda v, x: v.div(1.0, x),
    "tanh": fn.tanh,
    "erf": fn.erf,
    "sigmoid": fn.sigmoid,
    "silu": fn.silu,
    "relu": fn.relu,
    "softplus": fn.softplus,
    "sign": fn.sign,
    "sin": trigonometry.sin,
    "cos": trigonometry.cos,
}


WHOLE: dict[str, Callable[..., Val]] = {
    "div": integers.divide,
    "mod": lambda v, a, b, fmod: integers.modulo(v, a, b, fmod),
    "abs": integers.magnitude,
    "sign": integers.sign,
    "neg": lambda v, x: v.scalar("Muls", x, -1),
    "relu": lambda v, x: v.scalar("Maxs", x, 0),
}
"""Ops of integers that are other instructions than those of floats."""


KEEPS_SIZE = ("cast", "select", "expand", "minimum", "maximum", *COMPARE)
"""Ops of integers whose result is never larger than what they are given."""
NORMS = ("gelu", "softmax", "log_softmax", "rms_norm", "layer_norm")


def check_dtypes(node: Node) -> None:
    """NoKernel for dtypes that the vector unit does not compute in ``node``."""
    names = {v.type.dtype.name for v in (*node.operands, *node.results) if v is not None}
    integer = node.op in ("add", "sub", "mul", "minimum", "maximum", "cast", "select", "expand", *WHOLE, *COMPARE)
    allowed = {*FLOATS, "bool", *(INTEGERS if integer else ()), *(SMALL if node.op in KEEPS_SIZE else ())}
    conditions = node.result.type.dtype.name == "bool" and node.op in (*BINARY, *ROUNDING, *UNARY, *NORMS, "mod", "pow")
    if names <= allowed and not conditions:
        return
    if conditions:
        allowed -= {"bool"}
    what = f"{node.op} of {', '.join(sorted(names - allowed))} has no vector kernel"
    raise NoKernel(Problem(what, where(node), f"it computes {', '.join(sorted(allowed))}"))

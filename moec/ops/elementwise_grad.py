"""Gradients of elementwise ops. What an operand was broadcast by is summed; chains of roundings run in f32.

Where a derivative jumps: relu and abs have 0 at 0, of a maximum or minimum equal operands get half each.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from moec.ir.graph import Node, Value
from moec.ops.tape import Gradients, Tape

Grad = Callable[..., Gradients]
Derivative = Callable[[Tape, Value, Value], Value]
"""Of the tape, a wide operand and the wide result: the derivative."""

Partial = Callable[[Tape, Value, Value, Value, Value], Value]
"""Of the tape and, all wide, the incoming gradient, both operands and the result: the gradient of one operand."""


def unary(derivative: Derivative, once: bool = False) -> Grad:
    """The gradient of an op on one operand that has this derivative. ``once``: it and its product with dy round once,
    so that f32 would change nothing.
    """

    def grad(t: Tape, node: Node, *dys: Value | None) -> Gradients:
        wide = not once or t.dtype(0) is not node.result.type.dtype
        dy, x, y = (t.wide(v) if wide else v for v in (_there(dys[0]), node.operand(0), node.result))
        return [t.narrow(t.mul(dy, derivative(t, x, y)), 0)]

    return grad


def binary(first: Partial, second: Partial) -> Grad:
    """The gradient of a broadcasting op on two operands that has these partial derivatives."""

    def grad(t: Tape, node: Node, *dys: Value | None) -> Gradients:
        found: list[Value | None] = [None, None]
        for i, partial in enumerate((first, second)):
            if t.wanted(i):
                operand = node.operand(i)
                same = operand.type.dims == node.result.type.dims and t.dtype(i) is node.result.type.dtype
                values = [_there(dys[0]), node.operand(0), node.operand(1), node.result]
                if not (same and partial in ONCE):
                    values = [t.wide(v) for v in values]
                found[i] = t.narrow(t.summed(partial(t, *values), operand), i)
        return found

    return grad


ONCE: list[Partial] = []
"""Partial derivatives whose product with dy rounds once, so that f32 would change nothing."""


def once(partial: Partial) -> Partial:
    """Say so of a partial derivative."""
    ONCE.append(partial)
    return partial


def _there(value: Value | None) -> Value:
    assert value is not None
    return value


def _one_minus(t: Tape, x: Value) -> Value:
    made: Value = t.sub(t.constant_of(1.0, x.type.dtype), x)
    return made


def _sigmoid(t: Tape, x: Value, y: Value) -> Value:
    made: Value = t.mul(y, _one_minus(t, y))
    return made


def _silu(t: Tape, x: Value, y: Value) -> Value:
    """s (1 + x (1 - s)) with s = sigmoid(x), from x alone: y need not be kept too."""
    s = t.sigmoid(x)
    made: Value = t.mul(s, t.add(t.mul(x, _one_minus(t, s)), t.constant_of(1.0, x.type.dtype)))
    return made


def _relu(t: Tape, x: Value, y: Value) -> Value:
    """1 where y > 0, else 0."""
    made: Value = t.cast(t.gt(y, t.constant_of(0.0, y.type.dtype)), to=y.type.dtype)
    return made


def _erf(t: Tape, x: Value, y: Value) -> Value:
    """2 / sqrt(pi) e^(-x^2)."""
    return t.scaled(t.exp(t.neg(t.mul(x, x))), 2 / math.sqrt(math.pi))


def _half(t: Tape, x: Value, y: Value) -> Value:
    """-1/2 y^3, the derivative of rsqrt."""
    return t.scaled(t.mul(y, t.mul(y, y)), -0.5)


UNARY: dict[str, Grad] = {
    "exp": unary(lambda t, x, y: y, once=True),
    "log": unary(lambda t, x, y: t.reciprocal(x)),
    "sqrt": unary(lambda t, x, y: t.div(t.constant_of(0.5, y.type.dtype), y)),
    "rsqrt": unary(_half),
    "reciprocal": unary(lambda t, x, y: t.neg(t.mul(y, y))),
    "sin": unary(lambda t, x, y: t.cos(x)),
    "cos": unary(lambda t, x, y: t.neg(t.sin(x))),
    "tanh": unary(lambda t, x, y: _one_minus(t, t.mul(y, y))),
    "erf": unary(_erf),
    "abs": unary(lambda t, x, y: t.sign(x), once=True),
    "sigmoid": unary(_sigmoid),
    "silu": unary(_silu),
    "relu": unary(_relu, once=True),
    "softplus": unary(lambda t, x, y: t.sigmoid(x)),
}
"""By op, for those that take a product with a derivative."""


def _neg(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    return [t.narrow(t.neg(_there(dys[0])), 0)]


UNARY["neg"] = _neg


@once
def _same(t: Tape, dy: Value, a: Value, b: Value, y: Value) -> Value:
    return dy


def _picked(first_wins: str, mine: int) -> Partial:
    """The part of dy for an operand of a maximum or minimum: all where it won, half where both are equal."""

    @once
    def partial(t: Tape, dy: Value, a: Value, b: Value, y: Value) -> Value:
        won = t.node(first_wins, *((a, b) if mine == 0 else (b, a))).result
        none = t.constant_of(0.0, dy.type.dtype)
        made: Value = t.select(won, dy, t.select(t.eq(a, b), t.scaled(dy, 0.5), none))
        return made

    return partial


def _pow_base(t: Tape, dy: Value, a: Value, b: Value, y: Value) -> Value:
    """b a^(b - 1)."""
    made: Value = t.mul(dy, t.mul(b, t.pow(a, t.sub(b, t.constant_of(1.0, b.type.dtype)))))
    return made


def _pow_exponent(t: Tape, dy: Value, a: Value, b: Value, y: Value) -> Value:
    """y log(a), and 0 where a is 0 (there y is constant for b > 0)."""
    zero = t.constant_of(0.0, a.type.dtype)
    made: Value = t.mul(dy, t.mul(y, t.select(t.eq(a, zero), zero, t.log(a))))
    return made


def _modulo_divisor(t: Tape, dy: Value, a: Value, b: Value, y: Value) -> Value:
    """-(a - y) / b, minus the whole number of times that b goes into a."""
    made: Value = t.mul(dy, t.round(t.div(t.sub(y, a), b)))
    return made


BINARY: dict[str, Grad] = {
    "add": binary(_same, _same),
    "sub": binary(_same, once(lambda t, dy, a, b, y: t.neg(dy))),
    "mul": binary(once(lambda t, dy, a, b, y: t.mul(dy, b)), once(lambda t, dy, a, b, y: t.mul(dy, a))),
    "div": binary(
        once(lambda t, dy, a, b, y: t.div(dy, b)),
        lambda t, dy, a, b, y: t.neg(t.div(t.mul(dy, y), b)),
    ),
    "pow": binary(_pow_base, _pow_exponent),
    "minimum": binary(_picked("lt", 0), _picked("lt", 1)),
    "maximum": binary(_picked("gt", 0), _picked("gt", 1)),
    "mod": binary(_same, _modulo_divisor),
}
"""By op, for those on two operands."""


def gelu(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """Phi(x) + x phi(x); of the tanh form its own derivative."""
    x = t.wide(node.operand(0))
    slope = _gelu_tanh(t, x) if node.attrs["approximate"] == "tanh" else _gelu_erf(t, x)
    return [t.narrow(t.mul(t.wide(_there(dys[0])), slope), 0)]


def _gelu_erf(t: Tape, x: Value) -> Value:
    below = t.scaled(t.add(t.erf(t.scaled(x, math.sqrt(0.5))), t.constant_of(1.0, x.type.dtype)), 0.5)
    density = t.scaled(t.exp(t.scaled(t.mul(x, x), -0.5)), 1 / math.sqrt(2 * math.pi))
    made: Value = t.add(below, t.mul(x, density))
    return made


def _gelu_tanh(t: Tape, x: Value) -> Value:
    """With u = c (x + k x^3) and h = tanh(u): (1 + h) / 2 + x (1 - h^2) c (1 + 3 k x^2) / 2."""
    c, k, one = math.sqrt(2 / math.pi), 0.044715, t.constant_of(1.0, x.type.dtype)
    square = t.mul(x, x)
    inner = t.scaled(t.mul(x, t.add(t.scaled(square, k), one)), c)
    h = t.tanh(inner)
    steep = t.scaled(t.add(t.scaled(square, 3 * k), one), 0.5 * c)
    made: Value = t.add(t.scaled(t.add(h, one), 0.5), t.mul(x, t.mul(_one_minus(t, t.mul(h, h)), steep)))
    return made


def cast(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """dy in x's dtype; rounding has derivative 1."""
    return [t.narrow(_there(dys[0]), 0)]


def select(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """dy where the operand was taken, else 0."""
    cond, dy = node.operand(0), _there(dys[0])
    zero = t.constant_of(0.0, dy.type.dtype)
    found: list[Value | None] = [None]
    for i, pair in ((1, (dy, zero)), (2, (zero, dy))):
        if not t.wanted(i):
            found.append(None)
            continue
        part, operand = t.select(cond, *pair), node.operand(i)
        part = part if part.type.dims == operand.type.dims else t.wide(part)
        found.append(t.narrow(t.summed(part, operand), i))
    return found


UNARY["gelu"] = gelu

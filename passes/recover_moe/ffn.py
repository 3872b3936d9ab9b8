"""Experts: which weights, activation and layout the computation of a row is made of, and where the routing weight
enters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moec.passes.recover_moe.contents import Tree
from moec.passes.recover_moe.static import Ref, changed

PLAIN = {"alpha": 1.0, "limit": None, "up_offset": 0.0}


class NoExpert(Exception):
    """A row's computation is no expert that ``moe`` can express."""


@dataclass
class FFN:
    """An expert: stacked ([E, ...]) or single weights, the activation's attributes, and where the routing weight
    applies."""

    gate_up: Ref
    down: Ref
    gate_up_bias: Ref | None
    down_bias: Ref | None
    activation: dict[str, Any]
    weights_on: str
    route: Any = None
    """The value that holds the routing weights; None for a shared expert."""
    gate: Ref | None = None
    """A shared expert's own gate [1, H]."""


def uncast(tree: Tree) -> Tree:
    """Without casts between floats: the block rounds once, at its end."""
    while tree.op == "cast":
        tree = tree.args[0]
    return tree


def routed(tree: Tree) -> FFN:
    """The expert that the tree of a slot's row is. Raises NoExpert with the reason."""
    tree = uncast(tree)
    route, tree = _peel(tree)
    where = "output" if route is not None else ""
    tree, down, down_bias = _linear(tree, "down projection")
    if not where:
        route, tree = _peel(tree)
        where = "activation" if route is not None else ""
    ffn, source = _gated(tree)
    ffn.down, ffn.down_bias = down, down_bias
    if not where:
        route, source = _peel(source)
        where = "input" if route is not None else ""
    if not where:
        raise NoExpert("the expert's output is not multiplied by a routing weight")
    _is_token(source)
    ffn.weights_on, ffn.route = where, route
    return ffn


def shared(tree: Tree) -> FFN:
    """The shared expert that the tree of a token's row is, with its sigmoid gate if it has one. Raises NoExpert."""
    tree = uncast(tree)
    gate = None
    if tree.op == "mul":
        for one, other in ((tree.args[0], tree.args[1]), (tree.args[1], tree.args[0])):
            scored = uncast(one)
            if scored.op == "sigmoid" and uncast(scored.args[0]).op == "matmul":
                source, gate, bias = _linear(uncast(scored.args[0]), "shared gate")
                _is_token(source)
                if bias is not None or gate.shape[-2] != 1:
                    raise NoExpert("the shared expert's gate is no single column")
                tree = uncast(other)
                break
    tree, down, down_bias = _linear(tree, "shared down projection")
    ffn, source = _gated(tree)
    _is_token(source)
    if down_bias is not None or ffn.gate_up_bias is not None:
        raise NoExpert("the shared expert has biases")
    ffn.down, ffn.gate = down, gate
    return ffn


def _is_token(tree: Tree) -> None:
    if uncast(tree).op != "x":
        raise NoExpert(f"the expert's input is {uncast(tree).op}, not the token")


def _peel(tree: Tree) -> tuple[Any, Tree]:
    """A product with the routing weight taken apart: the weight's value (None where there is none) and the rest."""
    tree = uncast(tree)
    if tree.op == "mul":
        for one, other in ((tree.args[0], tree.args[1]), (tree.args[1], tree.args[0])):
            if uncast(one).op == "route":
                return uncast(one).attrs, uncast(other)
    return None, tree


def _linear(tree: Tree, what: str) -> tuple[Tree, Ref, Ref | None]:
    """Input, weight [.., out, in] and bias of a linear layer."""
    tree = uncast(tree)
    bias = None
    if tree.op == "add" and tree.args[1].op == "weight":
        bias = tree.args[1].attrs[1]
        tree = uncast(tree.args[0])
    if tree.op != "matmul" or tree.args[1].op != "weight":
        raise NoExpert(f"the {what} is no product with a weight but {tree.op}")
    return uncast(tree.args[0]), tree.args[1].attrs[1], bias


def _gated(tree: Tree) -> tuple[FFN, Tree]:
    """The activation and what stands before it; the caller fills in the down projection."""
    tree = uncast(tree)
    if tree.op == "swiglu":
        source, weight, bias = _linear(tree.args[0], "gate and up projection")
        return _ffn(weight, bias, dict(tree.attrs)), source
    if tree.op == "mul":
        for one, other in ((tree.args[0], tree.args[1]), (tree.args[1], tree.args[0])):
            act = activation(one)
            if act is not None:
                return _clamped_glu(act, uncast(other))
    act = activation(tree)
    if act is None:
        raise NoExpert(f"no activation but {tree.op} stands before the down projection")
    source, weight, bias = _linear(act.argument, "up projection")
    return _ffn(weight, bias, {"activation": act.name, "glu": "none", **PLAIN, "alpha": act.alpha}), source


def _ffn(weight: Ref, bias: Ref | None, attrs: dict[str, Any]) -> FFN:
    return FFN(weight, weight, bias, None, attrs, "")


@dataclass(frozen=True)
class Activation:
    """An activation by name, its argument, and what multiplies the argument of silu's sigmoid."""

    name: str
    argument: Tree
    alpha: float = 1.0


def activation(tree: Tree) -> Activation | None:
    """The activation that a tree is."""
    tree = uncast(tree)
    if tree.op in ("silu", "relu", "sigmoid"):
        return Activation(tree.op, uncast(tree.args[0]))
    if tree.op == "gelu":
        return Activation("gelu_tanh" if tree.attrs == "tanh" else "gelu", uncast(tree.args[0]))
    if tree.op == "mul":
        for one, other in ((tree.args[0], tree.args[1]), (tree.args[1], tree.args[0])):
            scored = uncast(one)
            if scored.op == "sigmoid":
                alpha, argument = _scaled(scored.args[0])
                if argument is uncast(other):
                    return Activation("silu", argument, alpha)
    return None


def _scaled(tree: Tree) -> tuple[float, Tree]:
    """A number and what it multiplies; 1 where it multiplies nothing."""
    tree = uncast(tree)
    number, rest = _with_number(tree, "mul")
    return (1.0, tree) if rest is None else (number, rest)


def _with_number(tree: Tree, op: str) -> tuple[float, Tree | None]:
    """The number and the other operand of ``op``; no operand where it is something else."""
    if tree.op == op:
        for one, other in ((tree.args[0], tree.args[1]), (tree.args[1], tree.args[0])):
            if uncast(one).op == "number":
                return float(uncast(one).attrs), uncast(other)
    return 0.0, None


def _clamped_glu(act: Activation, up: Tree) -> tuple[FFN, Tree]:
    """act(gate) * (up + offset) where both may be clamped: gate from above, up on both sides (GPT-OSS)."""
    offset, inner = _with_number(up, "add")
    gate, up = act.argument, up if inner is None else inner
    limit, below = _with_number(gate, "minimum")
    if below is not None:
        high, up = _between(up)
        if high != limit:
            raise NoExpert(f"gate is clamped at {limit}, up at {high}")
        gate = below
    attrs = {"alpha": act.alpha, "up_offset": offset, "limit": None if below is None else limit}
    ffn, source = _glu(act.name, gate, up)
    ffn.activation |= attrs
    return ffn, source


def _between(up: Tree) -> tuple[float | None, Tree]:
    """The limit on both sides of a clamped tree and the tree; None where it is not clamped so."""
    for first, second in (("minimum", "maximum"), ("maximum", "minimum")):
        a, inner = _with_number(up, first)
        if inner is None:
            continue
        b, rest = _with_number(inner, second)
        if rest is not None and a == -b:
            return abs(a), rest
    return None, up


def _glu(name: str, gate: Tree, up: Tree) -> tuple[FFN, Tree]:
    """act(gate) * up: two projections of one input, or two parts of one projection."""
    attrs = {"activation": name, **PLAIN}
    if gate.op == "slice" and up.op == "slice" and uncast(gate.args[0]) is uncast(up.args[0]):
        start, stop, step, width = gate.attrs
        halves = {
            ((0, width // 2, 1), (width // 2, width, 1)): "chunked",
            ((0, width, 2), (1, width, 2)): "interleaved",
        }
        layout = halves.get(((start, stop, step), up.attrs[:3]))
        if layout is None:
            raise NoExpert(f"gate and up are the parts {gate.attrs[:3]} and {up.attrs[:3]} of {width} features")
        source, weight, bias = _linear(gate.args[0], "gate and up projection")
        return _ffn(weight, bias, {**attrs, "glu": layout}), source
    source, first, bias = _linear(gate, "gate projection")
    other, second, other_bias = _linear(up, "up projection")
    if not _equal(source, other):
        raise NoExpert("gate and up projections have different inputs")
    if first.shape != second.shape or (bias is None) != (other_bias is None):
        raise NoExpert("gate and up projections are not alike")
    axis = len(first.shape) - 2
    joined = None if bias is None or other_bias is None else changed("concat", bias, other_bias, axis=axis)
    return _ffn(changed("concat", first, second, axis=axis), joined, {**attrs, "glu": "chunked"}), source


def _equal(a: Tree, b: Tree) -> bool:
    """Whether two trees compute the same."""
    a, b = uncast(a), uncast(b)
    if a is b:
        return True
    if a.op != b.op or len(a.args) != len(b.args) or a.op == "weight" or a.attrs is not b.attrs:
        return False
    return all(_equal(x, y) for x, y in zip(a.args, b.args, strict=True))

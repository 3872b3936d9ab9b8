"""What a mask says, as conditions on the positions of query and key, whatever arithmetic an exporter made it by.

A value means, at each index, a number: affine in the index, or one number or another by a condition; a bool value is
a condition. Everything that depends on inputs has no meaning here: such a mask stays an operand.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from moec.ir.graph import Module, Node, Value
from moec.passes.effects import called
from moec.passes.recover_attention.conditions import (
    Affine,
    AtMostZero,
    Case,
    Meaning,
    both,
    chosen,
    condition,
    either,
    is_condition,
    moved,
    negated,
    number,
    parts,
    triangle,
    with_affine,
)
from moec.passes.recover_attention.numbers import contents, scalar
from moec.passes.recover_attention.tables import table

READ_LIMIT = 1 << 22
"""Constant masks of more elements than this are not looked into."""

PARTS = 64
"""What takes more comparisons and cases than this to say is not followed."""


class Masks:
    """Meanings of the values of a module, worked out when asked for.

    What a function is given means what all its callers give it, where they give it the same.
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        self._known: dict[Value, Meaning | None] = {}
        self._calls: dict[Value, list[Value | None]] | None = None

    def of(self, value: Value) -> Meaning | None:
        """What ``value`` means by its own axes; None where that depends on inputs or is not followed."""
        stack = [value]
        while stack:
            v = stack[-1]
            if v in self._known:
                stack.pop()
                continue
            node = v.producer
            if node is None:
                self._known[v] = None  # recursion ends here
                self._known[v] = self._given(v)
                continue
            if v.type.shape is None or node.op not in _RULES:
                self._known[v] = None
                continue
            missing = [o for o in node.operands if o is not None and o not in self._known]
            if missing:
                stack.extend(missing)
                continue
            known = [self._known[o] for o in node.operands if o is not None]
            found = None if None in known else _RULES[node.op](node, [k for k in known if k is not None])
            self._known[v] = None if found is None or parts(found) > PARTS else found
        return self._known[value]

    def parameters(self, value: Value) -> list[Value]:
        """The function inputs that a value with a meaning is made of."""
        found: dict[Value, None] = {}
        stack, seen = [value], {value}
        while stack:
            v = stack.pop()
            if v.producer is None:
                found[v] = None
                continue
            fresh = [o for o in v.producer.operands if o is not None and o not in seen]
            seen.update(fresh)
            stack.extend(fresh)
        return list(found)

    def _given(self, parameter: Value) -> Meaning | None:
        """What every caller gives for a function's input."""
        if self._calls is None:
            self._calls = _arguments(self._module)
        arguments = self._calls.get(parameter, [])
        found = [None if a is None or a.type != parameter.type else self.of(a) for a in arguments]
        return found[0] if found and all(m == found[0] for m in found) else None


def _arguments(module: Module) -> dict[Value, list[Value | None]]:
    """For each input of a function, what it is given; None where that is done by something else than a call."""
    found: dict[Value, list[Value | None]] = {}
    for node in module.nodes():
        for name in called(node):
            inputs = module.functions[name].inputs
            operands = node.operands if node.op == "call" else [None] * len(inputs)
            for parameter, operand in zip(inputs, operands, strict=False):
                found.setdefault(parameter, []).append(operand)
    return found


Rule = Callable[[Node, list[Meaning]], "Meaning | None"]
_RULES: dict[str, Rule] = {}


def _rule(*ops: str) -> Callable[[Rule], Rule]:
    def register(fn: Rule) -> Rule:
        _RULES.update(dict.fromkeys(ops, fn))
        return fn

    return register


@_rule("constant", "weight")
def _contents(node: Node, known: list[Meaning]) -> Meaning | None:
    number = scalar(node.result)
    if number is not None:
        return bool(number) if node.result.type.dtype.kind == "bool" else number
    data = contents(node.result)
    return None if data is None or data.size > READ_LIMIT else table(data.numpy())


@_rule("iota")
def _iota(node: Node, known: list[Meaning]) -> Meaning:
    return Affine(0, ((0, 1),)) if node.attrs["size"] != 1 else Affine(0)


@_rule("dims")
def _dims(node: Node, known: list[Meaning]) -> Meaning | None:
    sizes = node.attrs["values"]
    return Affine(sizes[0]) if len(sizes) == 1 else None


@_rule("range")
def _range(node: Node, known: list[Meaning]) -> Meaning | None:
    start, _, step = map(_affine, known)
    if start is None or step is None or start.steps or step.steps or not isinstance(step.const, int):
        return None
    return Affine(start.const, ((0, step.const),) if step.const else ())


def _affine(m: Meaning) -> Affine | None:
    if isinstance(m, float) and m.is_integer():
        return Affine(int(m))
    return m if isinstance(m, Affine) else None


@_rule("reshape")
def _reshape(node: Node, known: list[Meaning]) -> Meaning | None:
    old, new = (
        [i for i, d in enumerate(dims) if d != 1] for dims in (node.operand(0).type.dims, node.result.type.dims)
    )
    if [node.operand(0).type.dims[i] for i in old] != [node.result.type.dims[i] for i in new]:
        return known[0] if isinstance(known[0], bool | float) else None
    return moved(known[0], dict(zip(old, new, strict=True)).get)


@_rule("transpose")
def _transpose(node: Node, known: list[Meaning]) -> Meaning | None:
    return moved(known[0], node.attrs["perm"].index)


@_rule("expand")
def _expand(node: Node, known: list[Meaning]) -> Meaning | None:
    lead = node.result.type.rank - node.operand(0).type.rank
    return moved(known[0], lambda a: a + lead)


@_rule("slice")
def _slice(node: Node, known: list[Meaning]) -> Meaning | None:
    axis, start, step = (node.attrs[k] for k in ("axis", "start", "step"))

    def cut(m: Affine) -> Affine:
        at = dict(m.steps).get(axis, 0)
        return Affine(m.const + start * at, tuple((a, s * step if a == axis else s) for a, s in m.steps))

    return with_affine(known[0], cut)


@_rule("trilu")
def _trilu(node: Node, known: list[Meaning]) -> Meaning | None:
    inside = triangle(node.attrs["upper"], node.attrs["k"], node.result.type.rank)
    if is_condition(known[0]):
        return both(condition(known[0]), inside)
    return Case(inside, number(known[0]), 0.0)


@_rule("not")
def _not(node: Node, known: list[Meaning]) -> Meaning:
    return negated(condition(known[0]))


@_rule("cast")
def _cast(node: Node, known: list[Meaning]) -> Meaning | None:
    m, to = known[0], node.attrs["to"]
    if to.kind == "bool":
        return m if is_condition(m) else _leaves(m, lambda x: None if isinstance(x, Affine) else x != 0)
    if is_condition(m):
        return Case(condition(m), 1.0, 0.0)
    if to.is_int:
        return _leaves(m, lambda x: x if isinstance(x, Affine) or not math.isfinite(x) else float(math.trunc(x)))
    return m


def _leaves(m: Meaning, fn: Callable[[float | Affine], Meaning | None]) -> Meaning | None:
    """``fn`` of the number at each index; conditions come together, numbers stay by case."""
    if isinstance(m, Case):
        yes, no = _leaves(m.yes, fn), _leaves(m.no, fn)
        return None if yes is None or no is None else chosen(m.when, yes, no)
    return fn(m) if isinstance(m, float | Affine) and not isinstance(m, bool) else None


@_rule("select")
def _select(node: Node, known: list[Meaning]) -> Meaning | None:
    when, yes, no = _aligned(node, known)
    return chosen(condition(when), yes, no)


def _aligned(node: Node, known: list[Meaning]) -> list[Meaning]:
    """Operands' meanings by the axes of the result."""
    rank = node.result.type.rank
    found: list[Meaning] = []
    for m, v in zip(known, node.operands, strict=True):
        assert v is not None
        lead = rank - v.type.rank
        shifted = moved(m, lead.__add__)
        assert shifted is not None
        found.append(shifted)
    return found


def _paired(pair: list[Meaning], fn: Callable[[float | Affine, float | Affine], Meaning | None]) -> Meaning | None:
    a, b = pair
    return _leaves(a, lambda x: _leaves(b, lambda y: fn(x, y)))


def _numeric(op: Callable[[float, float], float], on_affine: Callable[[Affine, Affine], Affine | None]) -> Rule:
    def leaf(x: float | Affine, y: float | Affine) -> Meaning | None:
        if isinstance(x, float) and isinstance(y, float):
            with np.errstate(all="ignore"):
                z = op(x, y)
            return None if math.isnan(z) else z
        p, q = _affine(x), _affine(y)
        return None if p is None or q is None else on_affine(p, q)

    return lambda node, known: _paired(_aligned(node, known), leaf)


def _product(p: Affine, q: Affine) -> Affine | None:
    for a, b in ((p, q), (q, p)):
        if not a.steps and isinstance(a.const, int):
            return b.scaled(a.const)
    return None


_RULES["add"] = _numeric(lambda x, y: x + y, lambda p, q: p.plus(q))
_RULES["sub"] = _numeric(lambda x, y: x - y, lambda p, q: p.plus(q, -1))
_RULES["mul"] = _numeric(lambda x, y: x * y, _product)


@_rule("neg")
def _neg(node: Node, known: list[Meaning]) -> Meaning | None:
    return _leaves(known[0], lambda x: x.scaled(-1) if isinstance(x, Affine) else -x)


def _at_most(x: float | Affine, y: float | Affine, plus: int = 0) -> Meaning | None:
    """x + plus <= y, in integers where either is affine."""
    if isinstance(x, float) and isinstance(y, float):
        return x <= y if not plus else x < y
    p, q = _affine(x), _affine(y)
    return None if p is None or q is None else AtMostZero(p.plus(q, -1).plus(Affine(plus)))


def _comparison(fn: Callable[[float | Affine, float | Affine], Meaning | None]) -> Rule:
    return lambda node, known: None if any(map(is_condition, known)) else _paired(_aligned(node, known), fn)


def _equal(x: float | Affine, y: float | Affine) -> Meaning | None:
    if isinstance(x, float) and isinstance(y, float):
        return x == y
    a, b = _at_most(x, y), _at_most(y, x)
    return None if a is None or b is None else both(condition(a), condition(b))


def _unequal(x: float | Affine, y: float | Affine) -> Meaning | None:
    same = _equal(x, y)
    return None if same is None else negated(condition(same))


_RULES["le"] = _comparison(_at_most)
_RULES["lt"] = _comparison(lambda x, y: _at_most(x, y, 1))
_RULES["ge"] = _comparison(lambda x, y: _at_most(y, x))
_RULES["gt"] = _comparison(lambda x, y: _at_most(y, x, 1))
_RULES["eq"] = _comparison(_equal)
_RULES["ne"] = _comparison(_unequal)


@_rule("and")
def _and(node: Node, known: list[Meaning]) -> Meaning:
    a, b = _aligned(node, known)
    return both(condition(a), condition(b))


@_rule("or")
def _or(node: Node, known: list[Meaning]) -> Meaning:
    a, b = _aligned(node, known)
    return either(condition(a), condition(b))

"""The syntax tree's nodes out of the grammar's, bottom up and without recursion."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lark import Token, Tree
from lark.visitors import Transformer_NonRecursive, v_args

from moec.frontend.dsl import tree as t
from moec.frontend.dsl.report import Span
from moec.frontend.dsl.split import span

MAX_DEPTH = 64
"""Levels of an expression (chains such as ``a + b + c`` count once); deeper ones are refused."""

MAX_DIGITS = 19
"""Digits of an integer: what a 64-bit one can have."""


class Unreadable(Exception):
    """A statement that fits the grammar but cannot be taken."""

    def __init__(self, at: Span, what: str, todo: str = ""):
        super().__init__(what)
        self.at, self.what, self.todo = at, what, todo


def _depth(*parts: Any) -> int:
    return 1 + max((p.depth for p in parts if p is not None), default=0)


def _present(children: list[Any]) -> tuple[Any, ...]:
    return tuple(c for c in children if c is not None)


def _name(token: Token) -> t.Name:
    return t.Name(span(token), str(token))


def _at(meta: Any) -> Span:
    return Span(meta.line, meta.column, meta.start_pos, meta.end_pos) if not meta.empty else Span(1, 1)


@v_args(meta=True)
class TreeBuilder(Transformer_NonRecursive):
    """Makes the syntax tree's nodes out of the grammar's, bottom up and without recursion."""

    def start(self, meta: Any, children: list[Any]) -> Any:
        return children[0]

    def use(self, meta: Any, c: list[Any]) -> t.Use:
        return t.Use(span(c[0]), tuple(map(_name, c[1:])))

    def dim(self, meta: Any, c: list[Any]) -> t.Dim:
        return t.Dim(span(c[1]), str(c[1]), c[3], c[4], c[5])

    def group(self, meta: Any, c: list[Any]) -> t.Group:
        low, high = c[2] or (None, None)
        return t.Group(span(c[1]), str(c[1]), low, high, c[3], c[4])

    def bounds(self, meta: Any, c: list[Any]) -> tuple[Any, Any]:
        return c[1], c[2]

    def over(self, meta: Any, c: list[Any]) -> t.Name:
        _expect(c[0], "over")
        return _name(c[1])

    def shardings(self, meta: Any, c: list[Any]) -> tuple[t.Sharding, ...]:
        return tuple(c)

    def sharding(self, meta: Any, c: list[Any]) -> t.Sharding:
        _expect(c[0], "sharded")
        _expect(c[2], "axis")
        return t.Sharding(span(c[0]), _name(c[1]), c[3])

    def typed(self, meta: Any, c: list[Any]) -> t.Declared:
        return t.Declared(span(c[0]), str(c[0]), c[1], c[2], str(c[0]))

    def weight_item(self, meta: Any, c: list[Any]) -> t.Declared:
        return t.Declared(span(c[0]), str(c[0]), c[1], c[2], str(c[0]) if c[3] is None else _string(c[3]))

    def input(self, meta: Any, c: list[Any]) -> t.Input:
        return t.Input(_at(meta), tuple(c[1:]))

    def weight(self, meta: Any, c: list[Any]) -> t.Weight:
        return t.Weight(_at(meta), tuple(c[1:]))

    def output_item(self, meta: Any, c: list[Any]) -> tuple[t.Name, Any]:
        return _name(c[0]), c[1]

    def output(self, meta: Any, c: list[Any]) -> t.Output:
        return t.Output(_at(meta), tuple(c[1:]))

    def assign(self, meta: Any, c: list[Any]) -> t.Assign:
        return t.Assign(_at(meta), tuple(map(_name, c[:-1])), c[-1])

    def return_(self, meta: Any, c: list[Any]) -> t.Return:
        return t.Return(_at(meta), tuple(c[1:]))

    def fn(self, meta: Any, c: list[Any]) -> t.Fn:
        return t.Fn(span(c[1]), str(c[1]), c[2] or (), c[3] or (), c[4])

    def layer(self, meta: Any, c: list[Any]) -> t.Fn:
        stored = str(c[1]) if c[5] is None else _string(c[5])
        return t.Fn(span(c[1]), str(c[1]), c[2] or (), c[3] or (), c[4], stored)

    def for_(self, meta: Any, c: list[Any]) -> t.For:
        return t.For(span(c[0]), _name(c[1]), c[3], c[4])

    def host(self, meta: Any, c: list[Any]) -> t.Host:
        return t.Host(span(c[0]))

    def fn_dims(self, meta: Any, c: list[Any]) -> tuple[t.Name, ...]:
        return tuple(map(_name, c))

    def params(self, meta: Any, c: list[Any]) -> tuple[Any, ...]:
        return _present(c)

    def param(self, meta: Any, c: list[Any]) -> t.Param:
        kind = c[1] if isinstance(c[1], str) else "tensor"
        return t.Param(span(c[0]), str(c[0]), c[1] if isinstance(c[1], t.Type) else None, kind)

    def kind(self, meta: Any, c: list[Any]) -> str:
        return str(c[0])

    def fn_results(self, meta: Any, c: list[Any]) -> tuple[Any, ...]:
        return tuple(c)

    def type(self, meta: Any, c: list[Any]) -> t.Type:
        return t.Type(_at(meta), str(c[0]), _present(c[1:]))

    def rest(self, meta: Any, c: list[Any]) -> t.Rest:
        return t.Rest(_at(meta))

    def binary(self, meta: Any, c: list[Any]) -> t.Binary:
        left, op, right = c
        depth = max(left.depth if isinstance(left, t.Binary) else _depth(left), _depth(right))
        return _bounded(t.Binary(span(op), str(op), left, right, depth))

    def unary(self, meta: Any, c: list[Any]) -> Any:
        if str(c[0]) == "+":
            raise Unreadable(span(c[0]), "there is no unary '+'", "leave it out")
        return _bounded(t.Unary(span(c[0]), str(c[0]), c[1], _depth(c[1])))

    def member(self, meta: Any, c: list[Any]) -> t.Member:
        return _bounded(t.Member(span(c[1]), c[0], str(c[1]), _depth(c[0])))

    def subscript(self, meta: Any, c: list[Any]) -> t.Subscript:
        return _bounded(t.Subscript(_at(meta), c[0], tuple(c[1:]), _depth(*c)))

    def span(self, meta: Any, c: list[Any]) -> t.Part:
        return t.Part(_at(meta), c[0], c[1], c[2], _depth(*c))

    def call(self, meta: Any, c: list[Any]) -> t.Call:
        return _call(c[0], c[1] or (), ())

    def instances(self, meta: Any, c: list[Any]) -> t.Call:
        if not isinstance(c[0], t.Name):
            raise Unreadable(_at(meta), "what is called with a subscript is a layer by its name")
        return _call(c[0], c[-1] or (), tuple(c[1:-1]))

    def arguments(self, meta: Any, c: list[Any]) -> tuple[Any, ...]:
        return _present(c)

    def keyword(self, meta: Any, c: list[Any]) -> tuple[t.Name, Any]:
        return _name(c[0]), c[1]

    def spread(self, meta: Any, c: list[Any]) -> Tree:
        if str(c[0]) != "**":
            raise Unreadable(span(c[0]), f"unexpected '{c[0]}'")
        return Tree("spread", [c[1]])

    def name(self, meta: Any, c: list[Any]) -> t.Name:
        return _name(c[0])

    def integer(self, meta: Any, c: list[Any]) -> t.Literal:
        digits = c[0].replace("_", "")
        if len(digits) > MAX_DIGITS or int(digits) >= 2**63:
            raise Unreadable(span(c[0]), "this integer does not fit 64 bits")
        return t.Literal(span(c[0]), int(digits))

    def float(self, meta: Any, c: list[Any]) -> t.Literal:
        value = float(c[0])
        if value == float("inf"):
            raise Unreadable(span(c[0]), f"{c[0]} does not fit a 64-bit float", "write inf for infinity")
        return t.Literal(span(c[0]), value)

    def string(self, meta: Any, c: list[Any]) -> t.Literal:
        return t.Literal(span(c[0]), _string(c[0]))

    def constant(self, meta: Any, c: list[Any]) -> t.Literal:
        value = {"true": True, "false": False, "none": None, "inf": float("inf")}[str(c[0])]
        return t.Literal(span(c[0]), value)

    def items(self, meta: Any, c: list[Any]) -> t.Items:
        items = _present(c)
        return _bounded(t.Items(_at(meta), items, _depth(*items)))

    def record(self, meta: Any, c: list[Any]) -> t.Fields:
        fields = _present(c)
        return _bounded(t.Fields(_at(meta), fields, _depth(*(v for _, v in fields))))

    def field(self, meta: Any, c: list[Any]) -> tuple[t.Name, Any]:
        return _name(c[0]), c[1]


setattr(TreeBuilder, "return", TreeBuilder.return_)
setattr(TreeBuilder, "for", TreeBuilder.for_)


def _call(callee: Any, arguments: Sequence[Any], instances: tuple[Any, ...]) -> t.Call:
    """A call of the function that a token, or of the layer that a name, names."""
    at, name = (callee.at, callee.text) if isinstance(callee, t.Name) else (span(callee), str(callee))
    args: list[Any] = []
    keywords: list[Any] = []
    spreads: list[Any] = []
    for argument in arguments:
        if isinstance(argument, tuple):
            keywords.append(argument)
        elif isinstance(argument, Tree):
            spreads.append(argument.children[0])
        elif keywords or spreads:
            raise Unreadable(
                argument.at, "an operand stands after the attributes", "give operands first, then name = value"
            )
        else:
            args.append(argument)
    depth = _depth(*args, *spreads, *(v for _, v in keywords), *instances)
    return _bounded(t.Call(at, name, tuple(args), tuple(keywords), tuple(spreads), depth, instances))


def _expect(token: Token, word: str) -> None:
    if str(token) != word:
        raise Unreadable(span(token), f"unexpected '{token}'", f"expected {word}")


def _bounded(node: Any) -> Any:
    if node.depth > MAX_DEPTH:
        raise Unreadable(
            node.at, f"this expression is nested deeper than {MAX_DEPTH}", "name its parts in statements of their own"
        )
    return node


def _string(token: Token) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        raise Unreadable(
            span(token), "this string has an escape that JSON does not know", "write \\\\ for a backslash"
        ) from None

"""The built-in functions that are no ops: of dimensions, constants, and sizes that come from data."""

from __future__ import annotations

from moec.frontend.dsl import tree as t
from moec.frontend.dsl.expr import emit
from moec.frontend.dsl.functions import Arguments
from moec.frontend.dsl.literal import array
from moec.frontend.dsl.scope import Scope
from moec.frontend.dsl.values import UNKNOWN, Item, call_builtin, is_dim, kind_of
from moec.ir.graph import Value
from moec.ir.symbol import DEFAULT_BOUND, bounds, sym
from moec.ir.types import DType

_TAKES = {"tensor": "tensor(NUMBERS, DTYPE)", "size": "size(TENSOR, at_most = DIMENSION)"}


def call_builtin_function(expr: t.Call, given: Arguments, scope: Scope) -> Item:
    """The result of ``ceildiv``, ``min``, ``max``, ``tensor`` or ``size``."""
    items = [item for _, item in given.places]
    keywords = {name: item for name, (_, item) in given.keywords.items()}
    right = list(keywords) == ["at_most"] and len(items) == 1 if expr.fn == "size" else len(items) == 2 and not keywords
    if not right and not given.incomplete:
        wants = _TAKES.get(expr.fn, f"{expr.fn}(A, B)")
        return scope.wrong(expr.at, f"{expr.fn} takes two arguments", f"write {wants}")
    if given.has_unknown() or given.incomplete:
        return UNKNOWN
    try:
        if expr.fn == "size":
            return _size(expr, items[0], keywords["at_most"], scope)
        if expr.fn != "tensor":
            return call_builtin(expr.fn, items[0], items[1], scope.program.module.symbols)
        if not isinstance(items[1], DType):
            raise ValueError(f"the second argument is a dtype, not {kind_of(items[1])}")
        return emit("constant", [], {"value": array(items[0], items[1])}, expr.at, scope)
    except ValueError as error:
        return scope.wrong(expr.at, f"{expr.fn}: {error}")


def _size(expr: t.Call, item: Item, at_most: Item, scope: Scope) -> Item:
    """A new dimension, known once the tensor is: 0 to ``at_most``. ValueError says what is wrong."""
    if not isinstance(item, Value):
        raise ValueError(f"the first argument is a tensor of one integer, not {kind_of(item)}")
    if not is_dim(at_most):
        raise ValueError(f"at_most is a dimension, not {kind_of(at_most)}")
    symbols = scope.program.module.symbols
    low, high = 0, bounds(at_most, symbols)[1]
    if high < 0:
        raise ValueError(f"at_most is negative ({at_most})")
    if high > DEFAULT_BOUND[1]:
        raise ValueError(f"at_most may be {high:,}, and no size is over {DEFAULT_BOUND[1]:,}: bound its dims lower")
    name = _fresh(item.name.rsplit(".", 1)[-1] if item.name.isascii() else "", scope)
    symbols[name] = low, high
    found = emit("bind_size", [item], {"value": sym(name)}, expr.at, scope)
    return UNKNOWN if found is UNKNOWN else sym(name)


def _fresh(base: str, scope: Scope) -> str:
    """A symbol that nothing is called yet: ``base`` where that is a name, else n, with a number where it is taken."""
    taken = scope.program.module.symbols.keys() | scope.program.reserved.keys()
    base = base if base.isidentifier() else "n"
    name, number = base, 0
    while name in taken:
        number += 1
        name = f"{base}{number}"
    return name

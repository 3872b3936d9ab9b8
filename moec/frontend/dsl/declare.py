"""Lowering of declarations: sizes left open, groups of ranks, inputs and weights."""

from __future__ import annotations

from moec.frontend.dsl import tree as t
from moec.frontend.dsl.expr import emit, tensor_or_number
from moec.frontend.dsl.report import Span
from moec.frontend.dsl.scope import LayerWeight, Scope
from moec.frontend.dsl.types import note_spelling, resolve
from moec.frontend.dsl.values import UNKNOWN, Item, is_dim, kind_of
from moec.ir.graph import Value
from moec.ir.group import Group, Shard
from moec.ir.symbol import Dim, bounds, sym
from moec.ir.types import TensorType

MAX_SIZE = 2**31
"""Sizes that a file leaves open stay below it."""

_OWN_NAME = 'give it another: weight NAME: TYPE = "name"'


def dim(statement: t.Dim, scope: Scope) -> None:
    """``dim T in [1, 8192] = 4096``."""
    _symbol(statement.at, statement.name, (statement.low, statement.high), statement.tune, scope, 0)
    scope.define(t.Name(statement.at, statement.name), sym(statement.name), "dimension")


def group(statement: t.Group, scope: Scope) -> None:
    """``group tp = 8``, ``group ep in [1, 64] = 32 over tp``."""
    at, name = statement.at, statement.name
    size: Dim | None
    if statement.low is None or statement.high is None:
        size = _integer(statement.size, scope, largest=False)
        if size is not None and not 1 <= size < MAX_SIZE:
            size = None
            scope.wrong(at, f"group {name} has no ranks", "give a size of 1 or more")
    else:
        _symbol(at, name, (statement.low, statement.high), statement.size, scope, 1)
        size = sym(name)
    stride: Dim | None = 1
    if statement.over is not None:
        inner = scope.find(statement.over.text)
        if inner is None or not isinstance(inner.item, Group):
            scope.wrong(
                statement.over.at, f"'{statement.over.text}' is no group", "declare it before: group NAME = SIZE"
            )
            stride = None
        else:
            inner.read = True
            stride = inner.item.extent
    group = UNKNOWN if size is None or stride is None else Group(name, size, stride)
    scope.define(t.Name(at, name), group, "group")


def _symbol(at: Span, name: str, ends: tuple[t.Expr, t.Expr], tune: t.Expr | None, scope: Scope, least: int) -> None:
    """Take in a size left open, with its bounds and the size to tune for."""
    low, high = _integer(ends[0], scope, largest=False), _integer(ends[1], scope, largest=True)
    size = None if tune is None else _integer(tune, scope, largest=False)
    if low is not None and high is not None:
        if not least <= low <= high < MAX_SIZE:
            scope.wrong(at, f"[{low}, {high}] are no bounds of {name}", f"give {least} <= low <= high < 2**31")
        elif size is not None and not low <= size <= high:
            scope.wrong(at, f"{name} = {size} is outside its bounds [{low}, {high}]", "give a size within them")
        scope.program.module.symbols.setdefault(name, (low, high))
    if size is not None:
        scope.program.tune.setdefault(name, size)


def _integer(expr: t.Expr, scope: Scope, largest: bool) -> int | None:
    """The integer that an expression is; where ``largest``, the upper bound of a dimension left open will do."""
    item = tensor_or_number(expr, scope)
    if largest and is_dim(item):
        item = bounds(item, scope.program.module.symbols)[1]
    if isinstance(item, int) and not isinstance(item, bool):
        return item
    if item is not UNKNOWN:
        scope.wrong(expr.at, f"an integer is wanted, not {kind_of(item)}")
    return None


def input_(statement: t.Input, scope: Scope) -> None:
    """``input x: bf16[T, H] sharded(tp, axis = 0)``."""
    for declared in statement.items:
        type_ = resolve(declared.type, scope)
        value: Item = UNKNOWN
        if type_ is not None:
            value = scope.graph.add_input(declared.name, type_)
            note_spelling(declared.type, value, scope)
            shards = _shards(declared.shardings, type_, scope)
            if shards:
                scope.program.module.shards[declared.name] = shards
        scope.define(t.Name(declared.at, declared.name), value, "input")


def weight(statement: t.Weight, scope: Scope) -> None:
    """``weight w: bf16[F, H] = "mlp.w"``, of the file or of the layer that it stands in."""
    for declared in statement.items:
        type_ = resolve(declared.type, scope)
        value: Item = UNKNOWN
        if type_ is not None and type_.shape is not None:
            shards = _shards(declared.shardings, type_, scope)
            if scope.kind == "layer":
                found = declare_weight(LayerWeight(declared.stored, type_, shards), declared.at, _OWN_NAME, scope)
                value = UNKNOWN if found is None else found
            else:
                attrs = {"name": declared.stored, "dtype": type_.dtype, "shape": type_.shape}
                value = emit("weight", [], attrs, declared.at, scope)
                if shards:
                    scope.program.module.shards[declared.stored] = shards
                scope.program.stored.setdefault(declared.stored, declared.at.line)
            if isinstance(value, Value):
                note_spelling(declared.type, value, scope)
        scope.define(t.Name(declared.at, declared.name), value, "weight")


def declare_weight(weight: LayerWeight, at: Span, todo: str, scope: Scope) -> Value | None:
    """A weight of ``main``, or a parameter of the layer that hands it on; None where its name is taken, as reported."""
    taken = scope.program.stored if scope.kind == "main" else {w.name: 0 for w in scope.weights}
    if weight.name in taken:
        line = f" of line {taken[weight.name]}" if taken[weight.name] else ""
        scope.wrong(at, f"there is another weight '{weight.name}'{line}", todo)
        return None
    if scope.kind == "layer":
        scope.weights.append(weight)
        return scope.graph.add_input(weight.name, weight.type)
    scope.program.stored[weight.name] = at.line
    if weight.shards:
        scope.program.module.shards[weight.name] = weight.shards
    attrs = {"name": weight.name, "dtype": weight.type.dtype, "shape": weight.type.shape}
    value = emit("weight", [], attrs, at, scope)
    if not isinstance(value, Value):
        return None
    value.name = weight.name
    return value


def _shards(shardings: tuple[t.Sharding, ...], type_: TensorType, scope: Scope) -> tuple[Shard, ...]:
    """How a declared tensor is a part of a whole; what is wrong in that is reported and left out."""
    found: list[Shard] = []
    for sharding in shardings:
        shard = _shard(sharding, type_, scope)
        if shard is not None and any(shard.group == s.group or shard.axis == s.axis for s in found):
            scope.wrong(sharding.at, "a group or an axis stands twice", "cut along each axis over one group")
        elif shard is not None:
            found.append(shard)
    return tuple(found)


def _shard(sharding: t.Sharding, type_: TensorType, scope: Scope) -> Shard | None:
    found = scope.find(sharding.group.text)
    axis = _integer(sharding.axis, scope, largest=False)
    if found is None or not isinstance(found.item, Group):
        scope.wrong(sharding.group.at, f"'{sharding.group.text}' is no group", "declare it: group NAME = SIZE")
        return None
    found.read = True
    if axis is None:
        return None
    if not -type_.rank <= axis < type_.rank:
        scope.wrong(sharding.at, f"axis {axis} of a tensor of rank {type_.rank}", "give one of its dimensions")
        return None
    return Shard(found.item, axis % type_.rank)

"""Layers: functions with weights. Each layer in a file has weights of its own, which the call passes as operands, so
that equal layers are one IR function called many times.

A weight's name in files of numbers is the layer's own beginning (by default its name), its number where there are
several, and the name that the weight has in the layer: ``model.layers.3.mlp.up``. The beginning may be "": the weights
then stand beside those of the layer around.
"""

from __future__ import annotations

from moec.frontend.dsl import tree as t
from moec.frontend.dsl.declare import declare_weight
from moec.frontend.dsl.expr import tensor_or_number
from moec.frontend.dsl.functions import Arguments, insert_call, instance, placed_arguments
from moec.frontend.dsl.report import Span
from moec.frontend.dsl.scope import Instance, LayerWeight, Scope
from moec.frontend.dsl.values import UNKNOWN, Item, Results, counted, kind_of
from moec.ir.graph import Value

MAX_LAYERS = 10_000
"""Layers of one call."""

MAX_WEIGHTS = 20_000
"""Weights of the layers of a file, and of one layer."""

_NAMES = 'give each layer a name of its own: NAME["name"](...), or call them as several: NAME[2](...)'


def call_layer(layer: t.Fn, expr: t.Call, given: Arguments, scope: Scope) -> Item:
    """The results of one layer, or of several in a row, each with weights of its own."""
    if scope.kind not in ("main", "layer"):
        what = "a host block" if scope.kind == "host" else "a function"
        return scope.wrong(expr.at, f"{what} has no weights, so it has no layers", "call the layer outside")
    numbers = _numbers(expr, scope)
    items = placed_arguments(layer, expr, given, scope)
    if numbers is None or items is None:
        return UNKNOWN
    beginning, numbered = numbers
    fed: Item = UNKNOWN
    for i, number in enumerate(numbered):
        if not scope.counted(expr.at):
            return UNKNOWN
        if i and not _feed(layer, expr, items, fed, scope):
            return UNKNOWN
        made = instance(layer, expr, items, scope)
        if made is None:
            return UNKNOWN
        own = ".".join(filter(None, (layer.stored if beginning is None else beginning, number)))
        weights = _weights(own + "." if own else "", made, expr.at, scope)
        if weights is None:
            return UNKNOWN
        fed = insert_call(made, expr, items, weights, scope)
        if fed is UNKNOWN:
            return UNKNOWN
    return fed


def _numbers(expr: t.Call, scope: Scope) -> tuple[str | None, list[str]] | None:
    """How the names of the weights begin (where the call says), and the number of each layer in the row, as text.

    ``[61]`` is 61 layers, ``[3:61]`` those with the numbers 3 to 60, ``["name"]`` one of another name, and
    ``["name", 3:61]`` both.
    """
    parts = list(expr.instances)
    beginning: str | None = None
    numbered = [""]
    first = parts[0] if parts else None
    if isinstance(first, t.Literal) and isinstance(first.value, str):
        beginning = first.value
        parts.pop(0)
    if parts:
        bounds = _range(parts.pop(0), expr.at, scope)
        if bounds is None:
            return None
        if not 0 <= bounds[0] < bounds[1]:
            scope.wrong(expr.at, f"there are no layers {bounds[0]}:{bounds[1]}", "give numbers from 0 that rise")
            return None
        if bounds[1] - bounds[0] > MAX_LAYERS:
            scope.wrong(expr.at, f"{bounds[1] - bounds[0]} layers in a row", f"give at most {MAX_LAYERS}")
            return None
        numbered = [str(i) for i in range(*bounds)]
    if parts:
        scope.wrong(expr.at, "more than a name and a number of layers", f'write {expr.fn}["name", 3:61](...)')
        return None
    return beginning, numbered


def _range(part: t.Expr | t.Part | t.Rest, at: Span, scope: Scope) -> tuple[int, int] | None:
    if isinstance(part, t.Rest) or (isinstance(part, t.Part) and part.step is not None):
        scope.wrong(part.at, "layers are counted (61) or numbered (3:61)")
        return None
    if not isinstance(part, t.Part):
        count = _integer(part, scope)
        return None if count is None else (0, count)
    start = 0 if part.start is None else _integer(part.start, scope)
    stop = _integer(part.stop, scope) if part.stop is not None else None
    if part.stop is None:
        scope.wrong(at, "the number of layers is not said", "write 3:61 for layers 3 to 60")
    return None if start is None or stop is None else (start, stop)


def _integer(expr: t.Expr, scope: Scope) -> int | None:
    item = tensor_or_number(expr, scope)
    if isinstance(item, int) and not isinstance(item, bool):
        return item
    if item is not UNKNOWN:
        scope.wrong(expr.at, f"layers are counted with integers, not {kind_of(item)}")
    return None


def _feed(layer: t.Fn, expr: t.Call, items: dict[str, Item], fed: Item, scope: Scope) -> bool:
    """Give the results of one layer to the next as its first tensors; False where they are not such, as reported."""
    results = fed.values if isinstance(fed, Results) else (fed,)
    names = [n for n, item in items.items() if isinstance(item, Value)]
    if len(results) > len(names):
        what = f"{counted(len(results), 'result')}, but {counted(len(names), 'tensor')} to feed to the next"
        scope.wrong(expr.at, f"{layer.name} has {what}", "give it a parameter for each result")
        return False
    for name, value in zip(names, results, strict=False):
        if value.type != items[name].type:
            was = scope.show(items[name])
            todo = "what layers in a row pass on keeps its type"
            scope.wrong(expr.at, f"{layer.name} takes '{name}' as {was} and gives {scope.show(value)}", todo)
            return False
        items[name] = value
    return True


def _weights(beginning: str, made: Instance, at: Span, scope: Scope) -> list[Value] | None:
    """The operands for the weights of one layer; None where one cannot be, as reported."""
    there = len(scope.weights if scope.kind == "layer" else scope.program.stored)
    if there + len(made.weights) > MAX_WEIGHTS:
        scope.wrong(at, f"these layers have more than {MAX_WEIGHTS} weights", "write fewer layers inside one another")
        return None
    values = [
        declare_weight(LayerWeight(beginning + w.name, w.type, w.shards), at, _NAMES, scope) for w in made.weights
    ]
    found = [v for v in values if v is not None]
    return found if len(found) == len(values) else None

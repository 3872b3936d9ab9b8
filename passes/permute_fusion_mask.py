"""Tokens selected by a routing map: the positions of a map's true elements, expert by expert, are the choices sorted.

A routing map [T, E] is true where a token chose an expert. Each token chose K different experts, so the map has T*K
true elements: the size that only a run would tell is known. Transposed and taken apart by ``nonzero`` they come
expert by expert, and within one in the order of tokens; so do the T*K choices sorted by a stable sort.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from moec.ir.data import ArrayData
from moec.ir.graph import Graph, Module, Node, Value, merged_origin
from moec.ir.symbol import Dim, Expr, substitute, symbols_of
from moec.ir.types import I64
from moec.ops.build import Builder
from moec.passes.base import Result
from moec.passes.region import erase_dead
from moec.rewrite.match import splat_value

NAME = "masked-select-of-choices"
VIEWS = ("cast", "reshape")


def sort_for_masks(module: Module, result: Result) -> None:
    """Replace each ``nonzero`` of a transposed routing map by the choices sorted, and its size by T*K."""
    for graph in module.functions.values():
        for node in list(graph):
            if node.op == "nonzero" and node.graph is graph:
                found = _choices(node)
                if isinstance(found, str):
                    if found:
                        result.miss(NAME, found, [node], graph)
                    continue
                _replace(node, found, graph, module, result)


def _replace(node: Node, experts: Value, graph: Graph, module: Module, result: Result) -> None:
    tokens, k = experts.type.dims
    count = node.attrs["count"]
    origin = merged_origin([node], NAME)
    b = Builder(graph, node, origin)
    flat = b.reshape(experts if experts.type.dtype is I64 else b.cast(experts, to=I64), shape=(tokens * k,))
    order = b.argsort(flat, axis=0, descending=False)
    assert isinstance(k, int)
    token = order if k == 1 else b.div(order, b.constant(value=ArrayData(np.array(k, np.int64), I64)))
    rows = [b.reshape(v, shape=(1, tokens * k)) for v in (b.gather(flat, order, axis=0), token)]
    both = b.concat(*rows, axis=0)
    both.name = node.result.name
    node.result.replace_with(both)
    erase_dead(graph, node)
    if isinstance(count, Expr):
        _substitute(module, {str(count): tokens * k})
    result.apply(NAME, origin, graph)


def _choices(node: Node) -> Value | str:
    """The choices [T, K] whose transposed map ``nonzero`` takes apart; or why they are not, empty where nothing is
    near.
    """
    turned = _through(node.operand(0))
    if turned.producer is None or turned.producer.op != "transpose" or turned.producer.attrs["perm"] != (1, 0):
        return ""
    count = node.attrs["count"]
    table = _through(turned.producer.operand(0)).producer
    if table is None:
        return ""
    if table.op == "scatter_elements":
        experts, wide = table.operand(1), table.result.type.dims[1]
        if table.attrs["axis"] != 1 or not _is(table.operand(2), True) or not _is(table.operand(0), False):
            return "the map is not made by setting what was chosen"
    elif table.op in ("reduce_sum", "reduce_max") and table.attrs["axes"] == (1,) and not table.attrs["keepdims"]:
        hot = _through(table.operand(0)).producer
        if hot is None or hot.op != "one_hot" or hot.attrs["axis"] != 2:
            return ""
        experts, wide = hot.operand(0), table.result.type.dims[1]
    else:
        return ""
    if not _distinct(experts, wide):
        return "a token's choices may be equal, so that the size is not known"
    if isinstance(count, Expr) and not str(count).isidentifier():
        return f"the size {count} is no symbol of its own"
    if experts.type.rank != 2 or not isinstance(experts.type.dims[1], int):
        return "how many experts a token chooses is not a number"
    return experts


def _through(value: Value) -> Value:
    """What a value is a cast of."""
    while value.producer is not None and value.producer.op == "cast":
        value = value.producer.operand(0)
    return value


def _is(value: Value, wanted: bool) -> bool:
    """Whether all elements are 1 or true, or 0 or false."""
    while value.producer is not None and value.producer.op in ("expand", "cast", "reshape"):
        value = value.producer.operand(0)
    node = value.producer
    if node is not None and node.op == "weight" and node.attrs["data"] is not None:
        data = node.attrs["data"].numpy()
        return bool(data.size) and bool((data == wanted).all())
    number = splat_value(value)
    return number is not None and number == wanted


def _distinct(experts: Value, wide: Dim) -> bool:
    """Whether each row holds different indices below ``wide``."""
    value = _through(experts)
    node = value.producer
    if node is None:
        return False
    if node.op == "topk":
        return value.index == 1 and node.attrs["axis"] == 1 and node.operand(0).type.dims[1] == wide
    return node.op == "gating" and value.index == 1 and node.operand(0).type.dims[1] == wide


def _substitute(module: Module, sizes: Mapping[str, Dim]) -> None:
    """Put numbers or expressions in the place of symbols, in the whole module."""
    for graph in module.functions.values():
        values = [*graph.inputs, *(v for n in graph for v in n.results)]
        for v in values:
            if v.type.shape is not None and any(s in sizes for d in v.type.shape for s in symbols_of(d)):
                v.type = v.type.with_shape(tuple(substitute(d, sizes) for d in v.type.shape))
        for node in graph:
            node.attrs = {name: _sized(value, sizes) for name, value in node.attrs.items()}
    for name in sizes:
        module.symbols.pop(name, None)


def _sized(value: Any, sizes: Mapping[str, Dim]) -> Any:
    if isinstance(value, Expr):
        return substitute(value, sizes)
    return tuple(_sized(v, sizes) for v in value) if isinstance(value, tuple) else value

"""Running a single ONNX operator by the onnx reference evaluator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

Array = np.ndarray


def _there(x: Any) -> Any:
    if x is None:
        raise ValueError("the optional value is empty")
    return x


_OPTIONAL: dict[str, Callable[[Any], Any]] = {
    "Optional": lambda x: x,
    "OptionalHasElement": lambda x: np.array(x is not None),
    "OptionalGetElement": _there,
}
"""Operators on optional values, which the reference evaluator does not run on one that is empty."""


def outer_names(node: onnx.NodeProto) -> list[str]:
    """The names that a node reads: its inputs, and what its subgraphs read from outside; each once, in order."""
    found = dict.fromkeys(n for n in node.input if n)
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else list(attribute.graphs):
            found.update(dict.fromkeys(captured(graph)))
    return list(found)


def captured(graph: onnx.GraphProto) -> list[str]:
    """The names that a subgraph reads and does not define."""
    defined = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    found: dict[str, None] = {}
    for node in graph.node:
        found.update(dict.fromkeys(n for n in outer_names(node) if n not in defined))
        defined.update(node.output)
    found.update(dict.fromkeys(v.name for v in graph.output if v.name not in defined))
    return list(found)


def run_foreign(xs: Sequence[Array | None], domain: str, type: str, version: int, proto: bytes) -> tuple[Any, ...]:
    """The outputs of the serialised node on the values of the names that it reads; ValueError where it cannot run.

    An optional value that is not there is None.
    """
    node = onnx.NodeProto.FromString(proto)
    if not domain and type in _OPTIONAL:
        return (_OPTIONAL[type](xs[0] if xs else None),)
    names = outer_names(node)
    values = {n: x for n, x in zip(names, xs, strict=True) if x is not None}
    outputs = [n for n in node.output if n]
    anything = [helper.make_value_info(n, onnx.TypeProto()) for n in (*names, *outputs)]
    graph = helper.make_graph([node], "foreign", anything[: len(names)], anything[len(names) :])
    opsets = [helper.make_opsetid(domain, version)] + ([helper.make_opsetid("", 21)] if domain else [])
    try:
        with np.errstate(all="ignore"):
            found = ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets)).run(None, values)
    except Exception as error:
        raise ValueError(f"the onnx reference evaluator cannot run {domain or 'ai.onnx'}.{type}: {error}") from error
    return tuple(a.astype(object) if isinstance(a, np.ndarray) and a.dtype.kind in "US" else a for a in found)

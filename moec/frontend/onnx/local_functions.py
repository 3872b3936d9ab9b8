"""Local functions of a model: how many nodes they come to where each call is replaced by what it calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import onnx

Key = tuple[str, str]
"""Domain and name."""


def inlined_nodes(model: onnx.ModelProto) -> int:
    """The nodes of the model with every call of a local function written out. Functions that call themselves count as
    nothing: the inliner refuses them.
    """
    functions = {(f.domain, f.name): f for f in model.functions}
    own: dict[Key, Counter[Key]] = {key: _operators(f.node) for key, f in functions.items()}
    callers: dict[Key, list[Key]] = {key: [] for key in functions}
    waiting: dict[Key, int] = {}
    for key, operators in own.items():
        called = [k for k in operators if k in functions]
        waiting[key] = len(called)
        for k in called:
            callers[k].append(key)
    sizes: dict[Key, int] = {}
    ready = [key for key, count in waiting.items() if not count]
    while ready:
        key = ready.pop()
        sizes[key] = sum(count * sizes.get(k, 1) for k, count in own[key].items())
        for caller in callers[key]:
            waiting[caller] -= 1
            if not waiting[caller]:
                ready.append(caller)
    return sum(count * sizes.get(k, 1) for k, count in _operators(model.graph.node).items())


def _operators(nodes: Iterable[onnx.NodeProto]) -> Counter[Key]:
    """How many nodes there are of each operator, those of subgraphs included."""
    found: Counter[Key] = Counter()
    todo = [list(nodes)]
    while todo:
        for node in todo.pop():
            found[node.domain, node.op_type] += 1
            for attribute in node.attribute:
                todo += [list(g.node) for g in ([attribute.g] if attribute.HasField("g") else attribute.graphs)]
    return found

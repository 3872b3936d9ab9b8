"""Types and names of what a graph takes and gives."""

from __future__ import annotations

import onnx
from onnx import helper

from moec.frontend.onnx_export.names import rename
from moec.frontend.onnx_export.scope import Scope
from moec.ir.graph import Graph
from moec.ir.types import F32, TensorType


def value_info(name: str, type_: TensorType) -> onnx.ValueInfoProto:
    """An input or output with its type; a sequence is one of f32 tensors, as layer IR does not say of what."""
    if type_.dtype.name == "seq":
        element = helper.make_tensor_type_proto(F32.onnx, None)
        return helper.make_value_info(name, helper.make_sequence_type_proto(element))
    dims = None if type_.shape is None else [d if isinstance(d, int) else str(d) for d in type_.shape]
    return helper.make_tensor_value_info(name, type_.dtype.onnx, dims)


def name_outputs(scope: Scope, graph: Graph, names: list[str]) -> list[str]:
    """Give the outputs their names: what makes one writes it under that name, or an Identity where it cannot."""
    inputs = {scope.names[v] for v in graph.inputs}
    made_here = {o for n in scope.nodes for o in n.output}
    changed: dict[str, str] = {}
    copies: list[tuple[str, str]] = []
    found: list[str] = []
    for v, name in zip(graph.outputs, names, strict=True):
        held = scope.names[v]
        final = name if name not in inputs or name == held else scope.fresh(name)
        found.append(final)
        if held in inputs or held in changed or held not in made_here:
            copies += [(held, final)] if held != final else []
        else:
            changed[held] = final
    for position, n in enumerate(scope.nodes):
        if position in scope.holders:
            rename(n, changed)
            continue
        for field in (n.input, n.output):
            for i, name in enumerate(field):
                if name in changed:
                    field[i] = changed[name]
    for held, final in copies:
        scope.nodes.append(helper.make_node("Identity", [changed.get(held, held)], [final], final))
    return found

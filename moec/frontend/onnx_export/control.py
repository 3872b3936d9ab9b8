"""Branches and loops: functions of the module become subgraphs, their captures the names outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx
from onnx import helper

from moec.frontend.onnx_export.outputs import name_outputs, value_info
from moec.frontend.onnx_export.scope import Scope
from moec.ir.graph import Graph, Module, Node

WriteNodes = Callable[[Graph, Scope], None]
"""Writes every node of a graph into a scope."""


class Control:
    """Writes ``if``, ``loop`` and ``scan`` of a module; ``write`` writes the bodies' nodes."""

    def __init__(self, module: Module, write: WriteNodes):
        self.module, self.write = module, write

    def __call__(self, scope: Scope, node: Node, operands: list[str]) -> list[str]:
        """Append the node; its results' names."""
        return {"if": self._if, "loop": self._loop, "scan": self._scan}[node.op](scope, node, operands)

    def _if(self, scope: Scope, node: Node, operands: list[str]) -> list[str]:
        cond, *captures = operands
        then, otherwise = (self._body(scope, node.attrs[n], captures, 0) for n in ("then", "otherwise"))
        return scope.node("If", [cond], len(node.results), then_branch=then, else_branch=otherwise)

    def _loop(self, scope: Scope, node: Node, operands: list[str]) -> list[str]:
        states = node.attrs["states"]
        trips, cond, *values = operands
        body = self._body(scope, node.attrs["body"], values[states:], 2 + states)
        return scope.node("Loop", [trips, cond, *values[:states]], len(node.results), body=body)

    def _scan(self, scope: Scope, node: Node, operands: list[str]) -> list[str]:
        a = node.attrs
        given = a["states"] + a["scans"]
        body = self._body(scope, a["body"], operands[given:], given)
        flags = {
            "scan_input_axes": a["input_axes"],
            "scan_input_directions": a["input_backward"],
            "scan_output_axes": a["output_axes"],
            "scan_output_directions": a["output_backward"],
        }
        written: dict[str, Any] = {n: list(v) for n, v in flags.items() if v}
        return scope.node("Scan", operands[:given], len(node.results), body=body, num_scan_inputs=a["scans"], **written)

    def _body(self, scope: Scope, name: str, captures: Sequence[str], formal: int) -> onnx.GraphProto:
        """The function as a subgraph of ``formal`` inputs; the rest of its inputs are names outside."""
        graph = self.module.functions[name]
        own, taken = graph.inputs[:formal], graph.inputs[formal:]
        inner = scope.inside(own)
        for v in own:
            inner.define(v, inner.fresh(v.name))
        for v, outer in zip(taken, captures, strict=True):
            inner.define(v, outer)
        self.write(graph, inner)
        reserved = [inner.fresh(o) for o in graph.output_names]
        outputs = name_outputs(inner, graph, reserved)
        return helper.make_graph(
            inner.nodes,
            scope.fresh(name),
            [value_info(inner.names[v], v.type) for v in own],
            [value_info(o, v.type) for o, v in zip(outputs, graph.outputs, strict=True)],
        )

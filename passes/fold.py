"""Constant folding: what can be known at compile time is computed by the ops' own references."""

from __future__ import annotations

import numpy as np

from moec.diagnostics import Refusal
from moec.eval import Evaluator
from moec.ir.attrs import UnreadData
from moec.ir.data import ArrayData, DerivedData, TensorData, derive
from moec.ir.graph import Graph, Module, Node, Value, merged_origin
from moec.ir.types import TensorType
from moec.ops.build import make_node
from moec.ops.registry import opdef
from moec.passes.base import Context, Pass, Result, register_pass
from moec.passes.effects import EFFECT_TRAITS, called

_LAYOUT = ("transpose", "reshape", "slice", "concat")


@register_pass
class Fold(Pass):
    """Replace nodes over constants by constants of at most ``max_elements`` elements, and lay weights out at compile
    time.

    Numbers come only from the references that define the ops. A transpose, reshape, slice or concat of weights that
    nobody else reads becomes a weight whose contents are derived when they are written, so no weight is read here. A
    node that cannot be evaluated stays, with the reason.
    """

    name = "fold"
    max_elements: int = 4096
    weights: bool = True

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        evaluator = Evaluator(module, {}, False)
        names = {n.attrs["name"] for n in module.nodes() if n.op == "weight"}
        for graph in module.functions.values():
            for node in graph:
                if self.weights and node.op in _LAYOUT and _weights_of(node):
                    self.lay_out(node, graph, names, result)
                elif self.is_constant(node):
                    self.fold(node, graph, evaluator, result)
        return result

    def is_constant(self, node: Node) -> bool:
        """Whether all operands are constants and the results are small and of known size; or the node gives known
        sizes.
        """
        traits = opdef(node.op).traits
        if "source" in traits:
            return node.op == "dims" and all(isinstance(d, int) for d in node.attrs["values"])
        if called(node) or traits & EFFECT_TRAITS or not node.operands:
            return False
        if any(v is not None and (v.producer is None or v.producer.op != "constant") for v in node.operands):
            return False
        return all(self.small(v.type) for v in node.results)

    def small(self, type_: TensorType) -> bool:
        """Whether the tensor's size is known and within the limit."""
        if type_.shape is None or not all(isinstance(d, int) for d in type_.shape):
            return False
        count = type_.numel()
        return isinstance(count, int) and count <= self.max_elements

    @staticmethod
    def fold(node: Node, graph: Graph, evaluator: Evaluator, result: Result) -> None:
        """Evaluate the node and put constants in its place."""
        arrays = [None if v is None else _numbers(v) for v in node.operands]
        try:
            found = evaluator.node(node, arrays, {})
        except Refusal as refused:
            result.miss("fold", refused.problems[0].what, [node], graph)
            return
        origin = merged_origin([node, *(v.producer for v in node.operands if v is not None and v.producer)], "fold")
        for old, array in zip(node.results, found, strict=True):
            data = ArrayData(np.ascontiguousarray(array).reshape(array.shape), old.type.dtype)
            made = graph.insert(make_node("constant", [], {"value": data}, origin), node)
            made.result.name = old.name
            old.replace_with(made.result)
        graph.erase(node)
        result.apply(f"constant {node.op}", origin, graph)

    @staticmethod
    def lay_out(node: Node, graph: Graph, names: set[str], result: Result) -> None:
        """Put a weight with derived contents in the place of a layout op on weights."""
        parts = _weights_of(node)
        data = _derived(node, [w.attrs["data"] for w in parts])
        if data is None:
            return
        name = stem = f"{parts[0].attrs['name']}.{node.op}"
        count = 1
        while name in names:
            count += 1
            name = f"{stem}{count}"
        names.add(name)
        attrs = {"name": name, "dtype": data.dtype, "shape": data.shape, "data": data}
        origin = merged_origin([node], "fold")
        made = graph.insert(make_node("weight", [], attrs, origin), node)
        made.result.name = node.result.name
        node.result.replace_with(made.result)
        graph.erase(node)
        for part in parts:
            if part.graph is not None:
                graph.erase(part)
        result.apply(f"weight {node.op}", origin, graph)


def _numbers(constant: Value) -> np.ndarray:
    assert constant.producer is not None
    return constant.producer.attrs["value"].numpy()


def _weights_of(node: Node) -> list[Node]:
    """The weights that ``node`` reads, if it reads nothing else and nobody else reads them and their contents are at
    hand.
    """
    parts = [v.producer for v in node.operands if v is not None]
    found = [w for w in parts if w is not None and w.op == "weight" and readable(w.attrs["data"])]
    if len(found) != len(parts) or any(len(w.result.uses) > 1 for w in found):
        return []
    return found


def readable(data: TensorData | None) -> bool:
    """Whether the numbers can be had: not those of a text that was read without its side file."""
    if isinstance(data, DerivedData):
        return all(map(readable, data.parts))
    return data is not None and not isinstance(data, UnreadData)


def _derived(node: Node, parts: list[TensorData]) -> TensorData | None:
    """The contents of a layout op's result; None where its sizes are not numbers."""
    if any(not isinstance(d, int) for d in node.result.type.dims):
        return None
    if node.op == "transpose":
        return derive("transpose", parts, perm=node.attrs["perm"])
    if node.op == "reshape":
        return derive("reshape", parts, shape=node.attrs["shape"])
    if node.op == "concat":
        return derive("concat", parts, axis=node.attrs["axis"])
    return derive("slice", parts, **node.attrs)

"""The state of one import and the view of one node that a handler gets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper

from moec.frontend.onnx.errors import NoForm
from moec.frontend.onnx.facts import Facts
from moec.frontend.onnx.kept import Kept
from moec.frontend.onnx.order import NodeView, label
from moec.frontend.onnx.shape_eval import LIMIT, Content
from moec.frontend.onnx.tensors import onnx_dtype
from moec.ir.data import ArrayData, TensorData, derive
from moec.ir.graph import Graph, Module, Node, Origin, Source, Value
from moec.ir.symbol import Dim, Expr, Shape
from moec.ir.types import I64, U8, DType, TensorType, dtype_of
from moec.ops.build import make_node
from moec.ops.registry import opdef

if TYPE_CHECKING:
    from moec.frontend.onnx.graph_import import GraphImporter

UNROLLED_NODES, ALL_UNROLLED_NODES = 20_000, 200_000
"""A loop is unrolled where its steps times its nodes come to no more than this, and all loops to no more than that."""

MAX_BODIES = 5
"""Bodies of branches and loops inside one another."""

_EXACT = ("int", "uint", "bool")
"""Kinds of dtype whose elements may be sizes."""


class Tensor:
    """What an ONNX name stands for.

    A value of the IR, or contents that become one when something reads them as data.
    """

    __slots__ = ("type", "value", "data", "_content", "name", "parts")

    def __init__(
        self,
        type: TensorType,
        value: Value | None = None,
        data: TensorData | None = None,
        content: Content | None = None,
        name: str = "",
        parts: list[Tensor] | None = None,
    ):
        self.type, self.value, self.data, self._content, self.name = type, value, data, content, name
        self.parts = parts
        """The elements of a sequence."""

    @property
    def content(self) -> Content | None:
        """Its elements, where it is a small integer tensor known at import."""
        if (
            self._content is None
            and self.data is not None
            and self.data.size <= LIMIT
            and self.type.dtype.kind in _EXACT
        ):
            items = np.empty(self.data.shape, dtype=object)
            items[...] = self.data.numpy().tolist()
            self._content = Content(items, self.type.dtype)
        return self._content


class Unrolled:
    """The nodes that loops of one import have been unrolled to: loops inside one another multiply."""

    def __init__(self) -> None:
        self.nodes = 0

    def takes(self, graph: onnx.GraphProto, steps: int) -> bool:
        """Whether ``steps`` copies of a body are few enough to write out; they are then counted."""
        total = steps * _nodes(graph)
        if total > UNROLLED_NODES or self.nodes + total > ALL_UNROLLED_NODES:
            return False
        self.nodes += total
        return True


def _nodes(graph: onnx.GraphProto) -> int:
    """The nodes of a graph and of the subgraphs in it."""
    inner = (a.g for n in graph.node for a in n.attribute if a.HasField("g"))
    return len(graph.node) + sum(map(_nodes, inner))


class Context:
    """One graph being imported: the values made so far, symbols, and the constants shared by content."""

    def __init__(
        self,
        module: Module,
        graph: Graph,
        file: str,
        opsets: dict[str, int],
        folder: Path | None,
        outer: Context | None = None,
    ):
        self.module, self.graph, self.file, self.opsets, self.folder = module, graph, file, opsets, folder
        self.facts: Facts = Facts(module.symbols) if outer is None else outer.facts
        self.kept: Kept = Kept() if outer is None else outer.kept
        self.unrolled: Unrolled = Unrolled() if outer is None else outer.unrolled
        self.bodies: dict[str, int] = {} if outer is None else outer.bodies
        """The number of the last body of each name."""
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.constants: dict[Any, Value] = {}
        self.current: NodeView | None = None
        """The node being imported."""
        self._origin: tuple[NodeView | None, Origin] = (None, Origin())

    @property
    def origin(self) -> Origin:
        """The provenance of what is made now: made once a node, and only for one that leaves something."""
        node, origin = self._origin
        if node is not self.current and self.current is not None:
            origin = Origin((Source(self.file, self.current.index, label(self.current.proto)),))
            self._origin = (self.current, origin)
        return origin

    def emit(self, op: str, operands: Sequence[Value | None], attrs: dict[str, Any]) -> Node:
        """Append a node; ValueError where it does not type-check."""
        return self.graph.insert(make_node(op, list(operands), attrs, self.origin), None)

    def state(
        self, op: str, operands: Sequence[Value | None], attrs: dict[str, Any], types: Sequence[TensorType]
    ) -> list[Value]:
        """Append a node whose results' types are stated, not inferred; its results."""
        return self.graph.append(op, operands, attrs, types, self.origin).results

    def discard(self, mark: Node | None) -> None:
        """Take out the nodes after ``mark`` that nobody reads; constants stay, as others may share them."""
        node = self.graph.last
        while node is not None and node is not mark:
            before = node.prev
            if "source" not in opdef(node.op).traits and not any(v.uses for v in node.results):
                self.graph.erase(node)
            node = before

    def body(self, name: str) -> Context:
        """The state of importing a subgraph into a function of its own, called ``name`` or the like."""
        if self.depth >= MAX_BODIES:
            raise NoForm(f"branches and loops are nested deeper than {MAX_BODIES}")
        unique, number = name, self.bodies.get(name, 0)
        while unique in self.module.functions:
            number += 1
            unique = f"{name}_{number}"
        self.bodies[name] = number
        return Context(self.module, self.module.add(Graph(unique)), self.file, self.opsets, self.folder, self)

    def value_of(self, tensor: Tensor) -> Value:
        """The tensor as a value of the IR; contents become a node the first time."""
        if tensor.value is None:
            if tensor.data is not None:
                tensor.value = self._of_data(tensor.data, tensor.name)
            else:
                content = tensor.content
                tensor.value = self._of_parts(tensor) if content is None else self.of_content(content)
        return tensor.value

    def _of_parts(self, tensor: Tensor) -> Value:
        """A sequence as a value that exists when the model runs."""
        parts = [self.value_of(t) for t in tensor.parts or []]
        names = [f"part{i}" for i in range(len(parts))]
        proto = helper.make_node("SequenceConstruct" if parts else "SequenceEmpty", names, ["sequence"])
        packed = ArrayData(np.frombuffer(proto.SerializeToString(deterministic=True), np.uint8), U8)
        attrs = {"domain": "", "type": proto.op_type, "version": 11, "proto": packed}
        return self.state("opaque", parts, attrs, [tensor.type.with_shape(None)])[0]

    def _of_data(self, data: TensorData, name: str) -> Value:
        if data.dtype.is_float and data.shape:
            attrs = {"name": name, "data": data, "dtype": data.dtype, "shape": data.shape}
            return self.emit("weight", [], attrs).result
        if data.size > LIMIT:
            return self.emit("constant", [], {"value": data}).result
        key = (data.dtype.name, data.key, data.shape)
        if key not in self.constants:
            self.constants[key] = self.emit("constant", [], {"value": data}).result
        return self.constants[key]

    def of_content(self, content: Content) -> Value:
        """A value with these elements: a constant, or a ``dims`` node where symbols are among them."""
        items = content.items
        if content.is_static:
            array = np.array(items.tolist(), content.dtype.carrier).reshape(items.shape)
            return self._of_data(ArrayData(array, content.dtype), "")
        key = (content.dtype.name, items.shape, tuple(items.flat))
        if key not in self.constants:
            scalar = items.ndim == 0
            value = self.emit("dims", [], {"values": tuple(items.flat), "scalar": scalar}).result
            if items.ndim > 1:
                value = self.emit("reshape", [value], {"shape": items.shape}).result
            if content.dtype is not I64:
                value = self.emit("cast", [value], {"to": content.dtype}).result
            self.constants[key] = value
        return self.constants[key]

    def scalar(self, number: Any, dtype: DType) -> Value:
        """A constant of rank 0."""
        return self._of_data(ArrayData(np.array(number, dtype.carrier), dtype), "")

    def array(self, array: np.ndarray) -> Value:
        """A constant with these elements."""
        return self.emit("constant", [], {"value": ArrayData(array, dtype_of(array))}).result


class Op:
    """One ONNX node as its handler sees it: inputs by position, attributes by name, and the means to make IR nodes."""

    __slots__ = ("context", "node", "inputs", "attrs", "opset", "importer")

    def __init__(
        self,
        context: Context,
        node: NodeView,
        inputs: list[Tensor | None],
        attrs: dict[str, Any],
        opset: int,
        importer: GraphImporter,
    ):
        self.context, self.node, self.inputs, self.attrs, self.opset = context, node, inputs, attrs, opset
        self.importer = importer
        """The import of the graph that the node stands in; for the subgraphs of branches and loops."""

    def tensor(self, index: int) -> Tensor:
        """Input ``index``, which must be there."""
        found = self.inputs[index] if index < len(self.inputs) else None
        if found is None:
            raise ValueError(f"input {index} is missing")
        return found

    def has(self, index: int) -> bool:
        """Whether optional input ``index`` is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def value(self, index: int) -> Value:
        """Input ``index`` as a value of the IR."""
        return self.context.value_of(self.tensor(index))

    def shape(self, index: int) -> Shape:
        """The shape of input ``index``; ValueError where its rank is unknown."""
        return self.tensor(index).type.dims

    def dtype(self, index: int) -> DType:
        return self.tensor(index).type.dtype

    def dims(self, index: int, what: str) -> list[Dim]:
        """The elements of input ``index``, which must be known at import; ``what`` they are, for the message."""
        tensor = self.tensor(index)
        if tensor.content is None:
            made_by = tensor.value.producer if tensor.value is not None else None
            where = f": it is computed from data by {made_by.op} ({made_by.origin})" if made_by is not None else ""
            raise NoForm(f"{what} (input {index}) is not known before the model runs{where}")
        return tensor.content.dims()

    def ints(self, index: int, what: str) -> list[int]:
        """The elements of input ``index``, which must be numbers."""
        numbers = self.dims(index, what)
        if any(isinstance(d, Expr) for d in numbers):
            raise NoForm(f"{what} (input {index}) must be numbers, got {numbers}")
        return [int(d) for d in numbers if not isinstance(d, Expr)]

    def numbers(self, index: int, what: str) -> np.ndarray:
        """The contents of input ``index``, which must be a constant of any dtype."""
        tensor = self.tensor(index)
        data = tensor.data if tensor.value is None or tensor.data is not None else _data_of(tensor.value)
        if data is None:
            known = tensor.content
            if known is None or not known.is_static:
                raise NoForm(f"{what} (input {index}) must be a constant")
            return np.array(known.items.tolist(), known.dtype.carrier).reshape(known.items.shape)
        return data.numpy()

    def emit(self, op: str, *operands: Value | None, **attrs: Any) -> Value:
        """Append a node and return its first result."""
        return self.context.emit(op, operands, attrs).results[0]

    def emit_all(self, op: str, *operands: Value | None, **attrs: Any) -> list[Value]:
        """Append a node and return all its results."""
        return self.context.emit(op, operands, attrs).results

    def attr(self, name: str, default: Any) -> Any:
        return self.attrs.get(name, default)

    def axis(self, rank: int, default: int | None = None, name: str = "axis") -> int:
        """The attribute as a non-negative axis of a tensor of ``rank`` dimensions."""
        found = self.attrs.get(name, default)
        if found is None:
            raise ValueError(f"attribute '{name}' is missing")
        return normal_axis(found, rank)

    def dtype_attr(self, name: str, default: int) -> DType:
        return onnx_dtype(self.attrs.get(name, default))


def _data_of(value: Value) -> TensorData | None:
    """The contents of a value that is a constant, a weight or a reshape of one."""
    node = value.producer
    if node is None or node.op not in ("constant", "weight", "reshape"):
        return None
    if node.op != "reshape":
        found: TensorData | None = node.attrs["value" if node.op == "constant" else "data"]
        return found
    inner = _data_of(node.operand(0))
    numbers = [d for d in node.attrs["shape"] if isinstance(d, int)]
    return (
        None if inner is None or len(numbers) < len(node.attrs["shape"]) else derive("reshape", [inner], shape=numbers)
    )


def normal_axis(axis: int, rank: int) -> int:
    """``axis`` counted from the front; ValueError where outside the rank."""
    if not -rank <= axis < max(rank, 1):
        raise ValueError(f"axis {axis} is outside rank {rank}")
    return axis + rank if axis < 0 else axis


def axes_of(op: Op, rank: int, position: int = 1) -> list[int] | None:
    """Axes from input ``position`` or the attribute, non-negative and ascending; None where neither is given."""
    if op.has(position):
        axes = op.ints(position, "axes")
    elif "axes" in op.attrs:
        axes = op.attrs["axes"]
    else:
        return None
    found = sorted(normal_axis(a, rank) for a in axes)
    if len(set(found)) != len(found):
        raise ValueError(f"axes {axes} name one axis twice")
    return found

"""One ONNX graph or function body being written: names, constants, and sizes computed from what is there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from moec.frontend.onnx_export.external import External
from moec.frontend.onnx_export.names import GRAPH, GRAPHS
from moec.frontend.onnx_export.tensors import tensor_proto
from moec.ir.data import ArrayData, TensorData
from moec.ir.graph import Value
from moec.ir.symbol import Call, Dim, Expr, Shape, evaluate, exact_div, symbols_of
from moec.ir.types import I64, TensorType

DOMAIN = "moec"
"""The domain of model-local functions."""

_DIM_OPS = {"min": "Min", "max": "Max"}


class Scope:
    """Nodes in order, unique names, and for each symbol the tensor and axis that have it as a size."""

    def __init__(self, is_function: bool):
        self.is_function = is_function
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.names: dict[Value, str] = {}
        self.missing: dict[str, str] = {}
        """Symbols that nothing in a function body has as a size, with the names of the inputs that must bring them."""
        self.doc = ""
        self.holders: set[int] = set()
        """Positions of the nodes that have subgraphs."""
        self.domains: dict[str, int] = {}
        """Versions of the domains that nodes are of, the standard one and moec's own aside."""
        self.external: External | None = None
        """What large contents are put into; None where they stay in the model."""
        self._taken: set[str] = set()
        self._counter: dict[str, int] = {}
        self._constants: dict[Any, str] = {}
        self._dims: dict[Dim, str] = {}
        self._shapes: dict[Shape, str] = {}
        self._sources: dict[str, tuple[str, int, Dim]] = {}

    def inside(self, inputs: Sequence[Value]) -> Scope:
        """The scope of a subgraph: what is known here is known there, but for sizes that its own ``inputs`` bring."""
        made = Scope(self.is_function)
        made.initializers, made.missing, made.domains = self.initializers, self.missing, self.domains
        made.external = self.external
        made._taken, made._counter = self._taken, self._counter
        made._constants = dict(self._constants) if self.is_function else self._constants
        own = {s for v in inputs for d in v.type.shape or () for s in symbols_of(d)}
        made._dims = {d: n for d, n in self._dims.items() if own.isdisjoint(symbols_of(d))}
        made._shapes = {k: n for k, n in self._shapes.items() if all(own.isdisjoint(symbols_of(d)) for d in k)}
        made._sources = {s: source for s, source in self._sources.items() if s not in own}
        made.names = dict(self.names)
        return made

    def append(self, node: onnx.NodeProto) -> None:
        """Append a node that was made elsewhere."""
        if self.doc:
            node.doc_string = self.doc
        if any(a.type in (GRAPH, GRAPHS) for a in node.attribute):
            self.holders.add(len(self.nodes))
        self.nodes.append(node)

    def fresh(self, stem: str) -> str:
        """A name that nothing else has."""
        stem = re.sub(r"\s", "_", stem) or "v"
        if stem not in self._taken:
            self._taken.add(stem)
            return stem
        number = self._counter.get(stem, 0)
        while f"{stem}_{number}" in self._taken:
            number += 1
        self._counter[stem] = number + 1
        self._taken.add(f"{stem}_{number}")
        return f"{stem}_{number}"

    def node(self, op: str, inputs: Sequence[str], count: int = 1, domain: str = "", **attrs: Any) -> list[str]:
        """Append a node; the names of its ``count`` outputs."""
        stem = op.lower()
        outputs = [self.fresh(stem) for _ in range(count)]
        self.append(helper.make_node(op, list(inputs), outputs, outputs[0], domain=domain, **attrs))
        return outputs

    def one(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Append a node with one output; its name."""
        return self.node(op, inputs, **attrs)[0]

    def constant(self, data: TensorData, stem: str = "constant") -> str:
        """The name of a tensor with these contents: one for all uses."""
        key = (data.dtype.name, data.shape, data.key)
        if key not in self._constants:
            self._constants[key] = self.held(data, self.fresh(stem))
        return self._constants[key]

    def held(self, data: TensorData, name: str) -> str:
        """Put these contents under ``name``: an initializer, or in a function a Constant node."""
        if self.external is not None and not self.is_function and self.external.takes(data):
            self.initializers.append(self.external.add(data, name))
            return name
        proto = tensor_proto(data, name)
        if self.is_function:
            self.nodes.append(helper.make_node("Constant", [], [name], name, value=proto))
        else:
            self.initializers.append(proto)
        return name

    def ints(self, *numbers: int) -> str:
        """An i64 vector constant."""
        return self.constant(ArrayData(np.array(numbers, np.int64)), "ints")

    def scalar(self, number: Any, like: TensorType) -> str:
        """A constant of rank 0 in ``like``'s dtype."""
        return self.constant(ArrayData(np.array(number, like.dtype.carrier), like.dtype), "scalar")

    def define(self, value: Value, name: str) -> None:
        """``value`` is the tensor ``name``; symbols that are its sizes can be computed from now on."""
        self.names[value] = name
        for axis, dim in enumerate(value.type.shape or ()):
            free = list(dict.fromkeys(symbols_of(dim)))
            if len(free) == 1 and free[0] not in self._sources and _slope(dim, free[0]) is not None:
                self._sources[free[0]] = (name, axis, dim)

    def bind(self, dim: Dim, name: str) -> None:
        """The integer tensor ``name`` holds the size ``dim``."""
        if dim not in self._dims:
            self._dims[dim] = self.one("Reshape", self.one("Cast", name, to=I64.onnx), self.ints(1))

    def __getitem__(self, value: Value) -> str:
        return self.names[value]

    def dim(self, dim: Dim) -> str:
        """The name of an i64[1] tensor that holds ``dim``."""
        if isinstance(dim, int):
            return self.ints(dim)
        if dim not in self._dims:
            total = None
            for mono, coeff in dim.terms:
                factors = [self._symbol(a) if isinstance(a, str) else self._call(a) for a in mono]
                if coeff != 1 or not factors:
                    factors.insert(0, self.ints(coeff))
                term = factors[0]
                for f in factors[1:]:
                    term = self.one("Mul", term, f)
                total = term if total is None else self.one("Add", total, term)
            assert total is not None
            self._dims[dim] = total
        return self._dims[dim]

    def _symbol(self, name: str) -> str:
        key = Expr((((name,), 1),))
        if key not in self._dims:
            source = self._sources.get(name)
            if source is None:
                self._dims[key] = self._brought(name)
            else:
                tensor, axis, dim = source
                size = self.one("Shape", tensor, start=axis, end=axis + 1)
                slope = _slope(dim, name)
                offset = evaluate(dim, {name: 0})
                if offset:
                    size = self.one("Sub", size, self.ints(offset))
                self._dims[key] = size if slope == 1 else self.one("Div", size, self.ints(slope or 1))
        return self._dims[key]

    def _brought(self, name: str) -> str:
        if not self.is_function:
            raise ValueError(f"the size {name} is no input's size, so it cannot be computed in ONNX")
        return self.missing.setdefault(name, self.fresh(f"size_{name}"))

    def _call(self, call: Call) -> str:
        a, b = self.dim(call.a), self.dim(call.b)
        if call.fn in _DIM_OPS:
            return self.one(_DIM_OPS[call.fn], a, b)
        if call.fn == "mod":
            return self.one("Mod", a, b)
        if call.fn == "ceildiv":
            a = self.one("Sub", self.one("Add", a, b), self.ints(1))
        return self.one("Div", a, b)

    def dims(self, dims: Sequence[Dim]) -> str:
        """The name of an i64[n] tensor that holds ``dims``."""
        shape = tuple(dims)
        if all(isinstance(d, int) for d in shape):
            return self.ints(*(d for d in shape if isinstance(d, int)))
        if shape not in self._shapes:
            parts = [self.dim(d) for d in shape]
            self._shapes[shape] = parts[0] if len(parts) == 1 else self.one("Concat", *parts, axis=0)
        return self._shapes[shape]


def _slope(dim: Dim, name: str) -> int | None:
    """k where ``dim`` is k * name + constant, None where it is something else."""
    if not isinstance(dim, Expr) or any(mono not in ((), (name,)) for mono, _ in dim.terms):
        return None
    slope = exact_div(dim - evaluate(dim, {name: 0}), Expr((((name,), 1),)))
    return slope if isinstance(slope, int) and slope > 0 else None

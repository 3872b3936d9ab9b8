"""Graph inputs: their types, with ONNX's dimension names as symbols."""

from __future__ import annotations

import re

import onnx

from moec.frontend.onnx.facts import Facts
from moec.frontend.onnx.tensors import onnx_dtype
from moec.ir.symbol import Dim, parse_dim, symbols_of
from moec.ir.types import DTYPES, TensorType

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*\Z")


class DimNames:
    """Symbols for ONNX dimension names: the same name is the same symbol; odd characters become underscores."""

    def __init__(self, facts: Facts):
        self.facts = facts
        self.symbols: dict[str, str] = {}

    def dim(self, dim: onnx.TensorShapeProto.Dimension, unnamed: str) -> Dim:
        """The dimension; ``unnamed`` is the name for one that has neither size nor name."""
        if dim.HasField("dim_value"):
            if dim.dim_value < 0:
                raise ValueError(f"negative dimension {dim.dim_value}")
            return int(dim.dim_value)
        if dim.dim_param.isdigit():
            return int(dim.dim_param)
        name = dim.dim_param or unnamed
        if name not in self.symbols:
            expression = self._expression(name)
            if expression is not None:
                return expression
            self.symbols[name] = self._unique(name)
        return self.facts.named(self.symbols[name])

    def _expression(self, name: str) -> Dim | None:
        """A name such as ``past + seq`` over names seen before is that sum."""
        if _IDENTIFIER.match(name):
            return None
        try:
            dim = parse_dim(name)
        except ValueError:
            return None
        used = list(symbols_of(dim))
        return dim if used and all(s in self.symbols for s in used) else None

    def _unique(self, name: str) -> str:
        stem = re.sub(r"\W", "_", name, flags=re.ASCII)
        stem = stem if _IDENTIFIER.match(stem) else f"_{stem}"
        taken = set(self.symbols.values())
        number, found = 1, stem
        while found in taken:
            number += 1
            found = f"{stem}_{number}"
        return found


def input_types(inputs: list[onnx.ValueInfoProto], facts: Facts) -> tuple[list[TensorType | None], list[str]]:
    """The type of each graph input and what is wrong with those that have none."""
    names = DimNames(facts)
    plain = [d for v in inputs for d in v.type.tensor_type.shape.dim if _IDENTIFIER.match(d.dim_param)]
    for d in plain:
        names.dim(d, "")
    types: list[TensorType | None] = []
    problems = []
    for v in inputs:
        try:
            types.append(_type(v, names))
        except ValueError as error:
            types.append(None)
            problems.append(f"input '{v.name}': {error}")
    return types, problems


def _type(info: onnx.ValueInfoProto, names: DimNames) -> TensorType:
    kind = info.type.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        return TensorType(DTYPES["seq"], None)
    if kind != "tensor_type":
        raise ValueError(f"it is a {kind or 'value without type'}, only tensors and sequences are supported")
    tensor = info.type.tensor_type
    element = onnx_dtype(tensor.elem_type)
    if not tensor.HasField("shape"):
        raise ValueError("it has no shape, not even a rank; export the model with input shapes")
    return TensorType(element, tuple(names.dim(d, f"{info.name}_{i}") for i, d in enumerate(tensor.shape.dim)))

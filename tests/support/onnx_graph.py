"""A raw ONNX graph for detectors that share nothing with moec: who makes a tensor, who reads it, constants."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

VIEWS = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Cast")
"""Ops behind which a tensor holds the numbers of its first input."""


class RawGraph:
    """The main graph of a model by position: ``ops``, ``inputs`` and ``outputs`` of each node as they stand in it."""

    def __init__(self, path: Path):
        graph = onnx.load(path).graph
        self.nodes = list(graph.node)
        self.ops = [n.op_type for n in self.nodes]
        self.inputs = [list(n.input) for n in self.nodes]
        self.outputs = [list(n.output) for n in self.nodes]
        self.results = {o.name for o in graph.output}
        self.made = {o: i for i, n in enumerate(self.nodes) for o in n.output if o}
        self.live = self._live()
        self.users: dict[str, list[int]] = {}
        for i in sorted(self.live):
            for name in dict.fromkeys(self.inputs[i]):
                self.users.setdefault(name, []).append(i)
        self.constants = {t.name: t for t in graph.initializer}
        for n in self.nodes:
            if n.op_type == "Constant" and n.attribute[0].name == "value":
                self.constants[n.output[0]] = n.attribute[0].t
        self.fed = {v.name for v in graph.input} - set(self.constants)
        self.ranks = {
            v.name: len(v.type.tensor_type.shape.dim)
            for v in (*graph.value_info, *graph.input, *graph.output)
            if v.type.tensor_type.HasField("shape")
        }
        self.shapes = {
            v.name: [d.dim_value if d.HasField("dim_value") else d.dim_param for d in v.type.tensor_type.shape.dim]
            for v in (*graph.value_info, *graph.input, *graph.output)
            if v.type.tensor_type.HasField("shape")
        }

    def _live(self) -> set[int]:
        """The nodes that the numbers of the results depend on: not those of which only sizes are read."""
        found: set[int] = set()
        todo = [self.made[n] for n in self.results if n in self.made]
        while todo:
            i = todo.pop()
            if i not in found:
                found.add(i)
                read = [] if self.ops[i] in ("Shape", "Size") else self.inputs[i]
                todo += [self.made[n] for n in read if n in self.made]
        return found

    def all(self, *ops: str) -> list[int]:
        """The nodes of these ops that results depend on, in order."""
        return [i for i, op in enumerate(self.ops) if op in ops and i in self.live]

    def maker(self, name: str, *ops: str) -> int | None:
        """The node that makes a tensor, if it is of one of ``ops`` (none given: any)."""
        i = self.made.get(name)
        return i if i is not None and (not ops or self.ops[i] in ops) else None

    def behind(self, name: str, through: Iterable[str] = VIEWS) -> str:
        """The tensor that ``name`` is a view of."""
        ops = tuple(through)
        while (i := self.maker(name, *ops)) is not None:
            name = self.inputs[i][0]
        return name

    def source(self, name: str, *ops: str, through: Iterable[str] = VIEWS) -> int | None:
        """The node of one of ``ops`` that makes what ``name`` is a view of."""
        return self.maker(self.behind(name, through), *ops)

    def readers(self, name: str, *ops: str, through: Iterable[str] = VIEWS) -> list[int]:
        """The nodes of ``ops`` (none given: all but views) that read a tensor, or a view of it, in order."""
        skip, found, todo = tuple(through), [], [name]
        while todo:
            for i in self.users.get(todo.pop(), []):
                if self.ops[i] in skip:
                    todo.extend(self.outputs[i])
                elif not ops or self.ops[i] in ops:
                    found.append(i)
        return sorted(set(found))

    def number(self, name: str) -> float | None:
        """The one number that all elements of a constant are, through views and expansions of it; None of others."""
        tensor = self.constants.get(self.behind(name, (*VIEWS, "Expand", "CastLike")))
        if tensor is None:
            return None
        data = numpy_helper.to_array(tensor)
        if not data.size or data.dtype.kind not in "fiub" or (data != data.flat[0]).any():
            return None
        return float(data.flat[0])

    def is_weight(self, name: str) -> bool:
        """Whether a tensor comes from constants alone, by views."""
        return self.behind(name) in self.constants

    def integers(self, name: str) -> list[int] | None:
        """The elements of a constant of integers."""
        tensor = self.constants.get(name)
        if tensor is None:
            return None
        data = numpy_helper.to_array(tensor)
        return [int(n) for n in np.ravel(data)] if data.dtype.kind in "iu" else None

    def attribute(self, node: int, name: str, default: int) -> int:
        """An integer attribute of a node."""
        return next((int(a.i) for a in self.nodes[node].attribute if a.name == name), default)

    def label(self, node: int) -> str:
        """Position, op and name of a node."""
        name = self.nodes[node].name or self.outputs[node][0]
        return f"{node} {self.ops[node]} {name}"

    def along_last(self, node: int) -> bool:
        """Whether a Concat, Split or Slice works along the last axis; a tensor whose rank the file does not say is
        taken for one of heads [B, N, S, D].
        """
        if self.ops[node] == "Slice":
            axes = self.integers(self.inputs[node][3]) if len(self.inputs[node]) > 3 else [0]
            axis = axes[0] if axes and len(axes) == 1 else None
        else:
            axis = self.attribute(node, "axis", 0)
        ranks = [self.ranks[n] for n in (*self.outputs[node], self.inputs[node][0]) if n in self.ranks]
        return axis == -1 or (axis is not None and axis == (ranks[0] if ranks else 4) - 1)

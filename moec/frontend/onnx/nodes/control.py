"""Branches and loops.

What is decided at import is taken apart: a branch whose condition is known becomes its body, a loop whose number of
steps is known is unrolled. The rest become ``if`` and ``loop`` with bodies as functions.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from moec.frontend.onnx.context import Context, Op, Tensor
from moec.frontend.onnx.errors import NoForm
from moec.frontend.onnx.graph_import import GraphImporter
from moec.frontend.onnx.nodes.broadcasting import reshaped
from moec.frontend.onnx.shape_eval import content
from moec.frontend.onnx.table import onnx_op
from moec.ir.graph import Value
from moec.ir.symbol import Dim
from moec.ir.types import BOOL, I64, TensorType

ROUNDS = 3
"""How often a loop's body is imported until the types of its states hold from one step to the next."""


def subgraph(op: Op, name: str) -> onnx.GraphProto:
    for attribute in op.node.proto.attribute:
        if attribute.name == name:
            return attribute.g
    raise ValueError(f"attribute '{name}' is missing")


def inline(op: Op, graph: onnx.GraphProto, given: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of a subgraph imported in place, its inputs standing for ``given``."""
    importer = GraphImporter(op.context, graph, op.importer)
    importer.tensors.update(zip((v.name for v in graph.input), given, strict=True))
    importer.run_nodes()
    found = importer.outputs()
    if len(found) < len(graph.output):
        raise ValueError("its body could not be imported")
    return found


class Body:
    """A subgraph imported as a function of its own: inputs of ``types``, then what it reads from outside."""

    def __init__(self, op: Op, graph: onnx.GraphProto, name: str, types: Sequence[TensorType]):
        context = op.context.body(name)
        self.op, self.graph, self.importer = op, context.graph, GraphImporter(context, graph, op.importer)
        for info, type_ in zip(graph.input, types, strict=True):
            self.importer.define_input(info.name, type_)
        self.importer.run_nodes()
        found = self.importer.outputs()
        if len(found) < len(graph.output):
            raise ValueError("its body could not be imported")
        self.values = [context.value_of(t) for t in found]
        self.formal = len(types)
        context.graph.set_outputs(self.values, [v.name for v in graph.output])

    @property
    def name(self) -> str:
        return self.graph.name

    def captures(self) -> dict[str, Value]:
        """What it reads from outside, by name."""
        context = self.op.context
        return {n: context.value_of(t) for n, t in self.importer.captures.items()}

    def take(self, names: Sequence[str]) -> None:
        """Give it exactly these captures, in this order."""
        formal, taken = self.graph.inputs[: self.formal], self.graph.inputs[self.formal :]
        by_name = dict(zip(self.importer.captures, taken, strict=True))
        self.graph.inputs = formal
        for n in names:
            if n in by_name:
                by_name[n].index = len(self.graph.inputs)
                self.graph.inputs.append(by_name[n])
            else:
                outer = self.op.importer.lookup(n)
                assert outer is not None
                self.graph.add_input(n, outer.type)

    def drop(self) -> None:
        """Take the function out again."""
        del self.op.context.module.functions[self.name]


def _common(context: Context, a: TensorType, b: TensorType) -> TensorType:
    """A type that holds both: equal dimensions stay, others become sizes that the run tells."""
    if a.dtype is not b.dtype:
        raise ValueError(f"{a} in one place and {b} in another")
    if a == b or a.shape is None:
        return a
    if b.shape is None or len(a.shape) != len(b.shape):
        return a.with_shape(None)
    dims: list[Dim] = [x if x == y else context.facts.fresh("s") for x, y in zip(a.shape, b.shape, strict=True)]
    return a.with_shape(tuple(dims))


@onnx_op("If", first=1, last=25)
def _if(op: Op) -> Sequence[Tensor | Value]:
    condition = op.tensor(0).content
    if condition is not None and condition.is_static:
        return inline(op, subgraph(op, "then_branch" if condition.items.ravel()[0] else "else_branch"), [])
    stem = f"if_{op.node.index}"
    then = Body(op, subgraph(op, "then_branch"), f"{stem}_then", [])
    otherwise = Body(op, subgraph(op, "else_branch"), f"{stem}_else", [])
    captures = {**then.captures(), **otherwise.captures()}
    then.take(list(captures))
    otherwise.take(list(captures))
    types = [_common(op.context, a.type, b.type) for a, b in zip(then.values, otherwise.values, strict=True)]
    attrs = {"then": then.name, "otherwise": otherwise.name}
    return op.context.state("if", [op.value(0), *captures.values()], attrs, types)


def _always_true(graph: onnx.GraphProto) -> bool:
    """Whether a loop body's condition output is its condition input, or constantly true."""
    made = {o: n for n in graph.node for o in n.output}
    constants = {t.name: t for t in graph.initializer}
    name = graph.output[0].name
    while name in made and made[name].op_type in ("Identity", "Cast"):
        name = made[name].input[0]
    if name in made and made[name].op_type == "Constant":
        values = [a.t for a in made[name].attribute if a.name == "value"]
        return bool(values) and bool(onnx.numpy_helper.to_array(values[0]).all())
    if name in constants:
        return bool(onnx.numpy_helper.to_array(constants[name]).all())
    return name == graph.input[1].name


def _true() -> Tensor:
    return Tensor(TensorType(BOOL, ()), content=content(True, BOOL))


def _step(i: int) -> Tensor:
    return Tensor(TensorType(I64, ()), content=content(i, I64))


def joined(op: Op, rows: Sequence[Tensor], axis: int, backward: bool) -> Value:
    """Rows stacked along a new dimension."""
    values = [op.context.value_of(t) for t in (reversed(rows) if backward else rows)]
    shaped = [reshaped(op, v, (*v.type.dims[:axis], 1, *v.type.dims[axis:])) for v in values]
    return shaped[0] if len(shaped) == 1 else op.emit("concat", *shaped, axis=axis)


@onnx_op("Loop", first=1, last=25)
def _loop(op: Op) -> Sequence[Tensor | Value]:
    graph = subgraph(op, "body")
    states = [op.tensor(i) for i in range(2, len(op.inputs))]
    trips = op.tensor(0).content if op.has(0) else None
    going = op.tensor(1).content if op.has(1) else None
    certain = not op.has(1) or (going is not None and going.is_static and bool(going.items.ravel()[0]))
    if trips is not None and trips.is_static and certain and _always_true(graph):
        count = int(trips.items.ravel()[0])
        if count > 0 and op.context.unrolled.takes(graph, count):
            return _unrolled(op, graph, states, count)
    return _rolled(op, graph, states)


def _unrolled(op: Op, graph: onnx.GraphProto, states: list[Tensor], count: int) -> Sequence[Tensor | Value]:
    rows: list[list[Tensor]] = []
    for i in range(count):
        _, *found = inline(op, graph, [_step(i), _true(), *states])
        states = found[: len(states)]
        rows.append(found[len(states) :])
    return [*states, *(joined(op, column, 0, False) for column in zip(*rows, strict=True))]


def _settled(
    op: Op, graph: onnx.GraphProto, lead: Sequence[TensorType], states: Sequence[TensorType], stem: str, skip: int
) -> Body:
    """The body imported with types of the states that each step keeps; its outputs start with ``skip`` others."""
    current = list(states)
    for _ in range(ROUNDS):
        body = Body(op, graph, stem, [*lead, *current])
        after = [v.type for v in body.values[skip : skip + len(current)]]
        common = [_common(op.context, a, b) for a, b in zip(current, after, strict=True)]
        if common == current or all(c.shape is None or c == a for c, a in zip(common, current, strict=True)):
            return body
        body.drop()
        current = [c if c == a else c.with_shape(None if _ else c.shape) for c, a in zip(common, current, strict=True)]
    raise NoForm("the shapes of what the loop carries change at each step")


def _rolled(op: Op, graph: onnx.GraphProto, states: list[Tensor]) -> Sequence[Value]:
    context = op.context
    values = [context.value_of(t) for t in states]
    lead = [TensorType(I64, ()), TensorType(BOOL, ())]
    body = _settled(op, graph, lead, [v.type for v in values], f"loop_{op.node.index}", 1)
    captures = body.captures()
    carried = [v.type for v in body.graph.inputs[2 : 2 + len(values)]]
    rows = [v.type for v in body.values[1 + len(values) :]]
    count = context.facts.fresh("steps")
    stacked = [t if t.shape is None else t.with_shape((count, *t.shape)) for t in rows]
    head = [op.value(i) if op.has(i) else None for i in (0, 1)]
    attrs = {"body": body.name, "states": len(values)}
    return context.state("loop", [*head, *values, *captures.values()], attrs, [*carried, *stacked])
